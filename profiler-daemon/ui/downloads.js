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
  timeline: TABLE,
  lines: TABLE,
  instructions: TABLE,
  "os-events": JSON_TEXT,
  calltree: TREE,
  diff: TABLE,
  "diff/processes": TABLE,
};

// Reports of one process in a form of their own: the path and what it is for; and which parameters they take.
const OF_VIEW = ["frames", "window", "from", "to", "session", "span", "modules", "hide"];
const OF_PROCESS = [["pprof", "pprof", "for pprof and what reads its format"]];

// Viewers that come with the daemon and open a format of a report: [label, format, title, address].
const VIEWERS = {
  calltree: [["open in speedscope", "speedscope", "the viewer of that name, which comes with the daemon", (href, title) => `/speedscope/#profileURL=${encodeURIComponent(href)}&title=${encodeURIComponent(title)}&view=left-heavy`]],
};

// The links of a report: {label, href, title}. `title` says of whom it is.
export function downloads(process, report, parameters, title) {
  const path = reportPath(process, report);
  const links = FORMATS[report].map(([label, format, about]) => ({
    label,
    title: about,
    href: withQuery(path, { ...parameters, format }),
  }));
  for (const [label, format, about, address] of VIEWERS[report] ?? []) {
    links.push({ label, title: about, href: address(withQuery(path, { ...parameters, format }), title) });
  }
  if (process !== null) {
    const same = Object.fromEntries(Object.entries(parameters).filter(([name]) => OF_VIEW.includes(name)));
    for (const [label, name, about] of OF_PROCESS) links.push({ label, title: about, href: withQuery(reportPath(process, name), same) });
  }
  return links;
}

// The links as a line of the page. `what` they are, where it is not what is shown.
export function downloadLine(process, report, parameters, title = "", what = "This view") {
  const links = downloads(process, report, parameters, title).map(({ label, href, title: about }) =>
    el("li", {}, el("a", { href, title: about, target: "_blank", rel: "noreferrer" }, label)),
  );
  return el("nav", { class: "downloads", "aria-label": `${what} as a file` },
    el("span", {}, `${what} as`), el("ul", {}, ...links));
}

