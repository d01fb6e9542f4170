// Two parts of the session, of all, of one process or of those of one name, or two processes, side by side: which they are, what each
// has, and how they differ, as a table of functions, a flame graph or a table of processes.

import { get, namedSessions, reportPath } from "../api.js";
import { capacityOf } from "../capacity.js";
import { downloadLine } from "../downloads.js";
import { el, setChildren, setText } from "../dom.js";
import { clock, count, exactTime, several, shown, threadTime, time } from "../format.js";
import { valueOf } from "../flame/tree.js";
import { receipt } from "../receipt.js";
import { change, COMPARE_TABS, foldOf, link, processId, processName, spanOf, WHOLE } from "../route.js";
import { isProcess, otherOfKind, partOf, sidesOf, whoOf } from "../sides.js";
import { namedParts } from "../span_choice.js";
import { createCompareFlame } from "./compare_flame.js";
import { createCompareProcesses } from "./compare_processes.js";
import { createCompareTable } from "./compare_table.js";

const LABELS = { functions: "Functions", flame: "Flame graph", processes: "Processes" };
const SPANS = [
  ["session", "since the start"],
  ["10s", "last 10 s"],
  ["30s", "last 30 s"],
  ["1m", "last minute"],
  ["5m", "last 5 minutes"],
  ["-20s..-10s", "the 10 s before the last 10 s"],
  ["-60s..-30s", "the 30 s before the last 30 s"],
  ["-2m..-1m", "the minute before the last one"],
  ["-10m..-5m", "the 5 minutes before the last 5"],
];
// How the choice of whose time is compared names all, and those of one name.
const ALL = "";
const NAMED = "comm:";
// Processes to choose from: those with most samples.
const CHOICES = 500;

function sideCard(label) {
  const title = el("h2", {});
  const facts = el("dl", { class: "facts small" });
  const lacks = receipt();
  return {
    element: el("section", { class: "side", "aria-label": `What the ${label.toLowerCase()} has` }, title, facts, lacks.element),
    set(side, name, sleepers) {
      setText(title, `${label}: ${name}`);
      const fact = (what, value, exact) => el("div", { title: exact }, el("dt", {}, what), el("dd", {}, value));
      setChildren(facts, [
        fact("from", clock(side.window.from), side.window.from),
        fact("to", clock(side.window.to), side.window.to),
        fact("elapsed, all threads", threadTime(side.elapsed_ns, capacityOf(side.window).spanNs), exactTime(side.elapsed_ns)),
        fact("application", time(side.application_ns), exactTime(side.application_ns)),
        fact("samples", count(side.samples)),
        side.processes.length > 0 ? fact("processes", shown(side.processes.join(", ")), several(side.process_count ?? side.processes.length, "process", "processes")) : null,
      ]);
      lacks.set(side.completeness, { elapsedNs: side.elapsed_ns, named: true, sleepers });
    },
  };
}

