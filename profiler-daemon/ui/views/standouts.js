// The three processes that stand out, each with the reason and the place to look next: the answer for whoever has just
// opened the page. Threads that idle and the profiler itself are left out.

import { ApiError, get, reportPath } from "../api.js";
import { capacityOf } from "../capacity.js";
import { activeNs, inFaults, onCpu, partsOf } from "../classes.js";
import { el, setAttribute, setChildren, setText } from "../dom.js";
import { basename, exactTime, percent, several, share, shown, time } from "../format.js";
import { processId, processLink, processName } from "../route.js";
import { whereMost } from "./where_most.js";

// What counts as being at work: as much of the busiest one's processor time, in percent.
const AT_WORK_PERCENT = 1;
// A thread that is active for less of its time, in percent, idles: nobody is held up by its waiting.
const IDLE_PERCENT = 0.5;
// Of whom switches were missed, who is ready for as much of its time, in percent, and runs for as little of that, may have been asleep.
const DOUBTED = { readyPercent: 5, ranPercent: 1 };
// The processors are not the reason to wait while they are less busy, in percent.
const BUSY_PERCENT = 90;
// Functions change seldom: they are asked for again after so long, or this many times as long as the answers took.
const NAMES_MS = 10_000;
const SPARING = 4;
// What is less of a process is no part of the call tree that is asked for.
const NAMED_PERCENT = 10;

const PROFILER = "profiler-daemon";
const isProfiler = (row) => row.comm === PROFILER && row.exe !== null && basename(row.exe) === PROFILER;

// Whether a row's time off the processors cannot be believed: of its being switched in and out the profiler has missed some.
export function isDoubtful(row) {
  const { runnable_ns: ready } = row.classes;
  return row.switches_missed > 0 && share(ready, row.elapsed_ns) >= DOUBTED.readyPercent && onCpu(row.classes) * 100 < ready * DOUBTED.ranPercent;
}

function largest(rows, value) {
  let found = null;
  for (const row of rows) if (value(row) > 0 && (found === null || value(row) > value(found))) found = row;
  return found;
}

// By process what its threads that do not idle have together: {threads, elapsedNs, blockedNs, cpuNs}.
function atWork(threads) {
  const found = new Map();
  for (const thread of threads) {
    const elapsedNs = thread.elapsed.inclusive_ns;
    if (activeNs(thread.classes) * 100 < elapsedNs * IDLE_PERCENT) continue;
    const id = processId(thread);
    const sum = found.get(id) ?? { threads: 0, elapsedNs: 0, blockedNs: 0, cpuNs: 0 };
    sum.threads += thread.threads ?? 1;
    sum.elapsedNs += elapsedNs;
    sum.blockedNs += thread.classes.blocked_ns;
    sum.cpuNs += onCpu(thread.classes);
    found.set(id, sum);
  }
  return found;
}

function working(row) {
  const classes = partsOf(row);
  const parts = [
    [classes.user_ns, "in its own code"],
    [classes.fault_ns, inFaults(row)],
    [classes.syscall_ns, "in system calls"],
    [classes.kernel_ns, "in the kernel"],
  ].filter(([ns]) => ns > 0);
  parts.sort((a, b) => b[0] - a[0]);
  const all = parts.reduce((sum, [ns]) => sum + ns, 0);
  return parts.slice(0, 2).map(([ns, words]) => `${percent(share(ns, all))} ${words}`).join(", ");
}

// A function as parts of a sentence.
const named = (at) => [el("code", {}, shown(at.name)), ...(at.by ? [" (by ", el("code", {}, shown(at.by)), ")"] : [])];
const most = (at, of) => (at ? [`; ${percent(share(at.value, at.all))} ${of} in `, ...named(at)] : []);

