// Callers and callees of one function: a table and a graph of each.

import { el, setChildren, setText } from "../dom.js";
import { basename, count, exactTime, percent, share, shown, time } from "../format.js";
import { createTable, numberColumn, textColumn } from "../table.js";
import { createFlame } from "./canvas.js";
import { callees, callers } from "./sandwich.js";
import { exclusive, ordered } from "./tree.js";

// A table of the functions next to the one in the middle. `choose(number)` makes another one the middle.
function nextTo(caption, choose) {
  const name = textColumn({ id: "name", label: "Function", header: true, sorts: false, class: "name code" }, (row) => ({ text: row.name, title: `${row.name}\n${row.module}` }));
  const cell = name.cell;
  name.cell = () => {
    const made = cell();
    const button = el("button", { type: "button", class: "link" });
    return {
      td: made.td,
      set(row) {
        if (row.number === null) made.set(row);
        else {
          setText(button, row.name);
          button.title = `${row.name}\n${row.module}`;
          button.onclick = () => choose(row.number);
          setChildren(made.td, [button]);
        }
      },
    };
  };
  const value = numberColumn({ id: "value", label: "Value", sorts: false, shares: true }, (row) => ({ text: row.text, title: row.exact, share: row.part, shareText: percent(row.part) }));
  const module = textColumn({ id: "module", label: "Module", sorts: false, class: "module" }, (row) => ({ text: row.module ? basename(row.module) : "", title: row.module }));
  return createTable({ caption, columns: [name, value, module], key: (row) => row.key, empty: "None.", onSort() {} });
}

// `choose(number)`: another function becomes the middle. `close()`: nobody wants this any more.
export function createSandwich({ describe, choose, close }) {
  const title = el("h2", {});
  const sum = el("p", {});
  const into = nextTo("Callers", choose);
  const from = nextTo("Callees", choose);
  const tip = el("p", { class: "dim sandwich-tip" }, " ");
  const trees = { above: null, below: null };
  const graph = (label, upward, side) => {
    const told = (node) => {
      const tree = trees[side];
      if (!tree || node < 0) return;
      const { name, inclusive, ofZoom } = describe(node, tree);
      setText(tip, `${name}: ${inclusive}, ${ofZoom} of the function's`);
    };
    const pick = (node) => choose(trees[side].functionOf[node]);
    return createFlame({ label, upward, onPoint: told, onFocus: told, onZoom: pick, onOpen: pick });
  };
  const above = graph("Callers, the function at the bottom. Enter puts another function in the middle.", true, "above");
  const below = graph("Callees, the function at the top. Enter puts another function in the middle.", false, "below");
  const element = el("section", { class: "sandwich", hidden: true, "aria-label": "Callers and callees" },
    el("div", { class: "tools" }, title, el("button", { type: "button", on: { click: close } }, "Close")), sum,
    el("div", { class: "two" }, el("div", {}, el("h3", {}, "Called by"), into.element), el("div", {}, el("h3", {}, "Calls"), from.element)),
    el("h3", {}, "All ways to it, and all that it calls"), above.element, below.element, tip);

  function rows(tree, value) {
    const whole = tree.values[value.id][0];
    const amount = (number) => (value.unit === "ns" ? time(number) : count(number));
    const exact = (number) => (value.unit === "ns" ? exactTime(number) : count(number));
    const row = (key, number, name, module, sum) => ({ key, number, name, module, text: amount(sum), exact: exact(sum), part: share(sum, whole) });
    const found = [];
    const order = ordered(tree, value.id);
    for (let at = tree.first[0]; at < tree.last[0]; at += 1) {
      const node = order[at];
      const number = tree.functionOf[node];
      const { name, module, key, code } = tree.functions[number];
      found.push(row(number, code ? number : null, key === "" ? "(outermost)" : shown(name), module ? shown(module) : "", tree.values[value.id][node]));
    }
    return { found, row };
  }

  return {
    element,
    hide() {
      element.hidden = true;
    },
    // Shows a function of a tree; undefined: it is not in this tree, and `name` says which was
    // asked for. `isMore`: of the value some is of threads that idle, which are not drawn above.
    set(tree, value, number, name, isMore) {
      element.hidden = false;
      setText(title, name);
      const there = number !== undefined;
      for (const part of [above.element, below.element, into.element, from.element]) part.hidden = !there;
      if (!there) {
        setText(sum, "This function is not in the call tree of this answer: it may be among what was cut, or belong to another span of time.");
        return;
      }
      if (trees.of !== tree || trees.number !== number) Object.assign(trees, { of: tree, number, above: callers(tree, number), below: callees(tree, number) });
      const told = describe(0, trees.below);
      const more = isMore ? ", threads that idle included" : "";
      const where = `in all the places where it stands${more}`;
      setText(sum, `${value.label}: ${told.inclusive} inclusive, ${told.ofRoot} of all, ${where}.`);
      into.set(rows(trees.above, value).found, "value", "desc");
      const { found, row } = rows(trees.below, value);
      const own = exclusive(trees.below, value.id, 0);
      from.set([row("own", null, "(itself)", "", own), ...found].sort((a, b) => b.part - a.part), "value", "desc");
      above.set(trees.above, value.id, 0, null);
      below.set(trees.below, value.id, 0, null);
    },
  };
}
