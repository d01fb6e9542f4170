// One process, or the whole session: a summary, and the reports about it as tabs.

import { get, reportPath } from "../api.js";
import { capacityOf } from "../capacity.js";
import { activeNs, classBar, classLegend, mostly, partsOf } from "../classes.js";
import { downloadLine } from "../downloads.js";
import { el, setAttribute, setChildren, setText } from "../dom.js";
import { clock, count, exactTime, percent, share, shown, threadTime, time } from "../format.js";
import { receipt } from "../receipt.js";
import { COMPARE_TABS, link, processName, spanOf, TABS } from "../route.js";
import { createUsualNote } from "../span_choice.js";
import { createFlameTab } from "./flame.js";
import { createLinesTab } from "./lines.js";
import { createOsEventsTab } from "./os_events.js";
import { createFunctionsTab, createModulesTab, createThreadsTab } from "./tables.js";
import { createTimelineTab } from "./timeline.js";

const LABELS = { functions: "Functions", modules: "Modules", threads: "Threads", timeline: "Timeline", lines: "Lines", "os-events": "OS events", flame: "Flame graph" };
const CREATE = {
  functions: createFunctionsTab,
  modules: createModulesTab,
  threads: createThreadsTab,
  timeline: createTimelineTab,
  lines: createLinesTab,
  "os-events": createOsEventsTab,
  flame: createFlameTab,
};

// Reports that are about functions.
const NAMED = ["functions", "calltree", "lines", "instructions"];

// A tab is {element, report, intervalMs, query(params), show(params), load(answer, of)}: `query`
// says what is asked of the report, `of` are the totals of the process or the session.
export function createScopeView(first) {
  const process = first.process;
  const title = el("h1", {}, process === null ? "Whole session" : `Process ${shown(process)}`);
  const about = el("p", { class: "about" });
  const facts = el("dl", { class: "facts" });
  const bar = classBar();
  const legend = classLegend();
  const lacks = receipt();
  const tabs = el("nav", { class: "tabs", "aria-label": "Reports" });
  const place = el("div", { class: "tab" });
  const links = el("div", {});
  const known = new Map();
  let tab = null;
  let tabId = "";
  let params = {};
  let asked = "";
  let name = process === null ? "Whole session" : `Process ${shown(process)}`;

  const head = el("section", { class: "summary", "aria-label": "Summary" }, el("div", { class: "totals" }, about, facts, bar.element, legend.element), lacks.element);
  // Empty tables would look like answers.
  for (const part of [head, place, links]) part.hidden = true;
  const usual = createUsualNote();
  const compare = el("a", { class: "beside" }, process === null ? "compare parts of it" : "compare with another");
  // Ended processes of an image are only compared by their name.
  const times = process === null || process.startsWith("image:") ? null : el("a", { class: "beside" }, "compare two times of it");
  const element = el("div", { class: "view" }, el("div", { class: "titled" }, title, compare, times), usual.element, head, tabs, place, links);

  function set(report) {
    for (const part of [head, place, links]) part.hidden = false;
    if (process !== null) {
      name = shown(processName(report));
      setText(title, `${shown(report.comm)} `);
      const number = report.pid === null ? `${count(report.ended)} processes that ended` : `PID ${report.pid}`;
      title.append(el("small", {}, number), el("small", { class: `state ${report.state}` }, report.state));
      drawLinks();
    }
    setText(about, sentence(report));
    const fact = (label, value, exact) => (value === null || value === undefined || value === "" ? null : el("div", { title: exact }, el("dt", {}, label), el("dd", {}, value)));
    setChildren(facts, process === null ? sessionFacts(report, fact) : processFacts(report, fact));
    bar.set(partsOf(report));
    legend.set(partsOf(report));
  }

  function drawLinks() {
    const query = downloadQuery(tab.query(params));
    // Made anew only where they changed: people may be about to follow one.
    const key = JSON.stringify([tab.report, query, name]);
    if (links.dataset.key === key) return;
    links.dataset.key = key;
    setChildren(links, [downloadLine(process, tab.report, query, name)]);
  }

  function drawTabs(now) {
    setChildren(tabs, TABS.map((id) => el("a", { href: link("scope", process, id), "aria-current": id === now ? "page" : null }, LABELS[id])));
  }

  return {
    element,
    title: () => `${name} · ${LABELS[tabId]}`,
    intervalMs: () => tab.intervalMs,
    show(route) {
      const before = asked;
      params = route.params;
      const isNew = tabId !== route.tab;
      tabId = route.tab;
      if (!known.has(route.tab)) known.set(route.tab, CREATE[route.tab](process));
      tab = known.get(route.tab);
      drawTabs(route.tab);
      usual.show(params);
      if (isNew) setChildren(place, [tab.element]);
      tab.show(params);
      asked = JSON.stringify([tab.report, tab.query(params), spanOf(params)]);
      drawLinks();
      setAttribute(compare, "href", link("compare", null, COMPARE_TABS[0], { base: process ?? "session" }));
      if (times) setAttribute(times, "href", link("compare", null, COMPARE_TABS[0], { pid: process }));
      return before !== asked;
    },
    async load(signal) {
      const mine = tab;
      const path = reportPath(process, mine.report);
      const [report, answer] = await Promise.all([get(reportPath(process, ""), spanOf(params), signal), get(path, mine.query(params), signal)]);
      set(report);
      mine.load(answer, report);
      // Of what stands below it, where that names functions; else of the totals.
      const named = NAMED.includes(mine.report);
      lacks.set((named ? answer : report).completeness, { elapsedNs: report.elapsed_ns, stacks: report.stacks, named, sleepers: process === null || report.kernel_thread });
      return answer.as_of;
    },
  };
}

