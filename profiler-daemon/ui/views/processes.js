// All processes: who uses or waits most, why, and how complete that is.

import { get } from "../api.js";
import { capacityOf } from "../capacity.js";
import { classBar, classLegend, CLASSES, onCpu, partsOf } from "../classes.js";
import { downloadLine } from "../downloads.js";
import { announce, el, setChildren, setText } from "../dom.js";
import { basename, clock, count, exactTime, percent, several, share, shown, threadTime, time } from "../format.js";
import { createHistory, sparkline } from "../history.js";
import { receipt } from "../receipt.js";
import { change, processId, processLink, processName, spanOf, WHOLE } from "../route.js";
import { createUsualNote } from "../span_choice.js";
import { createTable, numberColumn, sortRows, textColumn } from "../table.js";
import { isDoubtful, standouts } from "./standouts.js";

const INTERVAL_MS = 2_000;
// More than a machine usually runs; of more, the first by the chosen column.
const LIMIT = 2_000;
// What the page sorts by itself; the daemon then sorts by samples.
const [NOW, PROCESSOR] = ["now", "processor"];
const OF_PAGE = [NOW, PROCESSOR];
const DEFAULT_SORT = PROCESSOR;
// The busiest threads, which are asked for to tell who idles.
const THREADS = 1_000;

const rowKey = processId;

// The columns. `seen`, as of the last answer: {capacity}.
function columns(history, seen) {
  const ofProcess = (ns, row) => `${exactTime(ns)} (${percent(share(ns, row.elapsed_ns))} of the process's time)`;
  const running = (id, label, title, value) =>
    numberColumn({ id, label, title: `${title}. As a share of the time of all processors`, group: "On the processors", groupTitle: "Shares of the time of all processors, where their number is known", value }, (row) => {
      const ns = value(row);
      const { ns: all } = seen.capacity;
      return { text: all && ns > 0 ? percent(share(ns, all)) : time(ns), title: ofProcess(ns, row), share: all ? share(ns, all) : share(ns, row.elapsed_ns) };
    });
  const waiting = ({ key, label, about }, mark = () => "") =>
    numberColumn({ id: `classes.${key}`, label, title: about, group: "Off them", groupTitle: "Time of all its threads", value: (row) => row.classes[key] }, (row) => {
      const ns = row.classes[key];
      const why = mark(row);
      return { text: `${time(ns)}${why && " ?"}`, title: `${ofProcess(ns, row)}${why}`, share: share(ns, row.elapsed_ns) };
    });
  const doubt = (row) => (isDoubtful(row) ? `\nIn doubt: ${several(row.switches_missed, "switch", "switches")} of its threads ${row.switches_missed === 1 ? "was" : "were"} missed, and it hardly ran. It may have been asleep.` : "");
  const elapsed = numberColumn({ id: "elapsed_ns", label: "Elapsed", title: "The time of all its threads together: of 97 threads it is 97 s a second" }, (row) => ({
    text: time(row.elapsed_ns),
    title: `${threadTime(row.elapsed_ns, seen.capacity.spanNs)}\n${exactTime(row.elapsed_ns)} (${percent(row.elapsed_percent)} of the session)`,
    share: row.elapsed_percent,
  }));
  const name = textColumn({ id: "comm", label: "Process", header: true, class: "name", value: (row) => row.comm.toLowerCase() }, (row) => ({
    text: row.image_id ? shown(processName(row)) : shown(row.comm),
    href: processLink(row, "functions"),
    title: [row.exe, row.command_line, row.unit, row.container_id].filter(Boolean).map(shown).join("\n") || shown(row.comm),
  }));
  const bars = {
    id: "bar",
    label: "Where its time went",
    title: "The process's time by class; see the legend",
    sorts: false,
    class: "bar-cell",
    cell() {
      const bar = classBar();
      return { td: el("td", { class: "bar-cell" }, bar.element), set: (row) => bar.set(partsOf(row)) };
    },
  };
  const lately = {
    id: NOW,
    label: "Lately",
    title: "How much of the processors it uses, of one where their number is not known; the line begins when this page was opened",
    order: "desc",
    numeric: true,
    value: (row) => history.now(rowKey(row)) ?? -1,
    cell() {
      const spark = sparkline();
      return { td: el("td", { class: "n" }, spark.element), set: (row) => spark.set(history.loads(rowKey(row)), seen.capacity.processors) };
    },
  };
  const samples = numberColumn({ id: "samples", label: "Samples", title: "Timer ticks that found it running", shares: true }, (row) => ({
    text: count(row.samples),
    title: `${count(row.samples)} samples (${percent(row.samples_percent)} of the session)`,
    share: row.samples_percent,
    shareText: row.samples > 0 ? percent(row.samples_percent) : "",
  }));
  const [user, fault, syscall, kernel, runnable, blocked] = CLASSES;
  const unit = textColumn({ id: "unit", label: "Unit or program", class: "from", value: (row) => origin(row).toLowerCase() }, (row) => ({
    text: origin(row),
    title: [row.exe, row.cgroup].filter(Boolean).map(shown).join("\n"),
  }));
  return [
    name,
    numberColumn({ id: "pid", label: "PID", order: "asc", class: "plain" }, (row) => (row.pid === null ? { text: "–", title: `${row.ended} processes that ended` } : { text: String(row.pid), title: `started ${clock(row.started_at)}` })),
    lately,
    bars,
    running(PROCESSOR, "all", "Running, in any class", (row) => onCpu(row.classes)),
    running("application_ns", user.label, `Application time: ${user.about}`, (row) => row.application_ns),
    running("fault_ns", fault.label, fault.about, (row) => row.fault_ns),
    ...[syscall, kernel].map(({ key, label, about }) => running(`classes.${key}`, label, about, (row) => row.classes[key])),
    waiting(runnable, doubt),
    waiting(blocked),
    samples,
    elapsed,
    numberColumn({ id: "threads", label: "Threads", class: "plain" }, (row) => ({ text: count(row.threads) })),
    textColumn({ id: "state", label: "State" }, (row) => ({ text: row.state, title: row.exited_at ? `ended ${clock(row.exited_at)}` : row.started_at ? `started ${clock(row.started_at)}` : undefined })),
    unit,
  ];
}

