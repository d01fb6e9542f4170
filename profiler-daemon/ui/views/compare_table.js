// The comparison as a table: each function's shares of both sides and their difference.

import { announce, el, setText } from "../dom.js";
import { at, basename, count, exactTime, percent, points, several, shown, time } from "../format.js";
import { valueChoice } from "../flame/panel.js";
import { change } from "../route.js";
import { createTable, numberColumn, sortRows, textColumn } from "../table.js";
import { COMPARED, comparedValue } from "./compare_values.js";

const LIMIT = 500;
const TYPING_MS = 200;
const KINDS = ["exclusive", "inclusive"];
// The daemon's is that of the value asked for; until its answer is there, the page tells that of another value by itself.
const LARGEST = "largest_change_percent";

const valueOf = (params) => comparedValue(params.value, COMPARED[0]);

function side(name, value, kind) {
  const unit = value.unit === "ns" ? "_ns" : "";
  const told = (number) => (unit ? time(number) : count(number));
  const exact = (number) => (unit ? exactTime(number) : count(number));
  return numberColumn({ id: `${name}.${value.id}.${kind}_percent`, label: name, group: kind, groupTitle: kind === "exclusive" ? "It was the innermost function itself" : "It was anywhere on the stack", title: `Share of the ${name}` }, (row) => {
    const number = at(row, `${name}.${value.id}.${kind}${unit}`);
    const part = at(row, `${name}.${value.id}.${kind}_percent`);
    return { text: percent(part), title: `${told(number)}: ${exact(number)}`, share: part };
  });
}

function difference(value, kind) {
  const unit = value.unit === "ns" ? "_ns" : "";
  const id = `change.${value.id}.${kind}_percent`;
  return numberColumn({ id, label: "change", group: kind, title: "Difference of the shares, in percentage points: the other's less the base's", class: "change" }, (row) => {
    const number = at(row, `change.${value.id}.${kind}${unit}`);
    const part = at(row, id);
    return { text: points(part), title: `${number < 0 ? "−" : "+"}${unit ? exactTime(Math.abs(number)) : count(Math.abs(number))}, not corrected for how much each side covers`, share: row.scale * Math.abs(part), tone: part > 0 ? "up" : part < 0 ? "down" : "" };
  });
}

function columns(value) {
  const name = textColumn({ id: "function", label: "Function", header: true, class: "name code" }, (row) => ({ text: shown(row.function), title: `${shown(row.function)}\n${shown(row.module)}` }));
  const largest = numberColumn({ id: LARGEST, label: "Largest change", title: `The larger of the changes of its shares of ${value.label.toLowerCase()}, exclusive and inclusive, either way; the threshold is about this`, class: "plain" }, (row) => ({ text: points(row[LARGEST], false), title: `${row[LARGEST]} percentage points` }));
  const module = textColumn({ id: "module", label: "Module", class: "module" }, (row) => ({ text: basename(row.module), title: shown(row.module) }));
  const kind = textColumn({ id: "kind", label: "Kind", class: "kind" }, (row) => ({ text: row.kind }));
  const groups = KINDS.flatMap((of) => [side("base", value, of), side("other", value, of), difference(value, of)]);
  return [name, largest, ...groups, module, kind];
}

export function createCompareTable() {
  const values = valueChoice(COMPARED);
  const filter = el("input", { type: "search", id: "filter", placeholder: "part of a function's name…", autocomplete: "off", spellcheck: "false" });
  const threshold = el("input", { type: "number", id: "threshold", min: "0", max: "100", step: "0.1", placeholder: "0", inputmode: "decimal" });
  let typing = 0;
  const soon = (params) => {
    clearTimeout(typing);
    typing = setTimeout(() => change(params(), { replace: true }), TYPING_MS);
  };
  filter.addEventListener("input", () => soon(() => ({ q: filter.value.trim() })));
  threshold.addEventListener("input", () => soon(() => ({ threshold: threshold.validity.valid ? threshold.value : "" })));
  const total = el("p", { class: "dim rows", role: "status" });
  const all = el("button", { type: "button", hidden: true, on: { click: () => change({ rows: "all" }, { replace: true }) } }, "Load all");
  const place = el("div", {});
  const tables = new Map();
  let params = {};
  let answer = null;

  function tableOf(value) {
    if (!tables.has(value.id)) {
      const made = columns(value);
      const table = createTable({
        caption: `Functions of both sides by ${value.label.toLowerCase()}`,
        columns: made,
        key: (row) => `${row.function}\n${row.module}`,
        empty: "No function differs by as much.",
        onSort(id, order, label) {
          change({ sort: id, order });
          announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
        },
      });
      tables.set(value.id, { table, made });
    }
    return tables.get(value.id);
  }

  function sorting(now) {
    const { made } = tableOf(valueOf(now));
    const column = made.find(({ id }) => id === now.sort) ?? made.find(({ id }) => id === LARGEST);
    return { column, order: ["asc", "desc"].includes(now.order) ? now.order : column.order ?? "asc" };
  }

  function draw() {
    const value = valueOf(params);
    values.set(value);
    if (!answer) return;
    const { table } = tableOf(value);
    if (place.firstChild !== table.element) place.replaceChildren(table.element);
    const changes = answer.rows.map((row) => ({ ...row, [LARGEST]: Math.max(...KINDS.map((kind) => Math.abs(row.change[value.id][`${kind}_percent`]))) }));
    const largest = Math.max(...changes.map((row) => row[LARGEST]), 0);
    const { column, order } = sorting(params);
    const least = Number(params.threshold) || 0;
    const rows = changes.filter((row) => row[LARGEST] >= least).map((row) => ({ ...row, scale: largest > 0 ? 100 / largest : 0 }));
    table.set(sortRows(rows, column, order), column.id, order);
    setText(total, answer.truncated ? `${count(rows.length)} of ${several(answer.total_rows, "function")}` : several(rows.length, "function"));
    all.hidden = !answer.truncated;
  }

  return {
    element: el("div", {},
      el("div", { class: "tools" }, values.element, el("label", {}, el("span", {}, "Filter"), filter),
        el("label", { title: "Functions of which no share of the value shown changed by as many percentage points are left out" }, el("span", {}, "At least"), threshold, el("span", {}, "points")), total, all),
      place),
    report: "diff",
    query(now) {
      const { column, order } = sorting(now);
      return { value: valueOf(now).id, sort: column.id, order, q: (now.q ?? "").slice(0, 80), threshold: now.threshold, limit: now.rows === "all" ? 0 : LIMIT };
    },
    show(now) {
      params = now;
      if (document.activeElement !== filter) filter.value = now.q ?? "";
      if (document.activeElement !== threshold) threshold.value = now.threshold ?? "";
      draw();
    },
    load(fresh) {
      answer = fresh;
      draw();
    },
  };
}
