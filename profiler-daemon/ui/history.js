// How much processor each process has used lately, from the answers that arrived while the page is open; and its drawing.
// Nothing is kept beyond the page.

import { onCpu } from "./classes.js";
import { el, setAttribute, setText, svg } from "./dom.js";
import { percent } from "./format.js";

// Points of a line: two minutes at one answer in two seconds.
const POINTS = 60;
const WIDTH = 72;
const HEIGHT = 18;

// Collects. Keys are processes; loads are processor time per time: 1 is one whole processor.
export function createHistory() {
  const known = new Map();
  let last = null;
  return {
    // Takes one answer. In a window the load is the mean over the window, else the growth since the last answer.
    add(answer, key) {
      const atMs = Date.parse(answer.as_of);
      if (last && atMs - last.atMs < 200) return;
      const windowed = answer.windowed;
      if (last && last.windowed !== windowed) {
        known.clear();
        last = null;
      }
      const spanNs = windowed ? (Date.parse(answer.window.to) - Date.parse(answer.window.from)) * 1e6 : last ? (atMs - last.atMs) * 1e6 : 0;
      const seen = new Set();
      for (const row of answer.rows) {
        const id = key(row);
        seen.add(id);
        const cpuNs = onCpu(row.classes);
        const mine = known.get(id) ?? { cpuNs: null, loads: [] };
        if (spanNs > 0 && (windowed || mine.cpuNs !== null)) {
          mine.loads.push(Math.max(0, (windowed ? cpuNs : cpuNs - mine.cpuNs) / spanNs));
          if (mine.loads.length > POINTS) mine.loads.shift();
        }
        mine.cpuNs = cpuNs;
        known.set(id, mine);
      }
      for (const id of known.keys()) if (!seen.has(id)) known.delete(id);
      last = { atMs, windowed };
    },
    loads: (id) => known.get(id)?.loads ?? [],
    // The latest load; undefined until two answers have come.
    now: (id) => known.get(id)?.loads.at(-1),
  };
}

// A line with the latest value beside it, as a share of so many processors, of one where their number is not known:
// `set(loads, processors)` draws.
export function sparkline() {
  const line = svg("polyline", {});
  const area = svg("polygon", {});
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" }, area, line);
  const value = el("span", {});
  return {
    element: el("span", { class: "spark" }, picture, value),
    set(loads, processors) {
      const now = loads.at(-1);
      const part = processors ? now / processors : now;
      setText(value, now === undefined ? "…" : percent(part * 100).replace("100 %", `${(part * 100).toFixed(0)} %`));
      const highest = Math.max(1, ...loads);
      // Few points are drawn wider, so that there is something to see early.
      const step = WIDTH / Math.max(12, Math.min(loads.length, POINTS) - 1);
      const points = loads.map((load, index) => {
        const x = WIDTH - (loads.length - 1 - index) * step;
        return `${x.toFixed(1)},${(HEIGHT - 1 - (load / highest) * (HEIGHT - 3)).toFixed(1)}`;
      });
      setAttribute(line, "points", points.join(" "));
      const first = (WIDTH - (loads.length - 1) * step).toFixed(1);
      setAttribute(area, "points", points.length > 1 ? `${first},${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}` : "");
    },
  };
}
