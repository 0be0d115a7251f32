  // ---- kinds of plots of a study: what was published is open, what was measured here is filled ---------------------------------------

  const PAPER = "paper";
  const named = (series, there) => axisName(series.name) + (there ? ` (${PAPER})` : "");
  const errors = (look, marks, of, colour) => ({
    type: "data", symmetric: false, thickness: 1.5, width: 4, color: colour,
    array: marks.map((mark) => (mark.high === null ? NaN : mark.high - mark[of])),
    arrayminus: marks.map((mark) => (mark.low === null ? NaN : mark[of] - mark.low)),
  });
  const texts = (marks) => marks.map((mark) => mark.text.split("\n").map(plain).join("<br>"));
  const both = (chart, pick) => chart.series.flatMap((series) => [...series.there, ...series.here]).map(pick);

  // A line of points, its values along the axis `of`.
  function points(look, series, there, of, more) {
    const marks = there ? series.there : series.here;
    const symbol = MARKERS[series.arm % MARKERS.length] + (there ? "-open" : "");
    return {
      type: "scatter", mode: marks.length > 1 ? "lines+markers" : "markers", name: named(series, there),
      x: marks.map((mark) => mark.x), y: marks.map((mark) => mark.y), ["error_" + of]: errors(look, marks, of, colour(look, series.arm)),
      line: { color: colour(look, series.arm), width: there ? 1.2 : 2, dash: there ? "dot" : "solid" },
      marker: { color: colour(look, series.arm), size: there ? 10 : 8, symbol, line: { width: there ? 2 : 0, color: colour(look, series.arm) } },
      text: texts(marks), hovertemplate: "%{text}<extra></extra>", ...more,
    };
  }

  const traces = (chart, draw) =>
    chart.series.flatMap((series) => [[false, series.here], [true, series.there]].filter(([, marks]) => marks.length > 0).map(([there]) => draw(series, there)));
  const legend = (drawn) => (narrow() ? 20 * drawn.length : 20 * Math.ceil(drawn.length / 4));

  // As many words as fit beside each other.
  function someTicks(ticks) {
    const longest = Math.max(...ticks.map(([, word]) => word.length));
    const most = Math.max(2, Math.floor((narrow() ? 35 : 100) / (longest + 2)));
    const every = Math.ceil(ticks.length / most);
    const shown = ticks.filter((_, at) => at % every === 0);
    return { tickvals: shown.map(([place]) => place), ticktext: shown.map(([, word]) => axisName(word)) };
  }

  function lines(look, index) {
    const chart = data.charts[index];
    const drawn = traces(chart, (series, there) => points(look, series, there, "y"));
    const values = chart.effects ? [] : both(chart, (mark) => mark.y);
    const places = [...new Set(both(chart, (mark) => mark.x))].sort((a, b) => a - b);
    const wide = places[0] > 0 && places[places.length - 1] > 8 * places[0];
    const across = chart.ticks.length > 0
      ? someTicks(chart.ticks)
      : chart.swept
      ? { type: wide ? "log" : "linear", tickvals: places, ticktext: places.map(String) }
      : wide ? logTicks(places) : { nticks: narrow() ? 5 : 8 };
    return {
      traces: drawn,
      height: 330 + legend(drawn),
      layout: {
        showlegend: true,
        xaxis: axis(look, { zeroline: false, ...across, title: { text: plain(chart.across), standoff: 8 } }),
        yaxis: valueAxis(look, values, { rangemode: "tozero", zeroline: chart.effects, title: { text: plain(chart.what), standoff: 8 } }),
      },
    };
  }

  function cdf(look, index) {
    const chart = data.charts[index];
    const drawn = traces(chart, (series, there) => points(look, series, there, "x"));
    const places = chart.ticks.map(([place]) => place);
    return {
      traces: drawn,
      height: 330 + legend(drawn),
      layout: {
        showlegend: true,
        xaxis: valueAxis(look, both(chart, (mark) => mark.x), { title: { text: plain(chart.across), standoff: 8 } }),
        yaxis: axis(look, { zeroline: false, tickvals: places, ticktext: chart.ticks.map(([, word]) => axisName(word)), title: { text: plain(chart.what), standoff: 8 } }),
      },
    };
  }

  // Bars lie where their names would not fit beside each other.
  function bars(look, index) {
    const chart = data.charts[index];
    const lying = chart.ticks.length > (narrow() ? 2 : 5);
    const drawn = traces(chart, (series, there) => {
      const marks = there ? series.there : series.here;
      const [places, values] = [marks.map((mark) => mark.x), marks.map((mark) => mark.y)];
      return {
        type: "bar", name: named(series, there), orientation: lying ? "h" : "v",
        x: lying ? values : places, y: lying ? places : values, [lying ? "error_x" : "error_y"]: errors(look, marks, "y", look.text),
        marker: {
          color: there ? look.page : colour(look, series.arm), line: { color: colour(look, series.arm), width: 2 },
          pattern: { shape: there ? "" : ["", "/", "x", ".", "\\", "-"][series.arm % 6], fillmode: "overlay", solidity: 0.25, fgcolor: look.page },
        },
        text: texts(marks), textposition: "none", hovertemplate: "%{text}<extra></extra>",
      };
    });
    const names = axis(look, {
      tickvals: chart.ticks.map(([place]) => place), ticktext: chart.ticks.map(([, word]) => axisName(word)), showgrid: false, zeroline: false,
      ...(lying ? { autorange: "reversed" } : {}),
    });
    const values = axis(look, { rangemode: "tozero", nticks: narrow() ? 5 : 8, title: { text: plain(chart.what), standoff: 8 } });
    return {
      traces: drawn,
      height: (lying ? 110 + chart.ticks.length * (12 + 14 * drawn.length) : 330) + legend(drawn),
      layout: { barmode: "group", showlegend: true, xaxis: lying ? values : names, yaxis: lying ? names : values },
    };
  }

  // Boxes as the paper on a day under load draws them: from the 5 % to the 95 % quantile, whiskers to the least and the most.
  function boxes(look, index) {
    const chart = data.charts[index];
    const drawn = traces(chart, (series, there) => {
      const marks = there ? series.there : series.here;
      const pick = (which) => marks.map((mark) => mark.five[which]);
      return {
        type: "box", orientation: "h", name: named(series, there), y: marks.map((mark) => mark.y + (there ? -0.2 : 0.2)), width: 0.3,
        lowerfence: pick(0), q1: pick(1), median: pick(2), q3: pick(3), upperfence: pick(4), whiskerwidth: 0.5, hoverinfo: "x+name",
        line: { color: colour(look, series.arm), width: 1.5 }, fillcolor: there ? "rgba(0,0,0,0)" : colour(look, series.arm) + "55",
      };
    });
    const places = chart.series.map((series) => series.arm);
    return {
      traces: drawn,
      height: 100 + 64 * places.length + legend(drawn),
      layout: {
        showlegend: true,
        xaxis: valueAxis(look, both(chart, (mark) => mark.five).flat(), { title: { text: plain(chart.across), standoff: 8 } }),
        yaxis: axis(look, { range: [Math.max(...places) + 0.6, Math.min(...places) - 0.6], tickvals: places, ticktext: chart.series.map((series) => axisName(series.name)), zeroline: false, showgrid: false }),
      },
    };
  }

  const AGREEMENTS = {
    same: { symbol: "square", word: "here: AGREES" },
    worse: { symbol: "triangle-right", word: "here: DIFFERS" },
    open: { symbol: "diamond", word: "here: UNDECIDED" },
    plain: { symbol: "circle", word: "here: nothing published" },
  };

  // Every overhead here beside the published one, on a scale of logarithms.
  function costs(look, index) {
    const chart = data.charts[index];
    const [series] = chart.series;
    const log = (mark) => ({ ...mark, x: Math.log1p(mark.x), low: mark.low === null ? null : Math.log1p(mark.low), high: mark.high === null ? null : Math.log1p(mark.high) });
    const fits = (mark) => [mark.x, mark.low ?? mark.x].every((value) => value > -1);
    const there = series.there.filter(fits).map(log);
    const here = series.here.filter(fits).map(log);
    const tones = { same: look.same, worse: look.worse, open: look.faint, plain: look.text };
    const one = (name, marks, symbol, shade, shift, open) => ({
      type: "scatter", mode: "markers", name, x: marks.map((mark) => mark.x), y: marks.map((mark) => mark.y + shift), showlegend: marks.length > 0,
      error_x: errors(look, marks, "x", shade), marker: { symbol: symbol + (open ? "-open" : ""), size: 10, color: shade, line: { width: 2, color: shade } },
      text: texts(marks), hovertemplate: "%{text}<extra></extra>",
    });
    const drawn = [one(PAPER, there, "circle", look.text, -0.16, true)];
    for (const [tone, { symbol, word }] of Object.entries(AGREEMENTS)) {
      drawn.push(one(word, here.filter((mark) => mark.tone === tone), symbol, tones[tone], 0.16, false));
    }
    const ends = [...there, ...here].flatMap((mark) => [mark.low ?? mark.x, mark.high ?? mark.x]);
    let [low, high] = [Math.min(-0.05, ...ends), Math.max(0.05, ...ends)];
    const pad = 0.04 * (high - low);
    [low, high] = [low - pad, high + pad];
    return {
      traces: drawn,
      height: 130 + 34 * chart.ticks.length + (narrow() ? 60 : 0),
      layout: {
        showlegend: true,
        xaxis: axis(look, { range: [low, high], ...percentTicks(low, high), zeroline: true, zerolinewidth: 2, title: { text: plain(chart.across), standoff: 8 } }),
        yaxis: axis(look, { range: [chart.ticks.length - 0.4, -0.6], tickvals: chart.ticks.map(([place]) => place), ticktext: chart.ticks.map(([, word]) => axisName(word)), showgrid: false, zeroline: false }),
      },
    };
  }

  const KINDS = {
    forest, box, trace, latency, charge, sweep, waterfall, among, isolation, five, course, sliceCosts, sliceRatios, lines, cdf, bars, boxes, costs,
  };
  const TOOLS = { forest: forestTools };

