// Checks of comparisons: of two spans of time, of all or of one, and of two processes, as tables and as a flame graph.

import assert from "node:assert/strict";
import { answered, check, column, env, open, parameters, screenshot, until } from "./browser.mjs";

const [WEB, HOSTILE] = [env.PAGE_BUSY, env.PAGE_HOSTILE];
const TWO = `base=${WEB}&other=${HOSTILE}`;
const canvas = (page) => page.locator("canvas").first();
const boxes = (page) => canvas(page).getAttribute("data-boxes").then(Number);
const details = (page) => page.locator("#compare-details").innerText();

check("two spans of time are compared by function, and the sides can be chosen and swapped", async (page) => {
  await open(page, "#/compare");
  assert.deepEqual(await page.locator(".side > h2").allInnerTexts(), ["Base: since the start", "Other: last 30 s"]);
  await page.locator("#choose-base").selectOption("1m");
  await until("the base is another", () => page.locator(".side > h2").first().innerText(), (text) => text === "Base: last minute");
  await page.getByRole("button", { name: "Swap" }).click();
  await until("the sides are swapped", () => page.locator(".side > h2").first().innerText(), (text) => text === "Base: last 30 s");
  assert.deepEqual(await parameters(page), { base: "30s", other: "1m" });
  assert.equal(await page.locator("#choose-window").isVisible(), false, "each side has a time of its own");
  await page.reload();
  await answered(page);
  assert.deepEqual(await page.locator(".side > h2").allInnerTexts(), ["Base: last 30 s", "Other: last minute"]);
});

check("two processes are compared: shares of each, their difference with its sign, largest first", async (page) => {
  await open(page, `#/compare/functions?${TWO}`);
  assert.match((await page.locator(".side > h2").allInnerTexts())[0], /^Base: webserver \(1864\)$/);
  const largest = (await column(page, 1)).map((text) => Number.parseFloat(text));
  assert.deepEqual(largest, [...largest].sort((a, b) => b - a));
  const rows = await page.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.innerText)));
  const number = (text) => Number(text.replace("−", "-").replace(/[<>+%]/g, ""));
  for (const [name, , base, other, change] of rows.filter((row) => !/[<>]/.test(row.slice(2, 5).join()))) {
    assert.ok(Math.abs(number(other) - number(base) - number(change)) < 0.16, `${name}: ${base} ${other} ${change}`);
    if (number(change) !== 0) assert.match(change, /^[+−]/);
  }
  await page.locator(".choice label", { hasText: "Samples" }).click();
  await page.getByRole("button", { name: "change", exact: true }).first().click();
  await answered(page);
  assert.equal((await parameters(page)).sort, "change.samples.exclusive_percent");
  const falling = (await column(page, 4)).map(number);
  assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
  await screenshot(page, "compare");
});

check("the largest change is that of the value that is shown", async (page) => {
  const number = (text) => Math.abs(Number(text.replace("−", "-").replace(/[<>+%]|points?/g, "")));
  for (const value of ["elapsed", "application", "samples", "blocked", "runnable", "syscall", "running"]) {
    await open(page, `#/compare/functions?${TWO}&value=${value}`);
    const rows = await page.locator("tbody tr").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.innerText)));
    for (const row of rows) assert.ok(Math.abs(number(row[1]) - Math.max(number(row[4]), number(row[7]))) < 0.01, row.join());
    const largest = rows.map((row) => number(row[1]));
    assert.deepEqual(largest, [...largest].sort((a, b) => b - a));
  }
});

check("a threshold leaves out what changed less, and is part of the address", async (page) => {
  await open(page, `#/compare/functions?${TWO}`);
  const all = await page.locator("tbody tr").count();
  await page.getByLabel("At least").fill("20");
  await until("few are left", () => page.locator("tbody tr").count(), (count) => count > 0 && count < all);
  assert.equal((await parameters(page)).threshold, "20");
  const largest = (await column(page, 1)).map((text) => Number.parseFloat(text));
  assert.ok(largest.every((change) => change >= 20), String(largest));
});

check("a process and the session lead to their comparison, and a second process is asked for", async (page) => {
  await open(page, `#/process/${WEB}/functions?window=1m`);
  await page.getByRole("link", { name: "compare with another" }).click();
  await page.getByText("Choose a second process").waitFor();
  assert.deepEqual(await parameters(page), { base: WEB, window: "1m" });
  await answered(page);
  const second = await page.locator("#choose-other option", { hasText: "cc1plus" }).first().innerText();
  await page.locator("#choose-other").selectOption({ label: second });
  await until("both are named", () => page.locator(".side > h2").allInnerTexts(), ([, other]) => other === `Other: ${second}`);
  assert.equal(await page.locator("#choose-window").inputValue(), "1m");
  await page.locator("#choose-base").selectOption("session");
  await until("the other is a time, too", () => parameters(page), ({ other }) => other === "30s");
  await open(page, "#/session/functions");
  await page.getByRole("link", { name: "compare parts of it" }).click();
  await until("the session is the base", () => parameters(page), ({ base }) => base === "session");
});

