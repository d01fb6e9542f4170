// Having functions measured exactly: a button beside each, how the instrumentations stand, and what they have measured.

import { ApiError, get, send } from "../api.js";
import { announce, el, setChildren, setText } from "../dom.js";
import { basename, count, shown, time } from "../format.js";
import { isReplay } from "../known.js";
import { showCalls } from "./measured.js";

const PATH = "/api/v1/instrumentations";
const LENGTH = "60s";
const INTERVAL_MS = 1_000;
// Of more processes, names and groups the first are named.
const FEW = 8;
const ENDED = {
  asked: "stopped",
  time: "its time was over",
  no_process: "its processes have ended",
  given_up: "given up, since it cost too much",
};

// How an instrumentation stands.
function standing({ state, ended, until }) {
  if (state === "ended") return `Ended: ${ENDED[ended] ?? shown(ended)}`;
  const left = until === null ? null : (Date.parse(until) - Date.now()) * 1e6;
  const rest = left === null ? "" : `, ${time(Math.max(0, left))} left`;
  if (state === "trial") return `Its calls are counted for a moment, to see what measuring would cost${rest}`;
  if (state === "waiting") return `Waits: nothing of it is mapped yet${rest}`;
  return `Measuring${rest}`;
}

function resultRow(row) {
  const cell = (ns) => el("td", { class: "n plain" }, ns === null ? "–" : time(ns));
  const open = el("button", { type: "button", class: "link", title: "How long its calls took", on: { click: () => showCalls(row.function, row.module, row) } }, count(row.calls));
  return el("tr", {}, el("th", { scope: "row", class: "name code", title: shown(row.module) }, shown(row.function)), el("td", { class: "n plain" }, open), cell(row.elapsed.mean_ns), cell(row.elapsed.p50_ns), cell(row.elapsed.p99_ns), cell(row.elapsed.max_ns), cell(row.elapsed.inclusive_ns), cell(row.application?.inclusive_ns ?? null));
}

function table(about, head, rows) {
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": about },
    el("table", {}, el("caption", { class: "unseen" }, about), el("thead", {}, el("tr", {}, ...head.map((name, index) => el("th", { scope: "col", class: index > 0 ? "n" : null }, name)))), el("tbody", {}, ...rows)));
}

// A row of numbers and times beside a name.
function plainRow(name, title, ...cells) {
  return el("tr", {}, el("th", { scope: "row", class: "name code", title: shown(title) }, shown(name)), ...cells.map((text) => el("td", { class: "n plain" }, text)));
}

function results(one) {
  const { functions, usdt = [], spans = [] } = one.measured;
  const parts = [];
  if (functions.length > 0) parts.push(table("What was measured", ["function", "calls", "mean", "p50", "p99", "longest", "elapsed", "application"], functions.map(resultRow)));
  const point = (row) => plainRow(`${row.provider}:${row.name}`, row.module, count(row.hits), count(row.processes.length));
  if (usdt.length > 0) parts.push(table("Hits of USDT points", ["USDT point", "hits", "processes"], usdt.map(point)));
  const ns = (value) => (value === null ? "–" : time(value));
  const span = (row) => plainRow(row.name, `${row.start} to ${row.end}, ${row.key}`, count(row.count), ns(row.mean_ns), ns(row.p50_ns), ns(row.p99_ns), ns(row.max_ns), count(row.open));
  if (spans.length > 0) parts.push(table("Spans", ["span", "complete", "mean", "p50", "p99", "longest", "under way"], spans.map(span)));
  return parts.length === 0 ? null : el("div", {}, ...parts);
}

// What was chosen of all kinds, each with what it is called.
function chosen({ functions, usdt = [], spans = [] }) {
  return [...functions.map((row) => ({ ...row, called: row.function })), ...usdt.map((row) => ({ ...row, called: `${row.provider}:${row.name}` })), ...spans.map((row) => ({ ...row, called: row.name }))];
}

// Why what was chosen is not measured, or not all the while.
function reasons(one) {
  const told = chosen(one).filter(({ why }) => why !== null).map(({ called, state, why }) => el("li", {}, el("code", {}, shown(called)), ` (${shown(state).replace("_", " ")}): ${shown(why)}`));
  if (one.trouble !== null) told.push(el("li", {}, shown(one.trouble)));
  return told.length > 0 ? el("ul", { class: "why" }, ...told) : null;
}

