// What every check uses: the browser, a page that writes down what must not happen, waiting, and the list of checks.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

export const env = process.env;
const { chromium } = createRequire(path.join(env.PAGE_MODULES, "checks.js"))("playwright-core");

// How long one thing may take to appear.
const PATIENCE_MS = 60_000;

// A connection that stood idle may be closed at the moment at which it is used: browsers ask again by themselves, this does so
// when it is told to.
export const AGAIN = { maxRetries: 2 };

const checks = [];

// Declares a check: a sentence, and what to do with a fresh page. `options` as of playwright's contexts; `expected`: a
// pattern of console errors that belong to it; `needs`: "moving" for a profile that grows, can be changed, and whose files are
// there, "replay" for one that was saved.
export function check(sentence, run, options = {}) {
  checks.push({ sentence, run, options });
}

// With PAGE_UI, the folder of the page: answers with its files as they are there, under the headers that the server gives them, so that
// a change can be looked at without compiling.
async function filesOfFolder(context) {
  const types = { js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml", html: "text/html; charset=utf-8" };
  const index = await fetch(`${env.PAGE_URL}/ui/index.html`);
  const kept = ["content-security-policy", "x-content-type-options", "referrer-policy", "x-frame-options", "cache-control"];
  const headers = Object.fromEntries(kept.map((name) => [name, index.headers.get(name)]));
  await context.route("**/ui/**", (route) => {
    const name = new URL(route.request().url()).pathname.slice("/ui/".length);
    const body = fs.readFileSync(path.join(env.PAGE_UI, name));
    return route.fulfill({ status: 200, headers: { ...headers, "content-type": types[name.split(".").pop()] }, body });
  });
}

async function fresh(browser, { expected, needs, ...options }) {
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 }, ...options });
  if (env.PAGE_UI) await filesOfFolder(context);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE_MS);
  const faults = [];
  page.on("console", (message) => {
    const text = `${message.text()} ${message.location().url}`;
    if (["error", "warning"].includes(message.type()) && !expected?.test(text)) faults.push(`console: ${text}`);
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("requestfailed", (request) => {
    // A question that is no longer of interest is given up by the page.
    if (request.failure().errorText !== "net::ERR_ABORTED" && !expected) faults.push(`request: ${request.url()} ${request.failure().errorText}`);
  });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
  });
  return { context, page, faults };
}

// Runs the checks one after another; ends the program with 1 when one failed.
export async function runAll() {
  const only = env.PAGE_ONLY ? new RegExp(env.PAGE_ONLY, "i") : null;
  const wanted = ({ sentence, options }) => (!only || only.test(sentence)) && [undefined, env.PAGE_PROFILE].includes(options.needs);
  const browser = await chromium.launch({ executablePath: env.PAGE_CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--lang=en-US"] });
  let failed = 0;
  for (const { sentence, run, options } of checks.filter(wanted)) {
    const { context, page, faults } = await fresh(browser, options);
    const began = performance.now();
    try {
      await run(page);
      const violations = await page.evaluate(() => window.violations);
      assert.deepEqual([...faults, ...violations], [], "nothing is complained about");
      console.log(`ok      ${sentence} (${Math.round(performance.now() - began)} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${sentence}\n${error.stack}\n${faults.join("\n")}`);
      await page.screenshot({ path: path.join(env.PAGE_SCREENSHOTS, `failed-${failed}.png`) }).catch(() => {});
    }
    // A question may be on its way still, whose answer nobody waits for.
    await page.unrouteAll({ behavior: "ignoreErrors" });
    await context.close();
  }
  await browser.close();
  if (failed > 0) process.exitCode = 1;
}

// The answer for a path, asked for beside the page.
export function get(page, path, options) {
  return page.request.get(`${env.PAGE_URL}${path}`, { ...AGAIN, ...options });
}

// Opens a view and waits until its first answer is there.
export async function open(page, hash) {
  await page.goto(`${env.PAGE_URL}/${hash}`);
  await answered(page);
}

// Waits until no question is open and an answer was shown.
export async function answered(page) {
  await page.waitForFunction(() => !document.getElementById("main").hasAttribute("data-asking") && /as of/.test(document.querySelector(".stamp").textContent));
}

// Changes the daemon's answers on the way to the page: `edit(body)` those of a path that ends so.
export async function change(page, ending, edit) {
  await page.route((url) => url.pathname.endsWith(ending), async (route) => {
    const response = await route.fetch(AGAIN);
    const json = await response.json();
    edit(json);
    await route.fulfill({ response, json });
  });
}

// Waits until something is so: `probe` answers a value, `holds` judges it.
export async function until(what, probe, holds) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await probe();
    if (holds(value)) return value;
    assert.ok(Date.now() < end, `${what}, but it is ${JSON.stringify(value)}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// The texts of one column of the table, by the number of its cell.
export function column(page, index) {
  return page.$$eval("tbody tr", (rows, at) => rows.map((row) => row.children[at].textContent), index);
}

// `whole`: as long as the page is, not as the window.
export async function screenshot(page, name, whole = false) {
  await page.screenshot({ path: path.join(env.PAGE_SCREENSHOTS, `${name}.png`), fullPage: whole });
}

// The part of the address behind the question mark, as an object.
export async function parameters(page) {
  const hash = await page.evaluate(() => location.hash);
  return Object.fromEntries(new URLSearchParams(hash.split("?")[1] ?? ""));
}
