// Checks of the views of one process and of the whole session, and of what is said when there is no answer.

import assert from "node:assert/strict";
import { answered, change, check, column, env, get, open, parameters, screenshot, until } from "./browser.mjs";

const ONE = `#/process/${env.PAGE_BUSY}`;

check("a process has a summary with a reason, its classes and what its answer lacks", async (page) => {
  await open(page, `${ONE}/functions`);
  const head = await page.locator(".summary").innerText();
  assert.match(head, /Its threads were blocked for [\d.]+ % of 4 threads × .+, and active for .+: [\d.]+ % running their own code, [\d.]+ % /);
  assert.match(head, /web\.service/);
  assert.match(head, /\/usr\/bin\/webserver/);
  for (const name of ["user", "system call", "kernel", "runnable", "blocked"]) assert.match(head, new RegExp(name));
  assert.match(head, /without a stack/);
  assert.match(await page.title(), /webserver \(1864\) · Functions/);
});

check("functions have six values, sorted by the daemon, filtered, exact in their titles", async (page) => {
  await open(page, `${ONE}/functions`);
  const heads = await page.locator("thead").innerText();
  for (const group of ["Elapsed", "Application", "Samples"]) assert.match(heads, new RegExp(group));
  assert.equal(await page.getByRole("button", { name: "exclusive" }).count(), 3);
  assert.equal(await page.getByRole("button", { name: "inclusive" }).count(), 3);
  await page.getByRole("button", { name: "exclusive" }).nth(1).click();
  await answered(page);
  assert.deepEqual(await parameters(page).then(({ sort, order }) => [sort, order]), ["application.exclusive_ns", "desc"]);
  assert.equal((await column(page, 0))[0], "index::decode_postings");
  assert.match(await page.locator("tbody tr").first().locator("td").first().getAttribute("title"), /^[\d,]+ ns \([\d.]+ % of the process, [\d.]+ % of the session\)\n95 % interval: .+ to .+$/);
  await page.getByLabel("Filter").fill("JSON::");
  await until("the filter leaves two functions", () => column(page, 0), (names) => names.length === 2);
  await screenshot(page, "functions");
});

check("functions say where they waited, and are sorted by it", async (page) => {
  await open(page, `${ONE}/functions`);
  await page.getByRole("button", { name: "blocked" }).click();
  await answered(page);
  assert.equal((await parameters(page)).sort, "exclusive_classes.blocked_ns");
  // With the function of the program that waits there.
  assert.match((await column(page, 0))[0], /^epoll_wait < server::serve_connection$/);
  assert.match(await page.locator("tbody tr").first().locator("a").first().getAttribute("title"), /\n100 % of its own time in calls from server::serve_connection of \/usr\/bin\/webserver\n/);
  await screenshot(page, "functions-blocked");
  // All that a function in the kernel has is in these, and none of a function that only runs.
  const { rows } = await (await get(page, `/api/v1/processes/${env.PAGE_BUSY}/functions`)).json();
  const of = (name) => rows.find((row) => row.function === name).exclusive_classes;
  assert.ok(of("epoll_wait").blocked_ns > 0 && of("index::decode_postings").blocked_ns === 0 && of("write").syscall_ns > 0);
  const title = await page.locator("tbody tr").first().locator("td").nth(2).getAttribute("title");
  assert.match(title, /^[\d,]+ ns \((100|>?99\.\d) % of its own time\)$/);
  await page.getByRole("button", { name: "runnable" }).click();
  await answered(page);
  assert.equal((await column(page, 0))[0], "index::decode_postings");
});

check("where there is no system call, what is true of their tracing is said", async (page) => {
  let traced = "all";
  await change(page, "/os-events", (body) => { body.syscalls = []; });
  await change(page, "/status", (body) => { body.settings.system_calls = traced; });
  const told = async () => {
    await page.goto("about:blank");
    await open(page, `${ONE}/os-events`);
    return page.locator("p.none").innerText();
  };
  assert.match(await told(), /^No system call was seen in this time\. The time passed outside of them: .+ running, .+ ready to run, .+ blocked: page faults/);
  traced = "targets";
  assert.match(await told(), /Only those of processes that the targets name are traced/);
  traced = "off";
  assert.match(await told(), /^System calls are not traced/);
});

check("where calls were traced in a part of the time it is told what is of that", async (page) => {
  let part = 12.34;
  let edit = () => {};
  await change(page, "/os-events", (body) => {
    body.observed_percent = part;
    edit(body);
  });
  const shown = async () => {
    await page.goto("about:blank");
    await open(page, `${ONE}/os-events`);
    return page.locator("p.partly");
  };
  const told = await (await shown()).innerText();
  assert.match(told, /^Calls, average, longest and running are of the 12\.3 % of /);
  assert.match(told, /; blocked and runnable are of all of it\.$/);
  await screenshot(page, "os-events-partly");
  // Where none was seen, nobody knows whether there was one.
  edit = (body) => { body.syscalls = []; };
  assert.equal(await (await shown()).isVisible(), false);
  const none = await page.locator("p.none").innerText();
  assert.match(none, /^No system call was seen .+ traced in 12\.3 % of the running time\.$/);
  assert.doesNotMatch(none, /outside of them/);
  [part, edit] = [100, () => {}];
  assert.equal(await (await shown()).isVisible(), false);
  // A timeline knows no more than what was traced.
  await open(page, `${ONE}/timeline`);
  const user = page.locator(".tab .legend li", { hasText: "user" });
  assert.match(await user.getAttribute("title"), /outside system calls that were traced/);
});

