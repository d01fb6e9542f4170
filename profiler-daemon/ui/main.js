// Starts the page: which view an address means, when it asks again, and what is said when that fails.
//
// A view is {element, title, intervalMs, show(route), load(signal)}: `show` draws what it has by the address, `load` asks
// the daemon and draws. `intervalMs` 0: it asks only when told to.

import { ApiError, get, namedSessions } from "./api.js";
import { createControls } from "./controls.js";
import { el, setChildren } from "./dom.js";
import { learn } from "./known.js";
import { showDegraded } from "./receipt.js";
import { current, link, onChange, setAge, takeUsual } from "./route.js";
import { createCompareView } from "./views/compare.js";
import { createDaemonView } from "./views/daemon.js";
import { createProcessesView } from "./views/processes.js";
import { createScopeView } from "./views/scope.js";

const STATUS_MS = 20_000;
const RETRY_MS = 2_000;
// Between two questions this many times as long as the last answer took.
const SPARING = 4;

const main = document.getElementById("main");
const notice = document.getElementById("notice");
const controls = createControls(() => refresh(), resume);
let view = null;
let shown = "";
let shownTab = "";
let asking = null;
let timer = 0;

function create(route) {
  if (route.view === "scope") return createScopeView(route);
  if (route.view === "compare") return createCompareView();
  return route.view === "daemon" ? createDaemonView() : createProcessesView();
}

// Shows what the address means; `isOther`: another time than it meant before.
function place(isOther = false) {
  const route = current();
  const name = `${route.view} ${route.process}`;
  const isNew = name !== shown;
  // A view that is only changed goes on with the time that it shows.
  if (isNew || route.tab !== shownTab) takeUsual();
  shownTab = route.tab;
  if (isNew) {
    shown = name;
    view = create(route);
    setChildren(main, [view.element]);
    setChildren(notice, []);
    window.scrollTo(0, 0);
  }
  controls.show(route);
  places(route);
  // What another question would answer must be asked; what is only drawn differently need not.
  if (view.show(route) || isNew || isOther) refresh();
  document.title = `${view.title()} · Profiler`;
}

function places(route) {
  const entry = (label, view, here) => el("a", { href: link(view), "aria-current": here ? "page" : null }, label);
  setChildren(document.getElementById("places"), [
    entry("Processes", "processes", route.view === "processes" || (route.view === "scope" && route.process !== null)),
    entry("Whole session", "scope", route.view === "scope" && route.process === null),
    entry("Compare", "compare", route.view === "compare"),
    entry("Daemon", "daemon", route.view === "daemon"),
  ]);
}

async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = new AbortController();
  asking = mine;
  main.toggleAttribute("data-asking", true);
  let nextMs = view.intervalMs();
  const beganMs = performance.now();
  try {
    const asOf = await view.load(mine.signal);
    setChildren(notice, []);
    controls.answered(asOf);
    // What takes the daemon long is asked less often.
    if (nextMs > 0) nextMs = Math.max(nextMs, SPARING * (performance.now() - beganMs));
    document.title = `${view.title()} · Profiler`;
  } catch (error) {
    if (mine.signal.aborted) return;
    const problem = error instanceof ApiError ? error : new ApiError("refused", "The page failed", String(error?.message ?? error));
    if (!(error instanceof ApiError)) console.error(error);
    complain(problem);
    nextMs = problem.passing ? Math.max(RETRY_MS, problem.retryAfterS * 1000) : 0;
  } finally {
    if (asking === mine) main.toggleAttribute("data-asking", false);
  }
  if (asking !== mine) return;
  asking = null;
  if (nextMs > 0) timer = setTimeout(again, nextMs);
}

function again() {
  if (document.hidden || controls.isPaused()) timer = setTimeout(again, 500);
  else refresh();
}

function complain(problem) {
  const key = `${problem.title}|${problem.detail}`;
  if (notice.firstChild?.dataset?.key === key) return;
  const actions = [el("button", { type: "button", on: { click: () => refresh() } }, "Try again")];
  if (problem.kind === "missing" || problem.kind === "gone") actions.push(el("a", { href: link("processes") }, "All processes"));
  const panel = el("div", { class: `panel problem ${problem.kind}` }, el("h2", {}, problem.title), el("p", {}, problem.detail), el("p", { class: "actions" }, ...actions));
  panel.dataset.key = key;
  setChildren(notice, [panel]);
  controls.answered(null);
}

// Shows the time that the session's age asks for, where the view may change by itself: a graph
// that somebody reads stays. Answers whether that is another one.
function moveOn() {
  if (controls.isPaused() || !(view.intervalMs() > 0) || !takeUsual()) return false;
  place(true);
  return true;
}

function resume() {
  if (!moveOn()) refresh();
}

async function askStatus() {
  try {
    const { signal } = new AbortController();
    const [status, sessions] = await Promise.all([get("/api/v1/status", {}, signal), namedSessions(signal)]);
    learn(status);
    controls.know(sessions);
    showDegraded(document.getElementById("degraded"), status.degraded);
    controls.describe(status);
    setAge(status.uptime_s, Boolean(status.replay));
  } catch (error) {
    // The view's own question says what is wrong.
    if (!(error instanceof ApiError)) throw error;
  }
}

async function watchStatus() {
  if (!document.hidden) {
    await askStatus();
    moveOn();
  }
  setTimeout(watchStatus, STATUS_MS);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  // The address is the view's: it is not changed to reach an element.
  event.preventDefault();
  main.focus();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !controls.isPaused() && view.intervalMs() > 0) refresh();
});
// What is drawn with colours of the style is told by an event "scheme" that they are others. What
// is not shown asks for them when it is: a view that listened by itself would be kept for ever.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  const boxes = main.querySelectorAll(".flame-box, .strip-box");
  for (const box of boxes) box.dispatchEvent(new Event("scheme"));
});
// Which time is asked for depends on how long the session has gone on.
await askStatus();
onChange(() => place());
place();
setTimeout(watchStatus, STATUS_MS);
