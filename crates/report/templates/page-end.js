  // ---- drawing --------------------------------------------------------------------------------------------------------------------

  let library = null;

  // The library is large: it is unpacked when the first plot comes into sight, so that the page is there at once.
  function load() {
    library ??= (async () => {
      const packed = Uint8Array.from(atob(document.getElementById("library").textContent.trim()), (c) => c.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      const script = document.createElement("script");
      script.textContent = await new Response(stream).text();
      document.head.append(script);
      if (!window.Plotly) throw new Error("the browser does not run the plotting library");
      return window.Plotly;
    })();
    return library;
  }

  async function draw(figure) {
    const canvas = figure.querySelector(".canvas");
    try {
      const plotly = await load();
      const look = theme();
      const plot = KINDS[figure.dataset.kind](look, Number(figure.dataset.index));
      const width = printing() ? Math.min(canvas.clientWidth, PAPER_PX) : canvas.clientWidth;
      const size = { height: plot.height, width };
      canvas.style.minHeight = `${plot.height}px`;
      await plotly.react(canvas, plot.traces, layout(look, { ...plot.layout, ...size }), CONFIG);
      figure.dataset.state = "drawn";
    } catch (error) {
      figure.dataset.state = "failed";
      canvas.textContent = `This plot cannot be drawn here (${error.message}); its numbers are in the tables.`;
    }
  }

  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      watcher.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "500px" });

  function redraw() {
    document.querySelectorAll("figure.plot[data-state=drawn]").forEach(draw);
  }

  async function save(figure) {
    await draw(figure);
    const plotly = await load();
    const canvas = figure.querySelector(".canvas");
    const { width, height } = canvas._fullLayout;
    const svg = await plotly.toImage(canvas, { format: "svg", width, height, imageDataOnly: true });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    link.download = figure.querySelector("figcaption").textContent.replace(/[^A-Za-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 80) + ".svg";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function button(word, title, action) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = word;
    made.title = title;
    made.addEventListener("click", action);
    return made;
  }

  function prepare(figure) {
    const kind = figure.dataset.kind;
    const tools = document.createElement("div");
    tools.className = "tools";
    if (TOOLS[kind]) tools.append(...TOOLS[kind](figure));
    const word = figure.querySelector("figcaption").textContent;
    const saver = button("SVG", `Save as SVG: ${word}`, () => save(figure));
    saver.setAttribute("aria-label", `Save as SVG: ${word}`);
    tools.append(saver);
    figure.querySelector("figcaption").after(tools);
    figure.hidden = false;
    watcher.observe(figure);
  }

  // ---- tables ---------------------------------------------------------------------------------------------------------------------

  // What a cell is sorted by: the number that it shows, else its text.
  function key(cell) {
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    const text = cell.textContent.trim();
    return ["", "–", "-"].includes(text) ? null : text.toLowerCase();
  }

  // Nothing comes last, numbers before words.
  function order(a, b) {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return typeof a === "number" ? a - b : a.localeCompare(b);
  }

  function sort(table, column, direction) {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[column]) }));
    const way = direction === "descending" ? -1 : 1;
    rows.sort((a, b) => (a.key === null || b.key === null ? order(a.key, b.key) : way * order(a.key, b.key)));
    body.append(...rows.map(({ row }) => row));
    [...table.tHead.rows[0].cells].forEach((head, at) => {
      if (at === column) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
  }

  // A number with its unit, an interval in brackets, and a remark in parentheses: a sign before it begins no formula.
  const NUMBER = /^[+-]\d[\d.]*(e[+-]?\d+)?( [\p{L}\d%/]+)?( \[[\w.,+ -]*\])?( \([^()=|!"]*\))?$/u;

  // A name is no formula in a spreadsheet.
  function field(text) {
    const clean = text.replace(/\s+/g, " ").trim();
    const harmless = /^[=@+-]/.test(clean) && !NUMBER.test(clean) ? "'" + clean : clean;
    return /[",\n]/.test(harmless) ? `"${harmless.replace(/"/g, '""')}"` : harmless;
  }

  function csv(table) {
    // A drawing has no text.
    const words = (cell) => cell.querySelector("svg, .axis") ? "" : cell.innerText || cell.textContent;
    const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
    const kept = [...table.tHead.rows[0].cells].map((cell) => !cell.querySelector(".axis"));
    const line = (row) => [...row.cells].filter((_, at) => kept[at]).map((cell) => field(words(cell).replace(/−/g, "-"))).join(",");
    return rows.map(line).join("\r\n") + "\r\n";
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where pages of files may not use the clipboard.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function enhance(table) {
    const body = table.tBodies[0];
    if (!body || body.rows.length === 0) return;
    const name = table.caption.textContent.trim();
    const tools = document.createElement("div");
    tools.className = "tools";
    const said = document.createElement("span");
    said.className = "faint";
    said.setAttribute("role", "status");
    if (body.rows.length > 3) {
      const filter = document.createElement("input");
      Object.assign(filter, { type: "search", placeholder: "filter" });
      filter.setAttribute("aria-label", `Show only rows that contain this: ${name}`);
      // As a keyboard writes it.
      const typed = (text) => text.toLowerCase().replace(/−/g, "-").replace(/\u00a0/g, " ");
      filter.addEventListener("input", () => {
        const wanted = typed(filter.value.trim());
        let shown = 0;
        for (const row of body.rows) {
          row.hidden = !typed(row.textContent).includes(wanted);
          shown += row.hidden ? 0 : 1;
        }
        said.textContent = wanted ? `${shown} of ${body.rows.length} rows` : "";
      });
      tools.append(filter);
    }
    if (body.rows.length > 1) {
      const heads = [...table.tHead.rows[0].cells];
      heads.forEach((head, column) => {
        if (head.querySelector(".axis")) return;
        const sorter = button("", "Sort by this column", () =>
          sort(table, column, head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending"));
        sorter.className = "sorter";
        sorter.append(...head.childNodes);
        head.append(sorter);
      });
      tools.append(selector(table, heads, name));
    }
    const copier = button("CSV", `Copy as CSV: ${name}`, async () => {
      const text = csv(table);
      table.dataset.copied = text;
      await copy(text);
      said.textContent = "copied";
    });
    copier.setAttribute("aria-label", `Copy as CSV: ${name}`);
    tools.append(copier, said);
    (table.closest(".scroll") ?? table).before(tools);
  }

  // Where rows are cards there are no column heads to press.
  function selector(table, heads, name) {
    const select = document.createElement("select");
    select.className = "sort";
    select.setAttribute("aria-label", `Sort by: ${name}`);
    select.append(new Option("sort by…", ""));
    heads.forEach((head, column) => {
      if (head.querySelector(".axis")) return;
      const word = head.textContent.trim().replace(/95 % interval/, "");
      select.append(new Option(`${word} ↑`, `${column} ascending`), new Option(`${word} ↓`, `${column} descending`));
    });
    select.addEventListener("change", () => {
      const [column, direction] = select.value.split(" ");
      if (direction) sort(table, Number(column), direction);
    });
    return select;
  }

  // ---- the page -------------------------------------------------------------------------------------------------------------------

  document.querySelectorAll(".noscript").forEach((note) => note.remove());
  document.querySelectorAll("table.cells:not(.paper)").forEach(enhance);
  document.querySelectorAll("figure.plot").forEach(prepare);
  // The list of media outlives a page that another one has taken the place of.
  DARK.addEventListener("change", () => root.isConnected && redraw());
  let width = root.clientWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (width !== root.clientWidth) redraw();
      width = root.clientWidth;
    }, 200);
  });
  // Paper is light, whatever the screen is, and shows what never came into sight.
  window.addEventListener("beforeprint", () => {
    root.dataset.print = "yes";
    document.querySelectorAll("figure.plot").forEach(draw);
  });
  window.addEventListener("afterprint", () => {
    delete root.dataset.print;
    redraw();
  });
  root.dataset.ready = "yes";
})();