check("who changed is a table, largest first, and each row leads to the comparison of its functions", async (page) => {
  await open(page, "#/compare/processes?base=1m&other=10s");
  assert.match(await page.locator("main").innerText(), /Shares are of what \d+ processors? can do/);
  const number = (text) => Math.abs(Number(text.replace("−", "-").replace(/[<>+%,]/g, "")));
  const sizes = (await column(page, 1)).map(number);
  assert.ok(sizes.length > 2 && sizes[0] > 0, sizes.join());
  assert.deepEqual(sizes, [...sizes].sort((a, b) => b - a));
  await page.locator(".choice label", { hasText: "Blocked" }).click();
  await until("shares are of the time", () => page.locator("main").innerText(), (text) => /Shares are of the time that each side covers/.test(text));
  const first = page.locator("tbody th a").first();
  const name = await first.innerText();
  await first.click();
  await until("its functions are compared", () => page.locator(".side > h2").first().innerText(), (text) => text === `Base: all named ${name}, last minute`);
  assert.deepEqual(await parameters(page), { base: "1m", other: "10s", value: "blocked", comm: name });
  assert.ok((await page.locator("tbody tr").count()) > 0);
  assert.equal(await page.locator(".tabs a", { hasText: "Flame graph" }).count(), 0, "a flame graph is of one process or of all");
  await page.goBack();
  await page.locator(".choice label", { hasText: "Each process" }).click();
  await until("rows are processes", () => page.locator("tbody th").first().innerText(), (text) => /\(\d+\)$/.test(text));
  await screenshot(page, "compare-processes");
  await page.locator("tbody th a").first().click();
  await until("one process is compared", () => parameters(page), ({ pid }) => /^\d+\.\d+$/.test(pid));
});

check("one process is compared over two times, and who is meant can be chosen", async (page) => {
  await open(page, `#/process/${WEB}/functions`);
  await page.getByRole("link", { name: "compare two times of it" }).click();
  await until("it is named", () => page.locator(".side > h2").allInnerTexts(), ([base]) => base === "Base: webserver (1864), since the start");
  assert.deepEqual(await parameters(page), { pid: WEB });
  await page.locator("#choose-other").selectOption("10s");
  await page.locator(".choice label", { hasText: "Blocked" }).click();
  await until("the value is another", () => parameters(page), ({ value }) => value === "blocked");
  await page.getByRole("link", { name: "Flame graph" }).click();
  await until("boxes are drawn", () => boxes(page), (count) => count > 5);
  await page.locator("#choose-who").selectOption({ label: "all processes" });
  await until("all are compared", () => page.locator(".side > h2").first().innerText(), (text) => text === "Base: since the start");
  await page.locator("#choose-who").selectOption("comm:webserver");
  await until("a name is compared", () => parameters(page), ({ comm, pid }) => comm === "webserver" && !pid);
  await until("its processes are told", () => page.locator(".side").first().innerText(), (text) => /^Base: all named webserver[\s\S]*processes[\s\S]*1864\./.test(text));
  await screenshot(page, "compare-name");
});

check("a flame graph shows both call trees joined, and tells each change by sign and in words", async (page) => {
  await open(page, `#/compare/flame?${TWO}`);
  await until("boxes are drawn", () => boxes(page), (count) => count > 20);
  await canvas(page).focus();
  const told = [];
  for (const key of ["ArrowDown", "ArrowRight", "ArrowRight"]) {
    await page.keyboard.press(key);
    told.push(await details(page));
  }
  assert.match(told[0], /Elapsed: [\d.]+ % of the base \(.+\), 0 % of the other \(0\): only in the base, shrank by [\d.]+ points\./);
  assert.ok(told.some((text) => /only in the other, grew by [\d.]+ points/.test(text)), told.join("\n"));
  assert.match(await page.locator(".changes").innerText(), /shrank[\s\S]*−5 or more[\s\S]*same[\s\S]*\+5 or more[\s\S]*grew/);
  await screenshot(page, "compare-flame");
  await page.keyboard.press("Enter");
  assert.ok((await parameters(page)).zoom);
  await page.locator(".choice label", { hasText: "Blocked" }).click();
  await until("the value is another", () => details(page), (text) => /Blocked: /.test(text));
});

check("joined call trees add up, and a tree compared with itself shows no change", async (page) => {
  await open(page, "#/daemon");
  const found = await page.evaluate(async ([one, two]) => {
    const { flatten } = await import("/ui/flame/tree.js");
    const { merge, shares, level } = await import("/ui/flame/merge.js");
    const tree = async (path) => flatten((await (await fetch(path)).json()).root);
    const [web, other] = [await tree(one), await tree(two)];
    const joined = merge(web, other);
    // Each node of both sides is there once, and what a node has is at least what those below it have.
    const sum = (values) => values.reduce((a, b) => a + b, 0);
    const whole = ["elapsed", "samples"].every((id) => sum(joined.base[id]) === sum(web.values[id]) && sum(joined.other[id]) === sum(other.values[id]));
    let nested = true;
    for (let node = 1; node < joined.count; node += 1) if (joined.values.elapsed[node] > joined.values.elapsed[joined.parent[node]] + 1e-6) nested = false;
    const same = merge(web, web);
    const still = Array.from({ length: same.count }, (_, node) => level(shares(same, "elapsed", node).change)).every((each) => each === 0);
    const began = performance.now();
    const large = merge(await tree("/api/v1/processes/2100/calltree"), await tree("/api/v1/processes/2100/calltree?window=10s"));
    return { whole, nested, still, sameCount: same.count === web.count, large: large.count, mergeMs: performance.now() - began };
  }, [`/api/v1/processes/${WEB}/calltree`, `/api/v1/processes/${HOSTILE}/calltree`]);
  assert.ok(found.whole && found.nested && found.still && found.sameCount && found.large > 20_000, JSON.stringify(found));
});

check("sides that are not there are told in a sentence", async (page) => {
  await page.goto(`${env.PAGE_URL}/#/compare/functions?base=${WEB}&other=999999`);
  await page.getByText("There is no such process").waitFor();
  await page.goto(`${env.PAGE_URL}/#/compare/functions?base=%3Cimg%3E&other=30s`);
  await page.getByText("must be a process").waitFor();
}, { expected: /404 \(Not Found\)|400 \(Bad Request\)/ });
