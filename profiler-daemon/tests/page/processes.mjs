// Checks of the table of processes.

import assert from "node:assert/strict";
import { answered, change, check, column, env, get, open, parameters, screenshot, until } from "./browser.mjs";

const numbers = (texts) => texts.map((text) => Number(text.replaceAll(",", "")));

check("a newcomer sees who uses most, who waits most, and what the answer lacks", async (page) => {
  await open(page, "");
  const cards = await page.locator(".standouts li").allInnerTexts();
  assert.match(cards[0], /Uses most of the processors[\s\S]*webserver \(1864\)\s+[\d.]+ %[\s\S]*in its own code/);
  assert.match(cards[1], /Ready to run, but not running[\s\S]*cc1plus/);
  assert.match(cards[2], /blocked most[\s\S]*webserver[\s\S]*blocked/);
  const receipt = await page.locator(".receipt").innerText();
  for (const part of [/0 samples lost/, /without a stack/, /stacks end early/]) assert.match(receipt, part);
  await page.locator(".receipt summary").click();
  assert.match(await page.locator(".causes").innerText(), /wakes_early\s+41/);
  assert.match(await page.locator("#degraded").innerText(), /kernel names: CAP_SYSLOG is not granted/);
  // The bars' parts are named and add up to the whole.
  const bar = await page.locator("tbody tr").first().locator(".bar").getAttribute("aria-label");
  const shares = [...bar.matchAll(/([\d.]+) %/g)].map(([, share]) => Number(share));
  assert.ok(Math.abs(shares.reduce((a, b) => a + b) - 100) < 0.6, bar);
});

check("how busy the processors are comes first, and is the sum of the shares below", async (page) => {
  await open(page, "#/processes");
  const busy = /^8 processors, ([\d.]+) % busy, in .+ s\.$/.exec(await page.locator(".summary p").first().innerText());
  const shares = (await column(page, 4)).map((text) => Number.parseFloat(text.replace("<", "")));
  const sum = shares.reduce((all, share) => all + share);
  // A row in ten is rounded, and what is dropped has no row.
  assert.ok(Math.abs(sum - Number(busy[1])) < 3, `${sum} of ${busy[1]}`);
  assert.deepEqual(shares, [...shares].sort((a, b) => b - a));
  assert.match(await page.locator(".facts").innerText(), /elapsed, all threads\s+(2\d threads|[\d.]+ threads) × /);
});

check("where the number of processors is not known, times stand for shares", async (page) => {
  for (const ending of ["/session", "/processes"]) await change(page, ending, (body) => { body.window.processors = null; });
  await open(page, "#/processes");
  assert.match(await page.locator(".summary p").first().innerText(), /^[\d.]+ processors busy on average, in .+ s\.$/);
  assert.match((await column(page, 4))[0], /^[\d.]+ m?s$|^\d+ m \d\d s$/);
});

check("the profiler, threads that idle and rows in doubt do not stand out", async (page) => {
  const second = 1e9;
  const classes = (user, blocked, runnable) => ({ user_ns: user * second, syscall_ns: 0, blocked_ns: blocked * second, runnable_ns: runnable * second, kernel_ns: 0 });
  const sum = (of) => Object.values(of).reduce((all, ns) => all + ns);
  await change(page, "/processes", (body) => {
    const [busiest] = body.rows;
    const add = (pid, comm, of, more = {}) => body.rows.push({ ...busiest, pid, comm, exe: `/usr/bin/${comm}`, classes: of, elapsed_ns: sum(of), ...more });
    add(9001, "profiler-daemon", classes(9_000, 0, 9_000));
    add(9002, "never-switched", classes(0.1, 0, 20_000), { switches_missed: 7 });
    add(9003, "pool", classes(40, 90_000, 0), { threads: 90 });
    add(9004, "locked", classes(50, 6_000, 0), { threads: 2 });
  });
  await change(page, "/threads", (body) => {
    const add = (pid, of) => body.rows.push({ ...body.rows[0], pid, start_ticks: 186400, tid: pid, image_id: null, threads: 1, classes: of, elapsed: { ...body.rows[0].elapsed, inclusive_ns: sum(of) } });
    add(9003, classes(40, 100, 0));
    for (let thread = 0; thread < 89; thread += 1) add(9003, classes(0, 1_000, 0));
    add(9004, classes(30, 3_000, 0));
    add(9004, classes(20, 3_000, 0));
  });
  // They are not there, so nobody can say where they were.
  await page.route(/processes\/900\d\.186400\/calltree/, (route) => route.fulfill({ json: { root: { function: "x", module: "x", kind: "process", samples: { inclusive: 0 }, classes: classes(0, 0, 0), children: [] } } }));
  await open(page, "#/processes");
  const cards = await page.locator(".standouts li").allInnerTexts();
  assert.doesNotMatch(cards.join(), /profiler-daemon|never-switched|pool/);
  assert.match(cards[2], /locked \(9004\)\s+99\.2 %[\s\S]*blocked for 99\.2 % of its time/);
  assert.match(await page.locator(".doubt").innerText(), /^1 process is left out of these, marked \? below: 7 switches of theirs were missed/);
  await page.getByLabel("Filter").fill("never-switched");
  await until("its row says so", () => column(page, 9), (texts) => texts.length === 1 && / \?$/.test(texts[0]));
  assert.match(await page.locator("tbody tr td").nth(8).getAttribute("title"), /In doubt: 7 switches of its threads were missed/);
});

