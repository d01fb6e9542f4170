// What stands at the top of every view: the span of time, which frames, pause, and how old the answer is.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { clock, shown, time } from "./format.js";
import { change } from "./route.js";
import { takesSpan } from "./sides.js";
import { createSpanChoice } from "./span_choice.js";

// Tabs of which functions are the matter.
const OF_FUNCTIONS = ["functions", "lines", "flame"];
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

// Names of modules whose functions count for what called them. They are asked for when they are complete: at Enter, or when the
// field is left.
function foldInput() {
  const box = el("input", { type: "search", id: "choose-hide", placeholder: "as libc*", autocomplete: "off", spellcheck: "false", on: { change: () => change({ hide: box.value.trim() }) } });
  return {
    element: el("label", { title: "Modules whose functions are folded into those that called them; names are separated by commas, * stands for any text" }, el("span", {}, "Fold"), box),
    show(value) {
      if (document.activeElement !== box) box.value = value;
    },
  };
}

// `ask` is called when somebody wants a fresh answer now, `resume` when answers may come again by
// themselves.
export function createControls(ask, resume) {
  let paused = false;
  const span = createSpanChoice();
  const frames = select("Show", "Time in the kernel belongs to the program's function that asked for it, or to the kernel's own functions", FRAMES, "frames");
  const fold = foldInput();
  const stamp = el("span", { class: "stamp", title: "When the shown answer was made" });
  const pause = el("button", { type: "button", "aria-pressed": "false", title: "Stop asking by itself" }, "Pause");
  pause.addEventListener("click", () => {
    paused = !paused;
    setAttribute(pause, "aria-pressed", String(paused));
    setText(pause, paused ? "Resume" : "Pause");
    stamp.classList.toggle("paused", paused);
    if (!paused) resume();
  });
  const now = el("button", { type: "button", title: "Ask for a fresh answer", on: { click: ask } }, "Refresh");
  setChildren(document.getElementById("controls"), [...span.elements, frames.element, fold.element, stamp, pause, now]);
  return {
    isPaused: () => paused,
    // Takes the sessions there are by name.
    know: span.know,
    show(route) {
      frames.show(route.params.frames ?? "");
      const reports = route.view === "compare" ? takesSpan(route.params) : route.view !== "daemon";
      span.show(reports ? route.params : null);
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
