// The flame graph tab: which value, what a box means, and callers and callees of one function.

import { el, setAttribute, setText } from "../dom.js";
import { percent, several, share, shown } from "../format.js";
import { SORTS } from "../flame/canvas.js";
import { amount, createPanel, exact, valueChoice } from "../flame/panel.js";
import { createSandwich } from "../flame/sandwich_view.js";
import { exclusive, flatten, idleOf, nodeAt, VALUES, valueOf } from "../flame/tree.js";
import { change, foldOf, spanOf } from "../route.js";

export function createFlameTab(process) {
  let root = null;
  // The tree that is drawn, and whether it has the waits of threads that idle.
  let tree = null;
  let isWhole = true;
  // The tree with these, once it is made. Functions have other numbers in it.
  let whole = null;
  let params = {};
  let shownMiddle = "";

  const values = valueChoice();
  const idle = createIdle();
  const details = createDetails();
  const kinds = el("ul", { class: "legend kinds" }, ...SORTS.map(([id, label]) => el("li", {}, el("i", { class: `swatch flame-${id}` }), label)));
  const hint = el("p", { class: "dim hint" }, "Wider is more. Each box calls those below it; click or Enter zooms, Esc goes back, arrow keys move, c shows callers and callees. The functions tab has the same as a table.");
  const none = el("p", { class: "panel", hidden: true });
  const cut = el("p", { class: "dim" });
  const sandwich = createSandwich({
    describe: (node, of) => describe(node, of),
    choose: (number) => open(full().functions[number]),
    close: () => change({ fn: "", in: "" }),
  });
  const panel = createPanel({
    label: "Flame graph of the call tree, the root at the top. Arrow keys move, Enter zooms, Escape goes back, c shows callers and callees.",
    describedBy: "flame-details",
    describe(node) {
      const told = describe(node);
      return { ...told, tip: [`${told.inclusive} (${told.ofRoot} of all)`] };
    },
    meant: (node) => details.set(node, describe(node)),
    open,
  });

  function open({ name, module, code }) {
    if (code) change({ fn: name, in: module });
  }

  // All that a function does and where it is called from is told with threads that idle, whether
  // these are drawn or not.
  function full() {
    whole ??= flatten(root);
    return whole;
  }

  // What a node is, of the tree that is drawn or of one made of the full one.
  function describe(node, of = tree) {
    const value = valueOf(params.value);
    const { name, module, sort } = of.functions[of.functionOf[node]];
    const inclusive = of.values[value.id][node];
    const own = exclusive(of, value.id, node);
    const all = (of === tree ? tree : full()).values[value.id][0];
    return {
      name: shown(name),
      module: module ? shown(module) : "",
      sort,
      label: value.label,
      inclusive: amount(value, inclusive),
      exclusive: amount(value, own),
      exact: `${exact(value, inclusive)} inclusive, ${exact(value, own)} exclusive`,
      ofRoot: percent(share(inclusive, all)),
      ownOfRoot: percent(share(own, all)),
      ofZoom: percent(share(inclusive, of.values[value.id][of === tree ? nodeAt(tree, params.zoom) : 0])),
      all: VALUES.map((each) => [of.values[each.id][node], exclusive(of, each.id, node)].map((number) => [amount(each, number), exact(each, number)])),
    };
  }

  // The choice whether threads that idle are drawn: they would else be most of what is blocked, and nobody waits for them.
  function createIdle() {
    const box = el("input", { type: "checkbox", on: { change: () => change({ idle: box.checked ? "drawn" : "" }) } });
    const text = el("span", {});
    const element = el("label", { hidden: true, title: "Threads that ran, or were ready to run, for less than 0.1 % of the time. Their waits are one box, that can be opened like any other" }, box, text);
    return {
      element,
      set(value) {
        const group = root && idleOf(root);
        element.hidden = !(group && value.read(group) > 0);
        if (element.hidden) return;
        box.checked = isWhole;
        const [part, all] = [value.read(group), value.read(root)];
        setText(text, `Idle threads (${percent(share(part, all))})`);
      },
    };
  }

  // Makes the tree anew where it is another one that is to be drawn.
  function grow(fresh) {
    const wanted = params.idle === "drawn";
    if (fresh) whole = null;
    else if (wanted === isWhole) return;
    isWhole = wanted;
    const group = idleOf(root);
    tree = group && !isWhole ? flatten(root, group) : full();
    if (tree !== whole) tree.functions[0].name += " without idle threads";
  }

  // Whether some of a value is not drawn, as it is of threads that idle.
  function leavesOut(value) {
    return tree !== whole && value.read(idleOf(root)) > 0;
  }

  // Why nothing is drawn.
  function nothing(value) {
    if (leavesOut(value)) {
      return "All of it is of threads that idle, which are left out. Tick Idle threads to see it.";
    }
    const said = value.unit === "ns"
      ? `No time in this call tree is ${value.label.toLowerCase()}`
      : "No timer tick has found this on a processor";
    return `${said}. Choose another value.`;
  }

  // What a node is, in a row that is also read aloud while one moves by keys.
  function createDetails() {
    let node = 0;
    const name = el("b", { class: "code" });
    const sentence = el("span", {});
    const module = el("span", { class: "dim" });
    const heads = el("tr", {}, el("td", {}));
    const inclusives = el("tr", {}, el("th", { scope: "row" }, "inclusive"));
    const exclusives = el("tr", {}, el("th", { scope: "row" }, "exclusive"));
    const cells = VALUES.map(({ label, about }) => {
      const made = [el("th", { scope: "col", class: "n", title: about }, label), el("td", { class: "n plain" }), el("td", { class: "n plain" })];
      [heads, inclusives, exclusives].forEach((row, index) => row.append(made[index]));
      return made;
    });
    const numbers = el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "unseen" }, "All values of the box"), el("thead", {}, heads), el("tbody", {}, inclusives, exclusives)));
    const opens = el("button", { type: "button", on: { click: () => panel.openFunction(tree.functionOf[node]) } }, "Callers and callees");
    const element = el("section", { class: "details", "aria-label": "The box that is meant" },
      el("p", { id: "flame-details", "aria-live": "polite" }, name, " ", sentence, " ", module), el("div", { class: "pair" }, numbers, opens));
    return {
      element,
      set(at, told) {
        node = at;
        setText(name, told.name);
        setText(sentence, `${told.label}: ${told.inclusive} inclusive (${told.ofRoot} of all${told.ofZoom === told.ofRoot ? "" : `, ${told.ofZoom} of what is zoomed to`}), ${told.exclusive} exclusive (${told.ownOfRoot})`);
        setAttribute(sentence, "title", told.exact);
        setText(module, told.module);
        told.all.forEach((of, index) => {
          of.forEach(([text, precise], row) => {
            setText(cells[index][row + 1], text);
            setAttribute(cells[index][row + 1], "title", precise);
          });
        });
        opens.disabled = !tree.functions[tree.functionOf[at]].code;
      },
    };
  }

  function draw() {
    const value = valueOf(params.value);
    values.set(value);
    panel.address(params);
    if (!root) return;
    grow(false);
    idle.set(value);
    const total = tree.values[value.id][0];
    none.hidden = total > 0;
    details.element.hidden = total === 0;
    setText(none, nothing(value));
    panel.draw(tree, value);
    const middle = params.fn ? `${params.fn}\n${params.in ?? ""}` : "";
    if (middle === "") sandwich.hide();
    else {
      const number = full().numbers.get(middle);
      sandwich.set(full(), value, number, shown(params.fn), leavesOut(value));
    }
    if (middle !== "" && middle !== shownMiddle) sandwich.element.scrollIntoView({ block: "nearest" });
    shownMiddle = middle;
  }

  return {
    element: el("div", { class: "flame" },
      el("div", { class: "tools" }, values.element, idle.element, ...panel.search),
      el("div", { class: "tools" }, panel.crumbs, kinds),
      panel.graph, none, details.element, cut, sandwich.element, hint, panel.tip),
    report: "calltree",
    // A graph that moves cannot be read: it is made anew when asked for.
    intervalMs: 0,
    // A tree that is too large is cut by the value that is drawn, so that no box of it is missing.
    query: (now) => ({ ...spanOf(now), ...foldOf(now), frames: now.frames, value: valueOf(now.value).id, idle: "apart" }),
    show(now) {
      params = now;
      draw();
    },
    load(answer) {
      ({ root } = answer);
      grow(true);
      setText(cut, answer.truncated ? `${several(answer.cut_nodes, "small box is", "small boxes are")} put together as (cut).` : "");
      draw();
    },
  };
}
