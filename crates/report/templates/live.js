"use strict";
// The script of the page of a run that goes on. It asks the server of the run how far it is, says so, and loads the page again when there
// is a newer one, with what was looked at where it was: the place on the page, filters, orders of tables, open sections.

(() => {
  const line = document.getElementById("live");
  const made = line.textContent;
  const POLL_MS = 2000;
  // After an answer that did not come, as when a connection to another machine is interrupted.
  const RETRY_MS = 10000;
  const KEY = "weighbridge view " + location.pathname;

  // ---- what was looked at ---------------------------------------------------------------------------------------------------------

  // Things have names that the next page has too: that of their section, then what they are of, then which of several.
  function named(elements, word) {
    const seen = new Map();
    return elements.map((element) => {
      const section = element.closest("section")?.querySelector("h2")?.firstChild?.textContent.trim() ?? "";
      const name = `${section} / ${word(element)}`;
      const count = (seen.get(name) ?? 0) + 1;
      seen.set(name, count);
      return [`${name} / ${count}`, element];
    });
  }

  const all = (selector) => [...document.querySelectorAll(selector)];
  const tables = () => named(all("table.cells"), (table) => table.caption?.firstChild?.textContent.trim() ?? "");
  const details = () => named(all("details"), () => "details");
  const figures = () => named(all("figure.plot"), (figure) => `${figure.dataset.kind} ${figure.querySelector("figcaption")?.textContent}`);
  const sections = () => named(all("main > section"), () => "section");
  const toolsOf = (table) => (table.closest(".scroll") ?? table).previousElementSibling;
  const filterOf = (table) => toolsOf(table)?.classList.contains("tools") ? toolsOf(table).querySelector("input[type=search]") : null;

  function inputs() {
    const forest = ["forest-filter", "forest-all"].map((id) => [id, document.getElementById(id)]);
    const filters = tables().map(([name, table]) => [`filter of ${name}`, filterOf(table)]);
    return [...forest, ...filters].filter(([, input]) => input);
  }

  // What stands at the upper edge of the window, and how far above or below it begins.
  function anchor() {
    const things = [...sections(), ...tables(), ...figures()].map(([name, element]) => ({ name, top: element.getBoundingClientRect().top }));
    const above = things.filter(({ top }) => top <= 1).sort((a, b) => b.top - a.top);
    return scrollY < 1 ? null : above[0] ?? null;
  }

  function view() {
    const sorted = tables().flatMap(([name, table]) => {
      const column = [...table.tHead.rows[0].cells].findIndex((head) => head.hasAttribute("aria-sort"));
      return column < 0 ? [] : [[name, [column, table.tHead.rows[0].cells[column].getAttribute("aria-sort")]]];
    });
    const focused = inputs().find(([, input]) => input === document.activeElement);
    return {
      anchor: anchor(),
      at: [scrollX, scrollY],
      open: Object.fromEntries(details().map(([name, element]) => [name, element.open])),
      inputs: Object.fromEntries(inputs().map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.value])),
      sorted: Object.fromEntries(sorted),
      // Plots are drawn when they come into sight; until then they are kept as high as they were.
      heights: Object.fromEntries(figures().map(([name, figure]) => [name, figure.querySelector(".canvas").offsetHeight])),
      focus: focused && { name: focused[0], from: focused[1].selectionStart, to: focused[1].selectionEnd },
    };
  }

  function restore({ anchor: upper, at, open, inputs: values, sorted, heights, focus }) {
    for (const [name, element] of details()) if (name in open) element.open = open[name];
    for (const [name, figure] of figures()) if (heights[name]) figure.querySelector(".canvas").style.minHeight = `${heights[name]}px`;
    for (const [name, input] of inputs()) {
      const value = values[name];
      if (input.type === "checkbox" ? value === undefined || value === input.checked : !value) continue;
      if (input.type === "checkbox") input.checked = value;
      else input.value = value;
      input.dispatchEvent(new Event(input.type === "checkbox" ? "change" : "input"));
    }
    for (const [name, table] of tables()) {
      const [column, direction] = sorted[name] ?? [];
      const head = table.tHead.rows[0].cells[column];
      for (let presses = 0; head && presses < 2 && head.getAttribute("aria-sort") !== direction; presses += 1) {
        head.querySelector("button")?.click();
      }
    }
    const input = focus && inputs().find(([name]) => name === focus.name)?.[1];
    if (input) {
      input.focus({ preventScroll: true });
      if (input.type === "search") input.setSelectionRange(focus.from, focus.to);
    }
    const found = upper && [...sections(), ...tables(), ...figures()].find(([name]) => name === upper.name);
    scrollTo(at[0], found ? scrollY + found[1].getBoundingClientRect().top - upper.top : at[1]);
  }

  function keep() {
    try {
      sessionStorage.setItem(KEY, JSON.stringify(view()));
    } catch {
      // Without a place to keep it, the new page begins at its top.
    }
  }

  function reload() {
    keep();
    location.reload();
  }

  // The server of a run that has ended may be gone before it answers. A page that is loaded again without an answer is lost, so the last
  // one takes the place of this one when it is here as a whole.
  async function replace() {
    const answer = await fetch("./", { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = await answer.text();
    ended = true;
    keep();
    document.open();
    document.write(page);
    document.close();
  }

  // ---- the server -----------------------------------------------------------------------------------------------------------------

  function say(text) {
    if (line.textContent !== text) line.textContent = text;
  }

  function words(state) {
    const blocks = state.blocks > 0 ? `${state.blocks_done} of ${state.blocks} blocks are done` : `${state.blocks_done} blocks are done`;
    const doing = state.doing ? `; now ${state.doing}` : "";
    return `In progress: ${blocks}${doing}. ${made.slice(made.indexOf("This page was made"))}`;
  }

  async function ask() {
    const answer = await fetch("state", { cache: "no-store", signal: AbortSignal.timeout(RETRY_MS) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.json();
  }

  async function poll() {
    // Nobody looks at a page in the background, and asking takes time of the machine that measures.
    if (ended || document.visibilityState === "hidden") return;
    let next = POLL_MS;
    try {
      const state = await ask();
      const newer = String(state.version) !== line.dataset.version;
      if (newer && state.finished) return await replace();
      if (newer) return reload();
      if (state.finished) {
        ended = true;
        return say(`The run has ended. ${made.slice(made.indexOf("This page was made"))}`);
      }
      say(words(state));
    } catch {
      say(`The run does not answer: it has ended, or the connection to its machine has. ${made}`);
      next = RETRY_MS;
    }
    clearTimeout(waiting);
    waiting = setTimeout(poll, next);
  }

  let waiting = 0;
  let ended = line.dataset.ended === "yes";
  history.scrollRestoration = "manual";
  let kept = null;
  try {
    kept = JSON.parse(sessionStorage.getItem(KEY));
    sessionStorage.removeItem(KEY);
  } catch {
    // The page begins at its top.
  }
  if (kept) restore(kept);
  if (!ended) {
    waiting = setTimeout(poll, POLL_MS);
    document.addEventListener("visibilitychange", () => {
      clearTimeout(waiting);
      poll();
    });
  }
  document.documentElement.dataset.live = "yes";
})();
