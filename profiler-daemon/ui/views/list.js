// A tab that is one table the daemon sorts, filters and cuts.

import { announce, el, setChildren, setText } from "../dom.js";
import { count, several } from "../format.js";
import { change, foldOf, spanOf } from "../route.js";
import { createTable, sortRows } from "../table.js";

const INTERVAL_MS = 5_000;
const LIMIT = 500;
const TYPING_MS = 200;

// `takesFrames`, `takesFold`: whether the report takes them. `extra(params)`: what else it is asked. `optional`: {has(rows), columns, after}, columns
// that a table has, after that many others, where its rows have anything in them. `above`: an element over the table.
export function createListTab({ report, nouns, columns, key, defaultSort, filterLabel, empty, takesFrames = false, takesFold = false, extra = () => ({}), optional = null, above = null }) {
  let limit = LIMIT;
  const place = el("div", {});
  let hasOptional = false;
  let table = null;
  const sortable = [...columns, ...(optional?.columns ?? [])];
  const make = () => {
    const of = hasOptional ? [...columns.slice(0, optional.after), ...optional.columns, ...columns.slice(optional.after)] : columns;
    table = createTable({
      caption: nouns[1][0].toUpperCase() + nouns[1].slice(1),
      columns: of,
      key,
      empty: empty ?? `No ${nouns[0]} matches.`,
      onSort(id, order, label) {
        change({ sort: id, order });
        announce(`Sorted by ${label}, ${order === "asc" ? "ascending" : "descending"}.`);
      },
    });
    setChildren(place, [table.element]);
  };
  make();
  const filter = el("input", { type: "search", id: "filter", placeholder: filterLabel, autocomplete: "off", spellcheck: "false" });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ q: filter.value.trim() }, { replace: true }), TYPING_MS);
  });
  const total = el("p", { class: "dim rows", role: "status" });
  const all = el("button", { type: "button", on: { click: () => { limit = 0; change({ rows: "all" }, { replace: true }); } } }, "Load all");
  all.hidden = true;
  let params = {};
  let answer = null;

  function sorting() {
    const column = sortable.find(({ id, sorts }) => id === params.sort && sorts !== false) ?? columns.find(({ id }) => id === defaultSort);
    return { column, order: ["asc", "desc"].includes(params.order) ? params.order : column.order ?? "asc" };
  }

  function draw() {
    if (!answer) return;
    const { column, order } = sorting();
    table.set(sortRows(answer.rows, column, order), column.id, order);
    setText(total, answer.truncated ? `${count(answer.rows.length)} of ${several(answer.total_rows, ...nouns)}` : several(answer.total_rows, ...nouns));
    all.hidden = !answer.truncated;
  }

  return {
    element: el("div", {}, above, el("div", { class: "tools" }, el("label", {}, el("span", {}, "Filter"), filter), total, all), place),
    report,
    intervalMs: INTERVAL_MS,
    query(now) {
      const column = sortable.find(({ id, sorts }) => id === now.sort && sorts !== false);
      const order = ["asc", "desc"].includes(now.order) ? now.order : undefined;
      const q = (now.q ?? "").slice(0, 80);
      return {
        sort: column?.id ?? defaultSort,
        order: order ?? (column?.order === "desc" || !column ? "desc" : "asc"),
        q,
        ...spanOf(now),
        ...(takesFold ? foldOf(now) : {}),
        frames: takesFrames ? now.frames : undefined,
        ...extra(now),
        limit: now.rows === "all" ? 0 : limit,
      };
    },
    show(now) {
      params = now;
      if (document.activeElement !== filter) filter.value = now.q ?? "";
      draw();
    },
    load(fresh) {
      answer = fresh;
      if (optional && optional.has(fresh.rows) !== hasOptional) {
        hasOptional = !hasOptional;
        make();
      }
      draw();
    },
  };
}
