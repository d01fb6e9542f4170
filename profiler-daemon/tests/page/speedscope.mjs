// Checks that a view opens in speedscope, which comes with the daemon.

import assert from "node:assert/strict";
import { check, env, open, screenshot, until } from "./browser.mjs";

check("a flame graph opens in speedscope, by the value that is shown, with its name", async (page) => {
  await open(page, `#/process/${env.PAGE_BUSY}/flame?value=blocked`);
  const [viewer] = await Promise.all([
    page.context().waitForEvent("page"),
    page.getByRole("link", { name: "open in speedscope" }).click(),
  ]);
  const faults = [];
  // How the picture is read from the graphics card is of no interest here.
  viewer.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !/WebGL/.test(message.text())) faults.push(message.text()); });
  viewer.on("pageerror", (error) => faults.push(error.message));
  const asked = [];
  viewer.on("request", (request) => asked.push(request.url()));
  await viewer.addInitScript(() => document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => console.error("policy", violatedDirective, blockedURI)));
  await viewer.reload();
  await until("the profile has its name", () => viewer.locator("body").innerText(), (text) => /webserver \(1864\)/.test(text));
  await until("the profile is shown", () => viewer.title(), (title) => /webserver \(1864\)/.test(title));
  assert.ok(asked.some((url) => /\/api\/v1\/processes\/1864\/calltree\?.*value=blocked.*format=speedscope/.test(url)), asked.join("\n"));
  assert.ok(asked.every((url) => url.startsWith(env.PAGE_URL)), asked.join("\n"));
  // A table in text, of the functions of this profile.
  await viewer.getByText("Sandwich").click();
  await until("its functions are listed", () => viewer.locator("body").innerText(), (text) => /epoll_wait/.test(text));
  await screenshot(viewer, "speedscope");
  assert.deepEqual(faults, []);
});
