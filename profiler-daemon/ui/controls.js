// What stands at the top of every view: the span of time, which frames, pause, and how old the answer is.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { clock, shown, time } from "./format.js";
import { change, isBetween, spanTimes } from "./route.js";
import { takesSpan } from "./views/compare.js";

const WINDOWS = [
  ["", "since the start"],
  ["10s", "last 10 s"],
  ["30s", "last 30 s"],
  ["1m", "last minute"],
  ["5m", "last 5 minutes"],
];
const FRAMES = [
  ["", "program functions"],
  ["all", "and kernel functions"],
];

function select(label, title, options, name) {
  const box = el("select", { id: `choose-${name}`, on: { change: () => change({ [name]: box.value }) } }, ...options.map(([value, text]) => el("option", { value }, text)));
  return {
    element: el("label", { title }, el("span", {}, label), box),
    show(value) {
      if (![...box.options].some((option) => option.value === value)) box.append(el("option", { value }, shown(value)));
      box.value = value;
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
  const window = select("Time", "Which part of the session the numbers cover", WINDOWS, "window");
  const frames = select("Show", "Time in the kernel belongs to the program's function that asked for it, or to the kernel's own functions", FRAMES, "frames");
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
  setChildren(document.getElementById("controls"), [chip.element, window.element, frames.element, stamp, pause, now]);
  return {
    isPaused: () => paused,
    show(route) {
      window.show(route.params.window ?? "");
      frames.show(route.params.frames ?? "");
      const reports = route.view === "compare" ? takesSpan(route.params) : route.view !== "daemon";
      window.element.hidden = !reports;
      chip.show(reports ? route.params : {});
      frames.element.hidden = !["scope", "compare"].includes(route.view);
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