function origin(row) {
  if (row.unit) return shown(row.unit);
  if (row.container_id) return shown(row.container_id).slice(0, 12);
  if (row.kernel_thread) return "kernel thread";
  return row.exe ? basename(row.exe) : "";
}

function matches(row, wanted) {
  return [row.comm, String(row.pid), row.exe, row.unit, row.container_id, row.cgroup, row.command_line].some((text) => text?.toLowerCase().includes(wanted));
}

const SHOWN = [
  ["", "all"],
  ["running", "running now"],
  ["programs", "without kernel threads"],
];
const KEEPS = { running: (row) => row.state === "running", programs: (row) => !row.kernel_thread };

export function createProcessesView() {
  const history = createHistory();
  const seen = { capacity: { spanNs: 0, processors: null, ns: null } };
  const made = columns(history, seen);
  const table = createTable({
    caption: "Processes",
    columns: made,
    key: rowKey,
    empty: "No process matches.",
    onSort(id, order, label) {
      change({ sort: id, order });
      announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
    },
  });
  const filter = el("input", { type: "search", id: "filter", placeholder: "name, PID, unit, path…", autocomplete: "off", spellcheck: "false" });
  filter.addEventListener("input", () => change({ q: filter.value.trim() }, { replace: true }));
  const keep = el("select", { id: "keep" }, ...SHOWN.map(([value, text]) => el("option", { value }, text)));
  keep.addEventListener("change", () => change({ keep: keep.value }));
  const total = el("p", { class: "dim rows", role: "status" });
  const summary = createSummary();
  const stand = standouts();
  const usual = createUsualNote();
  const links = el("div", {});
  const element = el("div", { class: "view" },
    el("h1", {}, "Where the time of this machine goes"),
    usual.element,
    summary.element,
    stand.element,
    el("div", { class: "tools" }, el("label", {}, el("span", {}, "Filter"), filter), el("label", {}, el("span", {}, "Processes"), keep), total),
    table.element,
    links,
  );

  let answers = null;
  let params = {};

  function sorting() {
    const column = made.find(({ id, sorts }) => id === params.sort && sorts !== false) ?? made.find(({ id }) => id === DEFAULT_SORT);
    const order = ["asc", "desc"].includes(params.order) ? params.order : column.order ?? "asc";
    return { column, order };
  }

  function draw() {
    if (!answers) return;
    const { column, order } = sorting();
    const wanted = (params.q ?? "").toLowerCase();
    const keeps = KEEPS[params.keep] ?? (() => true);
    const rows = answers.processes.rows.filter((row) => keeps(row) && (wanted === "" || matches(row, wanted)));
    table.set(sortRows(rows, column, order), column.id, order);
    const all = answers.processes.total_rows;
    const cut = answers.processes.truncated ? `; the page has the first ${count(answers.processes.rows.length)}` : "";
    setText(total, rows.length === all ? several(all, "process", "processes") : `${count(rows.length)} of ${several(all, "process", "processes")}${cut}`);
  }

  return {
    element,
    title: () => "Processes",
    intervalMs: () => INTERVAL_MS,
    show(route) {
      const before = params;
      params = route.params;
      if (document.activeElement !== filter) filter.value = params.q ?? "";
      keep.value = KEEPS[params.keep] ? params.keep : "";
      usual.show(params);
      const { column, order } = sorting();
      const own = OF_PAGE.includes(column.id);
      // The daemon searches names alone, and the page more: files have all rows.
      const what = params.q || params.keep ? "All processes" : undefined;
      const sorted = own ? {} : { sort: column.id, order };
      const query = { ...sorted, ...spanOf(params), limit: 0 };
      setChildren(links, [downloadLine(null, "processes", query, "", what)]);
      draw();
      return JSON.stringify(spanOf(before)) !== JSON.stringify(spanOf(params));
    },
    async load(signal) {
      const { column, order } = sorting();
      const span = spanOf(params);
      const own = OF_PAGE.includes(column.id);
      const [processes, session, threads] = await Promise.all([
        get("/api/v1/processes", { limit: LIMIT, sort: own ? "samples" : column.id, order: own ? "desc" : order, ...span }, signal),
        get("/api/v1/session", span, signal),
        get("/api/v1/threads", { limit: THREADS, sort: "samples.exclusive", ...span }, signal),
      ]);
      history.add({ ...processes, windowed: span.window === WHOLE ? "" : Object.values(span).join(" ") }, rowKey);
      seen.capacity = capacityOf(session.window);
      answers = { processes, session };
      summary.set(session);
      stand.set(processes.rows, threads.rows, session, span);
      draw();
      return processes.as_of;
    },
  };
}

