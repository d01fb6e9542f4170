// Checks of what was measured exactly: columns beside the sampled ones, how long calls took, and having functions measured.

import assert from "node:assert/strict";
import { answered, change, check, column, env, open, screenshot, until } from "./browser.mjs";

const ONE = `#/process/${env.PAGE_BUSY}/functions`;
const PATH = "**/api/v1/instrumentations";

function times(ns) {
  const histogram = [{ from_ns: 8_192, to_ns: 11_648, calls: 900 }, { from_ns: 11_648, to_ns: 16_384, calls: 80 }, { from_ns: 1_048_576, to_ns: 1_490_944, calls: 20 }];
  return { inclusive_ns: 1_000 * ns, exclusive_ns: 900 * ns, min_ns: ns / 2, mean_ns: ns, max_ns: 100 * ns, p50_ns: ns, p90_ns: 2 * ns, p99_ns: 90 * ns, histogram };
}

function calls() {
  return {
    calls: 1_234, outermost: 1_000, open: 1, left_unseen: 3, counted_only: 0, exits_unmatched: 0, elapsed: times(12_000), application: times(9_000),
    classes: {}, exclusive_classes: {}, minor_faults: 2, major_faults: 0, untraced_calls: 0, probe_ns: 5_000_000, error_ns: 100_000, mostly_probe: false, exits: "sites", why: null,
  };
}

function measured(agrees) {
  return {
    ...calls(), aliases: [], from_at: "2026-01-01T00:00:00Z", to_at: "2026-01-01T00:01:00Z", agrees, agrees_why: agrees ? null : "more was measured than sampled",
    compared: { sampled_low_ns: 1e9, sampled_high_ns: 2e9, measured_low_ns: 11e8, measured_high_ns: 12e8, span_ns: 59e9 },
  };
}

// Of whom one is that the page of the process has begun.
const OF = { all: false, pids: [Number(env.PAGE_BUSY)], comms: [], cgroups: [], children: true };

// How the daemon tells of an instrumentation.
function instrumentation(state, more = {}) {
  const row = { function: "index::decode_postings", aliases: [], module: "/usr/bin/webserver", attached_after_ns: 0, ...calls() };
  const chosen = { function: "index::decode_postings", aliases: [], module: "/usr/bin/webserver", address: "0x1000", entry: null, exits: { how: "sites", points: 2 }, state: "measured", why: null, ns_per_call: 9000 };
  return {
    id: 7, name: "", state, ended: state === "ended" ? "asked" : null,
    began_at: "2026-01-01T00:00:00Z", until: new Date(Date.now() + 42_000).toISOString(),
    of: OF, processes: 1, budget_percent: 5,
    points: 3, functions: [chosen], given_up: 0, trouble: null, measured: { functions: state === "trial" ? [] : [row], probes_ns: 5_000_000, probe_costs: [] }, ...more,
  };
}

check("where no function was measured there is no column of it, and where one was there are calls, mean and p99, by which is sorted", async (page) => {
  await open(page, ONE);
  assert.doesNotMatch(await page.locator("thead").innerText(), /Measured exactly/i);
  let asked = "";
  await change(page, "/functions", (body) => { body.rows[1].measured = measured(true); });
  page.on("request", (request) => { if (request.url().includes("/functions?")) asked = request.url(); });
  await page.goto("about:blank");
  await open(page, ONE);
  assert.match(await page.locator("thead").innerText(), /Measured exactly/i);
  const row = page.locator("tbody tr", { has: page.getByRole("button", { name: "1,234" }) });
  assert.match(await row.innerText(), /1,234\s+12\.0 µs\s+1\.08 ms/);
  assert.match(await row.getByRole("button", { name: "1,234" }).getAttribute("title"), /What was sampled agrees: sampled 1\.00 s to 2\.00 s, measured 1\.10 s to 1\.20 s with its probes, in 59\.0 s/);
  await screenshot(page, "measured");
  await page.getByRole("button", { name: "mean" }).click();
  await answered(page);
  assert.match(asked, /sort=measured\.elapsed\.mean_ns/);
});

