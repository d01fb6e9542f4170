// Checks of named sessions and their spans: chosen as the part that is shown, and compared.

import assert from "node:assert/strict";
import { AGAIN, answered, check, env, open, parameters, screenshot, until } from "./browser.mjs";

async function post(page, path, data) {
  const answer = await page.request.post(`${env.PAGE_URL}${path}`, { data, ...AGAIN });
  assert.ok(answer.ok(), `${path}: ${await answer.text()}`);
}

check("a named session and its spans can be shown and compared", async (page) => {
  await post(page, "/api/v1/sessions", { name: "release" });
  await post(page, "/api/v1/marks", { name: "warm up", session: "release" });
  await open(page, `#/process/${env.PAGE_BUSY}/functions?window=30s`);
  await post(page, "/api/v1/marks", { name: "steady", session: "release" });
  await page.reload();
  await answered(page);
  const choice = page.locator("#choose-window");
  await until("its spans are offered", () => choice.innerText(), (text) => /release: warm up/.test(text));
  const [request] = await Promise.all([
    page.waitForRequest((each) => /functions\?/.test(each.url())),
    choice.selectOption("release: warm up"),
  ]);
  assert.equal((await request.response()).status(), 200);
  assert.deepEqual(await parameters(page), { session: "release", span: "warm up" });
  const asked = new URL(request.url()).searchParams;
  assert.deepEqual(["session", "span", "window"].map((name) => asked.get(name)), ["release", "warm up", null]);
  await page.getByRole("link", { name: "Timeline" }).click();
  await page.waitForURL(/timeline.*session=release/);
  await answered(page);
  await open(page, "#/compare/functions?base=release/warm%20up&other=30s");
  assert.deepEqual(await page.locator(".side > h2").allInnerTexts(), ["Base: release: warm up", "Other: last 30 s"]);
  await page.locator("#choose-other").selectOption("release: steady");
  await until("the other is a span, too", () => page.locator(".side > h2").last().innerText(), (text) => text === "Other: release: steady");
  await page.getByRole("link", { name: "Flame graph" }).click();
  await until("its graph is drawn", () => page.locator("canvas").first().getAttribute("data-boxes").then(Number), (count) => count > 20);
  await screenshot(page, "compare-spans");
  await page.locator("#choose-window").waitFor({ state: "hidden" });
}, { needs: "moving" });
