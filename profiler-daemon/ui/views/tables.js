// The tabs that are one table the daemon sorts and filters: functions, modules, threads.

import { CLASSES, classBar } from "../classes.js";
import { announce, el, setText } from "../dom.js";
import { basename, clock, count, exactTime, percent, several, share, shown, time } from "../format.js";
import { change, link } from "../route.js";
import { createTable, numberColumn, sortRows, textColumn } from "../table.js";
import { valueColumns } from "../values.js";

const INTERVAL_MS = 5_000;
const LIMIT = 500;
const TYPING_MS = 200;

function createListTab({ report, nouns, columns, key, defaultSort, filterLabel, takesFrames }) {
  let limit = LIMIT;
  const table = createTable({
    caption: nouns[1][0].toUpperCase() + nouns[1].slice(1),
    columns,
    key,
    empty: `No ${nouns[0]} matches.`,
    onSort(id, order, label) {
      change({ sort: id, order });
      announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
    },
  });
  const filter = el("input", { type: "search", id: "filter", placeholder: filterLabel, autocomplete: "off", spellcheck: "false" });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ q: filter.value.trim() }, { replace: true }), TYPING_MS);
  });
  const total = el("p", { class: "dim rows", role: "status" });
  const all = el("button", { type: "button", on: { click: () => { limit = 0; change({ rows: "all" }, { replace: true }); } } }, "Load all");
  all.hidden = true;
  let params = {};
  let answer = null;

  function sorting() {
    const column = columns.find(({ id, sorts }) => id === params.sort && sorts !== false) ?? columns.find(({ id }) => id === defaultSort);
    return { column, order: ["asc", "desc"].includes(params.order) ? params.order : column.order ?? "asc" };
  }

  function draw() {
    if (!answer) return;
    const { column, order } = sorting();
    table.set(sortRows(answer.rows, column, order), column.id, order);
    setText(total, answer.truncated ? `${count(answer.rows.length)} of ${several(answer.total_rows, ...nouns)}` : several(answer.total_rows, ...nouns));
    all.hidden = !answer.truncated;
  }

  return {
    element: el("div", {}, el("div", { class: "tools" }, el("label", {}, el("span", {}, "Filter"), filter), total, all), table.element),
    report,
    intervalMs: INTERVAL_MS,
    query(now) {
      const column = columns.find(({ id, sorts }) => id === now.sort && sorts !== false);
      const order = ["asc", "desc"].includes(now.order) ? now.order : undefined;
      const q = (now.q ?? "").slice(0, 80);
      return { sort: column?.id ?? defaultSort, order: order ?? (column?.order === "desc" || !column ? "desc" : "asc"), q, window: now.window, frames: takesFrames ? now.frames : undefined, limit: now.rows === "all" ? 0 : limit };
    },
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

const kind = textColumn({ id: "kind", label: "Kind", class: "kind" }, (row) => ({ text: row.kind }));
const module = textColumn({ id: "module", label: "Module", class: "module" }, (row) => ({
  text: basename(row.module),
  title: `${shown(row.module)}${row.build_id ? `\nbuild ID ${row.build_id}` : ""}`,
}));

export function createFunctionsTab(process) {
  const name = textColumn({ id: "function", label: "Function", header: true, class: "name code" }, (row) => ({
    text: shown(row.function),
    title: `${shown(row.function)}\n${shown(row.module)}${row.address ? `\nat ${row.address}` : ""}\nshow its callers and callees`,
    href: link("scope", process, "flame", { fn: row.function, in: row.module }),
  }));
  return createListTab({
    report: "functions",
    nouns: ["function", "functions"],
    columns: [name, ...valueColumns(), module, kind],
    key: (row) => `${row.function}\n${row.module}\n${row.build_id}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a function's name…",
    takesFrames: true,
  });
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
    text: row.threads > 1 ? `${shown(row.comm)} (${count(row.threads)})` : shown(row.comm),
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
      return { td: el("td", { class: "bar-cell" }, bar.element), set: (row) => bar.set(row.classes) };
    },
  };
  const [elapsed, , samples] = valueColumns(["exclusive"]);
  const classes = CLASSES.map(({ key, label, about }) =>
    numberColumn({ id: `classes.${key}`, label, title: about, group: "Time by class" }, (row) => ({
      text: time(row.classes[key]),
      title: `${exactTime(row.classes[key])} (${percent(share(row.classes[key], row.elapsed.inclusive_ns))} of the thread's time)`,
      share: share(row.classes[key], row.elapsed.inclusive_ns),
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
      numberColumn({ id: "unobserved_ns", label: "unobserved", title: "Time in which it was no target" }, (row) => ({ text: time(row.unobserved_ns), title: exactTime(row.unobserved_ns) })),
    ],
    key: (row) => `${row.pid}.${row.tid}.${row.started_at}.${row.comm}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a thread's name…",
    takesFrames: false,
  });
}
