// The timeline tab: a strip for each thread of a process, or for each process of the session, coloured by what it did, and a span of
// time to be chosen from it, which then holds for every view.

import { MEASURED } from "../classes.js";
import { announce, el, setAttribute, setChildren, setText } from "../dom.js";
import { clock, count, percent, several, share, shown, time } from "../format.js";
import { aroundOf, change, link, spanTimes, WHOLE } from "../route.js";
import { classesIn, model } from "../timeline/model.js";
import { createStrip } from "../timeline/strip.js";

const INTERVAL_MS = 5_000;
const FIRST_ROWS = 40;
// Of more stretches neighbours are put together by the daemon.
const STRETCHES = 120;
const MORE_ROWS = 300;

// A timeline has no ticks: running time is user's unless a call was seen to be entered.
const USER = "running outside system calls that were traced, faults included";

const ORDERS = [
  ["samples", "who uses the processor most"],
  ["classes.runnable_ns", "who waits most for one"],
  ["classes.blocked_ns", "who is blocked most"],
];

// Which part of the session is drawn. Where it is all, none is asked for, which has what is kept:
// the session may have begun before that, and the daemon then refuses to show it from its begin.
function spanned(params) {
  const { window, ...named } = aroundOf(params);
  return window === undefined || window === WHOLE ? named : { window };
}

export function createTimelineTab(process) {
  const alone = process !== null;
  const nouns = alone ? ["thread", "threads"] : ["process", "processes"];
  const order = el("select", { id: "timeline-order", on: { change: () => change({ sort: order.value }) } }, ...ORDERS.map(([value, text]) => el("option", { value }, text)));
  const total = el("p", { class: "dim rows", role: "status" });
  const more = el("button", { type: "button", hidden: true, on: { click: () => change({ rows: "more" }, { replace: true }) } }, "Show more");
  const labels = el("ul", { class: "strip-labels" });
  const who = el("b", { class: "code" });
  const sentence = el("span", {});
  const details = el("section", { class: "details", "aria-label": "The place that is meant" }, el("p", { id: "timeline-details", "aria-live": "polite" }, who, " ", sentence));
  const drawn = MEASURED.filter(({ id }) => alone || id !== "blocked");
  const legend = el("ul", { class: "legend" }, ...drawn.map(({ id, label, about }) => {
    const swatch = el("i", { class: `swatch class-${id}` });
    return el("li", { title: id === "user" ? USER : about }, swatch, label);
  }));
  const scale = el("p", { class: "dim" });
  const none = el("p", { class: "panel", hidden: true }, "The daemon has kept no time in pieces yet. It does so every few seconds.");
  const hint = el("p", { class: "dim hint" }, "Drag over a span of time to see only that, in every view. By keys: arrows move, Shift with arrows chooses, Enter chooses one stretch, Esc shows all time again.");
  const strip = createStrip({
    label: `Timeline of ${nouns[1]}. Arrow keys move, Shift with left and right chooses a span of time, Enter chooses one stretch, Escape shows all time.`,
    describedBy: "timeline-details",
    onPlace: tell,
    onChoose(first, last) {
      if (first === undefined) {
        change({ from: "", to: "" });
        announce("All time is shown.");
        return;
      }
      const [from, to] = [made.stretches[first].from, made.stretches[last].to];
      change({ from, to });
      announce(`Only ${clock(from)} to ${clock(to)} is shown.`);
    },
  });
  const chart = el("div", { class: "strips" }, labels, strip.element);
  let params = {};
  let made = null;

  function tell(at, index) {
    const row = made.rows[at];
    const stretch = made.stretches[index];
    if (!row || !stretch) return;
    const classes = classesIn(row, index);
    const sum = classes ? MEASURED.reduce((all, { key }) => all + classes[key], 0) : 0;
    const told = classes ? MEASURED.filter(({ key }) => classes[key] > 0).map(({ key, label }) => `${label} ${percent(share(classes[key], sum))} (${time(classes[key])})`) : [];
    setText(who, `${shown(row.comm)} (${alone ? row.tid : row.pid})`);
    setText(sentence, `${clock(stretch.from)} to ${clock(stretch.to)}: ${told.join(", ") || "not there"}.`);
    [...labels.children].forEach((item, each) => item.classList.toggle("meant", each === at));
  }

  function drawLabels() {
    // Made anew only where they changed: somebody may be about to follow one.
    const key = JSON.stringify(made.rows.map(({ pid, tid, comm, state, threads }) => [pid, tid, comm, state, threads]));
    if (labels.dataset.key === key) return;
    labels.dataset.key = key;
    setChildren(labels, made.rows.map((row) => {
      const text = row.threads > 1 && alone ? `${shown(row.comm)} (${count(row.threads)} exited)` : shown(row.comm);
      const number = alone ? row.tid : row.pid;
      const inner = alone || !(row.pid > 0) ? el("span", {}, text) : el("a", {}, text);
      return el("li", { title: `${text} ${number}, ${row.state ?? ""}` }, inner, number > 0 ? el("small", {}, String(number)) : null);
    }));
  }

  function draw() {
    order.value = ORDERS.some(([id]) => id === params.sort) ? params.sort : ORDERS[0][0];
    if (!made) return;
    const empty = made.rows.length === 0 || made.stretches.length === 0;
    none.hidden = !empty;
    chart.hidden = empty;
    details.hidden = empty;
    if (empty) return;
    // The links keep what the address has now.
    made.rows.forEach((row, at) => {
      const to = labels.children[at].querySelector("a");
      if (to) setAttribute(to, "href", link("scope", `${row.pid}.${row.start_ticks}`, "timeline"));
    });
    strip.set(made, ...spanTimes(params));
    if (document.activeElement !== strip.canvas && who.textContent === "") tell(0, made.stretches.length - 1);
  }

  return {
    element: el("div", {}, el("div", { class: "tools" }, el("label", {}, el("span", {}, "First"), order), total, more), legend, chart, none, details, scale, hint),
    report: "timeline",
    intervalMs: INTERVAL_MS,
    // The strips show what is around the chosen span, too.
    query: (now) => ({
      ...spanned(now),
      sort: ORDERS.some(([id]) => id === now.sort) ? now.sort : ORDERS[0][0],
      order: "desc",
      spans: STRETCHES,
      limit: now.rows === "more" ? MORE_ROWS : FIRST_ROWS,
    }),
    show(now) {
      params = now;
      draw();
    },
    load(answer) {
      made = model(answer, alone);
      drawLabels();
      const rows = several(answer.total_rows, ...nouns);
      setText(total, answer.truncated ? `the first ${count(answer.rows.length)} of ${rows}` : rows);
      more.hidden = !answer.truncated || params.rows === "more";
      setText(scale, alone
        ? "Each stretch of a strip is divided by what the thread did in it; it is empty where the thread was not there."
        : `The higher, the more processor time a process used or waited for; the highest place stands for ${made.tallest.toFixed(made.tallest < 10 ? 1 : 0)} processors. What was blocked is not drawn.`);
      draw();
    },
  };
}
