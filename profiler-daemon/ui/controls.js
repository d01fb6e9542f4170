// What stands at the top of every view: the span of time, which frames, pause, and how old the answer is.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { clock, shown, time } from "./format.js";
import { change, isBetween, spanTimes } from "./route.js";
import { takesSpan } from "./sides.js";

const WINDOWS = [
  ["", "since the start"],
  ["10s", "last 10 s"],
  ["30s", "last 30 s"],
  ["1m", "last minute"],
  ["5m", "last 5 minutes"],
];
// Tabs of which functions are the matter.
const OF_FUNCTIONS = ["functions", "lines", "flame"];
// Stands for a span between two times, as it is chosen from a timeline.
const PART = "part";
const FRAMES = [
  ["", "program functions"],
  ["all", "and kernel functions"],
];

// `also`: what changes with it.
function select(label, title, options, name, also = {}) {
  const box = el("select", { id: `choose-${name}`, on: { change: () => change({ [name]: box.value, ...also }) } }, ...options.map(([value, text]) => el("option", { value }, text)));
  return {
    element: el("label", { title }, el("span", {}, label), box),
    show(value) {
      for (const option of [...box.options]) if (option.value === PART && value !== PART) option.remove();
      if (value === PART && box.value !== PART) box.append(el("option", { value: PART }, "chosen part"));
      if (![...box.options].some((option) => option.value === value)) box.append(el("option", { value }, shown(value)));
      box.value = value;
    },
  };
}

// Names of modules whose functions count for what called them. They are asked for when they are complete: at Enter, or when the
// field is left.
function foldInput() {
  const box = el("input", { type: "search", id: "choose-hide", placeholder: "modules, as libc*", autocomplete: "off", spellcheck: "false", on: { change: () => change({ hide: box.value.trim() }) } });
  return {
    element: el("label", { title: "Modules whose functions are folded into those that called them; names are separated by commas, * stands for any text" }, el("span", {}, "Fold"), box),
    show(value) {
      if (document.activeElement !== box) box.value = value;
    },
  };
}

// The span of time that was chosen, with a way to take it back; nothing where none is.
function createChip() {
  const text = el("span", {});
  const element = el("button", { type: "button", class: "chip", hidden: true, title: "Show all time again", on: { click: () => change({ from: "", to: "" }) } }, text, el("span", { "aria-hidden": "true" }, "✕"));
  return {
    element,
    show(params) {
      element.hidden = !isBetween(params);
      const [from, to] = spanTimes(params);
      const length = from !== null && to !== null && to > from ? ` (${time((to - from) * 1e6)})` : "";
      setText(text, `${from === null ? "the start" : clock(from)} to ${to === null ? "now" : clock(to)}${length}`);
      setAttribute(element, "aria-label", `Only ${text.textContent} is shown. Show all time again`);
    },
  };
}

// `ask` is called when somebody wants a fresh answer now.
export function createControls(ask) {
  let paused = false;
  const window = select("Time", "Which part of the session the numbers cover", WINDOWS, "window", { from: "", to: "" });
  const frames = select("Show", "Time in the kernel belongs to the program's function that asked for it, or to the kernel's own functions", FRAMES, "frames");
  const fold = foldInput();
  const chip = createChip();
  const stamp = el("span", { class: "stamp", title: "When the shown answer was made" });
  const pause = el("button", { type: "button", "aria-pressed": "false", title: "Stop asking by itself" }, "Pause");
  pause.addEventListener("click", () => {
    paused = !paused;
    setAttribute(pause, "aria-pressed", String(paused));
    setText(pause, paused ? "Resume" : "Pause");
    stamp.classList.toggle("paused", paused);
    if (!paused) ask();
  });
  const now = el("button", { type: "button", title: "Ask for a fresh answer", on: { click: ask } }, "Refresh");
  setChildren(document.getElementById("controls"), [chip.element, window.element, frames.element, fold.element, stamp, pause, now]);
  return {
    isPaused: () => paused,
    show(route) {
      window.show(isBetween(route.params) ? PART : route.params.window ?? "");
      frames.show(route.params.frames ?? "");
      const reports = route.view === "compare" ? takesSpan(route.params) : route.view !== "daemon";
      window.element.hidden = !reports;
      chip.show(reports ? route.params : {});
      frames.element.hidden = !["scope", "compare"].includes(route.view);
      fold.element.hidden = frames.element.hidden || !OF_FUNCTIONS.includes(route.tab);
      fold.show(route.params.hide ?? "");
    },
    // Says how fresh the answer is; null: there was none.
    answered(asOf) {
      stamp.classList.toggle("stale", asOf === null);
      if (asOf) setText(stamp, `as of ${clock(asOf)}`);
    },
    describe(status) {
      const text = `profiler-daemon ${shown(status.version)} on Linux ${shown(status.kernel_release)}, up ${time(status.uptime_s * 1e9)}`;
      setChildren(document.getElementById("foot"), [el("p", {}, text)]);
    },
  };
}