// `find(rows, seen)`: the row; `value(row, seen)`: [shown, exact]; `why(row, seen, at)`: parts of a sentence, `at` where most of it is,
// once that is known; `read`: of a node of a call tree the value that `tree` names; `nameable(row, seen)`: whether the whole
// process's call tree is about what the card says. `seen`: {capacity, busyPercent, work}.
const CARDS = [
  {
    title: "Uses most of the processors",
    none: "Nobody has used a processor yet.",
    find: (rows) => largest(rows, (row) => onCpu(row.classes)),
    value(row, { capacity }) {
      const ns = onCpu(row.classes);
      return capacity.ns ? [percent(share(ns, capacity.ns)), `${exactTime(ns)}, as a share of the time of ${several(capacity.processors, "processor")}`] : [time(ns), exactTime(ns)];
    },
    why: (row, _, at) => [working(row), ...most(at, "of it")],
    tree: "samples",
    read: (node) => node.samples.inclusive,
    nameable: () => true,
    tab: "flame",
    params: { value: "samples" },
  },
  {
    title: "Ready to run, but not running, longest",
    none: "Nobody waits for a processor.",
    about: "Other programs had the processors, or the quota of its control group was used up, which is said where it was",
    find: (rows) => largest(rows.filter((row) => !isDoubtful(row)), (row) => row.classes.runnable_ns),
    value: (row) => [time(row.classes.runnable_ns), exactTime(row.classes.runnable_ns)],
    why(row, { busyPercent }, at) {
      if (row.throttled_group) return [`${percent(share(row.classes.runnable_ns, activeNs(row.classes)))} of its active time`, ...most(at, "of that"), ". The quota of its control group ", el("code", {}, shown(row.throttled_group)), ` was used up for ${time(row.throttled_ns)}, all processors together`];
      const free = busyPercent !== null && busyPercent < BUSY_PERCENT;
      const reason = free ? `. The processors were only ${percent(busyPercent)} busy: look for a quota (cpu.stat of its control group) or for processors it is bound to` : "";
      return [`${percent(share(row.classes.runnable_ns, activeNs(row.classes)))} of its active time`, ...most(at, "of that"), reason];
    },
    tree: "runnable",
    read: (node) => node.classes.runnable_ns,
    nameable: () => true,
    tab: "threads",
    params: { sort: "classes.runnable_ns" },
  },
  {
    title: "At work, and blocked most",
    none: "No process at work is blocked.",
    about: `Of the processes with at least ${AT_WORK_PERCENT} % of the busiest one's processor time, the one whose threads were blocked longest; threads that were active for less than ${IDLE_PERCENT} % of their time are left out`,
    find(rows, { work }) {
      const of = (row) => work.get(processId(row));
      const busiest = rows.reduce((found, row) => Math.max(found, onCpu(row.classes)), 0);
      return largest(rows.filter((row) => !row.kernel_thread && of(row)?.cpuNs * 100 >= busiest * AT_WORK_PERCENT), (row) => of(row).blockedNs);
    },
    value(row, { work }) {
      const { blockedNs, elapsedNs } = work.get(processId(row));
      return [percent(share(blockedNs, elapsedNs)), `${exactTime(blockedNs)} of ${exactTime(elapsedNs)}`];
    },
    why(row, { work }, at) {
      const { threads, elapsedNs, blockedNs } = work.get(processId(row));
      if (at) return [`${percent(share(at.value, row.elapsed_ns))} of its time in `, ...named(at), ", blocked"];
      const idle = row.threads - threads;
      return [`blocked for ${percent(share(blockedNs, elapsedNs))} of its time`, idle > 0 ? `, ${several(idle, "idle thread")} left out` : "", ": see in which system calls"];
    },
    tree: "blocked",
    read: (node) => node.classes.blocked_ns,
    // A pool that idles would be where most of it is.
    nameable: (row, { work }) => work.get(processId(row)).blockedNs * 10 >= row.classes.blocked_ns * 9,
    tab: "os-events",
    params: {},
  },
];

export function standouts() {
  const cards = CARDS.map((card) => {
    const link = el("a", {});
    const value = el("b", {});
    const why = el("p", {});
    return { card, link, value, why, row: null, at: null, of: "", element: el("li", { title: card.about }, el("h2", {}, card.title), el("p", { class: "who" }, link, value), why) };
  });
  const doubt = el("p", { class: "dim doubt", hidden: true });
  let seen = null;
  let span = {};
  let busy = false;
  let nextMs = 0;

  function tell(entry) {
    const { card, row, why, at } = entry;
    const parts = row ? card.why(row, seen, at).filter((part) => part !== "") : [card.none];
    const text = parts.map((part) => part.textContent ?? part).join("");
    // Made anew only where it says something else: somebody may have selected it.
    if (why.textContent !== text) setChildren(why, parts.map((part) => (typeof part === "string" ? document.createTextNode(part) : part)));
    setAttribute(why, "title", at ? at.path.map(shown).join("\n") : null);
  }

  const key = ({ row }) => (row ? `${processId(row)} ${Object.values(span).join(" ")}` : "");

  async function where({ card, row }) {
    if (!row || !card.nameable(row, seen)) return null;
    try {
      const { signal } = new AbortController();
      const { root } = await get(reportPath(processId(row), "calltree"), { ...span, value: card.tree, min_percent: NAMED_PERCENT }, signal);
      return whereMost(root, card.read);
    } catch (error) {
      // It is left without a name: the view's own question says what is wrong.
      if (!(error instanceof ApiError)) throw error;
      return null;
    }
  }

  // Asks in which function most of it is, for every card at once: the row may be another, or its function.
  async function name() {
    const now = performance.now();
    if (busy || (now < nextMs && cards.every((entry) => entry.of === key(entry)))) return;
    busy = true;
    await Promise.all(cards.map(async (entry) => {
      const of = key(entry);
      const at = await where(entry);
      // Meanwhile another may stand there.
      if (of !== key(entry)) return;
      Object.assign(entry, { of, at });
      tell(entry);
    }));
    busy = false;
    nextMs = performance.now() + Math.max(NAMES_MS, SPARING * (performance.now() - now));
  }

  return {
    element: el("div", {}, el("ul", { class: "standouts", "aria-label": "What stands out" }, ...cards.map(({ element }) => element)), doubt),
    // Takes the rows of processes and threads, and the session's totals, of the part `of` of the session.
    set(rows, threads, session, of) {
      const capacity = capacityOf(session.window);
      const busyPercent = capacity.ns ? share(onCpu(session.classes), capacity.ns) : null;
      seen = { capacity, busyPercent, work: atWork(threads) };
      span = of;
      const others = rows.filter((row) => !isProfiler(row));
      for (const entry of cards) {
        const { card, link, value, element } = entry;
        const row = card.find(others, seen);
        entry.row = row;
        if (entry.of !== key(entry)) entry.at = null;
        element.classList.toggle("none", row === null);
        setText(link, row ? shown(processName(row)) : "");
        setAttribute(link, "href", row ? processLink(row, card.tab, card.params) : null);
        const [told, exact] = row ? card.value(row, seen) : ["", null];
        setText(value, told);
        setAttribute(value, "title", exact);
        tell(entry);
      }
      const doubted = others.filter(isDoubtful);
      const missed = doubted.reduce((sum, row) => sum + row.switches_missed, 0);
      doubt.hidden = doubted.length === 0;
      setText(doubt, `${several(doubted.length, "process is", "processes are")} left out of these, marked ? below: ${several(missed, "switch", "switches")} of theirs ${missed === 1 ? "was" : "were"} missed, and ready time without running may come from that.`);
      name();
    },
  };
}
