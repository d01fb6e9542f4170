// What the operating system did for a process: its system calls, one by one.

import { onCpu } from "../classes.js";
import { announce, el, setText } from "../dom.js";
import { count, exactTime, percent, several, share, shown, time } from "../format.js";
import { traced } from "../known.js";
import { change, spanOf } from "../route.js";
import { createTable, numberColumn, sortRows, textColumn } from "../table.js";

const DEFAULT_SORT = "total_ns";

function ns(id, label, title, group) {
  return numberColumn({ id, label, title, group }, (row) => ({
    text: time(row[id]),
    title: exactTime(row[id]),
    share: group ? share(row[id], row.total_ns) : undefined,
  }));
}

// A time of each call; there is none where none was counted.
function perCall(ns, mark = "") {
  return ns === null ? { text: "–" } : { text: `${mark}${time(ns)}`, title: exactTime(ns) };
}

const COLUMNS = [
  textColumn({ id: "name", label: "System call", header: true, class: "name code" }, (row) => ({ text: shown(row.name), title: `number ${row.number}` })),
  numberColumn({ id: "total_ns", label: "Total", title: "Time that threads were inside it, as far as it lies in the time shown, those that still are included", shares: true }, (row) => ({
    text: time(row.total_ns),
    title: `${exactTime(row.total_ns)} (${percent(row.part)} of the time of all threads)`,
    share: row.part,
    shareText: row.total_ns > 0 ? percent(row.part) : "",
  })),
  ns("running_ns", "running", "Of the total, on a processor", "Of it"),
  ns("blocked_ns", "blocked", "Of the total, blocked", "Of it"),
  ns("runnable_ns", "runnable", "Of the total, ready to run, but on no processor", "Of it"),
  numberColumn({ id: "count", label: "Calls", title: "Calls that returned in the time shown" }, (row) => ({ text: count(row.count) })),
  numberColumn({ id: "average_ns", label: "Average", title: "Mean time from entry to return of the calls that returned, whenever they began" }, (row) => perCall(row.average_ns)),
  numberColumn({ id: "max_ns", label: "Longest", title: "The longest call that returned, whenever it began; ≤ in a part of the session, where only a bound is known" }, (row) => perCall(row.max_ns, row.max_is_bound ? "≤ " : "")),
  numberColumn({ id: "in_progress", label: "Inside now", title: "Threads that are inside this call now" }, (row) => ({ text: count(row.in_progress) })),
  numberColumn({ id: "in_progress_ns", label: "for", title: "How long those have been inside, together, since they entered it" }, (row) => ({ text: time(row.in_progress_ns), title: exactTime(row.in_progress_ns) })),
];

// Whether calls were traced in a part of the running time only.
function isPartly(answer) {
  return answer.observed_percent < 100;
}

// Why there is no row, as far as that is known.
function nothing(answer, wanted) {
  if (answer.syscalls.length > 0) return wanted ? "No system call matches." : "";
  if (traced() === "off") return "System calls are not traced: the setting system_calls is off (see Daemon).";
  const none = "No system call was seen in this time.";
  if (traced() === "targets") {
    const setting = "the setting system_calls is targets (see Daemon)";
    return `${none} Only those of processes that the targets name are traced: ${setting}.`;
  }
  if (isPartly(answer)) {
    // Waits are told of every call.
    const part = percent(answer.observed_percent);
    const missed = "Those that never waited may have been missed";
    return `${none} ${missed}: calls were traced in ${part} of the running time.`;
  }
  const { classes } = answer;
  const parts = [
    [onCpu(classes), "running"],
    [classes.runnable_ns, "ready to run"],
    [classes.blocked_ns, "blocked: page faults, being stopped, or a thread of the kernel that waits"],
  ].filter(([ns]) => ns > 0);
  const told = parts.map(([ns, words]) => `${time(ns)} ${words}`).join(", ");
  return parts.length > 0 ? `${none} The time passed outside of them: ${told}.` : none;
}

export function createOsEventsTab() {
  const table = createTable({
    caption: "System calls",
    columns: COLUMNS,
    key: (row) => row.number,
    empty: "",
    onSort(id, order, label) {
      change({ sort: id, order });
      announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
    },
  });
  const filter = el("input", { type: "search", id: "filter", placeholder: "part of a call's name…", autocomplete: "off", spellcheck: "false" });
  filter.addEventListener("input", () => change({ q: filter.value.trim() }, { replace: true }));
  const total = el("p", { class: "dim rows", role: "status" });
  const partly = el("p", { class: "dim partly", hidden: true });
  let params = {};
  let answer = null;

  function draw() {
    if (!answer) return;
    const column = COLUMNS.find(({ id }) => id === params.sort) ?? COLUMNS.find(({ id }) => id === DEFAULT_SORT);
    const order = ["asc", "desc"].includes(params.order) ? params.order : column.order ?? "asc";
    const wanted = (params.q ?? "").toLowerCase();
    const rows = answer.syscalls.filter(({ name }) => name.includes(wanted)).map((row) => ({ ...row, part: share(row.total_ns, answer.elapsed_ns) }));
    partly.hidden = !isPartly(answer) || answer.syscalls.length === 0;
    const part = `the ${percent(answer.observed_percent)} of the running time`;
    const seen = `Calls, average, longest and running are of ${part} in which calls were traced`;
    setText(partly, `${seen}; blocked and runnable are of all of it.`);
    table.explain(nothing(answer, wanted));
    table.set(sortRows(rows, column, order), column.id, order);
    const all = answer.syscalls.length;
    setText(total, rows.length === all ? several(all, "system call") : `${count(rows.length)} of ${several(all, "system call")}`);
  }

  return {
    element: el("div", {},
      el("div", { class: "tools" }, el("label", {}, el("span", {}, "Filter"), filter), total),
      partly, table.element),
    report: "os-events",
    intervalMs: 2_000,
    query: spanOf,
    show(now) {
      params = now;
      if (document.activeElement !== filter) filter.value = now.q ?? "";
      draw();
    },
    load(fresh) {
      answer = fresh;
      draw();
    },
  };
}
