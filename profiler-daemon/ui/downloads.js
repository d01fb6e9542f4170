// The one list of what can be taken away from each view. To offer another format, add a line here.

import { reportPath, withQuery } from "./api.js";
import { el } from "./dom.js";

const JSON_TEXT = [
  ["JSON", "json", "for programs"],
  ["text", "text", "aligned columns for people"],
];
const TABLE = [JSON_TEXT[0], ["CSV", "csv", "for spreadsheets"], JSON_TEXT[1]];
const TREE = [
  ...JSON_TEXT,
  ["folded stacks", "folded", "a line per stack, as flame graph tools read them"],
  ["SVG", "svg", "a flame graph as a picture"],
  ["speedscope", "speedscope", "for speedscope.app"],
  ["Firefox Profiler", "firefox", "for profiler.firefox.com"],
];

// What each report comes as.
const FORMATS = {
  "": JSON_TEXT,
  processes: TABLE,
  functions: TABLE,
  modules: TABLE,
  threads: TABLE,
  "os-events": JSON_TEXT,
  calltree: TREE,
};

// Reports of one process in a form of their own: the path and what it is for.
const OF_PROCESS = [["pprof", "pprof", "for pprof and what reads its format"]];

// The links of a report: {label, href, title}.
export function downloads(process, report, parameters) {
  const path = reportPath(process, report);
  const links = FORMATS[report].map(([label, format, title]) => ({
    label,
    title,
    href: withQuery(path, { ...parameters, format }),
  }));
  if (process !== null) {
    for (const [label, name, title] of OF_PROCESS) links.push({ label, title, href: reportPath(process, name) });
  }
  return links;
}

// The links as a line of the page.
export function downloadLine(process, report, parameters) {
  const links = downloads(process, report, parameters).map(({ label, href, title }) =>
    el("li", {}, el("a", { href, title, target: "_blank", rel: "noreferrer" }, label)),
  );
  return el("nav", { class: "downloads", "aria-label": "This view as a file" }, el("span", {}, "This view as"), el("ul", {}, ...links));
}
