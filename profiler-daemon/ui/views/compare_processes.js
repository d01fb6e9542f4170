// The comparison by process: whose share of one value changed most, each row leading to the comparison of its functions.

import { announce, el, setChildren, setText } from "../dom.js";
import { count, exactTime, percent, points, several, shown, time } from "../format.js";
import { valueChoice } from "../flame/panel.js";
import { change, link, processId } from "../route.js";
import { createTable, numberColumn, sortRows, textColumn } from "../table.js";
import { COMPARED, comparedValue, RUNNING } from "./compare_values.js";

const LIMIT = 500;
const TYPING_MS = 200;
const LARGEST = "largest_change_percent";
const WAYS = [
  { id: "name", label: "By name", about: "all processes of one name together: one that began anew is the same" },
  { id: "process", label: "Each process", about: "one that began anew is another" },
];

const wayOf = (params) => WAYS.find(({ id }) => id === params.by) ?? WAYS[0];

// Shares of the time covered may be more than all of it.
const part = (value) => (value > 100 ? `${count(Math.round(value))} %` : percent(value));

function unitOf(value) {
  const isTime = value.unit === "ns";
  return { name: isTime ? "ns" : "count", told: isTime ? time : count, exact: isTime ? exactTime : count };
}

function side(name, value) {
  const unit = unitOf(value);
  return numberColumn({ id: `${name}.${value.id}.percent`, label: name, title: `Its share in the ${name}` }, (row) => {
    const of = row[name][value.id];
    return { text: part(of.percent), title: `${unit.told(of[unit.name])}: ${unit.exact(of[unit.name])}`, share: of.percent };
  });
}

function columns(value) {
  const unit = unitOf(value);
  const name = textColumn({ id: "comm", label: "Process", header: true, class: "name" }, (row) => ({
    text: row.pid === null ? shown(row.comm) : `${shown(row.comm)} (${row.pid})`,
    title: row.href ? "Compares its functions" : "Ended processes that are no longer kept one by one: see them by name",
    href: row.href,
  }));
  const difference = numberColumn({ id: LARGEST, label: "change", title: "Difference of the shares, in percentage points: the other's less the base's. Sorted by its size, either way", class: "change" }, (row) => {
    const { [unit.name]: amount, percent: of } = row.change[value.id];
    return { text: points(of), title: `${amount < 0 ? "−" : "+"}${unit.exact(Math.abs(amount))}, not corrected for how much each side covers`, share: row.scale * Math.abs(of), tone: of > 0 ? "up" : of < 0 ? "down" : "" };
  });
  const told = (number) => (number === null ? "?" : count(number));
  const number = numberColumn({ id: "other.processes", label: "processes", title: "How many there were in the base, and in the other", class: "plain" }, (row) => ({
    text: `${told(row.base.processes)} → ${told(row.other.processes)}`,
    title: row.base.processes === null || row.other.processes === null ? "How many of those that ended were there then is no longer known" : null,
  }));
  return [name, difference, side("base", value), side("other", value), number];
}

// What 100 % are.
function wholeOf(answer, value) {
  const name = value.label.toLowerCase();
  const { processors } = answer.base.window;
  if (answer.percent_of === "samples") return "Shares are of all samples of each side.";
  if (answer.percent_of === "processors") return `Shares are of what ${several(processors, "processor")} can do in the time of each side (${name}).`;
  return `Shares are of the time that each side covers (${name}): 200 % are two threads all the time.`;
}

export function createCompareProcesses() {
  const values = valueChoice(COMPARED);
  const ways = WAYS.map((way) => {
    const radio = el("input", { type: "radio", name: "by", value: way.id, on: { change: () => change({ by: way.id === WAYS[0].id ? "" : way.id }) } });
    return { way, radio, element: el("label", { title: way.about }, radio, el("span", {}, way.label)) };
  });
  const choice = el("fieldset", { class: "choice" }, el("legend", { class: "unseen" }, "What a row is"), ...ways.map(({ element }) => element));
  const filter = el("input", { type: "search", id: "filter-processes", placeholder: "part of a name…", autocomplete: "off", spellcheck: "false" });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ q: filter.value.trim() }, { replace: true }), TYPING_MS);
  });
  const total = el("p", { class: "dim rows", role: "status" });
  const all = el("button", { type: "button", hidden: true, on: { click: () => change({ rows: "all" }, { replace: true }) } }, "Load all");
  const whole = el("p", { class: "dim" });
  const place = el("div", {});
  const tables = new Map();
  let params = {};
  let answer = null;

  function tableOf(value) {
    if (!tables.has(value.id)) {
      const made = columns(value);
      const table = createTable({
        caption: `Processes of both sides by ${value.label.toLowerCase()}`,
        columns: made,
        key: (row) => `${row.pid}.${row.start_ticks}.${row.image_id}\n${row.comm}`,
        empty: "No process matches.",
        onSort(id, order, label) {
          change({ sort: id, order });
          announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
        },
      });
      tables.set(value.id, { table, made });
    }
    return tables.get(value.id);
  }

  function sorting(now, value) {
    const { made } = tableOf(value);
    const column = made.find(({ id }) => id === now.sort) ?? made.find(({ id }) => id === LARGEST);
    return { column, order: ["asc", "desc"].includes(now.order) ? now.order : column.order ?? "asc" };
  }

  // Where the functions of a row are compared; of processes that are only told by their file, nowhere.
  function hrefOf(row, value) {
    if (row.image_id !== null || row.comm === "") return null;
    const who = row.pid === null ? { comm: row.comm } : { pid: processId(row) };
    return link("compare", null, "functions", { base: params.base, other: params.other, value: value.id, ...who });
  }

  function draw() {
    const value = comparedValue(params.value, RUNNING);
    values.set(value);
    for (const { way, radio } of ways) radio.checked = way === wayOf(params);
    // The answer to the last question is shown until that of this one is there.
    if (!answer || answer.value !== value.id) return;
    const { table } = tableOf(value);
    setChildren(place, [table.element]);
    const largest = Math.max(...answer.rows.map((row) => row[LARGEST]), 0);
    const rows = answer.rows.map((row) => ({ ...row, href: hrefOf(row, value), scale: largest > 0 ? 100 / largest : 0 }));
    const { column, order } = sorting(params, value);
    table.set(sortRows(rows, column, order), column.id, order);
    setText(whole, wholeOf(answer, value));
    const nouns = answer.by === "name" ? ["name", "names"] : ["process", "processes"];
    setText(total, answer.truncated ? `${count(rows.length)} of ${several(answer.total_rows, ...nouns)}` : several(rows.length, ...nouns));
    all.hidden = !answer.truncated;
  }

  return {
    report: "diff/processes",
    element: el("div", {}, el("div", { class: "tools" }, values.element, choice, el("label", {}, el("span", {}, "Filter"), filter), total, all), whole, place),
    query(now) {
      const value = comparedValue(now.value, RUNNING);
      const { column, order } = sorting(now, value);
      return { value: value.id, by: wayOf(now).id, sort: column.id, order, q: (now.q ?? "").slice(0, 80), limit: now.rows === "all" ? 0 : LIMIT };
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