check("how long calls took opens in a window by keys, with what is to be known of it, and closes", async (page) => {
  await change(page, "/functions", (body) => {
    body.rows[0].function = "<img src=x onerror=alert(1)>";
    body.rows[0].measured = measured(false);
  });
  await open(page, ONE);
  await page.getByRole("button", { name: "1,234" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  const text = await dialog.innerText();
  for (const part of ["<img src=x onerror=alert(1)>", "What was sampled differs", "more was measured than sampled", "3 calls ended without a return", "2 page faults", "8.19 µs – 11.6 µs", "90.0 %"]) assert.ok(text.includes(part), `${part} in ${text}`);
  assert.equal(await dialog.locator("img").count(), 0);
  assert.equal(await dialog.locator("svg rect").count(), 6);
  await screenshot(page, "measured-calls");
  await page.keyboard.press("Escape");
  await until("it is closed", () => dialog.count(), (count) => count === 0);
});

check("of calls of goroutines elapsed time alone is shown, and why", async (page) => {
  await change(page, "/functions", (body) => {
    const why = "it is Go's: elapsed time alone is known";
    body.rows[0].measured = { ...measured(null), application: null, classes: null, exclusive_classes: null, why };
  });
  await open(page, ONE);
  await page.getByRole("button", { name: "1,234" }).click();
  const dialog = page.getByRole("dialog");
  const text = await dialog.innerText();
  for (const part of ["12.0 µs", "elapsed time alone", "Elapsed, from entry to exit"]) assert.ok(text.includes(part), `${part} in ${text}`);
  assert.doesNotMatch(text, /in parentheses|Application, of/);
  assert.equal(await dialog.locator("svg rect").count(), 3);
});

check("what was measured and how long calls took fit a phone", async (page) => {
  await change(page, "/functions", (body) => { body.rows[0].measured = measured(true); });
  await page.route(PATH, (route) => route.fulfill({ json: { instrumentations: [instrumentation("measuring")] } }));
  await open(page, ONE);
  await page.getByText("Measuring, ").waitFor();
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 400);
  await screenshot(page, "phone-measured", true);
  await page.locator(".table-block").getByRole("button", { name: "1,234" }).click();
  assert.ok((await page.evaluate(() => document.querySelector("dialog").scrollWidth <= document.querySelector("dialog").clientWidth)));
  await screenshot(page, "phone-measured-calls");
}, { viewport: { width: 400, height: 800 }, needs: "moving" });

check("measuring is refused in the daemon's own words until the configuration allows it", async (page) => {
  await open(page, ONE);
  await page.getByRole("button", { name: "measure", exact: true }).first().click();
  const panel = page.locator(".measuring .problem");
  assert.match(await panel.innerText(), /Measuring functions over HTTP is off/);
  assert.match(await panel.innerText(), /instrumentation\.over_http = true/);
  await screenshot(page, "measuring-refused");
  await panel.getByRole("button", { name: "Close" }).click();
  assert.equal(await panel.count(), 0);
}, { expected: /403/, needs: "moving" });

check("what the daemon is too busy for to begin is not said to be asked again", async (page) => {
  await page.route(PATH, (route) => {
    const isAsked = route.request().method() === "POST";
    if (!isAsked) return route.fulfill({ json: { instrumentations: [] } });
    const problem = { title: "Not now", detail: "functions of another one are being chosen" };
    return route.fulfill({ status: 503, headers: { "retry-after": "1" }, json: problem });
  });
  await open(page, ONE);
  await page.getByRole("button", { name: "measure", exact: true }).first().click();
  const panel = page.locator(".measuring .problem");
  assert.match(await panel.innerText(), /Not now\s+Functions of another one are being chosen\./);
  assert.doesNotMatch(await panel.innerText(), /asked again/);
}, { expected: /503/, needs: "moving" });

check("a function is measured by its address in one process for a minute, shows how that stands, and is stopped", async (page) => {
  let all = [];
  const sent = [];
  await page.route(PATH, async (route) => {
    if (route.request().method() !== "POST") return route.fulfill({ json: { instrumentations: all } });
    sent.push(route.request().postDataJSON());
    all = [instrumentation("trial")];
    return route.fulfill({ status: 201, json: all[0] });
  });
  await page.route(`${PATH}/7`, (route) => {
    if (route.request().method() === "GET") return route.fulfill({ json: all[0] });
    sent.push(route.request().method());
    all = sent.filter((one) => one === "DELETE").length > 1 ? [] : [instrumentation("ended")];
    return all.length > 0 ? route.fulfill({ json: all[0] }) : route.fulfill({ status: 204 });
  });
  await open(page, ONE);
  await page.getByRole("button", { name: "measure", exact: true }).first().click();
  await page.getByText("Its calls are counted for a moment").waitFor();
  assert.equal(sent[0].for, "60s");
  assert.deepEqual(sent[0].pids, [Number(env.PAGE_BUSY)]);
  assert.match(sent[0].functions[0], /^\/.+:\+0x[0-9a-f]+$/);
  all = [instrumentation("measuring")];
  await page.getByText(/Measuring, [34]\d\.\d s left/).waitFor();
  assert.match(await page.locator(".measuring").innerText(), /1,234\s+12\.0 µs/);
  await screenshot(page, "measuring");
  await page.getByRole("button", { name: /^Stop measuring/ }).click();
  await page.getByText("Ended: stopped").waitFor();
  await page.getByRole("button", { name: /^Remove/ }).click();
  await until("it is removed", () => page.locator(".measuring article").count(), (count) => count === 0);
}, { needs: "moving" });

check("what is stopped twice, or has just ended by itself, is not forgotten", async (page) => {
  let state = "measuring";
  let listed = state;
  const deleted = [];
  await page.route(PATH, (route) => {
    return route.fulfill({ json: { instrumentations: [instrumentation(listed)] } });
  });
  await page.route(`${PATH}/7`, (route) => {
    if (route.request().method() === "DELETE") {
      deleted.push(state);
      state = "ended";
    }
    listed = state;
    return route.fulfill({ json: instrumentation(state) });
  });
  const stop = page.getByRole("button", { name: /^Stop measuring/ });
  const remove = page.getByRole("button", { name: /^Remove/ });
  await open(page, ONE);
  await stop.dblclick();
  await remove.waitFor();
  // What stands where somebody presses once more is not what that was meant for.
  await remove.hover();
  await page.mouse.down({ clickCount: 2 });
  await page.mouse.up({ clickCount: 2 });
  // Longer than a request takes.
  await page.waitForTimeout(300);
  assert.deepEqual(deleted, ["measuring"]);
  // It ended after the page last looked.
  listed = "measuring";
  await page.goto("about:blank");
  await open(page, ONE);
  await stop.click();
  await page.getByText("Ended: stopped").waitFor();
  assert.deepEqual(deleted, ["measuring"]);
}, { needs: "moving" });

check("a function is asked to be measured once, however often that is pressed", async (page) => {
  let posts = 0;
  let all = [];
  let answer = () => {};
  await page.route(PATH, async (route) => {
    const isAsked = route.request().method() === "POST";
    if (!isAsked) return route.fulfill({ json: { instrumentations: all } });
    posts += 1;
    await new Promise((resolve) => { answer = resolve; });
    all = [instrumentation("measuring")];
    return route.fulfill({ status: 201, json: all[0] });
  });
  await open(page, ONE);
  const button = page.getByRole("button", { name: "measure", exact: true }).first();
  await button.dblclick();
  await until("it is asked for", () => posts, (count) => count > 0);
  await button.press("Enter");
  // Longer than a request takes.
  await page.waitForTimeout(300);
  assert.equal(posts, 1);
  answer();
  await page.getByText("Measuring, ").waitFor();
  assert.equal(posts, 1);
}, { needs: "moving" });

check("how measuring stands is asked for only while it is shown", async (page) => {
  await page.addInitScript(() => {
    window.waits = [];
    const { setTimeout: later } = window;
    window.setTimeout = (run, ms, ...rest) => {
      window.waits.push(ms);
      return later(run, ms, ...rest);
    };
  });
  let asked = 0;
  await page.route(PATH, (route) => {
    asked += 1;
    return route.fulfill({ json: { instrumentations: [instrumentation("measuring")] } });
  });
  const again = () => until("it is asked again and again", () => asked, (count) => count > 2);
  await open(page, ONE);
  await again();
  await page.getByRole("link", { name: "Threads", exact: true }).click();
  await page.waitForURL(/threads/);
  // The last wait of a second ends.
  await page.waitForTimeout(1_500);
  asked = 0;
  await page.evaluate(() => { window.waits = []; });
  await page.waitForTimeout(2_500);
  const seconds = await page.evaluate(() => window.waits.filter((ms) => ms === 1_000));
  assert.deepEqual([asked, seconds], [0, []]);
  await page.getByRole("link", { name: "Functions", exact: true }).click();
  await again();
}, { needs: "moving" });

check("a process has what is measured of it, and each says of whom it is", async (page) => {
  const whom = [
    { ...OF, pids: [], all: true, children: false },
    OF,
    { ...OF, pids: [1], children: false },
    { ...OF, pids: [], comms: ["webserver"] },
    { ...OF, pids: [], comms: ["postgres", "<img src=x>"] },
    { ...OF, pids: [], cgroups: ["/system.slice"], children: false },
    { ...OF, pids: [], cgroups: ["/system.slice/web"] },
    // The parent of all.
    { ...OF, pids: [1] },
  ];
  const [chosen] = instrumentation("ended").functions;
  const instrumentations = whom.map((of, id) => {
    return instrumentation("ended", { id, of, functions: [{ ...chosen, function: `f${id}` }] });
  });
  await page.route(PATH, (route) => route.fulfill({ json: { instrumentations } }));
  const told = [
    "f0 of every process",
    `f1 of process ${env.PAGE_BUSY}, children included`,
    "f2 of process 1",
    "f3 of all named webserver, children included",
    "f4 of all named postgres, <img src=x>, children included",
    "f5 of all in /system.slice",
    "f6 of all in /system.slice/web, children included",
    "f7 of process 1, children included",
  ];
  const titles = () => page.locator(".measuring h3").allInnerTexts();
  const its = (all) => all.length > 0;
  await open(page, ONE);
  const here = [7, 5, 3, 1, 0].map((index) => told[index]);
  assert.deepEqual(await until("they are shown", titles, its), here);
  await screenshot(page, "measured-of-whom");
  await page.goto("about:blank");
  await open(page, "#/session/functions");
  assert.deepEqual(await until("all are shown", titles, its), [...told].reverse());
}, { needs: "moving" });

check("of a process that has exited nothing is offered to be measured", async (page) => {
  await change(page, `/processes/${env.PAGE_BUSY}`, (body) => { body.state = "exited"; });
  await open(page, ONE);
  assert.ok((await column(page, 0)).length > 0);
  assert.equal(await page.getByRole("button", { name: "measure", exact: true }).count(), 0);
  assert.doesNotMatch(await page.locator("thead").innerText(), /measure/i);
}, { needs: "moving" });

check("of the whole session a function is measured in every process only after that was said, and refusals of functions are shown", async (page) => {
  let all = [];
  let sent = null;
  await page.route(PATH, async (route) => {
    if (route.request().method() !== "POST") return route.fulfill({ json: { instrumentations: all } });
    sent = route.request().postDataJSON();
    const chosen = { function: "memcpy", aliases: [], module: "/lib/libc.so.6", address: null, entry: null, exits: { how: "none", points: 0 }, state: "refused", why: "it is chosen when the program starts (ifunc); name the implementation", ns_per_call: null };
    all = [instrumentation("waiting", { functions: [chosen], measured: { functions: [], probes_ns: 0, probe_costs: [] } })];
    return route.fulfill({ status: 201, json: all[0] });
  });
  await open(page, "#/session/functions");
  await page.getByRole("button", { name: "measure", exact: true }).first().click();
  assert.equal(sent, null);
  assert.match(await page.locator(".measuring").innerText(), /into every process that has mapped/);
  await page.getByRole("button", { name: "Measure in every process for 60 s" }).click();
  await page.getByText("memcpy (refused): it is chosen when the program starts (ifunc); name the implementation").waitFor();
  assert.equal(sent.all, true);
  assert.equal(sent.pids, undefined);
}, { needs: "moving" });

check("a saved profile offers no measuring", async (page) => {
  await open(page, ONE);
  assert.ok((await column(page, 0)).length > 0);
  assert.equal(await page.getByRole("button", { name: "measure", exact: true }).count(), 0);
}, { needs: "replay" });