check("a system call of which none was counted has no average and no longest, and is last by them", async (page) => {
  await change(page, "/os-events", ({ syscalls }) => {
    const futex = syscalls.find(({ name }) => name === "futex");
    Object.assign(futex, { count: 0, average_ns: null, max_ns: null, max_is_bound: false });
  });
  for (const order of ["asc", "desc"]) {
    await page.goto("about:blank");
    await open(page, `${ONE}/os-events?sort=average_ns&order=${order}`);
    const last = page.locator("tbody tr", { hasText: "futex" });
    assert.equal((await column(page, 0)).at(-1), "futex");
    const cells = await last.locator("td").allInnerTexts();
    assert.equal(cells.filter((text) => text === "–").length, 2);
  }
});

check("threads of the kernel that sleep are no warning", async (page) => {
  const item = (hash) => open(page, hash).then(() => page.locator(".receipt li", { hasText: "without a stack" }).getAttribute("class"));
  assert.equal(await item("#/process/40/functions"), "note");
  assert.equal(await item("#/session/modules"), "note");
  assert.equal(await item(`${ONE}/functions`), "lacks");
});

check("modules, threads and OS events are shown and sorted", async (page) => {
  await open(page, `${ONE}/modules`);
  assert.ok((await column(page, 0)).includes("/lib/libz.so.1"));
  await screenshot(page, "modules");
  await page.getByRole("link", { name: "Threads", exact: true }).click();
  await page.waitForURL(/threads/);
  await answered(page);
  assert.equal((await column(page, 0)).filter((name) => name === "web-worker").length, 3);
  assert.equal(await page.locator("tbody .bar").count(), 4);
  await screenshot(page, "threads");
  await page.getByRole("link", { name: "OS events" }).click();
  await page.waitForURL(/os-events/);
  await answered(page);
  assert.deepEqual(new Set(await column(page, 0)), new Set(["write", "futex", "epoll_wait", "read"]));
  await page.getByRole("button", { name: "Calls" }).click();
  assert.equal((await column(page, 0))[0], "write");
  await screenshot(page, "os-events");
});

check("frames and time go into the address and stay from tab to tab", async (page) => {
  await open(page, `${ONE}/functions`);
  await page.locator("#choose-frames").selectOption("all");
  await until("functions of the kernel are there", () => column(page, 0), (names) => names.some((name) => name.startsWith("futex_wait")));
  await page.locator("#choose-window").selectOption("30s");
  await answered(page);
  await page.getByRole("link", { name: "Flame graph" }).click();
  await page.waitForURL(/flame/);
  assert.deepEqual(await parameters(page), { window: "30s", frames: "all" });
  await page.getByRole("link", { name: "Processes" }).click();
  assert.equal((await parameters(page)).window, "30s");
});

check("modules can be folded into what called them, in every view of functions", async (page) => {
  await open(page, `${ONE}/functions`);
  assert.ok((await column(page, 0)).includes("memcpy"));
  await page.getByLabel("Fold").fill("libc*");
  await page.keyboard.press("Enter");
  await until("functions of the module are gone", () => column(page, 0), (names) => names.length > 5 && !names.includes("memcpy"));
  assert.deepEqual(await parameters(page), { hide: "libc*" });
  await page.getByRole("link", { name: "Flame graph" }).click();
  await page.waitForURL(/flame.*hide=libc/);
  await answered(page);
  await page.getByLabel("Search").fill("libc");
  await until("the graph has none of them", () => page.locator(".rows").innerText(), (text) => /^0 functions match/.test(text));
  await page.getByLabel("Fold").fill("nothing-like-it");
  await page.keyboard.press("Enter");
  await page.getByText("must name modules that are listed").waitFor();
}, { expected: /400 \(Bad Request\)/ });

check("the whole session has the same reports", async (page) => {
  await open(page, "#/session/functions");
  assert.match(await page.locator("h1").innerText(), /Whole session/);
  assert.ok((await column(page, 0)).includes("qsort_tuple"));
  await open(page, "#/session/threads");
  assert.ok((await page.locator("tbody tr").count()) > 20);
  await open(page, "#/session/flame");
  assert.match(await page.locator("#flame-details").innerText(), /session/);
});