// How busy the processors are, as a sentence: with their number as a share of what they can do.
function busy({ spanNs, processors, ns }, session) {
  const used = onCpu(session.classes);
  // Time of what is no target is not known.
  const by = session.discarded.not_target > 0 ? " with what is profiled" : "";
  if (ns) return [`${several(processors, "processor")}, ${percent(share(used, ns))} busy`, `${by}, in ${time(spanNs)}.`];
  return [`${(spanNs > 0 ? used / spanNs : 0).toFixed(1)} processors busy`, `${by} on average, in ${time(spanNs)}.`];
}

function createSummary() {
  const how = el("b", {});
  const when = el("span", {});
  const facts = el("dl", { class: "facts" });
  const bar = classBar();
  const legend = classLegend();
  const lacks = receipt();
  const fact = (name, value, title) => el("div", { title }, el("dt", {}, name), el("dd", {}, value));
  return {
    element: el("section", { class: "summary", "aria-label": "All processes together" }, el("div", { class: "totals" }, el("p", { class: "about processors" }, how, when), facts, bar.element, legend.element), lacks.element),
    set(session) {
      const capacity = capacityOf(session.window);
      const [sentence, rest] = busy(capacity, session);
      setText(how, sentence);
      setText(when, rest);
      const dropped = session.retired.processes;
      const discarded = Object.entries(session.discarded).map(([name, number]) => `${name}: ${count(number)}`);
      setChildren(facts, [
        fact("covers", time(capacity.spanNs), `${session.window.from} to ${session.window.to}`),
        fact("elapsed, all threads", threadTime(session.elapsed_ns, capacity.spanNs), exactTime(session.elapsed_ns)),
        fact("application", time(session.application_ns), exactTime(session.application_ns)),
        fact("samples", count(session.samples), discarded.length ? `discarded on purpose: ${discarded.join(", ")}` : undefined),
        fact("processes", count(session.processes), dropped === null ? "those with a row of their own; the time of others is in the totals" : `${count(dropped)} are no longer kept one by one; their time is in the totals`),
        fact("threads", count(session.threads)),
      ]);
      bar.set(partsOf(session));
      legend.set(partsOf(session));
      lacks.set(session.completeness, { elapsedNs: session.elapsed_ns, stacks: session.stacks, sleepers: true });
    },
  };
}