// Of whom an instrumentation is, in words.
function whomOf({ all, pids, comms, cgroups, children }) {
  if (all) return "of every process";
  const few = (names) => {
    return [...names.slice(0, FEW).map(shown), ...(names.length > FEW ? ["…"] : [])].join(", ");
  };
  const parts = [
    [pids, pids.length === 1 ? "process" : "processes"],
    [comms, "all named"],
    [cgroups, "all in"],
  ].filter(([names]) => names.length > 0).map(([names, what]) => `${what} ${few(names)}`);
  return `of ${parts.join(" and ")}${children ? ", children included" : ""}`;
}

// Whether it is of this process too. Of who started it only the parent is known.
function concerns({ all, pids, comms, cgroups, children }, { pid, ppid, comm, cgroup }) {
  if (all || pids.includes(pid) || comms.includes(comm)) return true;
  if (children && pids.includes(ppid)) return true;
  return cgroups.some((group) => `${cgroup}/`.startsWith(`${group.replace(/\/+$/, "")}/`));
}

// What a press of a button does. The second one of a double click means the first, and not what
// stands in its place by then.
const once = (act) => (event) => { if (event.detail < 2) act(); };

// A pattern that means this very function. `null`: it has no code in a file.
function patternOf({ kind, module, address, inlined }) {
  return kind === "user" && address !== null && !inlined && module.startsWith("/") ? `${module}:+${address}` : null;
}