export function createCompareView() {
  const [base, other] = [sideCard("Base"), sideCard("Other")];
  const sides = el("div", { class: "two sides" }, base.element, other.element);
  const tabs = el("nav", { class: "tabs", "aria-label": "Ways to compare" });
  const place = el("div", {});
  const links = el("div", {});
  const wanted = el("p", { class: "panel", hidden: true }, "Choose a second process to compare with.");
  const choices = { base: el("select", { id: "choose-base" }), other: el("select", { id: "choose-other" }) };
  const who = el("select", { id: "choose-who", on: { change: () => {
    const comm = who.value.startsWith(NAMED) ? who.value.slice(NAMED.length) : "";
    change({ pid: comm === "" ? who.value : "", comm });
  } } });
  const ofWhom = el("label", { title: "Whose time is compared" }, el("span", {}, "Of"), who);
  const swap = el("button", { type: "button", title: "Make the base the other, and the other the base", on: { click: () => {
    const now = sidesOf(params);
    change({ base: now.other, other: now.base });
  } } }, "Swap");
  const ways = { functions: createCompareTable(), flame: createCompareFlame(), processes: createCompareProcesses() };
  let processes = [];
  let sessions = [];
  let params = {};
  let tab = "functions";

  for (const [name, box] of Object.entries(choices)) {
    box.addEventListener("change", () => {
      const now = { ...sidesOf(params), [name]: box.value };
      // The other side must be of the same kind.
      const rest = name === "base" ? "other" : "base";
      if (isProcess(now[rest]) !== isProcess(box.value)) now[rest] = otherOfKind(box.value, rest);
      if (now.base === "") Object.assign(now, { base: now.other, other: "" });
      change(now);
    });
  }

  const rowOf = (side) => processes.find((each) => processId(each) === side || String(each.pid) === side);
  const isKernels = (side) => Boolean(rowOf(side)?.kernel_thread);

  function nameOf(side) {
    const row = rowOf(side);
    if (row) return shown(processName(row));
    const parts = [...SPANS, ...namedParts(sessions)];
    return parts.find(([value]) => value === side)?.[1] ?? (isProcess(side) ? `process ${side}` : shown(side));
  }

  function drawChoices() {
    const now = sidesOf(params);
    swap.disabled = now.other === "";
    for (const [name, box] of Object.entries(choices)) {
      // A list that is open is not pulled away.
      if (document.activeElement !== box || box.options.length === 0) {
        const option = ([value, text]) => el("option", { value }, text);
        const rows = processes.filter((row) => row.pid !== null).map((row) => [processId(row), nameOf(processId(row))]);
        setChildren(box, [
          name === "other" && now.other === "" ? el("option", { value: "" }, "choose a process…") : null,
          el("optgroup", { label: "Time of the whole session" }, ...SPANS.map(option)),
          sessions.length > 0 ? el("optgroup", { label: "Named sessions" }, ...namedParts(sessions).map(option)) : null,
          el("optgroup", { label: "Processes" }, ...rows.map(option)),
        ]);
      }
      if (![...box.options].some(({ value }) => value === now[name])) box.append(el("option", { value: now[name] }, nameOf(now[name])));
      box.value = now[name];
    }
  }

  // Whose parts are compared, in words.
  function whoName(now) {
    const { pid, comm } = whoOf(now);
    if (comm) return `all named ${shown(comm)}`;
    return pid ? nameOf(pid) : "";
  }

  function drawWho() {
    ofWhom.hidden = isProcess(sidesOf(params).base);
    const { pid = "", comm = "" } = whoOf(params);
    const now = comm === "" ? pid : `${NAMED}${comm}`;
    if (document.activeElement !== who || who.options.length === 0) {
      const names = [...new Set(processes.filter((row) => row.pid !== null && row.comm !== "").map((row) => row.comm))].sort();
      const rows = processes.filter((row) => row.pid !== null).map((row) => [processId(row), nameOf(processId(row))]);
      setChildren(who, [
        el("option", { value: ALL }, "all processes"),
        el("optgroup", { label: "All of one name" }, ...names.map((name) => el("option", { value: `${NAMED}${name}` }, shown(name)))),
        el("optgroup", { label: "One process" }, ...rows.map(([value, text]) => el("option", { value }, text))),
      ]);
    }
    if (![...who.options].some(({ value }) => value === now)) who.append(el("option", { value: now }, whoName(params)));
    who.value = now;
  }

  // Two parts of all are also compared by process. A call tree is that of one process or of all.
  function tabsOf(now) {
    const { pid, comm } = whoOf(now);
    const ofAll = !pid && !comm && !isProcess(sidesOf(now).base);
    return COMPARE_TABS.filter((id) => (id === "processes" ? ofAll : id !== "flame" || !comm));
  }

  function question(now) {
    const both = sidesOf(now);
    const common = { ...foldOf(now), frames: now.frames };
    const span = isProcess(both.base) ? spanOf(now) : {};
    return { both, common, span };
  }

  // What is asked of the comparison itself.
  function diffQuery(now) {
    const { both, common, span } = question(now);
    if (tab === "processes") return { ...both, ...ways.processes.query(now) };
    // The flame graph needs only the totals of the sides.
    const rows = tab === "functions" ? ways.functions.query(now) : { limit: 1 };
    return { ...both, ...whoOf(now), ...common, ...span, ...rows };
  }

  // The call tree of a side: address and query.
  function treeOf(side, now) {
    const { common, span } = question(now);
    const time = isProcess(side) ? span : partOf(side);
    const process = isProcess(side) ? side : whoOf(now).pid ?? null;
    return [reportPath(process, "calltree"), { ...common, ...time, value: valueOf(now.value).id }];
  }

  const asked = (now) => JSON.stringify([diffQuery(now), tab === "flame" ? valueOf(now.value).id : ""]);

  return {
    element: el("div", { class: "view" }, el("h1", {}, "What differs"),
      el("div", { class: "tools" }, el("label", {}, el("span", {}, "Base"), choices.base), swap, el("label", {}, el("span", {}, "Other"), choices.other), ofWhom),
      wanted, sides, tabs, place, links),
    title: () => `${[whoName(params), nameOf(sidesOf(params).base)].filter(Boolean).join(", ")} and ${nameOf(sidesOf(params).other)} · Compare`,
    intervalMs: () => 0,
    show(route) {
      const before = { params, tab, asked: asked(params) };
      params = route.params;
      const possible = tabsOf(params);
      tab = possible.includes(route.tab) ? route.tab : possible[0];
      const { base: from, other: to, value } = params;
      setChildren(tabs, possible.map((id) => el("a", { href: link("compare", null, id, { base: from, other: to, value, ...whoOf(params) }), "aria-current": id === tab ? "page" : null }, LABELS[id])));
      setChildren(place, [ways[tab].element]);
      const complete = sidesOf(params).other !== "";
      wanted.hidden = complete;
      for (const part of [sides, tabs, place, links]) part.hidden = !complete;
      drawChoices();
      drawWho();
      ways[tab].show(params);
      setChildren(links, complete ? [downloadLine(null, ways[tab].report ?? "diff", { ...diffQuery(params), limit: 0 })] : []);
      return before.tab !== tab || before.asked !== asked(params);
    },
    async load(signal) {
      const now = params;
      const way = tab;
      const both = sidesOf(now);
      const [list, named] = await Promise.all([get("/api/v1/processes", { window: WHOLE, limit: CHOICES, sort: "samples" }, signal), namedSessions(signal)]);
      processes = list.rows;
      sessions = named;
      drawChoices();
      drawWho();
      if (both.other === "") return list.as_of;
      const trees = way === "flame" ? [both.base, both.other].map((side) => get(...treeOf(side, now), signal)) : [];
      const [answer, ...calls] = await Promise.all([get(reportPath(null, ways[way].report ?? "diff"), diffQuery(now), signal), ...trees]);
      const of = (side) => [whoName(now), nameOf(side)].filter(Boolean).join(", ");
      const sleeps = (side) => isKernels(isProcess(side) ? side : whoOf(now).pid ?? "") || (!isProcess(side) && !whoName(now));
      base.set(answer.base, of(both.base), sleeps(both.base));
      other.set(answer.other, of(both.other), sleeps(both.other));
      ways[way].load(...(way === "flame" ? calls : [answer]));
      return answer.as_of;
    },
  };
}
