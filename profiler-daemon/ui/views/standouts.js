// The three processes that stand out, each with the reason and the place to look next: the answer for whoever has just
// opened the page.

import { inFaults, onCpu, partsOf } from "../classes.js";
import { el, setAttribute, setText } from "../dom.js";
import { exactTime, percent, share, shown, time } from "../format.js";
import { processLink, processName } from "../route.js";

// What counts as being at work: as much of the busiest one's processor time, in percent.
const AT_WORK_PERCENT = 1;

function largest(rows, value) {
  let found = null;
  for (const row of rows) if (value(row) > 0 && (found === null || value(row) > value(found))) found = row;
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

const CARDS = [
  {
    title: "Uses the processor most",
    none: "Nobody has used a processor yet.",
    find: (rows) => largest(rows, (row) => onCpu(row.classes)),
    value: (row) => onCpu(row.classes),
    why: (row) => working(row),
    tab: "flame",
    params: { value: "samples" },
  },
  {
    title: "Waits most for a processor",
    none: "Nobody waits for a processor.",
    find: (rows) => largest(rows, (row) => row.classes.runnable_ns),
    value: (row) => row.classes.runnable_ns,
    why: (row) => `ready to run, but not running, for ${percent(share(row.classes.runnable_ns, row.elapsed_ns))} of its time`,
    tab: "threads",
    params: { sort: "classes.runnable_ns" },
  },
  {
    title: "At work, and blocked most",
    none: "No process at work is blocked.",
    about: `Of the processes with at least ${AT_WORK_PERCENT} % of the busiest one's processor time, the one that was blocked longest, all its threads together`,
    find(rows) {
      const busiest = rows.reduce((most, row) => Math.max(most, onCpu(row.classes)), 0);
      return largest(rows.filter((row) => onCpu(row.classes) > 0 && onCpu(row.classes) * 100 >= busiest * AT_WORK_PERCENT), (row) => row.classes.blocked_ns);
    },
    value: (row) => row.classes.blocked_ns,
    why: (row) => `blocked for ${percent(share(row.classes.blocked_ns, row.elapsed_ns))} of its time: see in which system calls`,
    tab: "os-events",
    params: {},
  },
];

export function standouts() {
  const cards = CARDS.map((card) => {
    const link = el("a", {});
    const value = el("b", {});
    const why = el("p", {});
    return { card, link, value, why, element: el("li", { title: card.about }, el("h2", {}, card.title), el("p", { class: "who" }, link, value), why) };
  });
  return {
    element: el("ul", { class: "standouts", "aria-label": "What stands out" }, ...cards.map(({ element }) => element)),
    set(rows) {
      for (const { card, link, value, why, element } of cards) {
        const row = card.find(rows);
        element.classList.toggle("none", row === null);
        setText(link, row ? shown(processName(row)) : "");
        setText(value, row ? time(card.value(row)) : "");
        setAttribute(value, "title", row ? exactTime(card.value(row)) : null);
        setText(why, row ? card.why(row) : card.none);
        setAttribute(link, "href", row ? processLink(row, card.tab, card.params) : null);
      }
    },
  };
}
