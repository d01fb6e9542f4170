// Checks of the table of processes.

import assert from "node:assert/strict";
import { answered, check, column, env, open, parameters, screenshot, until } from "./browser.mjs";

const numbers = (texts) => texts.map((text) => Number(text.replaceAll(",", "")));

check("a newcomer sees who uses most, who waits most, and what the answer lacks", async (page) => {
  await open(page, "");
  const cards = await page.locator(".standouts li").allInnerTexts();
  assert.match(cards[0], /Uses the processor most[\s\S]*webserver \(1864\)[\s\S]*in its own code/);
  assert.match(cards[1], /Waits most for a processor[\s\S]*cc1plus/);
  assert.match(cards[2], /blocked most[\s\S]*blocked for/);
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
  const samples = () => column(page, 4).then((texts) => texts[0]);
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
