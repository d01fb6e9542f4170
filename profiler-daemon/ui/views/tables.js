// The tabs that are one table the daemon sorts and filters: functions, modules, threads.

import { CLASSES, classBar, partsOf } from "../classes.js";
import { el } from "../dom.js";
import { at, basename, clock, count, exactTime, percent, share, shown, time } from "../format.js";
import { link } from "../route.js";
import { numberColumn, textColumn } from "../table.js";
import { valueColumns } from "../values.js";
import { createListTab } from "./list.js";
import { measuredColumns } from "./measured.js";
import { createMeasuring } from "./measuring.js";

const kind = textColumn({ id: "kind", label: "Kind", class: "kind" }, (row) => ({ text: row.kind }));
export const moduleColumn = textColumn({ id: "module", label: "Module", class: "module" }, (row) => ({
  text: basename(row.module),
  title: `${shown(row.module)}${row.build_id ? `\nbuild ID ${row.build_id}` : ""}`,
}));

// Where a function's own time went that it did not run its own code.
const OFF = CLASSES.filter(({ id }) => ["blocked", "runnable", "syscall"].includes(id)).reverse();
const offColumns = OFF.map(({ key, label, about }) =>
  numberColumn({ id: `exclusive_classes.${key}`, label, group: "Of elapsed exclusive", groupTitle: "What the time was in which it was the innermost function", title: about }, (row) => {
    const ns = at(row, `exclusive_classes.${key}`);
    const part = share(ns ?? 0, row.elapsed.exclusive_ns);
    return { text: ns === undefined ? "–" : time(ns), title: ns === undefined ? "The daemon does not say" : `${exactTime(ns)} (${percent(part)} of its own time)`, share: part };
  }),
);

// From where in the program a library's function was called.
function callerOf({ called_from: caller }) {
  return caller ? `\n${percent(caller.percent)} of its own time in calls from ${shown(caller.function)} of ${shown(caller.module)}` : "";
}

export function createFunctionsTab(process) {
  const name = textColumn({ id: "function", label: "Function", header: true, class: "name code" }, (row) => ({
    text: shown(row.function),
    // A library's function says little where the program waits.
    beside: row.called_from ? `< ${shown(row.called_from.function)}` : "",
    title: `${shown(row.function)}\n${shown(row.module)}${row.address ? `\nat ${row.address}` : ""}${callerOf(row)}\nshow its callers and callees`,
    href: link("scope", process, "flame", { fn: row.function, in: row.module }),
  }));
  const lines = textColumn({ id: "lines", label: "Lines", sorts: false }, (row) => ({
    text: "lines",
    title: `where in ${shown(row.function)} the time went`,
    href: link("scope", process, "lines", { fn: row.function, in: row.module }),
  }));
  const values = valueColumns();
  const elapsed = values.filter(({ group }) => group === "Elapsed");
  const measuring = createMeasuring(process);
  const tab = createListTab({
    report: "functions",
    nouns: ["function", "functions"],
    columns: [name, ...elapsed, ...offColumns, ...values.filter((column) => !elapsed.includes(column)), moduleColumn, kind, lines, measuring.column].filter(Boolean),
    optional: { has: (rows) => rows.some(({ measured }) => measured), columns: measuredColumns(), after: 1 + elapsed.length },
    above: measuring.element,
    key: (row) => `${row.function}\n${row.module}\n${row.build_id}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a function's name…",
    takesFrames: true,
    takesFold: true,
  });
  return {
    ...tab,
    show(now) {
      tab.show(now);
      measuring.show();
    },
    load(answer, report) {
      // What has exited calls nothing any more.
      tab.element.classList.toggle("exited", report.state === "exited");
      measuring.know(report);
      tab.load(answer);
    },
  };
}

export function createModulesTab() {
  const name = textColumn({ id: "module", label: "Module", header: true, class: "name" }, (row) => ({
    text: shown(row.module),
    title: `${shown(row.module)}${row.build_id ? `\nbuild ID ${row.build_id}` : ""}`,
  }));
  return createListTab({
    report: "modules",
    nouns: ["module", "modules"],
    columns: [name, ...valueColumns(), kind],
    key: (row) => `${row.module}\n${row.build_id}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a module's path…",
    takesFrames: true,
  });
}

export function createThreadsTab(process) {
  const name = textColumn({ id: "comm", label: "Thread", header: true, class: "name" }, (row) => ({
    text: row.threads > 1 && !row.image_id ? `${shown(row.comm)} (${count(row.threads)})` : shown(row.comm),
    title: row.started_at ? `started ${clock(row.started_at)}` : undefined,
    href: process === null && row.pid > 0 ? link("scope", `${row.pid}.${row.start_ticks}`, "threads") : undefined,
  }));
  const bars = {
    id: "bar",
    label: "Where its time went",
    sorts: false,
    class: "bar-cell",
    cell() {
      const bar = classBar();
      return { td: el("td", { class: "bar-cell" }, bar.element), set: (row) => bar.set(partsOf(row)) };
    },
  };
  const [elapsed, , samples] = valueColumns(["exclusive"]);
  const classes = CLASSES.map(({ key, label, about }) =>
    numberColumn({ id: key === "fault_ns" ? key : key === "user_ns" ? "application.exclusive_ns" : `classes.${key}`, label, title: about, group: "Time by class" }, (row) => ({
      text: time(partsOf(row)[key]),
      title: `${exactTime(partsOf(row)[key])} (${percent(share(partsOf(row)[key], row.elapsed.inclusive_ns))} of the thread's time)`,
      share: share(partsOf(row)[key], row.elapsed.inclusive_ns),
    })),
  );
  return createListTab({
    report: "threads",
    nouns: ["thread", "threads"],
    columns: [
      name,
      numberColumn({ id: "tid", label: "TID", order: "asc", class: "plain" }, (row) => ({ text: row.tid > 0 ? String(row.tid) : "–" })),
      textColumn({ id: "state", label: "State" }, (row) => ({ text: row.state })),
      bars,
      elapsed,
      samples,
      ...classes,
      numberColumn({ id: "minor_faults", label: "minor", group: "Page faults", title: "Page faults that needed no reading" }, (row) => ({ text: count(row.minor_faults) })),
      numberColumn({ id: "major_faults", label: "major", group: "Page faults", title: "Page faults that waited for data to be read" }, (row) => ({ text: count(row.major_faults) })),
      numberColumn({ id: "switches_missed", label: "missed", title: "Switches of it that were not seen: with any, how its time off the processors is divided into blocked and runnable is in doubt" }, (row) => ({ text: count(row.switches_missed) })),
      numberColumn({ id: "unobserved_ns", label: "unobserved", title: "Time in which it was no target" }, (row) => ({ text: time(row.unobserved_ns), title: exactTime(row.unobserved_ns) })),
    ],
    key: (row) => `${row.pid}.${row.tid}.${row.started_at}.${row.image_id}.${row.comm}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a thread's name…",
  });
}
