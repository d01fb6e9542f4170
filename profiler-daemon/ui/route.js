// Every view is an address: "#/processes?sort=…", "#/process/42.7000/flame?value=blocked&zoom=…", "#/session/functions",
// "#/compare/flame?base=30s&other=10s", "#/daemon". This file reads and writes them; it draws nothing.

export const TABS = ["functions", "lines", "modules", "threads", "timeline", "os-events", "flame"];
export const COMPARE_TABS = ["functions", "flame", "processes"];

// Which part of the session is meant: one that ends now, a named session or a span of it, or one between two times.
const SPAN = ["window", "from", "to", "session", "span"];
// Whose frames are folded into their callers.
const FOLD = ["modules", "hide"];
// Parameters that stay when one goes from view to view.
const LASTING = [...SPAN, ...FOLD, "frames"];
// All time since the start, and what is shown of a session that has gone on for a while.
export const WHOLE = "session";
const LATELY = "30s";
const A_WHILE_S = 300;

// What is shown where the address names no time, and what will be once that may change.
let usual = WHOLE;
let due = WHOLE;

// Takes how long the session has gone on, or that it is one that was saved.
export function setAge(seconds, isReplay) {
  due = seconds > A_WHILE_S && !isReplay ? LATELY : WHOLE;
}

// Has that be shown which the session's age asks for; answers whether it is another time.
export function takeUsual() {
  const isOther = usual !== due;
  usual = due;
  return isOther;
}

// Whether less than all is shown although the address names no time.
export function isUsual(params) {
  return usual !== WHOLE && !SPAN.some((name) => params[name]);
}

// The length of time that the address means, where it means one that ends now.
export function windowOf(params) {
  return params.window || usual;
}

function some(params, names) {
  return Object.fromEntries(names.filter((name) => params[name]).map((name) => [name, params[name]]));
}

// Whether the address names a span between two times.
export function isBetween(params) {
  return Boolean(params.from || params.to);
}

// The part of the session that the address means, as a report is asked for it.
export function spanOf(params) {
  return isBetween(params) ? some(params, ["from", "to"]) : aroundOf(params);
}

// The same without what was chosen from it between two times, which may lie before what is usually shown.
export function aroundOf(params) {
  if (params.session) return some(params, ["session", "span"]);
  return { window: isBetween(params) ? params.window || WHOLE : windowOf(params) };
}

// The chosen times, in milliseconds since 1970; null where none is chosen.
export function spanTimes(params) {
  return ["from", "to"].map((name) => {
    // RFC 3339, or seconds since 1970, or so long ago.
    const given = params[name] ?? "";
    const [, ago, unit] = /^-(\d+)(s|m|h)?$/.exec(given) ?? [];
    const ms = ago ? Date.now() - Number(ago) * { s: 1_000, m: 60_000, h: 3_600_000 }[unit ?? "s"] : /^\d+(\.\d+)?$/.test(given) ? Number(given) * 1000 : Date.parse(given);
    return Number.isNaN(ms) ? null : ms;
  });
}

// The modules that the address shows or hides, as a report of functions is asked for them.
export function foldOf(params) {
  return some(params, FOLD);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A route: `view` ("processes", "scope", "compare", "daemon"), of a scope `process` (null: the session), `tab`, and `params`.
export function parse(hash) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const params = Object.fromEntries(new URLSearchParams(query));
  const tab = (name, tabs) => (tabs.includes(name) ? name : tabs[0]);
  if (parts[0] === "process" && parts[1]) return { view: "scope", process: parts[1], tab: tab(parts[2], TABS), params };
  if (parts[0] === "session") return { view: "scope", process: null, tab: tab(parts[1], TABS), params };
  if (parts[0] === "compare") return { view: "compare", process: null, tab: tab(parts[1], COMPARE_TABS), params };
  if (parts[0] === "daemon") return { view: "daemon", process: null, tab: "", params };
  return { view: "processes", process: null, tab: "", params };
}

// What the address calls a process of the table, or the ended ones of an image.
export function processId(row) {
  return row.image_id ? `image:${row.image_id}` : `${row.pid}.${row.start_ticks}`;
}

// The name of such a row with its number, or with how many ended processes it is.
export function processName(row) {
  return row.image_id ? `${row.comm} (${row.ended} ended)` : `${row.comm} (${row.pid})`;
}

// The address of a route.
export function format(route) {
  let path = route.view;
  if (route.view === "scope") {
    path = route.process === null ? "session" : `process/${encodeURIComponent(route.process)}`;
    path += `/${route.tab}`;
  }
  if (route.view === "compare") path += `/${route.tab}`;
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(route.params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function current() {
  return parse(location.hash);
}

// The address of another view, with what stays.
export function link(view, process = null, tab = TABS[0], params = {}) {
  return format({ view, process, tab, params: { ...some(current().params, LASTING), ...params } });
}

// The address of one process. Its start makes it that very one, also when its number is used again.
export function processLink(row, tab, params) {
  return link("scope", processId(row), tab, params);
}

// Changes parameters of the current view. What is typed replaces the address; what is chosen can be gone back from.
export function change(params, { replace = false } = {}) {
  const route = current();
  const address = format({ ...route, params: { ...route.params, ...params } });
  if (address === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", address);
  window.dispatchEvent(new Event("routechange"));
}

// Calls `listener` whenever the address changes.
export function onChange(listener) {
  for (const event of ["popstate", "hashchange", "routechange"]) window.addEventListener(event, listener);
}
