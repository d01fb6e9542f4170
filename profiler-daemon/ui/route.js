// Every view is an address: "#/processes?sort=…", "#/process/42.7000/flame?value=blocked&zoom=…", "#/session/functions",
// "#/daemon". This file reads and writes them; it draws nothing.

export const TABS = ["functions", "modules", "threads", "os-events", "flame"];

// Parameters that stay when one goes from view to view.
const LASTING = ["window", "frames"];

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A route: `view` ("processes", "scope", "daemon"), of a scope `process` (null: the session) and `tab`, and `params`.
export function parse(hash) {
  const [, path, query] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const params = Object.fromEntries(new URLSearchParams(query));
  const tab = (name) => (TABS.includes(name) ? name : TABS[0]);
  if (parts[0] === "process" && parts[1]) return { view: "scope", process: parts[1], tab: tab(parts[2]), params };
  if (parts[0] === "session") return { view: "scope", process: null, tab: tab(parts[1]), params };
  if (parts[0] === "daemon") return { view: "daemon", process: null, tab: "", params };
  return { view: "processes", process: null, tab: "", params };
}

// The address of a route.
export function format(route) {
  let path = route.view;
  if (route.view === "scope") {
    path = route.process === null ? "session" : `process/${encodeURIComponent(route.process)}`;
    path += `/${route.tab}`;
  }
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
  const now = current().params;
  const kept = Object.fromEntries(LASTING.filter((name) => now[name]).map((name) => [name, now[name]]));
  return format({ view, process, tab, params: { ...kept, ...params } });
}

// The address of one process. Its start makes it that very one, also when its number is used again.
export function processLink(row, tab, params) {
  return link("scope", `${row.pid}.${row.start_ticks}`, tab, params);
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
