// What an answer lacks, and what the daemon cannot do here: shown plainly, beside every report.

import { el, setChildren } from "./dom.js";
import { count, exactTime, percent, several, share, shown, time } from "./format.js";

// Reasons that are shown without being asked for.
const FEW = 3;

const MARKS = { good: "✓", lacks: "!", note: "·" };

// A line for each thing an answer can lack: [how it is, sentence, exact]. Answers without functions have nothing to name.
function lines(completeness, { elapsedNs = 0, stacks = null, named = false, sleepers = false }) {
  const { samples_lost: lost, stacks_truncated: truncated, stacks_unwind_failed: failed } = completeness;
  const { elapsed_unattributed_ns: without, frames_unknown_percent: unknown, elapsed_unknown_ns: nameless, samples_each: each = 1 } = completeness;
  const of = stacks && stacks.walked > 0 ? ` of ${count(stacks.walked)}` : "";
  const reasons = Object.entries(completeness.frames_unknown ?? {}).map(([why, of]) => `${why} ${percent(of)}`);
  const part = (ns) => (elapsedNs > 0 ? ` (${percent(share(ns, elapsedNs))})` : "");
  const lacks = (nothing) => (nothing ? "good" : "lacks");
  const asleep = sleepers ? " Threads of the kernel that have slept since before the profiler began are always among it: nothing is wrong with that." : "";
  return [
    [lacks(lost === 0), `${several(lost, "sample")} lost`, "Samples that could not be stored. Nobody knows whose they were: this is the session's number."],
    [without > 0 && sleepers ? "note" : lacks(without === 0), `${time(without)} without a stack${part(without)}`, `${exactTime(without)}: in the totals, but of no function. Its thread waits and has not been walked yet, or its stack could not be kept.${asleep}`],
    ...(nameless > 0 ? [["lacks", `${time(nameless)} of no known function${part(nameless)}`, `${exactTime(nameless)}: in the rows [not sampled], [unknown: reason], [folded] and [dropped]. No mark fell in it, or what was found there was lost.`]] : []),
    [lacks(failed === 0), `${count(failed)}${of} stacks end early`, "Walks that could not go on: code without unwind information, or a program so new that its tables were not there yet. The executing function and all totals are right; callers are missing."],
    [lacks(truncated === 0), `${several(truncated, "stack")} cut at the limit`, "Walks that ended at the bound on frames. Outer callers are missing."],
    ...(completeness.probes_ns > 0 ? [["note", `${time(completeness.probes_ns)} taken by probes`, "What the probes of measured functions took of the programs' time: it is in the sampled values."]] : []),
    ...(each > 1 ? [["note", `${each.toFixed(1)} samples tell as much as one`, "Stacks are so deep that walking all would cost more than the budget: some ticks are walked, and stand for the others. Intervals say what that means; totals are exact."]] : []),
    ...(named ? [[lacks(unknown === 0), `${percent(unknown)} of frames without a name`, `Weighted by time. They are shown as module+0xoffset. ${reasons.join(", ")}`.trim()]] : []),
  ];
}

// The receipt of one answer. `set(completeness, {elapsedNs, stacks, named, sleepers})` fills it. `named`: it is about functions;
// `sleepers`: also about threads of the kernel, which may sleep without ever having been seen to begin.
export function receipt() {
  const list = el("ul", {});
  const causes = el("ul", { class: "causes" });
  const more = el("details", {}, el("summary", {}, "Causes"), causes);
  const element = el("section", { class: "receipt", "aria-label": "What this answer lacks" }, el("h2", {}, "Completeness"), list, more);
  return {
    element,
    set(completeness, of) {
      const told = lines(completeness, of);
      // Written anew only where it changed: people may have the pointer on a title.
      const key = JSON.stringify([told, completeness.causes]);
      if (element.dataset.key === key) return;
      element.dataset.key = key;
      setChildren(list, told.map(([how, sentence, exact]) =>
        el("li", { class: how, title: exact }, el("span", { class: "mark", "aria-hidden": "true" }, MARKS[how]), el("span", {}, sentence)),
      ));
      const known = Object.entries(completeness.causes ?? {});
      setChildren(causes, known.map(([name, number]) =>
        el("li", {}, el("code", {}, shown(name)), " ", el("b", { title: count(number) }, name.endsWith("_ns") ? time(number) : count(number))),
      ));
      more.hidden = known.length === 0;
    },
  };
}

// What the daemon does less well than it should, with the reasons; nothing where all is well.
export function showDegraded(parent, degraded) {
  const key = JSON.stringify(degraded);
  if (parent.dataset.key === key) return;
  parent.dataset.key = key;
  if (degraded.length === 0) {
    setChildren(parent, []);
    return;
  }
  const items = el("ul", {}, ...degraded.map(({ what, why }) => el("li", {}, el("b", {}, shown(what)), ": ", shown(why))));
  const title = degraded.length === 1 ? "Works less well here than it could" : `${count(degraded.length)} things work less well here than they could`;
  // A long list would push away what somebody came for.
  const body = degraded.length > FEW ? el("details", {}, el("summary", {}, title), items) : [el("p", {}, title), items];
  setChildren(parent, [el("section", { class: "degraded", "aria-label": title }, ...[body].flat())]);
}
