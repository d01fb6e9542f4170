// Checks of the page as a whole: narrow and dark screens, keys, headers, the daemon's own view.

import assert from "node:assert/strict";
import { check, env, get, open, screenshot, until } from "./browser.mjs";

const VIEWS = [
  ["processes", "#/processes"],
  ["functions", `#/process/${env.PAGE_BUSY}/functions`],
  ["modules", `#/process/${env.PAGE_HOSTILE}/modules`],
  ["threads", `#/process/${env.PAGE_BUSY}/threads`],
  ["os-events", `#/process/${env.PAGE_BUSY}/os-events`],
  ["flame", `#/process/${env.PAGE_HOSTILE}/flame?fn=__proto__&in=${encodeURIComponent("/opt/<script>alert(1)</script>")}`],
  ["lines", `#/process/${env.PAGE_HOSTILE}/lines`],
  ["timeline", `#/process/${env.PAGE_BUSY}/timeline`],
  ["timeline-session", "#/session/timeline"],
  ["compare", `#/compare/functions?base=${env.PAGE_BUSY}&other=${env.PAGE_HOSTILE}`],
  ["compare-flame", `#/compare/flame?base=${env.PAGE_BUSY}&other=${env.PAGE_HOSTILE}`],
  ["compare-processes", "#/compare/processes?base=1m&other=10s"],
  ["daemon", "#/daemon"],
];

check("on a phone no view is wider than the screen", async (page) => {
  for (const [name, hash] of VIEWS) {
    await open(page, hash);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 360, name);
    await screenshot(page, `phone-${name}`, true);
  }
}, { viewport: { width: 360, height: 780 }, hasTouch: true });

check("in dark mode the ground is dark and the text is bright, everywhere", async (page) => {
  for (const [name, hash] of VIEWS) {
    await open(page, hash);
    const [ground, text] = await page.evaluate(() => {
      const style = getComputedStyle(document.body);
      return [style.backgroundColor, style.color].map((colour) => colour.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3);
    });
    assert.ok(ground < 60 && text > 180, `${name}: ${ground} ${text}`);
    await screenshot(page, `dark-${name}`);
  }
}, { colorScheme: "dark" });

// Whether a place of a canvas has a colour of the style. From the right where `x` is negative.
const isIn = (page, of) => page.evaluate(({ canvas, x, y, name }) => {
  const drawn = document.querySelector(canvas);
  if (!drawn) return false;
  const probe = Object.assign(document.createElement("canvas"), { width: 2, height: 1 });
  const pen = probe.getContext("2d", { willReadFrequently: true });
  pen.drawImage(drawn, x < 0 ? -drawn.width - x : -x, -y);
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  pen.fillRect(1, 0, 1, 1);
  const [one, other] = [0, 1].map((at) => pen.getImageData(at, 0, 1, 1).data.join());
  return one === other;
}, of);

check("graphs and strips follow the scheme, of which the page alone is told", async (page) => {
  await page.addInitScript(() => {
    window.listening = 0;
    const { addEventListener } = EventTarget.prototype;
    EventTarget.prototype.addEventListener = function add(...of) {
      if (this instanceof MediaQueryList) window.listening += 1;
      return addEventListener.apply(this, of);
    };
  });
  // The end of the root's box, and the line below the first strip.
  const flame = { canvas: ".flame-box canvas", x: -10, y: 8, name: "--flame-root" };
  const strip = { canvas: ".strip-box canvas", x: 10, y: 44, name: "--line" };
  const follows = async (of, colorScheme) => {
    await page.emulateMedia({ colorScheme });
    await until(`it is ${colorScheme}`, () => isIn(page, of), (isSo) => isSo);
  };
  await open(page, `#/process/${env.PAGE_BUSY}/flame`);
  await follows(flame, "light");
  await follows(flame, "dark");
  await open(page, `#/process/${env.PAGE_BUSY}/timeline`);
  await follows(strip, "dark");
  await follows(strip, "light");
  // While the graph was not shown the scheme became another, and so while the strips were not.
  await open(page, `#/process/${env.PAGE_BUSY}/flame`);
  await follows(flame, "light");
  await follows(flame, "dark");
  await open(page, `#/process/${env.PAGE_BUSY}/timeline`);
  await follows(strip, "dark");
  await open(page, `#/process/${env.PAGE_HOSTILE}/flame`);
  await follows(flame, "dark");
  assert.equal(await page.evaluate(() => window.listening), 1);
});

check("text has enough contrast in both schemes", async (page) => {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await open(page, "#/processes");
    const ratios = await page.evaluate(() => {
      const parse = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
      const luminance = (colour) => parse(colour).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
      const root = getComputedStyle(document.documentElement);
      const probe = document.body.appendChild(document.createElement("i"));
      const value = (name) => {
        probe.style.color = root.getPropertyValue(name);
        return luminance(getComputedStyle(probe).color);
      };
      const ratio = (a, b) => (Math.max(value(a), value(b)) + 0.05) / (Math.min(value(a), value(b)) + 0.05);
      const kinds = ["program", "library", "jit", "kernel", "unknown", "cut"].map((kind) => ["--flame-text", `--flame-${kind}`]);
      const changes = ["down-3", "down-2", "down-1", "same", "up-1", "up-2", "up-3"].map((change) => [`--diff-${change}-text`, `--diff-${change}`]);
      const found = [["--diff-up", "--ground"], ["--diff-down", "--ground"], ["--text", "--ground"], ["--dim", "--ground"], ["--dim", "--raised"], ["--accent", "--ground"], ["--bad", "--bad-ground"], ["--accent", "--share-tint"], ["--flame-match-text", "--flame-match"], ...kinds, ...changes].map((pair) => [pair.join(" on "), ratio(...pair)]);
      probe.remove();
      return found;
    });
    for (const [pair, ratio] of ratios) assert.ok(ratio >= 4.5, `${colorScheme}: ${pair} has ${ratio.toFixed(2)}`);
  }
});