// The column of buttons and the panel that shows what they began. Of the whole session (`process` null) functions are measured in
// all processes that have the file, which is asked for once more.
export function createMeasuring(process) {
  const list = el("div", {});
  const said = el("div", { role: "status" });
  const element = el("section", { class: "measuring", "aria-label": "Functions measured exactly", hidden: true }, el("h2", {}, "Measured exactly"), said, list);
  const { signal } = new AbortController();
  // By number: what it is drawn from, and its element.
  const drawn = new Map();
  let timer = 0;
  // Whether it is asked again and again how all stand.
  let isFollowed = false;
  const hidden = new Set();
  // As the daemon last told of them, and the process that they are shown with.
  let all = [];
  let whose = null;
  // For which a request is under way: numbers of those that are ended, patterns of those begun.
  const ending = new Set();
  const beginning = new Set();

  function say(...children) {
    setChildren(said, children);
    show();
  }

  function show() {
    element.hidden = said.childNodes.length === 0 && list.childNodes.length === 0;
  }

  function complain(error) {
    if (!(error instanceof ApiError)) throw error;
    say(el("div", { class: "panel problem" }, el("h2", {}, error.title), el("p", {}, error.detail), el("p", { class: "actions" }, el("button", { type: "button", on: { click: () => say() } }, "Close"))));
    announce(`${error.title}. ${error.detail}`);
  }

  async function end(id, isRunning) {
    ending.add(id);
    draw();
    try {
      // Of one that has ended it would remove what was measured.
      const isOver = isRunning && (await stateOf(id)) === "ended";
      if (!isOver) await send("DELETE", `${PATH}/${id}`, undefined, signal);
      if (!isRunning) hidden.add(id);
      announce(isRunning ? "Stopped." : "Removed.");
    } catch (error) {
      complain(error);
    } finally {
      ending.delete(id);
      draw();
    }
    await look();
  }

  // Asked once, as a part of ending it.
  async function stateOf(id) {
    return (await send("GET", `${PATH}/${id}`, undefined, signal)).state;
  }

  function panel(one) {
    const isRunning = one.state !== "ended";
    const names = chosen(one).map(({ called }) => shown(called)).join(", ") || shown(one.name);
    const [does, what] = isRunning
      ? ["Stop", `Stop measuring ${names}`]
      : ["Remove", `Remove what was measured of ${names}`];
    const click = once(() => end(one.id, isRunning));
    const stop = el("button", { type: "button", "aria-label": what, on: { click } }, does);
    const heading = el("h3", {}, el("span", { class: "code" }, names), ` ${whomOf(one.of)}`);
    const head = el("div", { class: "titled" }, heading, stop);
    const state = el("p", { class: "dim" });
    const body = el("div", {});
    return {
      element: el("article", { class: "panel" }, head, state, body),
      set(now) {
        stop.disabled = ending.has(now.id);
        setText(state, standing(now));
        const key = JSON.stringify([now.measured, now.functions, now.usdt, now.spans, now.trouble]);
        if (body.dataset.key === key) return;
        body.dataset.key = key;
        setChildren(body, [results(now), reasons(now)]);
      },
    };
  }

  function draw() {
    const isHere = ({ of }) => process === null || (whose !== null && concerns(of, whose));
    const here = all.filter((one) => !hidden.has(one.id) && isHere(one)).reverse();
    const panels = here.map((one) => {
      const key = `${one.id} ${one.state === "ended"} ${chosen(one).length}`;
      const known = drawn.get(one.id);
      const part = known?.key === key ? known : { key, ...panel(one) };
      drawn.set(one.id, part);
      part.set(one);
      return part.element;
    });
    setChildren(list, panels);
    show();
  }

  // Asks how all stand, and again while any runs.
  async function look() {
    clearTimeout(timer);
    isFollowed = true;
    try {
      all = (await get(PATH, {}, signal)).instrumentations;
      draw();
      isFollowed = all.some(({ state }) => state !== "ended");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      isFollowed = error.passing;
    }
    if (isFollowed) later();
  }

  // Asks again once somebody looks. A view that was left ends with this: `show` begins anew.
  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!element.isConnected) isFollowed = false;
      else if (document.hidden) later();
      else look();
    }, INTERVAL_MS);
  }

  async function begin(row, whom) {
    const pattern = patternOf(row);
    if (beginning.has(pattern)) return;
    beginning.add(pattern);
    say(el("p", { class: "dim" }, `Asks for ${shown(row.function)} to be measured…`));
    try {
      const wanted = { functions: [pattern], for: LENGTH, ...whom };
      const began = await send("POST", PATH, wanted, signal);
      const refused = began.functions.filter(({ state }) => state === "refused");
      say();
      announce(refused.length > 0 ? `${shown(row.function)} is not measured: ${shown(refused[0].why)}` : `${shown(row.function)} is measured for ${LENGTH}.`);
    } catch (error) {
      complain(error);
      return;
    } finally {
      beginning.delete(pattern);
    }
    await look();
    element.scrollIntoView({ block: "nearest" });
  }

  function ask(row) {
    if (process !== null) {
      begin(row, { pids: [Number(process.split(".")[0])] });
      return;
    }
    const go = el("button", { type: "button", on: { click: () => begin(row, { all: true }) } }, `Measure in every process for ${LENGTH.replace("s", " s")}`);
    const not = el("button", { type: "button", on: { click: () => say() } }, "Not now");
    say(el("div", { class: "panel" }, el("p", {}, "This puts breakpoints into every process that has mapped ", el("code", {}, basename(row.module)), ", whoever's it is. The same button in the functions of one process measures it there alone."), el("p", { class: "actions" }, go, not)));
    go.focus();
  }

  const column = {
    id: "measure",
    label: "Measure",
    class: "act",
    title: "Every call, from entry to exit, for 60 s",
    sorts: false,
    cell() {
      let row = null;
      const click = once(() => ask(row));
      const button = el("button", { type: "button", class: "link", on: { click } }, "measure");
      const td = el("td", { class: "act" }, button);
      return {
        td,
        set(now) {
          row = now;
          button.hidden = patternOf(now) === null;
          button.title = `measure every call of ${shown(now.function)} exactly for 60 s`;
        },
      };
    },
  };

  return {
    element,
    // A profile that was saved has nobody to be measured; what ended processes of an image called is over.
    column: isReplay() || process?.startsWith("image:") ? null : column,
    // Takes the process that those shown are of.
    know(report) {
      whose = report;
      draw();
    },
    // Looks, and goes on while any runs.
    show() {
      if (!isReplay() && !isFollowed) look();
    },
  };
}
