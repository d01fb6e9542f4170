// Checks of the flame graph.

import assert from "node:assert/strict";
import { answered, change, check, env, open, parameters, screenshot, until } from "./browser.mjs";

const ONE = `#/process/${env.PAGE_BUSY}/flame`;
const LARGE = `#/process/${env.PAGE_LARGE}/flame`;
const ROW = 19;

// The most that drawing the large tree may take, in milliseconds: generous, for machines that do much else.
const DRAW_MS = 400;
const READY_MS = 10_000;

const canvas = (page) => page.locator("canvas").first();
const details = (page) => page.locator("#flame-details").innerText();
const boxes = (page) => canvas(page).getAttribute("data-boxes").then(Number);
const drawnValue = (page) => canvas(page).getAttribute("data-value");

async function drawn(page) {
  await until("boxes are drawn", () => boxes(page), (count) => count > 0);
}

check("a click zooms, Escape, the breadcrumb and Back lead out", async (page) => {
  await open(page, ONE);
  await drawn(page);
  const before = await boxes(page);
  // The eighth row begins with the largest of what the dispatcher calls.
  await canvas(page).click({ position: { x: 40, y: 7 * ROW + 8 } });
  assert.match(await details(page), /^handlers::search/);
  assert.ok((await parameters(page)).zoom);
  await until("fewer boxes are left", () => boxes(page), (count) => count < before);
  const crumbs = await page.locator(".crumbs button").allInnerTexts();
  assert.deepEqual([crumbs[0], crumbs.at(-1)], ["all of webserver", "handlers::search"]);
  assert.match(await page.locator("#live").innerText(), /Zoomed to handlers::search/);
  await screenshot(page, "flame-zoomed");
  await page.reload();
  await answered(page);
  await drawn(page);
  assert.equal((await page.locator(".crumbs button").allInnerTexts()).at(-1), "handlers::search");
  await canvas(page).focus();
  await page.keyboard.press("Escape");
  assert.equal((await page.locator(".crumbs button").allInnerTexts()).at(-1), "router::dispatch");
  await page.goBack();
  assert.equal((await page.locator(".crumbs button").allInnerTexts()).at(-1), "handlers::search");
  await page.locator(".crumbs button").first().click();
  assert.equal((await parameters(page)).zoom, undefined);
  await until("all boxes are back", () => boxes(page), (count) => count === before);
});

check("keys move from box to box, and each is said in text", async (page) => {
  await open(page, ONE);
  await drawn(page);
  await canvas(page).focus();
  const names = [];
  for (const key of ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowLeft", "ArrowUp", "Home"]) {
    await page.keyboard.press(key);
    names.push((await details(page)).split(" ")[0]);
  }
  assert.deepEqual(names, ["_start", "__libc_start_main", "main", "server::run", "server::serve_connection", "router::dispatch", "epoll_wait", "router::dispatch", "server::serve_connection", "webserver"]);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  assert.ok((await parameters(page)).zoom);
  assert.match(await details(page), /_start Elapsed: .+ inclusive \([\d.]+ % of all\), 0 exclusive/);
  assert.equal(await canvas(page).getAttribute("aria-describedby"), "flame-details");
});

check("the search tells its share, without counting anything twice", async (page) => {
  await open(page, ONE);
  await page.getByLabel("Search").fill("SERVER::");
  const said = await until("the share is told", () => page.locator(".rows").innerText(), (text) => /match/.test(text));
  const [, functions, share] = /(\d+) functions match: ([<>\d.]+) %/.exec(said);
  assert.equal(functions, "2");
  assert.ok(Number(share.replace(/[<>]/, "")) <= 100, said);
  assert.equal((await parameters(page)).search, "SERVER::");
  await screenshot(page, "flame-search");
  await page.reload();
  await answered(page);
  assert.equal(await page.getByLabel("Search").inputValue(), "SERVER::");
  await page.getByLabel("Search").press("Escape");
  assert.equal((await parameters(page)).search, undefined);
});

check("the value can be switched, and the widths follow", async (page) => {
  await open(page, ONE);
  await drawn(page);
  const all = {};
  for (const label of ["Application", "Samples", "Blocked", "Runnable", "System calls", "Elapsed"]) {
    await page.locator(".choice label", { hasText: label }).click();
    await until(`${label} is told`, () => details(page), (text) => text.includes(`${label}: `));
    const value = (await parameters(page)).value ?? "elapsed";
    await until(`${label} is drawn`, () => drawnValue(page), (drawing) => drawing === value);
    all[label] = await boxes(page);
  }
  assert.ok(all.Blocked < all.Elapsed, JSON.stringify(all));
  await page.locator(".choice label", { hasText: "Blocked" }).click();
  assert.equal((await parameters(page)).value, "blocked");
  // By keys, like any choice.
  await page.keyboard.press("ArrowRight");
  assert.equal((await parameters(page)).value, "runnable");
  await screenshot(page, "flame");
});