check("by keys one skips to the content, and every control has a name and a visible focus", async (page) => {
  await open(page, "#/processes");
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  assert.equal(await page.evaluate(() => location.hash), "#/processes");
  await page.keyboard.press("Tab");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.equal(outline, "solid");
  for (const [, hash] of VIEWS) {
    await open(page, hash);
    const nameless = await page.evaluate(() => [...document.querySelectorAll("a, button, input, select, canvas, [role=img]")]
      .filter((element) => element.checkVisibility() && !(element.getAttribute("aria-label") || element.textContent.trim() || element.closest("label")?.textContent.trim()))
      .map((element) => element.outerHTML.slice(0, 120)));
    assert.deepEqual(nameless, [], hash);
    assert.equal(await page.locator("h1").count(), 1, hash);
    assert.equal(await page.locator("table:not(:has(caption)):visible").count() === 0 || hash === "#/daemon", true, hash);
  }
});

check("the page goes out under a strict policy and is kept by the browser until it changes", async (page) => {
  const first = await get(page, "/", { headers: { accept: "text/html" } });
  const headers = first.headers();
  assert.match(headers["content-security-policy"], /^default-src 'self';/);
  assert.doesNotMatch(headers["content-security-policy"], /unsafe|data:|https?:|\*/);
  assert.equal(headers["x-content-type-options"], "nosniff");
  assert.equal(headers["referrer-policy"], "no-referrer");
  assert.doesNotMatch(await first.text(), /<style|style=|<script>|onclick/);
  const script = await get(page, "/ui/main.js");
  assert.match(script.headers()["content-type"], /^text\/javascript/);
  const again = await get(page, "/ui/main.js", { headers: { "if-none-match": script.headers().etag } });
  assert.equal(again.status(), 304);
  await open(page, "");
  // The policy holds: a script that is put in does not run, and markup from text is refused.
  const refused = await page.evaluate(() => {
    const script = document.createElement("script");
    try {
      script.text = "window.ran = true";
      document.body.append(script);
    } catch {
      // As it should be.
    }
    try {
      document.body.innerHTML = "<b>markup</b>";
      return "markup was made";
    } catch {
      return window.ran === undefined;
    } finally {
      window.violations = [];
    }
  });
  assert.equal(refused, true);
  await page.waitForTimeout(200);
  await page.evaluate(() => { window.violations = []; });
}, { expected: /Content Security Policy|TrustedScript|TrustedHTML|innerHTML/ });

check("the daemon tells its own cost, programs and settings", async (page) => {
  await open(page, "#/daemon");
  const text = await page.locator("main").innerText();
  for (const part of [/own processor time/, /sched_switch/, /frequency_hz/, /41\.0 MiB/]) assert.match(text, part);
  const tick = page.locator("tr", { has: page.locator("th", { hasText: /^tick$/ }) });
  assert.match(await tick.innerText(), /cpu-clock at 99 Hz, 8 processors/);
  const hooks = (await tick.locator("[title*=processor]").getAttribute("title")).split("\n");
  assert.deepEqual([hooks.length, hooks[0], hooks[7]], [8, "cpu-clock on processor 0 at 99 Hz", "cpu-clock on processor 7 at 99 Hz"]);
  await screenshot(page, "daemon");
});

check("rows that an answer does not tell apart are rows of their own", async (page) => {
  await open(page, "#/processes");
  const shown = await page.evaluate(async () => {
    const { createTable, numberColumn, textColumn } = await import("/ui/table.js");
    const table = createTable({
      caption: "Twins",
      columns: [textColumn({ id: "name", label: "Name" }, (row) => ({ text: row.name })), numberColumn({ id: "value", label: "Value" }, (row) => ({ text: String(row.value) }))],
      key: (row) => row.name,
      empty: "None",
      onSort: () => {},
    });
    const rows = () => [...table.element.querySelectorAll("tbody tr")];
    const texts = () => rows().map((row) => [...row.children].map((cell) => cell.textContent).join(" "));
    table.set([{ name: "a", value: 1 }, { name: "b", value: 2 }, { name: "a", value: 3 }], "name", "asc");
    const [first, before] = [texts(), rows()];
    table.set([{ name: "a", value: 4 }, { name: "a", value: 5 }, { name: "b", value: 6 }], "name", "asc");
    const same = [before[0] === rows()[0], before[2] === rows()[1], before[1] === rows()[2]];
    return { first, second: texts(), same };
  });
  assert.deepEqual(shown, { first: ["a 1", "b 2", "a 3"], second: ["a 4", "a 5", "b 6"], same: [true, true, true] });
});

check("a replay says of which file, and from when", async (page) => {
  await open(page, "#/daemon");
  const text = await page.locator("main").innerText();
  for (const part of [/replay of/, /world\.profile/, /saved at/]) assert.match(text, part);
}, { needs: "replay" });
