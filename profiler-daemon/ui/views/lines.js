// The lines tab: where in the sources, or at which instructions, the time went; of all functions or of one.

import { el, setAttribute, setChildren } from "../dom.js";
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

// Why a row has no line, or its line.
const lineText = (row) => (row.file ? `${basename(row.file)}:${row.line ?? "?"}` : `(${shown(row.line_unknown ?? "no line").replaceAll("_", " ")})`);
const place = (row) => (row.file ? `${row.file}:${row.line ?? "?"}` : "");

// What both ways have above their tables.
function tools(process, way) {
  const radios = WAYS.map(([id, label, title]) => {
    const radio = el("input", { type: "radio", name: `lines-${way}`, value: id, checked: id === way, on: { change: () => change({ show: id, sort: "", order: "" }) } });
    return el("label", { title }, radio, el("span", {}, label));
  });
  const inlines = el("input", { type: "checkbox", id: `inlines-${way || "lines"}`, on: { change: () => change({ inlines: inlines.checked ? "true" : "" }) } });
  const toggle = el("label", { title: "Lines of functions that the compiler put into others count as lines of their own; else as the line that called them" }, inlines, el("span", {}, "Inlined functions"));
  const of = el("p", { class: "rows" });
  return {
    elements: [el("fieldset", { class: "choice" }, el("legend", { class: "unseen" }, "What rows are"), ...radios), way === "" ? toggle : null, of],
    show(now) {
      for (const label of radios) {
        const radio = label.querySelector("input");
        radio.checked = radio.value === way;
      }
      inlines.checked = now.inlines === "true";
      of.hidden = !now.fn;
      setChildren(of, now.fn ? ["of ", el("b", { class: "code" }, shown(now.fn)), " ", el("a", { href: link("scope", process, "lines", { show: way, inlines: now.inlines }) }, "all functions")].map((part) => (typeof part === "string" ? document.createTextNode(part) : part)) : []);
    },
  };
}

function functionColumn(process, params) {
  return textColumn({ id: "function", label: "Function", class: "name code" }, (row) => ({
    text: row.inlined ? `${shown(row.function)} (inlined)` : shown(row.function),
    title: `${shown(row.function)}\n${shown(row.module)}\nshow its instructions`,
    href: row.function ? link("scope", process, "lines", { ...params(), fn: row.function, in: row.module, show: "instructions" }) : undefined,
  }));
}

export function createLinesTab(process) {
  let params = {};
  const asked = (now) => ({ function: now.fn, module: now.in });
  const byLine = tools(process, "");
  const byInstruction = tools(process, "instructions");
  const lines = createListTab({
    report: "lines",
    nouns: ["line", "lines"],
    columns: [
      textColumn({ id: "file", label: "Line", header: true, class: "name code" }, (row) => ({
        text: lineText(row),
        title: row.file ? shown(place(row)) : "No line is known of it",
      })),
      functionColumn(process, () => ({})),
      ...valueColumns(),
      moduleColumn,
    ],
    key: (row) => `${row.file}\n${row.line}\n${row.function}\n${row.module}\n${row.build_id}\n${row.inlined}\n${row.line_unknown}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a file's or function's name…",
    takesFrames: true,
    takesFold: true,
    extra: (now) => ({ ...asked(now), inlines: now.inlines === "true" ? "true" : undefined }),
    tools: byLine.elements.filter(Boolean),
  });
  const instructions = createListTab({
    report: "instructions",
    nouns: ["instruction", "instructions"],
    columns: [
      textColumn({ id: "address", label: "Address", header: true, class: "name code" }, (row) => ({ text: row.address === null ? "unknown" : shown(row.address), title: row.address === null ? "The file cannot be read any more" : "Virtual address in the module, as a disassembler shows it; of a caller, the last byte of its call" })),
      textColumn({ id: "function", label: "Function", class: "name code" }, (row) => ({ text: `${shown(row.function)}${row.offset === null || row.offset === undefined ? "" : `+${row.offset}`}`, title: shown(row.module) })),
      textColumn({ id: "file", label: "Line", class: "code" }, (row) => ({ text: lineText(row), title: row.file ? shown(place(row)) : undefined })),
      ...valueColumns(["exclusive"]),
      moduleColumn,
    ],
    key: (row) => `${row.address}\n${row.offset}\n${row.module}\n${row.build_id}\n${row.function}`,
    defaultSort: "elapsed.exclusive_ns",
    filterLabel: "part of a function's name…",
    takesFrames: true,
    takesFold: true,
    extra: asked,
    tools: byInstruction.elements.filter(Boolean),
  });
  const element = el("div", {});
  const chosen = (now) => (now.show === "instructions" ? instructions : lines);
  return {
    element,
    get report() {
      return chosen(params).report;
    },
    intervalMs: lines.intervalMs,
    query: (now) => chosen(now).query(now),
    show(now) {
      params = now;
      const tab = chosen(now);
      setChildren(element, [tab.element]);
      setAttribute(element, "data-shows", tab.report);
      (tab === lines ? byLine : byInstruction).show(now);
      tab.show(now);
    },
    load(answer) {
      chosen(params).load(answer);
    },
  };
}
