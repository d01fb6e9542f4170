// Checks of the timeline: what it draws and tells, and the span of time that is chosen from it.

import assert from "node:assert/strict";
import { answered, check, env, get, open, parameters, screenshot, until } from "./browser.mjs";

const ONE = `#/process/${env.PAGE_BUSY}`;
const strip = (page) => page.locator(".strip-box canvas");
const told = (page) => page.locator("#timeline-details").innerText();
const drawn = (page) => until("strips are drawn", () => strip(page).getAttribute("data-drawn").then(Number), (count) => count > 0);
// With the day where that is not today: the checks may run at midnight.
const clock = /(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d/.source;

// Drags over the strips between two parts of their width.
async function drag(page, from, to) {
  const { x, y, width } = await strip(page).boundingBox();
  await page.mouse.move(x + width * from, y + 30);
  await page.mouse.down();
  await page.mouse.move(x + (width * (from + to)) / 2, y + 32, { steps: 4 });
  await page.mouse.move(x + width * to, y + 34, { steps: 4 });
  await page.mouse.up();
}

check("each thread has a strip with its name, and each place on it is told in text", async (page) => {
  await open(page, `${ONE}/timeline`);
  await drawn(page);
  assert.equal(await page.locator(".strip-labels li").count(), 4);
  assert.equal((await page.locator(".strip-labels li").allInnerTexts()).filter((text) => /web-worker/.test(text)).length, 3);
  for (const name of ["user", "system call", "kernel", "runnable", "blocked"]) assert.match(await page.locator(".tab .legend").innerText(), new RegExp(name));
  await strip(page).focus();
  const texts = [];
  for (const key of ["Home", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "End"]) {
    await page.keyboard.press(key);
    texts.push(await told(page));
  }
  for (const text of texts) assert.match(text, new RegExp(`^(webserver|web-worker) \\(\\d+\\) ${clock} to ${clock}: (user|blocked) [<>\\d.]+ % \\(.+\\)`));
  assert.equal(texts[0], texts[4], "left and up lead back");
  assert.equal(new Set([texts[0], texts[1], texts[2], texts[5]]).size, 4);
  assert.match(await strip(page).getAttribute("aria-label"), /Arrow keys move, Shift with left and right chooses/);
  assert.equal(await strip(page).getAttribute("aria-describedby"), "timeline-details");
  // The shares of a place are those of the daemon's answer.
  const answer = await (await get(page, `/api/v1/processes/${env.PAGE_BUSY}/timeline?sort=samples`)).json();
  const [user, syscall, blocked, runnable, kernel] = answer.rows[0].spans[0];
  const share = (100 * user) / (user + syscall + blocked + runnable + kernel);
  assert.ok(Math.abs(Number(/user ([\d.]+) %/.exec(texts[0])[1]) - share) < 0.06, `${texts[0]}: ${share}`);
  await screenshot(page, "timeline");
});

check("dragging over the timeline chooses a span of time for every view, and its chip takes it back", async (page) => {
  await open(page, `${ONE}/timeline`);
  await drawn(page);
  await drag(page, 0.3, 0.6);
  const { from, to } = await until("the span is in the address", () => parameters(page), (now) => now.from && now.to);
  assert.ok(Date.parse(from) < Date.parse(to), `${from} ${to}`);
  const chip = page.locator(".chip");
  assert.match(await chip.innerText(), new RegExp(`${clock} to ${clock} \\(.+ s\\)`));
  await answered(page);
  await screenshot(page, "timeline-chosen");
  // The strips still show all time.
  const ticks = () => strip(page).getAttribute("data-stretches").then(Number);
  assert.ok((await ticks()) > 2);
  for (const tab of ["Functions", "Modules", "Threads", "OS events", "Flame graph"]) {
    const [request] = await Promise.all([
      page.waitForRequest((each) => new RegExp(`/${{ "OS events": "os-events", "Flame graph": "calltree" }[tab] ?? tab.toLowerCase()}\\?`).test(each.url())),
      page.getByRole("link", { name: tab, exact: true }).click(),
    ]);
    const query = new URL(request.url()).searchParams;
    assert.deepEqual([query.get("from"), query.get("to"), query.get("window")], [from, to, null], tab);
    assert.equal((await request.response()).status(), 200, tab);
    await answered(page);
  }
  for (const link of await page.locator(".downloads a").all()) assert.match(decodeURIComponent(await link.getAttribute("href")), /from=/);
  await page.getByRole("link", { name: "Processes", exact: true }).click();
  await page.waitForURL(/processes/);
  await answered(page);
  assert.equal((await parameters(page)).from, from);
  assert.match(await page.locator(".facts").innerText(), /covers/);
  await page.reload();
  await answered(page);
  await chip.click();
  assert.equal(await chip.isVisible(), false);
  assert.deepEqual(await parameters(page), {});
});

check("of the whole session the timeline asks for what is kept", async (page) => {
  const windows = [];
  // As a daemon answers that has run for longer than it keeps the past.
  await page.route((url) => url.pathname.endsWith("/timeline"), (route) => {
    const { searchParams } = new URL(route.request().url());
    windows.push(searchParams.get("window"));
    if (searchParams.get("window") !== "session") return route.continue();
    const problem = { title: "The question is not allowed", detail: "from is too early" };
    return route.fulfill({ status: 400, json: problem });
  });
  for (const [query, window] of [
    ["", null], ["?window=session", null], ["?from=-10s&to=-2s", null], ["?window=5m", "5m"],
  ]) {
    windows.length = 0;
    await page.goto("about:blank");
    await open(page, `${ONE}/timeline${query}`);
    await drawn(page);
    assert.equal(windows[0], window, query);
    const links = page.locator(".downloads a", { hasText: /^(JSON|CSV|text)$/ });
    for (const link of await links.all()) {
      const { searchParams } = new URL(await link.getAttribute("href"), env.PAGE_URL);
      assert.equal(searchParams.get("window"), window, query);
    }
  }
});

check("by keys a span of time is chosen and given up", async (page) => {
  await open(page, `${ONE}/timeline?window=5m`);
  await drawn(page);
  await strip(page).focus();
  // Late stretches stay as they are while others come; early ones are joined.
  await page.keyboard.press("End");
  for (let step = 0; step < 8; step += 1) await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("Shift+ArrowRight");
  const two = await parameters(page);
  await page.keyboard.press("Shift+ArrowRight");
  const three = await parameters(page);
  assert.ok(two.from === three.from && Date.parse(two.to) < Date.parse(three.to), JSON.stringify([two, three]));
  assert.equal(three.window, "5m");
  assert.match(await page.locator("#live").innerText(), new RegExp(`Only ${clock} to ${clock} is shown`));
  assert.equal(await page.evaluate(() => document.activeElement.tagName), "CANVAS");
  await page.keyboard.press("Shift+ArrowLeft");
  assert.deepEqual(await parameters(page), two);
  await page.keyboard.press("Escape");
  assert.equal((await parameters(page)).from, undefined);
  await page.keyboard.press("Enter");
  assert.ok((await parameters(page)).from);
  // A length of time takes its place.
  await page.locator("#choose-window").selectOption("30s");
  assert.deepEqual(await parameters(page), { window: "30s" });
});

check("the session has a strip for each process, busiest first, and each leads to its own", async (page) => {
  await open(page, "#/session/timeline");
  await drawn(page);
  const names = await page.locator(".strip-labels a").allInnerTexts();
  assert.equal(names[0], "webserver");
  assert.match(await page.locator(".tab").innerText(), /the highest place stands for [\d.]+ processors/);
  await page.locator("#timeline-order").selectOption("classes.runnable_ns");
  await until("who waits most is first", () => page.locator(".strip-labels a").first().innerText(), (name) => name === "cc1plus");
  await screenshot(page, "timeline-session");
  await drag(page, 0.4, 0.7);
  await until("the span is in the address", () => parameters(page), (now) => now.from && now.to);
  await page.locator(".strip-labels a").first().click();
  await page.waitForURL(/process\/\d+\.\d+\/timeline/);
  assert.ok((await parameters(page)).from);
});
