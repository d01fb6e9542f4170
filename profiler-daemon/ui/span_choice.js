// Which part of the session is shown: a length of time that ends now, a named session or a span of one, or a part that was chosen
// from a timeline, which a chip names and takes back.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { clock, shown, time } from "./format.js";
import { change, isBetween, isUsual, spanTimes, WHOLE, windowOf } from "./route.js";

const LENGTHS = [
  [WHOLE, "since the start"],
  ["10s", "last 10 s"],
  ["30s", "last 30 s"],
  ["1m", "last minute"],
  ["5m", "last 5 minutes"],
];
// Stands for a part between two times.
const PART = "part";
const NAMED = "named:";
const NOTHING = { window: "", from: "", to: "", session: "", span: "" };

// The named sessions and their spans as [NAME or NAME/SPAN, text].
export function namedParts(sessions) {
  return sessions.flatMap(({ name, spans }) => [[name, shown(name)], ...(spans.length > 1 ? spans.map((span) => [`${name}/${span}`, `${shown(name)}: ${shown(span)}`]) : [])]);
}

function choice() {
  let sessions = [];
  let params = {};
  const lengths = el("optgroup", { label: "Until now" }, ...LENGTHS.map(([value, text]) => el("option", { value }, text)));
  const named = el("optgroup", { label: "Named sessions" });
  const box = el("select", { id: "choose-window", on: { change: () => choose(box.value) } }, lengths);

  function choose(value) {
    if (!value.startsWith(NAMED)) {
      if (value !== PART) change({ ...NOTHING, window: value });
      return;
    }
    const [session, span = ""] = value.slice(NAMED.length).split("/");
    change({ ...NOTHING, session, span });
  }

  function value() {
    if (isBetween(params)) return [PART, "chosen part"];
    if (params.session) {
      const name = [params.session, params.span].filter(Boolean).join("/");
      return [`${NAMED}${name}`, shown(name)];
    }
    return [windowOf(params), shown(windowOf(params))];
  }

  function draw() {
    const [now, text] = value();
    // A list that is open is not pulled away.
    if (document.activeElement !== box) setChildren(named, namedParts(sessions).map(([name, of]) => el("option", { value: `${NAMED}${name}` }, of)));
    setChildren(box, [lengths, named.children.length > 0 ? named : null]);
    if (![...box.options].some((option) => option.value === now)) box.append(el("option", { value: now }, text));
    box.value = now;
  }

  return {
    element: el("label", { title: "Which part of the session the numbers cover" }, el("span", {}, "Time"), box),
    show(now) {
      params = now;
      draw();
    },
    know(list) {
      sessions = list;
      draw();
    },
  };
}

function chip() {
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

// Says that less than all is shown, where the address does not say so, and offers all: `show(params)`.
export function createUsualNote() {
  const all = el("button", { type: "button", class: "link", on: { click: () => change({ ...NOTHING, window: WHOLE }) } }, "show all since the start");
  const length = el("span", {});
  const element = el("p", { class: "dim usual", hidden: true }, "These are the ", length, ": ", all, ".");
  return {
    element,
    show(params) {
      element.hidden = !isUsual(params);
      setText(length, LENGTHS.find(([value]) => value === windowOf(params))?.[1] ?? "");
    },
  };
}

// The choice and the chip: `show(params)` by the address, null where the view has no time; `know(sessions)` offers named ones.
export function createSpanChoice() {
  const [part, mark] = [choice(), chip()];
  return {
    elements: [mark.element, part.element],
    show(params) {
      part.element.hidden = params === null;
      part.show(params ?? {});
      mark.show(params ?? {});
    },
    know: part.know,
  };
}
