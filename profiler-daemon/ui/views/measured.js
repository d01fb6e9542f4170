// What was measured exactly of a function: columns beside the sampled ones, and a window with how long its calls took.

import { announce, el, setText, svg } from "../dom.js";
import { at, count, exactTime, percent, several, share, shown, time } from "../format.js";
import { numberColumn } from "../table.js";

const GROUP = { group: "Measured exactly", groupTitle: "Every call, from entry to exit, with what the probes took subtracted" };
const BAR = { width: 220, height: 12 };

function timeColumn(id, label, title) {
  return numberColumn({ id: `measured.elapsed.${id}`, label, title, ...GROUP }, ({ measured }) => {
    const ns = at(measured, `elapsed.${id}`);
    const isNone = ns === undefined || ns === null;
    return { text: isNone ? (measured ? "–" : "") : time(ns), title: isNone ? undefined : exactTime(ns) };
  });
}

// The columns of a table in which any row was measured. The first one opens what is known of a function's calls.
export function measuredColumns() {
  const calls = {
    id: "measured.calls",
    label: "calls",
    title: "How often it was called: opens how long its calls took",
    order: "desc",
    numeric: true,
    ...GROUP,
    cell() {
      let row = null;
      const open = el("button", { type: "button", class: "link", on: { click: () => showCalls(row.function, row.module, row.measured) } });
      const td = el("td", { class: "n plain" }, open);
      return {
        td,
        set(now) {
          row = now;
          const { measured } = now;
          open.hidden = !measured;
          setText(open, measured ? count(measured.calls) : "");
          open.title = measured ? `${agreement(measured)}\nHow long its calls took` : "";
        },
      };
    },
  };
  return [calls, timeColumn("mean_ns", "mean", "The mean of its calls, from entry to exit"), timeColumn("p99_ns", "p99", "Ninety-nine of a hundred calls took no longer; to a fifth")];
}

// Whether what was sampled and what was measured agree, in a sentence.
function agreement({ agrees, agrees_why: why, compared }) {
  if (agrees === undefined) return "";
  const times = compared ? `: sampled ${time(compared.sampled_low_ns)} to ${time(compared.sampled_high_ns)}, measured ${time(compared.measured_low_ns)} to ${time(compared.measured_high_ns)} with its probes, in ${time(compared.span_ns)}` : "";
  if (agrees) return `What was sampled agrees${times}.`;
  const because = why ? ` (${shown(why)})` : "";
  return agrees === false ? `What was sampled differs${times}${because}.` : `What was sampled cannot be compared${because}.`;
}

// What is to be known to read the values.
function remarks(measured) {
  const each = (number, sentence) => (number > 0 ? `${sentence(number)}.` : null);
  return [
    measured.why && shown(measured.why),
    measured.mostly_probe ? `Its calls are so short that most of what was measured were the probes: believe the number of calls, not the times.` : null,
    each(measured.open, (n) => `${several(n, "call is", "calls are")} under way: not in its times`),
    each(measured.left_unseen, (n) => `${several(n, "call")} ended without a return, by an exception or a jump: their time is their caller's`),
    each(measured.counted_only, (n) => `${several(n, "call was", "calls were")} only counted`),
    each(measured.untraced_calls, (n) => `System calls were not traced during ${several(n, "call")}: their time is application time here`),
    each(measured.minor_faults + measured.major_faults, (n) => `${several(n, "page fault")} are in its application time`),
    agreement(measured),
  ].filter(Boolean);
}

// Bars of how many calls took how long. What has no call between two that have is a gap of one line.
function histogram(buckets, caption) {
  const most = Math.max(1, ...buckets.map(({ calls }) => calls));
  const all = buckets.reduce((sum, { calls }) => sum + calls, 0);
  const rows = buckets.map(({ from_ns: from, to_ns: to, calls }, index) => {
    const before = buckets[index - 1];
    const isGap = before !== undefined && before.to_ns !== from;
    const bar = svg("svg", { class: "calls-bar", viewBox: `0 0 ${BAR.width} ${BAR.height}`, width: BAR.width, height: BAR.height, "aria-hidden": "true", preserveAspectRatio: "none" }, svg("rect", { x: 0, y: 1, height: BAR.height - 2, width: Math.max(1, (BAR.width * calls) / most) }));
    return el("tr", { class: isGap ? "gap" : null }, el("th", { scope: "row", class: "n" }, to === null ? `${time(from)} or more` : `${time(from)} – ${time(to)}`), el("td", {}, bar), el("td", { class: "n plain" }, count(calls)), el("td", { class: "n plain" }, percent(share(calls, all))));
  });
  const head = el("tr", {}, ...["took", "", "calls", ""].map((name) => el("th", { scope: "col", class: name ? "n" : null }, name)));
  return el("div", {}, el("h3", {}, caption), buckets.length > 0 ? el("table", { class: "calls-table" }, el("caption", { class: "unseen" }, caption), el("thead", {}, head), el("tbody", {}, ...rows)) : el("p", { class: "dim" }, "No call has ended."));
}

function facts(measured) {
  const fact = (label, value, title) => el("div", { title }, el("dt", {}, label), el("dd", {}, value));
  const of = (label, { elapsed, application }, key) => {
    if (elapsed[key] === null) return fact(label, "–");
    const all = [time(elapsed[key]), exactTime(elapsed[key])];
    // Of calls of goroutines elapsed time alone is known.
    if (application === null) return fact(label, ...all);
    const part = application[key] ?? 0;
    return fact(label, `${all[0]} (${time(part)})`, `${all[1]}; of it application time ${exactTime(part)}`);
  };
  return el("dl", { class: "facts small" },
    fact("calls", count(measured.calls)),
    of("inclusive", measured, "inclusive_ns"),
    of("less measured callees", measured, "exclusive_ns"),
    ...[["shortest", "min_ns"], ["mean", "mean_ns"], ["p50", "p50_ns"], ["p90", "p90_ns"], ["p99", "p99_ns"], ["longest", "max_ns"]].map(([label, key]) => of(label, measured, key)),
    fact("probes took", time(measured.probe_ns), `${exactTime(measured.probe_ns)}, subtracted; it may be off by ${exactTime(measured.error_ns)}`),
  );
}

// Opens a window with how long the calls of a function took.
export function showCalls(name, module, measured) {
  const close = el("button", { type: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = el("dialog", { class: "calls", "aria-label": `Calls of ${shown(name)}` },
    el("div", { class: "titled" }, el("h2", { class: "code" }, shown(name)), close),
    el("p", { class: "dim" }, `${shown(module)}. All of the time${measured.application === null ? "" : ", and in parentheses application time: the part in user mode outside system calls"}.`),
    facts(measured),
    ...remarks(measured).map((sentence) => el("p", {}, sentence)),
    el("div", { class: "histograms" }, histogram(measured.elapsed.histogram, "Elapsed, from entry to exit"), measured.application && histogram(measured.application.histogram, "Application, of the same calls")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  // A click beside it closes it.
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  document.body.append(dialog);
  dialog.showModal();
  announce(`Calls of ${shown(name)}.`);
}