check("cards name the function in which most of it is", async (page) => {
  await open(page, "#/processes");
  const codes = () => page.locator(".standouts li").nth(1).locator("code").allInnerTexts();
  await until("it is named", codes, (names) => names[0] === "cp_parser_declaration");
  const found = await page.evaluate(async () => {
    const { whereMost } = await import("/ui/views/where_most.js");
    const node = (name, module, ns, ...children) => ({ function: name, module, kind: "user", ns, children });
    const lock = node("LockAcquireExtended", "postgres", 94, node("WaitLatch", "postgres", 94, node("epoll_wait", "libc", 94)));
    const read = (of) => of.ns;
    const unknown = { ...node("[not sampled]", "", 90), kind: "unknown" };
    const roots = [node("postgres", "postgres", 100, node("main", "postgres", 99, node("ReadCommand", "postgres", 5), lock)), node("x", "x", 100, node("_start", "x", 100, node("a", "x", 40), node("b", "x", 45))), node("x", "x", 100, unknown), node("x", "x", 0)];
    return roots.map((root) => whereMost(root, read));
  });
  assert.deepEqual(found, [{ name: "WaitLatch", by: "epoll_wait", value: 94, all: 100, path: ["LockAcquireExtended", "WaitLatch", "epoll_wait"] }, null, null, null]);
});

check("of a session that has gone on for a while the last 30 s are shown, which is said, and all of it on request", async (page) => {
  const asked = [];
  page.on("request", (request) => { if (/\/(session|functions|diff)\?/.test(request.url())) asked.push(new URL(request.url()).searchParams.get("window")); });
  let status = { uptime_s: 301, replay: null };
  await change(page, "/status", (body) => Object.assign(body, status));
  await open(page, "#/processes");
  assert.equal(await page.locator("#choose-window").inputValue(), "30s");
  assert.match(await page.locator(".usual").innerText(), /These are the last 30 s: show all since the start\./);
  await open(page, `#/process/${env.PAGE_BUSY}/functions`);
  assert.match(await page.locator(".usual").innerText(), /These are the last 30 s/);
  assert.ok(asked.length >= 2 && asked.every((window) => window === "30s"), String(asked));
  asked.length = 0;
  await page.getByRole("button", { name: "show all since the start" }).click();
  await until("all is asked for", () => asked, ([first]) => first === "session");
  assert.deepEqual(await parameters(page), { window: "session" });
  assert.equal(await page.locator(".usual").isVisible(), false);
  // What was saved was saved to be seen whole, and a young session is shown whole, too.
  for (const other of [{ uptime_s: 3_000, replay: { file: "x.profile", saved_at: "2026-01-31T12:00:00Z" } }, { uptime_s: 300, replay: null }]) {
    status = other;
    await page.goto("about:blank");
    await open(page, "#/processes");
    assert.equal(await page.locator("#choose-window").inputValue(), "session");
  }
  // A replay that passes for a daemon refuses to say what is measured.
}, { expected: /409.*\/api\/v1\/instrumentations/ });

