// The plots of a report. What is before and after it in the script of the page is in page-begin.js and page-end.js.
  // ---- kinds of plots: each gives traces, a layout and a height -------------------------------------------------------------------

  const environment = (number) => plain(data.environments[number] ?? "?");
  const VERDICTS = {
    worse: { symbol: "triangle-right", word: "costs more" },
    better: { symbol: "triangle-left", word: "costs less" },
    same: { symbol: "square", word: "within the margin" },
    open: { symbol: "circle-open", word: "not decided" },
    plain: { symbol: "line-ns-open", word: "no verdict" },
  };

  function toneColour(look, tone) {
    return { worse: look.worse, better: look.better, same: look.same, open: look.faint }[tone] ?? look.faint;
  }

  // Whether a number has a place on a scale of logarithms. An interval without an end there reaches the edge of the figure.
  const placed = (bound) => bound !== null && bound > -1;

  function forestRows() {
    const wanted = document.getElementById("forest-filter")?.value.trim().toLowerCase() ?? "";
    const all = document.getElementById("forest-all")?.checked ?? false;
    const rows = [];
    for (const table of data.tables) {
      for (const row of table.rows) {
        if (!row.effect) continue;
        const name = `${table.workload} ${table.metric}`;
        const where = data.environments[row.e];
        const text = `${name} ${where} ${row.verdict}`.toLowerCase();
        if ((all || table.primary || !data.tables.some((other) => other.primary)) && text.includes(wanted)) {
          rows.push({ name, where, row });
        }
      }
    }
    return rows;
  }

  function forest(look) {
    const all = forestRows();
    const rows = all.filter(({ row }) => placed(row.effect[0]));
    const lacking = all.length === rows.length ? "" : ` (${all.length - rows.length} not drawn: infinite, or −100 %)`;
    const several = new Set(rows.map(({ where }) => where)).size > 1;
    const bounds = rows.flatMap(({ row }) => row.effect).filter(placed).map(Math.log1p);
    const reach = Math.log1p(2 * data.margin);
    let [low, high] = [Math.min(-reach, ...bounds), Math.max(reach, ...bounds)];
    const pad = 0.04 * (high - low);
    [low, high] = [low - pad, high + pad];
    const traces = Object.entries(VERDICTS).map(([tone, { symbol, word }]) => {
      const own = rows.map((row, at) => ({ ...row, at })).filter(({ row }) => row.tone === tone);
      const at = ({ row }, which) => (placed(row.effect[which]) ? Math.log1p(row.effect[which]) : which === 1 ? low : high);
      return {
        type: "scatter", mode: "markers", name: word, showlegend: own.length > 0,
        x: own.map((one) => at(one, 0)), y: own.map(({ at }) => at),
        error_x: {
          type: "data", symmetric: false, thickness: 2, width: 4, color: toneColour(look, tone),
          array: own.map((one) => at(one, 2) - at(one, 0)), arrayminus: own.map((one) => at(one, 0) - at(one, 1)),
        },
        marker: { symbol, size: 11, color: toneColour(look, tone), line: { width: 2, color: toneColour(look, tone) } },
        text: own.map(({ name, where, row }) =>
          plain(`${where}: ${name}`) +
          `<br>${percent(row.effect[0])} [${row.effect.slice(1).map((bound) => (bound === null ? "no end" : percent(bound))).join(", ")}], n ${row.n}` +
          `<br>${plain(row.verdict || "descriptive, no verdict")}`),
        hovertemplate: "%{text}<extra></extra>",
      };
    });
    // The name of a metric stands once, above its environments.
    const label = ({ name, where }, at) => {
      const first = at === 0 || rows[at - 1].name !== name;
      if (!several) return axisName(name);
      return first ? `<b>${axisName(name)}</b><br>${axisName(where)}` : axisName(where);
    };
    const firsts = rows.map(({ name }, at) => at > 0 && rows[at - 1].name !== name);
    const lines = firsts.flatMap((first, at) => (first
      ? [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: at - 0.5, y1: at - 0.5, line: { color: look.line, width: 1 }, layer: "below" }]
      : []));
    const margin = Math.log1p(data.margin);
    return {
      traces,
      height: 110 + Math.max(2, rows.length) * (several ? 30 : 24),
      layout: {
        showlegend: true,
        xaxis: axis(look, {
          range: [low, high], ...percentTicks(low, high), zeroline: true, zerolinewidth: 2, side: "bottom",
          title: { text: (data.sequential ? "change of the cost" : "cost relative to " + environment(0) + ", less 1") + lacking, standoff: 8 },
        }),
        yaxis: axis(look, {
          range: [rows.length - 0.4, -0.6], tickvals: rows.map((_, at) => at), ticktext: rows.map(label), showgrid: false, zeroline: false,
        }),
        shapes: [
          { type: "rect", yref: "paper", y0: 0, y1: 1, x0: -margin, x1: margin, fillcolor: look.band, line: { width: 0 }, layer: "below" },
          ...lines,
        ],
      },
    };
  }

  function box(look, index) {
    const table = data.tables[index];
    const rows = table.rows.filter((row) => row.values.length > 0);
    const all = rows.flatMap((row) => row.values);
    const traces = rows.map((row) => ({
      type: "box", orientation: "h", name: axisName(data.environments[row.e]), x: row.values,
      y: row.values.map(() => row.e),
      boxpoints: all.length > MANY_POINTS ? "outliers" : "all", jitter: 0.6, pointpos: 0, whiskerwidth: 0.4,
      line: { color: colour(look, row.e), width: 1.5 }, fillcolor: "rgba(0,0,0,0)",
      marker: { color: colour(look, row.e), size: 5, opacity: 0.5, symbol: MARKERS[row.e % MARKERS.length] },
      text: row.values.map((_, at) => `block ${row.blocks?.[at] ?? at}`),
      hovertemplate: `${environment(row.e)}<br>%{text}: %{x} ${plain(table.unit)}<extra></extra>`,
    }));
    return {
      traces,
      height: 80 + rows.length * 48,
      layout: {
        xaxis: valueAxis(look, all, { title: { text: `${plain(table.unit || table.metric)}, ${plain(table.direction)}`, standoff: 8 } }),
        yaxis: axis(look, {
          autorange: "reversed", tickvals: rows.map((row) => row.e), ticktext: rows.map((row) => axisName(data.environments[row.e])), zeroline: false, showgrid: false,
        }),
      },
    };
  }

  function trace(look, index) {
    const table = data.tables[index];
    const rows = table.rows.filter((row) => row.values.length > 0);
    const marks = Object.hasOwn(data.marks, table.workload) ? data.marks[table.workload] : { voids: [], noise: {} };
    const all = rows.flatMap((row) => row.values);
    const block = (row, at) => row.blocks?.[at] ?? at;
    const traces = rows.map((row) => ({
      type: "scatter", mode: all.length > MANY_POINTS ? "lines" : "lines+markers", name: axisName(data.environments[row.e]),
      x: row.values.map((_, at) => block(row, at)), y: row.values,
      line: { color: colour(look, row.e), width: 1.5, dash: DASHES[row.e % DASHES.length] },
      marker: { color: colour(look, row.e), size: 5, symbol: MARKERS[row.e % MARKERS.length] },
      hovertemplate: `${environment(row.e)}<br>block %{x}: %{y} ${plain(table.unit)}<extra></extra>`,
    }));
    const noisy = { x: [], y: [], text: [] };
    for (const row of rows) {
      const blocks = new Set(marks.noise[row.e] ?? []);
      row.values.forEach((value, at) => {
        if (!blocks.has(block(row, at))) return;
        noisy.x.push(block(row, at));
        noisy.y.push(value);
        noisy.text.push(environment(row.e));
      });
    }
    if (noisy.x.length > 0) {
      traces.push({
        type: "scatter", mode: "markers", name: "noise on the host", ...noisy,
        marker: { symbol: "circle-open", size: 13, color: look.worse, line: { width: 2 } },
        hovertemplate: "%{text}<br>block %{x}: noise beyond the warning share<extra></extra>",
      });
    }
    const causes = new Map();
    for (const [at, cause] of marks.voids) causes.set(at, [...(causes.get(at) ?? []), cause]);
    if (causes.size > 0) {
      const ground = all.reduce((a, b) => Math.min(a, b), Infinity);
      traces.push({
        type: "scatter", mode: "markers", name: "void unit", x: [...causes.keys()], y: [...causes.keys()].map(() => ground),
        marker: { symbol: "x-thin", size: 9, color: look.worse, line: { width: 2, color: look.worse } },
        text: [...causes.values()].map((all) => plain([...new Set(all)].join(", ")) + (all.length > 1 ? `, ${all.length} times` : "")),
        hovertemplate: "block %{x} was void: %{text}<extra></extra>",
      });
    }
    return {
      traces,
      height: 320,
      layout: {
        showlegend: true,
        xaxis: axis(look, { title: { text: "block", standoff: 8 }, zeroline: false, rangemode: "nonnegative" }),
        yaxis: valueAxis(look, all, { title: { text: plain(table.unit || table.metric), standoff: 8 } }),
        shapes: [...causes.keys()].slice(0, 200).map((at) => ({
          type: "line", x0: at, x1: at, yref: "paper", y0: 0, y1: 1, line: { color: look.worse, width: 1, dash: "dot" }, layer: "below",
        })),
      },
    };
  }

  const QUANTILES = [[0.95, "5 %"], [0.5, "50 %"], [0.1, "90 %"], [0.01, "99 %"], [1e-3, "99.9 %"], [1e-4, "99.99 %"], [1e-5, "99.999 %"], [1e-6, "99.9999 %"]];

  function latency(look, index) {
    const plot = data.latencies[index];
    const traces = plot.rows.map((row) => ({
      type: "scatter", mode: "lines", name: axisName(data.environments[row.e]),
      x: row.curve.map(([, s]) => s), y: row.curve.map(([slower]) => -Math.log10(slower)),
      line: { color: colour(look, row.e), width: 2, dash: DASHES[row.e % DASHES.length] },
      text: row.curve.map(([slower, s]) => `${Number((100 * (1 - slower)).toPrecision(6))} % within ${seconds(s)}`),
      hovertemplate: `${environment(row.e)}<br>%{text}<extra></extra>`,
    }));
    return {
      traces,
      height: 340,
      layout: {
        showlegend: true,
        xaxis: axis(look, { ...logTicks(plot.rows.flatMap((row) => row.curve.map(([, s]) => s)), seconds), title: { text: "latency", standoff: 8 } }),
        yaxis: axis(look, {
          tickvals: QUANTILES.map(([slower]) => -Math.log10(slower)), ticktext: QUANTILES.map(([, word]) => word), zeroline: false,
          title: { text: "answered within", standoff: 8 },
        }),
      },
    };
  }

  function charge(look, index) {
    const plot = data.charges[index];
    const table = plot.table === null ? null : data.tables[plot.table];
    const stacked = narrow() || !table;
    const names = plot.rows.map(([e]) => e);
    const traces = plot.parts.map((part, at) => ({
      type: "bar", orientation: "h", name: plain(part), y: names, x: plot.rows.map(([, parts]) => parts[at]),
      xaxis: "x2", yaxis: stacked ? "y2" : "y",
      marker: { color: colour(look, at + 1), pattern: { shape: ["", "/", "x", ".", "\\", "-"][at % 6], fillmode: "overlay", solidity: 0.25, fgcolor: look.page } },
      hovertemplate: `%{x} ${plain(plot.unit)} by ${plain(part)}<extra></extra>`,
    }));
    if (table) {
      const rows = table.rows.filter((row) => row.values.length > 0 && names.includes(row.e));
      const middle = (row) => {
        const sorted = [...row.values].sort((a, b) => a - b);
        const half = sorted.length >> 1;
        return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
      };
      traces.push({
        type: "bar", orientation: "h", name: plain(table.metric), showlegend: false, y: rows.map((row) => row.e), x: rows.map(middle),
        marker: { color: look.faint }, hovertemplate: `%{x} ${plain(table.unit)}<extra></extra>`,
      });
    }
    const ticks = { tickvals: names, ticktext: names.map((e) => axisName(data.environments[e])), autorange: "reversed", zeroline: false, showgrid: false };
    const half = table ? (stacked ? { one: [0, 1], two: [0, 1] } : { one: [0, 0.46], two: [0.54, 1] }) : { one: [0, 0.01], two: [0, 1] };
    const each = 60 + names.length * 30;
    return {
      traces,
      height: 70 + (stacked && table ? 2 * each : each) + (narrow() ? 20 * plot.parts.length : 0),
      layout: {
        barmode: "stack", showlegend: true,
        xaxis: axis(look, {
          domain: half.one, anchor: "y", visible: table !== null, rangemode: "tozero", nticks: 5,
          title: { text: table ? `${plain(table.metric)}, ${plain(table.unit)}<br>${plain(table.direction)}` : "", standoff: 8 },
        }),
        xaxis2: axis(look, {
          domain: half.two, anchor: stacked ? "y2" : "y", rangemode: "tozero", nticks: 5,
          title: { text: `CPU time per ${plain(plot.operation)}, ${plain(plot.unit)}`, standoff: 8 },
        }),
        yaxis: axis(look, { ...ticks, visible: !(stacked && !table), domain: stacked && table ? [0.6, 1] : [0, 1] }),
        ...(stacked ? { yaxis2: axis(look, { ...ticks, anchor: "x2", domain: table ? [0, 0.38] : [0, 1] }) } : {}),
      },
    };
  }

  function sweep(look, index) {
    const plots = data.sweeps.flatMap((one) => one.metrics.map((metric) => ({ one, metric })));
    const { one, metric } = plots[index];
    const values = metric.rows.flatMap(([, points]) => points.filter(Boolean).map(([median]) => median));
    const traces = metric.rows.map(([e, points]) => {
      const known = points.map((point, at) => ({ point, x: one.x[at] })).filter(({ point }) => point);
      return {
        type: "scatter", mode: "lines+markers", name: axisName(data.environments[e]),
        x: known.map(({ x }) => x), y: known.map(({ point }) => point[0]),
        error_y: {
          type: "data", symmetric: false, thickness: 1, width: 3, color: colour(look, e),
          array: known.map(({ point }) => point[2] - point[0]), arrayminus: known.map(({ point }) => point[0] - point[1]),
        },
        line: { color: colour(look, e), width: 2, dash: DASHES[e % DASHES.length] },
        marker: { color: colour(look, e), size: 8, symbol: MARKERS[e % MARKERS.length] },
        hovertemplate: `${environment(e)}<br>${plain(one.parameter)} %{x}: %{y} ${plain(metric.unit)}<extra></extra>`,
      };
    });
    return {
      traces,
      height: 330,
      layout: {
        showlegend: true,
        xaxis: axis(look, {
          type: one.x[0] > 0 && one.x[one.x.length - 1] > 8 * one.x[0] ? "log" : "linear", tickvals: one.x, ticktext: one.at.map(plain),
          title: { text: plain(one.parameter), standoff: 8 }, zeroline: false,
        }),
        yaxis: valueAxis(look, values, { rangemode: "tozero", title: { text: `${plain(metric.name)}, ${plain(metric.unit)}`, standoff: 8 } }),
      },
    };
  }

  function waterfall(look, index) {
    const plot = data.starts[index];
    // In the order in which an environment reached them, whatever their order in others.
    const bars = plot.steps.map((step) => ({ step, y: [], x: [], base: [], text: [] }));
    for (const [e, times] of plot.rows) {
      let before = 0;
      const reached = times.map((time, at) => ({ time, at })).filter(({ time }) => time !== null).sort((a, b) => a.time - b.time);
      for (const { time, at } of reached) {
        bars[at].y.push(e);
        bars[at].base.push(before);
        bars[at].x.push(time - before);
        bars[at].text.push(`${environment(e)}<br>${bars[at].step} after ${Number(time.toPrecision(4))} ${plain(plot.unit)}`);
        before = time;
      }
    }
    return {
      traces: bars.map((bar, at) => ({
        // By itself the library makes bars as wide as the nearest two of a trace allow, and an environment may lack a step.
        type: "bar", orientation: "h", width: 0.8, name: bar.step, y: bar.y, x: bar.x, base: bar.base, text: bar.text, textposition: "none",
        marker: { color: colour(look, at + 1), pattern: { shape: ["", "/", "x", "."][at % 4], fillmode: "overlay", solidity: 0.25, fgcolor: look.page } },
        hovertemplate: "%{text}<extra></extra>",
      })),
      height: 110 + plot.rows.length * 34 + (narrow() ? 20 * plot.steps.length : 0),
      layout: {
        barmode: "overlay", showlegend: true,
        xaxis: axis(look, { title: { text: narrow() ? plain(plot.unit) : `${plain(plot.unit)} since the platform's first program began`, standoff: 8 }, rangemode: "tozero" }),
        yaxis: axis(look, {
          tickvals: plot.rows.map(([e]) => e), ticktext: plot.rows.map(([e]) => axisName(data.environments[e])), autorange: "reversed", zeroline: false, showgrid: false,
        }),
      },
    };
  }

  // Something against the number of guests, with intervals, and a dashed line to compare with.
  function among(look, index) {
    const plot = data.among[index];
    const guests = [...new Set(plot.rows.flatMap(([, points]) => points.map(([n]) => n)))].sort((a, b) => a - b);
    const part = !plot.what.startsWith("sum");
    const word = (value) => (part ? `${Number((100 * value).toPrecision(3))} %` : `×${Number(value.toPrecision(3))}`);
    const traces = plot.rows.map(([e, points]) => ({
      type: "scatter", mode: "lines+markers", name: axisName(data.environments[e]),
      x: [1, ...points.map(([n]) => n)], y: [1, ...points.map(([, [middle]]) => middle)],
      error_y: {
        type: "data", symmetric: false, thickness: 1, width: 3, color: colour(look, e),
        array: [0, ...points.map(([, [middle, , high]]) => high - middle)], arrayminus: [0, ...points.map(([, [middle, low]]) => middle - low)],
      },
      line: { color: colour(look, e), width: 2, dash: DASHES[e % DASHES.length] === "dash" ? "longdashdot" : DASHES[e % DASHES.length] },
      marker: { color: colour(look, e), size: 8, symbol: MARKERS[e % MARKERS.length] },
      text: ["alone", ...points.map(([n, [middle, low, high]]) => `${n} guests: ${word(middle)} [${word(low)}, ${word(high)}]`)],
      hovertemplate: `${environment(e)}<br>%{text}<extra></extra>`,
    }));
    if (plot.dashed) {
      traces.push({
        type: "scatter", mode: "lines", name: plain(plot.dashed), x: [1, ...plot.line.map(([n]) => n)], y: [1, ...plot.line.map(([, y]) => y)],
        line: { color: look.faint, width: 2, dash: "dash" }, hovertemplate: `${plain(plot.dashed)}<br>%{x} guests<extra></extra>`,
      });
    }
    const ticks = [1, ...guests.filter((n) => n > 1)];
    return {
      traces,
      height: 340 + (narrow() ? 16 * traces.length : 0),
      layout: {
        showlegend: true,
        xaxis: axis(look, {
          type: ticks[ticks.length - 1] > 8 ? "log" : "linear", tickvals: ticks, ticktext: ticks.map((n) => (n === 1 ? "alone" : String(n))),
          title: { text: "guests in all", standoff: 8 }, zeroline: false,
        }),
        yaxis: axis(look, {
          rangemode: "tozero", zeroline: false, tickformat: part ? ".0%" : undefined, tickprefix: part ? "" : "×", title: { text: plain(plot.what), standoff: 8 },
        }),
      },
    };
  }

  function isolation(look, index) {
    const plot = data.isolations[index];
    const losses = plot.rows.flatMap(([, cells]) => cells.filter(Boolean).map(([middle]) => 100 * middle));
    const traces = plot.rows.map(([e, cells]) => {
      const at = (pick) => plot.kinds.map((_, column) => (cells[column] ? pick(cells[column]) : null));
      return {
        type: "bar", name: axisName(data.environments[e]), x: plot.kinds.map((_, column) => column), y: at(([middle]) => 100 * middle),
        error_y: {
          type: "data", symmetric: false, thickness: 1.5, width: 4, color: look.text,
          array: at(([middle, , high]) => 100 * (high - middle)), arrayminus: at(([middle, low]) => 100 * (middle - low)),
        },
        marker: { color: colour(look, e), opacity: 0.8, pattern: { shape: ["", "/", "x", ".", "\\", "-"][e % 6], fillmode: "overlay", solidity: 0.25, fgcolor: look.page } },
        text: at(([middle, low, high]) => `${percent(middle)} [${percent(low)}, ${percent(high)}]`), textposition: "none",
        hovertemplate: `${environment(e)}<br>%{text}<extra></extra>`,
      };
    });
    return {
      traces,
      height: 330 + (narrow() ? 16 * traces.length : 0),
      layout: {
        barmode: "group", showlegend: true,
        xaxis: axis(look, { tickvals: plot.kinds.map((_, column) => column), ticktext: plot.kinds.map((kind) => axisName(kind)), showgrid: false, zeroline: false }),
        yaxis: axis(look, { ticksuffix: " %", nticks: narrow() ? 5 : 8, rangemode: losses.every((loss) => loss >= 0) ? "tozero" : "normal", title: { text: plain(plot.what), standoff: 8 } }),
      },
    };
  }

  // Boxes as the paper on a day under load draws them: from the 5 % to the 95 % quantile, whiskers to the least and the most.
  function five(look, index) {
    const plot = data.courses[index];
    const all = plot.rows.flatMap((row) => row.five);
    const traces = plot.rows.map((row) => ({
      type: "box", orientation: "h", name: axisName(data.environments[row.e]), y: [row.e],
      lowerfence: [row.five[0]], q1: [row.five[1]], median: [row.five[2]], q3: [row.five[3]], upperfence: [row.five[4]],
      line: { color: colour(look, row.e), width: 1.5 }, fillcolor: "rgba(0,0,0,0)", whiskerwidth: 0.5, hoverinfo: "x+name",
    }));
    return {
      traces,
      height: 90 + plot.rows.length * 48,
      layout: {
        xaxis: valueAxis(look, all, { title: { text: plain(plot.unit || plot.what), standoff: 8 } }),
        yaxis: axis(look, {
          autorange: "reversed", tickvals: plot.rows.map((row) => row.e), ticktext: plot.rows.map((row) => axisName(data.environments[row.e])), zeroline: false, showgrid: false,
        }),
      },
    };
  }

  function course(look, index) {
    const plot = data.courses[index];
    const all = plot.rows.flatMap((row) => row.values);
    const traces = plot.rows.map((row) => ({
      type: "scatter", mode: "lines", name: axisName(data.environments[row.e]), x: row.hours, y: row.values,
      line: { color: colour(look, row.e), width: 1.5, dash: DASHES[row.e % DASHES.length] },
      hovertemplate: `${environment(row.e)}<br>after %{x:.2f} h: %{y} ${plain(plot.unit)}<extra></extra>`,
    }));
    const changes = plot.rows.flatMap((row) => row.changes.map((hours) => ({ e: row.e, hours, value: row.values[row.hours.indexOf(hours)] })));
    if (changes.length > 0) {
      traces.push({
        type: "scatter", mode: "markers", name: "change", x: changes.map(({ hours }) => hours), y: changes.map(({ value }) => value),
        marker: { symbol: "diamond-open", size: 12, color: look.worse, line: { width: 2 } }, text: changes.map(({ e }) => environment(e)),
        hovertemplate: "%{text}<br>change after %{x:.2f} h<extra></extra>",
      });
    }
    return {
      traces,
      height: 340,
      layout: {
        showlegend: true,
        xaxis: axis(look, { title: { text: "hours since the first trial", standoff: 8 }, zeroline: false, rangemode: "nonnegative" }),
        yaxis: valueAxis(look, all, { title: { text: plain(plot.unit || plot.what), standoff: 8 } }),
        shapes: changes.slice(0, 200).map(({ e, hours }) => ({
          type: "line", x0: hours, x1: hours, yref: "paper", y0: 0, y1: 1, line: { color: colour(look, e), width: 1, dash: "dot" }, layer: "below",
        })),
      },
    };
  }

  // Steps over the windows of a unit in slices, on a scale of logarithms, of what `of` takes from an environment. Both figures of a
  // unit have one scale, so that what is flat in one of them is flat.
  function steps(look, { rows, windows }, of, title) {
    const logs = rows.flatMap(({ costs, ratios }) => [...costs, ...ratios]).map(Math.log);
    let [low, high] = [logs.reduce((a, b) => Math.min(a, b), 0), logs.reduce((a, b) => Math.max(a, b), 0)];
    const pad = 0.05 * Math.max(high - low, 1e-3);
    [low, high] = [low - pad, high + pad];
    const traces = rows.filter((row) => of(row).length > 0).map((row) => {
      // The last window ends where it began.
      const values = [...of(row), of(row)[of(row).length - 1]];
      return {
        type: "scatter", mode: "lines", name: axisName(data.environments[row.e]), x: windows, y: values.map(Math.log),
        line: { color: colour(look, row.e), width: 1.5, dash: DASHES[row.e % DASHES.length], shape: "hv" },
        text: values.map((value) => percent(value - 1)), hovertemplate: `${environment(row.e)}<br>after %{x:.3f} s: %{text}<extra></extra>`,
      };
    });
    return {
      traces,
      height: 320 + (narrow() ? 16 * traces.length : 0),
      layout: {
        showlegend: true,
        xaxis: axis(look, { title: { text: narrow() ? "seconds of the unit" : "seconds of the unit, all environments in turn", standoff: 8 }, zeroline: false, rangemode: "nonnegative" }),
        yaxis: axis(look, { range: [low, high], ...percentTicks(low, high), title: { text: title, standoff: 8 } }),
      },
    };
  }

  const sliceCosts = (look, index) =>
    steps(look, data.slices[index], ({ costs }) => costs, narrow() ? "cost" : `cost against the mean of ${environment(0)}`);

  const sliceRatios = (look, index) =>
    steps(look, data.slices[index], ({ ratios }) => ratios, narrow() ? "ratio" : `cost relative to ${environment(0)}, less 1`);

  function forestTools(figure) {
    const rows = data.tables.flatMap((table) => table.rows.filter((row) => row.effect).map(() => table.primary));
    const filter = document.createElement("input");
    Object.assign(filter, { type: "search", id: "forest-filter", placeholder: "workload, environment, verdict" });
    filter.setAttribute("aria-label", "Show only effects that contain this");
    filter.addEventListener("input", () => draw(figure));
    const parts = rows.length > 4 ? [filter] : [];
    if (rows.some((primary) => primary) && rows.some((primary) => !primary)) {
      const all = document.createElement("label");
      const tick = document.createElement("input");
      Object.assign(tick, { type: "checkbox", id: "forest-all" });
      tick.addEventListener("change", () => draw(figure));
      all.append(tick, " descriptive metrics too");
      parts.push(all);
    }
    return parts;
  }