check("each view has links to its answer, and those that exist answer", async (page) => {
  for (const [hash, path, labels] of [
    ["#/processes?q=post&sort=pid&order=asc", /^\/api\/v1\/processes\?/, ["JSON", "CSV", "text"]],
    [`${ONE}/functions?window=1m`, /functions\?.*window=1m/, ["JSON", "CSV", "text", "pprof"]],
    [`${ONE}/os-events`, /os-events/, ["JSON", "text", "pprof"]],
    [`${ONE}/flame?frames=all&value=blocked`, /calltree(\?|%3F).*frames(=|%3D)all.*value(=|%3D)blocked/, ["JSON", "text", "folded stacks", "SVG", "speedscope", "Firefox Profiler", "open in speedscope", "pprof"]],
    [`#/compare/functions?base=1m&other=10s`, /diff\?base=1m&other=10s/, ["JSON", "CSV", "text"]],
    [`#/compare/processes?base=1m&other=10s&value=blocked`, /diff\/processes\?base=1m&other=10s&value=blocked/, ["JSON", "CSV", "text"]],
  ]) {
    await open(page, hash);
    const links = await page.locator(".downloads a").evaluateAll((all) => all.map((link) => [link.textContent, link.getAttribute("href")]));
    assert.deepEqual(links.map(([label]) => label), labels, hash);
    for (const [label, href] of links) {
      assert.match(href, label === "pprof" ? /\/pprof\?window=(1m|session)(&frames=all)?$/ : path);
      if (!["JSON", "text"].includes(label)) continue;
      const answer = await get(page, href);
      assert.equal(answer.status(), 200, href);
    }
  }
});

check("a process that was never there and one that was dropped are told in a sentence", async (page) => {
  await page.goto(`${env.PAGE_URL}/#/process/999999/functions`);
  await page.getByText("There is no such process").waitFor();
  await page.goto(`${env.PAGE_URL}/#/process/${env.PAGE_DROPPED}/flame`);
  await page.getByText("The process is no longer kept").waitFor();
  assert.match(await page.locator("#notice").innerText(), /still in the session's totals/);
  assert.equal(await page.locator("#notice").getAttribute("role"), "alert");
  await screenshot(page, "gone");
  await page.getByRole("link", { name: "All processes" }).click();
  await answered(page);
  assert.equal(await page.locator("#notice").innerText(), "");
}, { expected: /404 \(Not Found\)|410 \(Gone\)/ });

check("a session that is not there is no missing process", async (page) => {
  await page.goto(`${env.PAGE_URL}/#/process/${env.PAGE_BUSY}/functions?session=nowhere`);
  await page.getByText("There is no such session").waitFor();
  assert.doesNotMatch(await page.locator("#notice").innerText(), /no such process/i);
}, { expected: /404 \(Not Found\)/ });

check("what a proxy answers for the daemon, and its own failure, is asked again", async (page) => {
  await open(page, "#/processes");
  const notice = () => page.locator("#notice").innerText();
  for (const status of [408, 429, 500, 502, 504]) {
    const answer = { status, contentType: "text/html", body: "<h1>Bad luck</h1>" };
    await page.route("**/api/v1/**", (route) => route.fulfill(answer));
    await until(`${status} is told`, notice, (text) => text.includes(`The answer was ${status}.`));
    assert.match(await notice(), /It is asked again by itself\./);
    await page.unroute("**/api/v1/**");
    await until(`after ${status} it goes on`, notice, (text) => text === "");
  }
  // Not before it was told to.
  const askedMs = [];
  await page.route(/\/api\/v1\/processes\?/, (route) => {
    askedMs.push(Date.now());
    const headers = { "retry-after": "5" };
    return askedMs.length > 1 ? route.continue() : route.fulfill({ status: 429, headers });
  });
  await until("it is asked twice", () => askedMs, ({ length }) => length > 1);
  assert.ok(askedMs[1] - askedMs[0] > 4_500, askedMs.join());
}, { expected: /(408|429|500|502|504) \(/, needs: "moving" });

check("while the daemon is busy or gone the last numbers stay, and it goes on by itself", async (page) => {
  await open(page, "#/processes");
  const rows = await page.locator("tbody tr").count();
  const problem = { status: 503, contentType: "application/problem+json", headers: { "retry-after": "1" }, body: JSON.stringify({ title: "There is no answer now", detail: "the kernel's maps cannot be read" }) };
  await page.route("**/api/v1/**", (route) => route.fulfill(problem));
  await page.getByText("the kernel's maps cannot be read").waitFor();
  assert.equal(await page.locator("tbody tr").count(), rows);
  await page.unroute("**/api/v1/**");
  await page.route("**/api/v1/**", (route) => route.abort("connectionrefused"));
  await page.getByText("The daemon cannot be reached").waitFor();
  await screenshot(page, "away");
  await page.unroute("**/api/v1/**");
  await until("the notice goes", () => page.locator("#notice").innerText(), (text) => text === "");
}, { expected: /503 \(Service Unavailable\)|ERR_CONNECTION_REFUSED/ });
