// Checks of lines and instructions.

import assert from "node:assert/strict";
import {
  answered, change, check, column, env, open, parameters, screenshot, until,
} from "./browser.mjs";

const ONE = `#/process/${env.PAGE_BUSY}`;

check("lines have the values of functions, and lead to the instructions of one function", async (page) => {
  await open(page, `${ONE}/lines`);
  const heads = await page.locator("thead").innerText();
  for (const group of ["Elapsed", "Application", "Samples"]) assert.match(heads, new RegExp(group));
  const lines = await column(page, 0);
  assert.ok(lines.some((text) => /^\w+\.rs:\d+$/.test(text)), lines.join(" "));
  assert.ok(lines.some((text) => /^\(.+\)$/.test(text)), "what has no line says so");
  await screenshot(page, "lines");
  await page.getByRole("link", { name: "index::decode_postings" }).first().click();
  await until("its instructions are shown", () => column(page, 1), (names) => names.length > 0 && names.every((name) => /^index::decode_postings\+\d+$/.test(name)));
  assert.ok((await column(page, 0)).every((text) => /^0x[0-9a-f]+$/.test(text)));
  assert.deepEqual(await parameters(page), { fn: "index::decode_postings", in: "/usr/bin/webserver", show: "instructions" });
  await screenshot(page, "instructions");
  // Chosen by keys, the choice keeps the focus.
  await page.locator("input[name=lines-way]:checked").focus();
  await page.keyboard.press("ArrowLeft");
  await until("its lines are shown", () => column(page, 0), (texts) => texts.length > 0 && texts.every((text) => /^index\.rs:\d+$/.test(text)));
  assert.equal(await page.evaluate(() => document.activeElement.name), "lines-way");
  await page.keyboard.press("ArrowRight");
  await page.waitForURL(/show=instructions/);
  await page.getByRole("link", { name: "all functions" }).click();
  await until("those of all functions are shown", () => column(page, 1), (names) => new Set(names.map((name) => name.split("+")[0])).size > 1);
}, { needs: "moving" });

check("a function leads to its lines, and inlined functions can be told apart", async (page) => {
  await open(page, `${ONE}/functions?q=decode_postings`);
  await page.getByRole("link", { name: "lines", exact: true }).click();
  await page.waitForURL(/lines/);
  await answered(page);
  assert.match(await page.locator(".tab").innerText(), /of index::decode_postings/);
  const [request] = await Promise.all([
    page.waitForRequest((each) => /\/lines\?/.test(each.url())),
    page.getByLabel("Inlined functions").check(),
  ]);
  const query = new URL(request.url()).searchParams;
  assert.deepEqual([query.get("function"), query.get("inlines")], ["index::decode_postings", "true"]);
  await page.reload();
  await answered(page);
  assert.equal(await page.getByLabel("Inlined functions").isChecked(), true);
});

check("instructions are in order of their addresses as numbers", async (page) => {
  const rising = ["0x9000", "0x10000", "0xffffffff81000010", "0xffffffff81000011"];
  await change(page, "/instructions", (body) => {
    body.rows = body.rows.slice(0, rising.length);
    [1, 3, 2, 0].forEach((at, row) => { body.rows[row].address = rising[at]; });
  });
  const of = `${ONE}/lines?show=instructions&sort=address`;
  await open(page, `${of}&order=asc`);
  assert.deepEqual(await column(page, 0), rising);
  await page.getByRole("button", { name: "Address" }).click();
  await until("they are falling", () => column(page, 0), ([first]) => first === rising.at(-1));
  assert.deepEqual(await column(page, 0), [...rising].reverse());
});

check("lines of a replay say that they were not saved, and its instructions are told apart by where they are in the file", async (page) => {
  await open(page, `${ONE}/lines`);
  assert.ok((await column(page, 0)).includes("(not saved)"));
  await open(page, `${ONE}/lines?show=instructions&fn=index::decode_postings&in=${encodeURIComponent("/usr/bin/webserver")}`);
  const places = await column(page, 0);
  assert.ok(places.length > 0 && places.every((text) => /^file\+0x[0-9a-f]+$/.test(text)), places.join(" "));
  assert.equal(new Set(places).size, places.length);
  assert.match(await page.locator("tbody th [title]").first().getAttribute("title"), /not saved with a profile/);
}, { needs: "replay" });
