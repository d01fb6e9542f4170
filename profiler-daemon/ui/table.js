// A sortable table whose rows stay the same elements from answer to answer, so that focus, selection and the pointer keep
// their place while numbers change.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { at, count } from "./format.js";

// Rows drawn before somebody asks for all.
const FIRST_ROWS = 200;

// A column of text. `show(row)` answers {text, title, href}, and where there is something to be said behind it, {beside}.
export function textColumn(column, show) {
  return {
    ...column,
    cell() {
      const link = el("a", {});
      const plain = el("span", {});
      const behind = el("span", { class: "dim beside" });
      const td = el(column.header ? "th" : "td", { class: column.class, scope: column.header ? "row" : null });
      return {
        td,
        set(row) {
          const { text, title, href, beside } = show(row);
          const inner = href ? link : plain;
          setText(inner, text);
          setAttribute(inner, "title", title ?? null);
          if (href) setAttribute(link, "href", href);
          setText(behind, beside ? ` ${beside}` : "");
          setAttribute(behind, "title", title ?? null);
          setChildren(td, beside ? [inner, behind] : [inner]);
        },
      };
    },
  };
}

// A column of numbers. `show(row)` answers {text, title, share, low, high, tone}: the share, 0 to 100, is drawn behind and, with
// `shares`, written beside it by `percent`; where the true share may be, `low` to `high`, is a whisker on it, not a number to read;
// the tone, "up" or "down", is how it is coloured.
export function numberColumn(column, show) {
  return {
    order: "desc",
    ...column,
    numeric: true,
    cell() {
      const value = el("span", {});
      const part = el("small", {});
      const td = el("td", { class: `n ${column.class ?? ""}` }, value, column.shares ? part : null);
      return {
        td,
        set(row) {
          const { text, title, share, low, high, shareText, tone } = show(row);
          setText(value, text);
          setAttribute(td, "title", title ?? null);
          td.classList.toggle("zero", text === "0");
          if (tone !== undefined) for (const each of ["up", "down"]) td.classList.toggle(each, tone === each);
          if (share !== undefined) td.style.setProperty("--share", `${Math.min(100, share).toFixed(1)}%`);
          td.classList.toggle("estimate", high !== undefined);
          if (high !== undefined) {
            const [from, width] = [Math.max(0, low), Math.max(0, Math.min(100, high) - Math.max(0, low))];
            td.style.setProperty("--whisker", `${width.toFixed(1)}%`);
            // A position in percent is one of the room that the whisker leaves.
            td.style.setProperty("--whisker-at", `${(width < 100 ? (100 * from) / (100 - width) : 0).toFixed(1)}%`);
          }
          if (column.shares) setText(part, shareText ?? "");
        },
      };
    },
  };
}

// What there is none of comes last in either order.
function compare(a, b, sign) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -sign : sign;
}

// The rows in the order of a column; equal ones stay as they are.
export function sortRows(rows, column, order) {
  const value = column.value ?? ((row) => at(row, column.id));
  const sign = order === "asc" ? 1 : -1;
  return [...rows].sort((a, b) => compare(value(a), value(b), sign));
}

function head(columns, onSort) {
  const top = el("tr", {});
  const below = el("tr", {});
  const grouped = columns.some(({ group }) => group);
  const cells = new Map();
  let group = null;
  for (const column of columns) {
    const arrow = el("span", { class: "arrow", "aria-hidden": "true" });
    const label = el("span", {}, column.label);
    const inner = column.sorts === false ? label : el("button", { type: "button", on: { click: () => onSort(column) } }, label, arrow);
    const th = el("th", { scope: "col", class: `${column.numeric ? "n" : ""} ${column.class ?? ""}`, title: column.title, rowspan: grouped && !column.group ? 2 : null }, inner);
    cells.set(column.id, { th, arrow });
    if (column.group) {
      if (column.group !== group) {
        const span = columns.filter((other) => other.group === column.group).length;
        top.append(el("th", { scope: "colgroup", colspan: span, class: "group", title: column.groupTitle }, column.group));
      }
      below.append(th);
    } else {
      top.append(th);
    }
    group = column.group;
  }
  return { element: el("thead", {}, top, grouped ? below : null), cells };
}

// A name for each row by which it finds its elements again: its key, and a number where others before it have the same.
function names(rows, key) {
  const seen = new Map();
  return rows.map((row) => {
    const id = key(row);
    const times = (seen.get(id) ?? 0) + 1;
    seen.set(id, times);
    return times === 1 ? id : `${id}\n#${times}`;
  });
}

// A table. `key(row)` tells rows apart, as far as an answer does; `onSort(id, order)` is called when somebody chooses a column; `empty` is said
// when there is no row. `set(rows, sort, order)` shows the rows in the order they have.
export function createTable({ caption, columns, key, onSort, empty }) {
  let now = { rows: [], sort: "", order: "desc" };
  let all = false;
  const known = new Map();
  const { element: thead, cells } = head(columns, (column) => {
    const first = column.order ?? "asc";
    const other = first === "asc" ? "desc" : "asc";
    onSort(column.id, now.sort === column.id && now.order === first ? other : first, column.label);
  });
  const body = el("tbody", {});
  const nothing = el("p", { class: "dim none" }, empty);
  const more = el("button", { type: "button", class: "more", on: { click: () => { all = true; draw(); } } });
  const wrap = el("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption }, el("table", {}, el("caption", { class: "unseen" }, caption), thead, body));

  function rowElement(row, id) {
    let found = known.get(id);
    if (!found) {
      const made = columns.map((column) => column.cell());
      found = { tr: el("tr", {}, ...made.map(({ td }) => td)), made };
      known.set(id, found);
    }
    for (const { set } of found.made) set(row);
    return found.tr;
  }

  function draw() {
    for (const [id, { th, arrow }] of cells) {
      const sorted = id === now.sort;
      setAttribute(th, "aria-sort", sorted ? (now.order === "asc" ? "ascending" : "descending") : null);
      setText(arrow, sorted ? (now.order === "asc" ? "▲" : "▼") : "");
    }
    const rows = all ? now.rows : now.rows.slice(0, FIRST_ROWS);
    const focused = body.contains(document.activeElement) ? document.activeElement : null;
    const ids = names(rows, key);
    setChildren(body, rows.map((row, index) => rowElement(row, ids[index])));
    if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
    if (known.size > rows.length * 2 + 100) {
      const kept = new Set(ids);
      for (const id of known.keys()) if (!kept.has(id)) known.delete(id);
    }
    setText(more, `Show all ${count(now.rows.length)} rows`);
    more.hidden = rows.length === now.rows.length;
    nothing.hidden = now.rows.length > 0;
  }

  return {
    element: el("div", { class: "table-block" }, wrap, nothing, more),
    // Says otherwise why there is no row.
    explain: (text) => setText(nothing, text),
    set(rows, sort, order) {
      now = { rows, sort, order };
      draw();
    },
  };
}