check("what somebody reads stays of its time until it is left or goes on", async (page) => {
  // The status is asked for every 20 s.
  await page.addInitScript(() => {
    const { setTimeout: later } = window;
    window.setTimeout = (run, ms, ...rest) => later(run, ms === 20_000 ? 200 : ms, ...rest);
  });
  let uptimeS = 25;
  let statuses = 0;
  await change(page, "/status", (body) => {
    statuses += 1;
    body.uptime_s = uptimeS;
  });
  const time = () => page.locator("#choose-window").inputValue();
  const grow = async () => {
    uptimeS = 301;
    const before = statuses;
    // The second is asked for once the first was taken.
    await until("the page knows", () => statuses, (count) => count >= before + 2);
  };
  await open(page, "#/processes");
  await page.getByRole("button", { name: "Pause" }).click();
  await grow();
  assert.equal(await time(), "session");
  await page.getByRole("button", { name: "Resume" }).click();
  await until("the last 30 s are shown", time, (value) => value === "30s");
  assert.equal(await page.locator(".usual").isVisible(), true);
  // A flame graph moves only when it is told to.
  uptimeS = 25;
  await page.goto("about:blank");
  await open(page, `#/process/${env.PAGE_BUSY}/flame`);
  const windows = [];
  page.on("request", (request) => {
    const { pathname, searchParams } = new URL(request.url());
    if (/\/(calltree|functions)$/.test(pathname)) windows.push(searchParams.get("window"));
  });
  await grow();
  assert.deepEqual([await time(), windows], ["session", []]);
  await page.locator(".choice label", { hasText: "Blocked" }).click();
  await until("it is asked for", () => windows, ({ length }) => length > 0);
  await page.getByRole("link", { name: "Functions", exact: true }).click();
  await until("functions are asked for", () => windows, ({ length }) => length > 1);
  assert.deepEqual([await time(), ...windows.slice(0, 2)], ["30s", "session", "30s"]);
}, { needs: "moving" });

check("processes are sorted by every column, and the header says how", async (page) => {
  await open(page, "#/processes");
  assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "descending");
  const pids = numbers(await column(page, 1));
  assert.equal(pids[0], Number(env.PAGE_BUSY));
  await page.getByRole("button", { name: "PID" }).click();
  assert.equal(await page.locator("th[aria-sort]").getAttribute("aria-sort"), "ascending");
  const rising = numbers(await column(page, 1));
  assert.deepEqual(rising, [...rising].sort((a, b) => a - b));
  await page.getByRole("button", { name: "PID" }).click();
  const falling = numbers(await column(page, 1));
  assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
  for (const button of await page.locator("thead button").all()) {
    await button.click();
    const label = (await button.innerText()).replace(/[▲▼]/, "").trim();
    assert.match(await page.locator("th[aria-sort]").innerText(), new RegExp(label.slice(0, 4)), `sorted by ${label}`);
    assert.match(await page.locator("#live").innerText(), /^Sorted by/);
  }
  await page.getByRole("button", { name: "runnable" }).click();
  assert.match((await column(page, 0))[0], /cc1plus/);
});

check("sorting works by keyboard", async (page) => {
  await open(page, "#/processes");
  await page.getByRole("button", { name: "Threads" }).focus();
  await page.keyboard.press("Enter");
  assert.equal((await parameters(page)).sort, "threads");
  assert.equal(await page.evaluate(() => document.activeElement.textContent.includes("Threads")), true, "the focus stays");
});

check("the filter finds names, numbers, units and paths, and is part of the address", async (page) => {
  await open(page, "#/processes");
  const all = await page.locator("tbody tr").count();
  for (const [text, expected] of [["POSTGRES", 5], ["1864", 1], ["web.service", 1], ["libexec", 6], ["nothing like it", 0]]) {
    await page.getByLabel("Filter").fill(text);
    await until(`${text} leaves ${expected} rows`, () => page.locator("tbody tr").count(), (count) => count === expected);
  }
  assert.match(await page.locator(".view").innerText(), /No process matches/);
  assert.equal((await parameters(page)).q, "nothing like it");
  await page.getByLabel("Filter").fill("");
  await until("all rows are back", () => page.locator("tbody tr").count(), (count) => count >= all);
  await page.locator("#keep").selectOption("programs");
  assert.equal((await column(page, 0)).some((name) => /^k(worker|thread)/.test(name)), false);
});