check("a value that nothing has is said, not drawn", async (page) => {
  await open(page, `#/process/${env.PAGE_HOSTILE}/flame?value=runnable`);
  assert.match(await page.locator(".flame > .panel").innerText(), /^No time in this call tree is runnable\. Choose another value\.$/);
  assert.equal(await canvas(page).isVisible(), false);
});

check("the session's graph has processes, and threads that idle when they are wanted", async (page) => {
  await open(page, "#/session/flame?value=blocked");
  await drawn(page);
  const idle = page.getByLabel(/^Idle threads \([\d.]+ %\)$/);
  assert.equal(await idle.isChecked(), false);
  const without = await boxes(page);
  assert.deepEqual(await page.locator(".crumbs button").allInnerTexts(), ["all of session without idle threads"]);
  // The first level is processes, which are no functions.
  await canvas(page).click({ position: { x: 40, y: ROW + 8 } });
  assert.match(await details(page), /^(webserver|postgres|cc1plus|systemd|large-tree) /);
  assert.equal(await page.getByRole("button", { name: "Callers and callees" }).isDisabled(), true);
  await page.keyboard.press("Escape");
  await screenshot(page, "flame-session");
  await idle.check();
  await until("they are drawn", () => boxes(page), (count) => count > without);
  assert.equal((await parameters(page)).idle, "drawn");
  assert.deepEqual(await page.locator(".crumbs button").allInnerTexts(), ["all of session"]);
  await page.getByLabel("Search").fill("[idle threads]");
  await until("they are one box", () => page.locator(".rows").innerText(), (text) => /^1 function matches: [\d.]+ % of blocked/.test(text));
  await screenshot(page, "flame-session-idle");
});

check("a function of threads that idle is found while these are left out", async (page) => {
  // cron only sleeps.
  const module = "/usr/lib/cron";
  let root = null;
  await change(page, "/calltree", (body) => { root = body.root; });
  await open(page, `#/session/flame?fn=main&in=${encodeURIComponent(module)}`);
  assert.equal(await page.getByLabel(/^Idle threads/).isChecked(), false);
  const sandwich = page.locator(".sandwich");
  const [into, from] = [sandwich.locator("table").nth(0), sandwich.locator("table").nth(1)];
  const callers = () => into.locator("tbody").innerText();
  await until("its caller is there", callers, (text) => text.startsWith("_start"));
  // Functions have other numbers in the tree that is drawn.
  await from.getByRole("button", { name: "epoll_wait" }).click();
  const heading = () => sandwich.locator("h2").innerText();
  await until("the callee is the middle", heading, (text) => text === "epoll_wait");
  assert.equal((await parameters(page)).in, "/lib/libc.so.6");
  // Its share is that of all, in threads that idle and in others.
  const sum = (node) => node.function === "epoll_wait"
    ? node.elapsed.inclusive_ns
    : node.children.reduce((all, child) => all + sum(child), 0);
  const idle = sum(root.children.find(({ kind }) => kind === "idle"));
  assert.ok(idle > 0 && idle < sum(root), `${idle} of ${sum(root)}`);
  const said = await sandwich.locator("p").first().innerText();
  assert.match(said, /in all the places where it stands, threads that idle included\.$/);
  const [, share] = /^Elapsed: .+ inclusive, ([\d.]+) % of all,/.exec(said);
  assert.ok(Math.abs(Number(share) - (100 * sum(root)) / root.elapsed.inclusive_ns) < 0.06, said);
  await screenshot(page, "sandwich-idle");
});

check("where all of a value is of threads that idle the graph says so", async (page) => {
  await change(page, "/calltree", ({ root }) => {
    const group = root.children.find(({ kind }) => kind === "idle");
    Object.assign(root, { ...group, function: root.function, kind: root.kind, children: [group] });
  });
  await open(page, "#/session/flame?value=blocked");
  const panel = page.locator(".flame > .panel");
  const idle = /^All of it is of threads that idle, which are left out\. Tick Idle threads/;
  assert.match(await panel.innerText(), idle);
  await page.getByLabel(/^Idle threads/).check();
  await drawn(page);
  assert.equal(await panel.isVisible(), false);
  // What these threads have none of nobody has.
  await open(page, "#/session/flame?value=runnable");
  const none = "No time in this call tree is runnable. Choose another value.";
  await until("there is none", () => panel.innerText(), (text) => text === none);
});

