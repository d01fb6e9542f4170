// The lines tab: where in the sources, or at which instructions, the time went; of all functions or of one.

import { el, setAttribute, setChildren, setText } from "../dom.js";
import { basename, shown } from "../format.js";
import { change, link } from "../route.js";
import { textColumn } from "../table.js";
import { valueColumns } from "../values.js";
import { createListTab } from "./list.js";
import { moduleColumn } from "./tables.js";

const WAYS = [
  ["", "Lines", "lines of the sources, as debug information names them"],
  ["instructions", "Instructions", "addresses of the code"],
];

// Of a replay.
const NOT_SAVED = "as debug information is not saved with a profile";

// The line of a row, or why it has none.
const lineText = (row) => (row.file ? `${basename(row.file)}:${row.line ?? "?"}` : `(${shown(row.line_unknown ?? "no line").replaceAll("_", " ")})`);
const source = (row) => (row.file ? `${row.file}:${row.line ?? "?"}` : "");

// Where an instruction is, as well as that is known.
function placeOf(row) {
  if (row.address !== null) return { text: shown(row.address), title: "Virtual address in the module, as a disassembler shows it; of a caller, the last byte of its call" };
  if (row.file_offset !== null) return { text: `file+${shown(row.file_offset)}`, title: `Offset in the module's file; its virtual address is not known, ${row.line_unknown === "not_saved" ? NOT_SAVED : "as the file cannot be read"}` };
  return { text: "unknown" };
}

// Addresses are in order as numbers, as the daemon has them: 0x9000 is before 0x10000. Those of the
// kernel have more digits than other numbers here.
const addressOf = ({ address }) => (address === null ? null : BigInt(address));

// What stands above the table of either way, and stays when the other one is chosen.
function createTools(process) {
  const radios = WAYS.map(([id, label, title]) => {
    const radio = el("input", { type: "radio", name: "lines-way", value: id, on: { change: () => change({ show: id, sort: "", order: "" }) } });
    return { radio, element: el("label", { title }, radio, el("span", {}, label)) };
  });
  const inlines = el("input", { type: "checkbox", id: "inlines", on: { change: () => change({ inlines: inlines.checked ? "true" : "" }) } });
  const toggle = el("label", { title: "Lines of functions that the compiler put into others count as lines of their own; else as the line that called them" }, inlines, el("span", {}, "Inlined functions"));
  const name = el("b", { class: "code" });
  const all = el("a", {}, "all functions");
  const of = el("p", { class: "rows" }, "of ", name, " ", all);
  return {
    element: el("div", { class: "tools" }, el("fieldset", { class: "choice" }, el("legend", { class: "unseen" }, "What rows are"), ...radios.map(({ element }) => element)), toggle, of),
    show(now, way) {
      for (const { radio } of radios) radio.checked = radio.value === way;
      inlines.checked = now.inlines === "true";
      toggle.hidden = way !== "";
      of.hidden = !now.fn;
      setText(name, shown(now.fn));
      setAttribute(all, "href", link("scope", process, "lines", { show: way, inlines: now.inlines }));
    },
  };
}

function functionColumn(process) {
  return textColumn({ id: "function", label: "Function", class: "name code" }, (row) => ({
    text: row.inlined ? `${shown(row.function)} (inlined)` : shown(row.function),
    title: `${shown(row.function)}\n${shown(row.module)}\nshow its instructions`,
    href: row.function ? link("scope", process, "lines", { fn: row.function, in: row.module, show: "instructions" }) : undefined,
  }));
}

export function createLinesTab(process) {
  let params = {};
  const asked = (now) => ({ function: now.fn, module: now.in });
  const tools = createTools(process);
  const lines = createListTab({
    report: "lines",
    nouns: ["line", "lines"],
    columns: [
      textColumn({ id: "file", label: "Line", header: true, class: "name code" }, (row) => ({
        text: lineText(row),
        title: row.file ? shown(source(row)) : `No line is known of it${row.line_unknown === "not_saved" ? `, ${NOT_SAVED}` : ""}`,
      })),
      functionColumn(process),
      ...valueColumns(),
      moduleColumn,
    ],
    key: (row) => `${row.file}\n${row.line}\n${row.function}\n${row.module}\n${row.build_id}\n${row.inlined}\n${row.line_unknown}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a file's or function's name…",
    takesFrames: true,
    takesFold: true,
    extra: (now) => ({ ...asked(now), inlines: now.inlines === "true" ? "true" : undefined }),
  });
  const instructions = createListTab({
    report: "instructions",
    nouns: ["instruction", "instructions"],
    columns: [
      textColumn({
        id: "address",
        label: "Address",
        header: true,
        class: "name code",
        value: addressOf,
      }, placeOf),
      textColumn({ id: "function", label: "Function", class: "name code" }, (row) => ({ text: `${shown(row.function)}${row.offset === null || row.offset === undefined ? "" : `+${row.offset}`}`, title: shown(row.module) })),
      textColumn({ id: "file", label: "Line", class: "code" }, (row) => ({ text: lineText(row), title: row.file ? shown(source(row)) : undefined })),
      ...valueColumns(["exclusive"]),
      moduleColumn,
    ],
    key: (row) => `${row.address}\n${row.file_offset}\n${row.offset}\n${row.module}\n${row.build_id}\n${row.function}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a function's name…",
    takesFrames: true,
    takesFold: true,
    extra: asked,
  });
  const place = el("div", {});
  const chosen = (now) => (now.show === "instructions" ? instructions : lines);
  return {
    element: el("div", {}, tools.element, place),
    get report() {
      return chosen(params).report;
    },
    intervalMs: lines.intervalMs,
    query: (now) => chosen(now).query(now),
    show(now) {
      params = now;
      const tab = chosen(now);
      setChildren(place, [tab.element]);
      tools.show(now, tab === lines ? "" : "instructions");
      tab.show(now);
    },
    load(answer) {
      chosen(params).load(answer);
    },
  };
}