check("files are of all processes, and are called so where the table has some", async (page) => {
  const line = page.locator(".downloads");
  const text = () => line.innerText();
  const said = (what) => until(`${what} is said`, text, (now) => now.startsWith(what));
  // A unit's name, which the daemon would not find, and what no question has a word for.
  for (const some of ["q=web.service", "keep=programs"]) {
    await open(page, `#/processes?${some}`);
    await said("All processes as");
    assert.equal(await line.getAttribute("aria-label"), "All processes as a file");
    const href = await line.getByRole("link", { name: "CSV" }).getAttribute("href");
    const csv = await (await get(page, href)).text();
    for (const name of ["webserver", "kworker"]) assert.ok(csv.includes(name), `${some}: ${csv}`);
  }
  await open(page, "#/processes");
  await said("This view as");
});

check("an address brings back sort, order, filter and time after reload, back and forward", async (page) => {
  await open(page, "#/processes?sort=classes.blocked_ns&order=asc&q=postgres&window=1m");
  const before = await column(page, 1);
  assert.equal(await page.locator("#choose-window").inputValue(), "1m");
  await page.reload();
  await answered(page);
  assert.deepEqual(await column(page, 1), before);
  assert.equal(await page.getByLabel("Filter").inputValue(), "postgres");
  assert.equal(await page.locator("th[aria-sort=ascending]").innerText().then((text) => /blocked/.test(text)), true);
  await page.getByRole("button", { name: "PID" }).click();
  assert.equal((await parameters(page)).sort, "pid");
  await page.goBack();
  assert.equal((await parameters(page)).sort, "classes.blocked_ns");
  assert.equal(await page.locator("th[aria-sort]").innerText().then((text) => /blocked/.test(text)), true);
  await page.goForward();
  assert.equal((await parameters(page)).sort, "pid");
});

check("numbers move by themselves, lines grow, and Pause holds them", async (page) => {
  await open(page, "#/processes");
  const samples = () => column(page, 11).then((texts) => texts[0]);
  const first = await samples();
  await until("the first row's samples grow", samples, (text) => text !== first);
  const points = () => page.locator("tbody tr").first().locator("polyline").getAttribute("points");
  await until("the line has two points", points, (text) => (text ?? "").split(" ").length >= 2);
  await screenshot(page, "processes");
  await page.getByRole("button", { name: "Pause" }).click();
  await answered(page);
  const held = await samples();
  let asked = 0;
  page.on("request", (request) => { if (request.url().includes("/processes")) asked += 1; });
  // Longer than the page waits between two questions.
  await page.waitForTimeout(2_600);
  assert.deepEqual([asked, await samples()], [0, held]);
  await page.getByRole("button", { name: "Resume" }).click();
  await until("the numbers move again", samples, (text) => text !== held);
}, { needs: "moving" });

check("the focus stays on a row's link while its numbers change", async (page) => {
  await open(page, "#/processes?sort=comm&order=asc");
  const link = page.getByRole("link", { name: "systemd-journal" });
  await link.focus();
  const stamp = await page.locator(".stamp").innerText();
  await until("a new answer came", () => page.locator(".stamp").innerText(), (text) => text !== stamp);
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "systemd-journal");
}, { needs: "moving" });

check("names that try to become markup stay text", async (page) => {
  await open(page, "#/processes?q=666");
  const row = page.locator("tbody tr", { hasText: "<img src=x oner" });
  assert.equal(await row.count(), 1);
  // Marks that turn the direction of writing are shown as what they are: not letters.
  assert.match(await row.innerText(), /\ufffdtxt\.<b>unit<\/b>/);
  await row.getByRole("link").click();
  await page.waitForURL(/process\/666\.\d+/);
  for (const tab of ["functions", "lines", "modules", "threads", "timeline", "os-events", "flame"]) {
    await open(page, `#/process/${env.PAGE_HOSTILE}/${tab}`);
    assert.equal(await page.locator("main img, main script, main b b").count(), 0, tab);
  }
  await open(page, `#/process/${env.PAGE_HOSTILE}/functions?q=${encodeURIComponent("<img src=x onerror=alert(1)>")}`);
  assert.match((await column(page, 0))[0], /<img src=x onerror=alert\(1\)>/);
  await page.goto(`${env.PAGE_URL}/#/process/%3Cimg%20src%3Dx%3E/%3Cscript%3E?sort=%3Cb%3E&q=%3Cimg%3E`);
  await page.getByText("is not a process").waitFor();
}, { expected: /400 \(Bad Request\)/ });