check("a pointer over a box shows its name and values", async (page) => {
  await open(page, ONE);
  await drawn(page);
  await canvas(page).hover({ position: { x: 30, y: 3 * ROW + 8 } });
  assert.match(await page.locator(".tip").innerText(), /main\n.+\(.+ % of all\)\n\/usr\/bin\/webserver/);
  assert.match(await details(page), /^main /);
  await page.mouse.move(5, 5);
  assert.equal(await page.locator(".tip").isVisible(), false);
});

check("callers and callees of a function add up, and lead on", async (page) => {
  await open(page, `#/process/${env.PAGE_BUSY}/functions?q=handlers::search`);
  await page.getByRole("link", { name: "handlers::search" }).click();
  const sandwich = page.locator(".sandwich");
  await sandwich.locator("tbody tr").first().waitFor();
  assert.equal(await sandwich.locator("h2").innerText(), "handlers::search");
  const [into, from] = [sandwich.locator("table").nth(0), sandwich.locator("table").nth(1)];
  assert.match(await into.innerText(), /router::dispatch/);
  const shares = (await from.locator("small").allInnerTexts()).map((text) => Number(text.replace(/[<>%]/g, "")));
  assert.ok(Math.abs(shares.reduce((a, b) => a + b) - 100) < 0.5, String(shares));
  await screenshot(page, "sandwich");
  await from.getByRole("button", { name: "cache::get" }).click();
  await until("the callee is the middle", () => sandwich.locator("h2").innerText(), (text) => text === "cache::get");
  assert.equal((await parameters(page)).fn, "cache::get");
  await sandwich.getByRole("button", { name: "Close" }).click();
  assert.equal(await sandwich.isVisible(), false);
});

check("a tree of 20000 nodes is drawn in time and stays quick", async (page) => {
  const began = Date.now();
  await open(page, LARGE);
  await page.locator(".choice label", { hasText: "Application" }).click();
  await drawn(page);
  const readyMs = Date.now() - began;
  assert.match(await page.locator("main").innerText(), /small boxes are put together as \(cut\)/);
  const nodes = await page.evaluate(async (path) => {
    const { flatten, ordered } = await import("/ui/flame/tree.js");
    const { layout } = await import("/ui/flame/layout.js");
    const { callers, callees } = await import("/ui/flame/sandwich.js");
    const answer = await (await fetch(path)).json();
    const timed = (run) => {
      const at = performance.now();
      const value = run();
      return [value, performance.now() - at];
    };
    const [tree, flattenMs] = timed(() => flatten(answer.root));
    ordered(tree, "application");
    const [placed, layoutMs] = timed(() => layout(tree, "application", 0, 1400));
    const middle = tree.functions.findIndex(({ name }) => name === "layer_9::step_1");
    const [[above, below], sandwichMs] = timed(() => [callers(tree, middle), callees(tree, middle)]);
    // What is drawn is no more than what can be seen, and lies within its caller.
    const narrow = placed.rows.some(({ widths }) => widths.some((width) => width < 0.5));
    const equal = Math.abs(above.values.application[0] - below.values.application[0]) < 1;
    return { count: tree.count, boxes: placed.count, narrow, equal, flattenMs, layoutMs, sandwichMs };
  }, `/api/v1/processes/${env.PAGE_LARGE}/calltree`);
  assert.ok(nodes.count > 20_000 && nodes.boxes < nodes.count && !nodes.narrow && nodes.equal, JSON.stringify(nodes));
  await canvas(page).click({ position: { x: 300, y: 6 * ROW + 8 } });
  await page.getByLabel("Search").fill("step_2");
  await until("the share is told", () => page.locator(".rows").innerText(), (text) => /match/.test(text));
  const drawMs = await page.evaluate(() => Math.max(...performance.getEntriesByName("flame-draw").map(({ duration }) => duration)));
  console.log(`        ready ${readyMs} ms, longest drawing ${drawMs.toFixed(1)} ms, ${JSON.stringify(nodes)}`);
  assert.ok(readyMs < READY_MS && drawMs < DRAW_MS && nodes.layoutMs < DRAW_MS, `ready ${readyMs} ms, drawing ${drawMs} ms`);
  await screenshot(page, "flame-large");
});
