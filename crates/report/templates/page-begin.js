"use strict";
// The script of a page, of which this is the begin, report.js or study.js the middle and page-end.js the end. The page is whole without it:
// it draws plots into the places that wait for them, and lets tables be sorted, filtered and copied. It fetches nothing. Everything that comes
// from a run is treated as text.

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const NARROW_PX = 600;
  // The width of a figure on paper, A4 or US letter.
  const PAPER_PX = 660;
  // More points than these are drawn as a line only, or in a box plot not one by one.
  const MANY_POINTS = 3000;
  // Colours after Okabe and Ito, lightened where the page is dark; markers and dashes differ as well.
  const SERIES = {
    light: ["#1a1c1e", "#b34f00", "#0b5cad", "#007a57", "#a3357a", "#7a5c00", "#3d6f8e", "#6b4bb0"],
    dark: ["#e6e8ea", "#ff9d4d", "#7cb8ff", "#3ecf9f", "#ef8cc6", "#e8c94b", "#9ccbe6", "#b79cff"],
  };
  const MARKERS = ["circle", "square", "diamond", "triangle-up", "cross", "star", "triangle-down", "hexagon"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const DARK = window.matchMedia("(prefers-color-scheme: dark)");
  const COARSE = window.matchMedia("(pointer: coarse)");

  // ---- words and numbers ----------------------------------------------------------------------------------------------------------

  // The plotting library takes text as markup.
  const plain = (text) =>
    String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\u00a0/g, " ");
  // Names on an axis must leave room for the plot.
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const narrow = () => root.clientWidth < NARROW_PX;
  const printing = () => root.dataset.print !== undefined;
  const axisName = (text) => plain(short(text, narrow() ? 18 : 44));

  function percent(fraction) {
    const value = fraction * 100;
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    const rounded = Math.abs(value).toFixed(digits);
    // Nothing is rounded to zero.
    const text = Number(rounded) === 0 && value !== 0 ? Number(Math.abs(value).toPrecision(1)) : rounded;
    return (value === 0 ? "" : value < 0 ? "−" : "+") + text + " %";
  }

  function seconds(value, digits = 3) {
    const [factor, unit] = value < 1e-6 ? [1e9, "ns"] : value < 1e-3 ? [1e6, "µs"] : value < 1 ? [1e3, "ms"] : [1, "s"];
    return Number((value * factor).toPrecision(digits)) + " " + unit;
  }

  // ---- how plots look -------------------------------------------------------------------------------------------------------------

  function theme() {
    const style = getComputedStyle(document.body);
    const variable = (name) => style.getPropertyValue("--" + name).trim();
    return {
      dark: DARK.matches && !printing(),
      page: variable("page"), text: variable("text"), faint: variable("faint"), line: variable("line"),
      band: variable("band"), worse: variable("worse"), better: variable("better"), same: variable("same"),
    };
  }

  const colour = (look, number) => SERIES[look.dark ? "dark" : "light"][number % 8];

  function axis(look, more) {
    return {
      gridcolor: look.line, zerolinecolor: look.faint, tickangle: 0, linecolor: look.line, automargin: true, fixedrange: COARSE.matches,
      ...more,
    };
  }

  function layout(look, more) {
    return {
      paper_bgcolor: look.page, plot_bgcolor: look.page,
      font: { family: "system-ui, 'DejaVu Sans', sans-serif", size: narrow() ? 11 : 12, color: look.text },
      margin: { l: 8, r: 12, t: 8, b: 40, pad: 4 },
      legend: { orientation: "h", yanchor: "bottom", y: 1.01, x: 0, bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: look.band, bordercolor: look.line, font: { color: look.text }, align: "left", namelength: -1 },
      hovermode: "closest", dragmode: COARSE.matches ? false : "zoom", showlegend: false,
      ...more,
    };
  }

  const CONFIG = { displayModeBar: false, displaylogo: false, responsive: false, showTips: false, plotlyServerURL: "" };

  // Whether the values differ by more than a factor of ten.
  const spread = (values) => {
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    return low > 0 && values.reduce((a, b) => Math.max(a, b), 0) > 10 * low;
  };

  // Ticks in equal steps of 1, 2 or 5 times a power of ten, and how many digits tell them apart.
  function evenTicks(low, high) {
    const rough = (high - low) / (narrow() ? 3 : 6);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const ticks = [];
    for (let at = Math.ceil(low / step); at * step <= high; at += 1) ticks.push(at * step);
    return { ticks, digits: Math.max(3, 1 + Math.ceil(Math.log10(high / step))) };
  }

  // Ticks of 1, 2 and 5 on a logarithmic axis, or of powers of ten alone where those would be too many, or in equal steps where values
  // lie so close together that those would be too few. `word` writes a number with so many digits.
  function logTicks(values, word = (value, digits) => String(Number(value.toPrecision(digits)))) {
    const known = values.filter((value) => value > 0);
    const low = known.reduce((a, b) => Math.min(a, b), Infinity);
    const high = known.reduce((a, b) => Math.max(a, b), 0);
    const decades = Math.log10(high / low);
    const steps = decades > (narrow() ? 1.5 : 3) ? [1] : decades > (narrow() ? 0.7 : 1.5) ? [1, 3] : [1, 2, 5];
    let [ticks, digits] = [[], 3];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const step of steps) ticks.push(Number((step * 10 ** power).toPrecision(3)));
    }
    const few = ticks.filter((tick) => tick >= low && tick <= high).length < 2;
    if (few && high > low) ({ ticks, digits } = evenTicks(low, high));
    return { type: "log", tickvals: ticks, ticktext: ticks.map((tick) => word(tick, digits)) };
  }

  // An axis of values, logarithmic where they differ by more than a factor of ten.
  const valueAxis = (look, values, more) =>
    axis(look, { zeroline: false, nticks: narrow() ? 5 : 8, ...(spread(values) ? logTicks(values) : {}), ...more });

  // Round per cents on a scale of logarithms, the roundest first, none too near to another.
  function percentTicks(low, high) {
    const wanted = [0];
    for (const base of [1, 5, 2]) {
      for (const power of [2, 3, 4, 1, 0, -1, -2]) {
        const value = base * 10 ** power;
        wanted.push(value);
        if (value < 100) wanted.push(-value);
      }
    }
    wanted.push(-90, -80, -99);
    const apart = (high - low) / (narrow() ? 4 : 10);
    const taken = [];
    for (const value of wanted) {
      const at = Math.log1p(value / 100);
      if (at >= low && at <= high && taken.every((other) => Math.abs(other.at - at) >= apart)) taken.push({ at, value });
    }
    taken.sort((a, b) => a.at - b.at);
    return {
      tickvals: taken.map((tick) => tick.at),
      ticktext: taken.map(({ value }) => (value > 0 ? "+" : value < 0 ? "−" : "") + Number(Math.abs(value).toPrecision(3)) + " %"),
    };
  }