// What the threads of a process or of the session did with their time, those that only waited told apart.
function sentence(report) {
  if (!(report.elapsed_ns > 0)) return "No time was seen in this part of the session.";
  const active = activeNs(report.classes);
  const waited = `blocked for ${percent(share(report.classes.blocked_ns, report.elapsed_ns))} of ${threadTime(report.elapsed_ns, capacityOf(report.window).spanNs)}`;
  const who = report.pid === undefined ? "All threads together were" : "Its threads were";
  if (!(active > 0)) return `${who} ${waited}.`;
  const clause = mostly(report);
  return `${who} ${waited}, and active for ${time(active)}${clause && `: ${clause}`}.`;
}

// What is downloaded is everything, not what a screen holds.
function downloadQuery(query) {
  return "limit" in query ? { ...query, limit: 0 } : query;
}

function elapsed(report, fact, of) {
  return fact("elapsed, all threads", threadTime(report.elapsed_ns, capacityOf(report.window).spanNs), `${exactTime(report.elapsed_ns)}${of}`);
}

// Application time with its interval, where ticks say what of class user it is.
function application(report, fact, of) {
  const interval = report.application_low_ns === undefined ? "" : `\n95 % interval: ${time(report.application_low_ns)} to ${time(report.application_high_ns)}`;
  return fact("application", time(report.application_ns), `${exactTime(report.application_ns)}${of}${interval}`);
}

// Page faults and what they took, where there were any.
function faults(report, fact) {
  if (!(report.fault_ns > 0)) return fact("page faults", `${count(report.minor_faults)} minor, ${count(report.major_faults)} major`);
  return fact("page faults", `${count(report.minor_faults)} minor, ${count(report.major_faults)} major: ${time(report.fault_ns)}`, `${percent(share(report.fault_ns, report.elapsed_ns))} of its time in the kernel outside system calls: page faults and interrupts`);
}

function processFacts(report, fact) {
  const parent = report.ppid > 0 ? el("a", { href: link("scope", String(report.ppid)) }, String(report.ppid)) : null;
  return [
    elapsed(report, fact, ` (${percent(report.elapsed_percent)} of the session)`),
    application(report, fact, ` (${percent(report.application_percent)} of the session)`),
    faults(report, fact),
    fact("samples", `${count(report.samples)} (${percent(report.samples_percent)})`, "and the share of the session's"),
    fact("threads", count(report.threads)),
    fact("started", report.started_at ? clock(report.started_at) : null, report.started_at),
    fact("ended", report.exited_at ? clock(report.exited_at) : null, report.exited_at),
    fact("parent", parent),
    fact("user", report.uid === null ? null : String(report.uid)),
    fact("unit", report.unit && shown(report.unit)),
    fact("container", report.container_id && shown(report.container_id).slice(0, 12), shown(report.container_id)),
    fact("program", report.exe ? shown(report.exe) : report.kernel_thread ? "kernel thread" : null),
    fact("command line", report.command_line && shown(report.command_line)),
  ];
}

function sessionFacts(report, fact) {
  return [
    elapsed(report, fact, ""),
    application(report, fact, ""),
    faults(report, fact),
    fact("samples", count(report.samples)),
    fact("processes", count(report.processes)),
    fact("threads", count(report.threads)),
    fact("started", clock(report.started_at), report.started_at),
  ];
}
