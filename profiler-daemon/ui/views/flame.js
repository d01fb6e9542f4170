// The flame graph tab: which value, zoom, search, what a box means, and callers and callees of one function.

import { announce, el, setAttribute, setChildren, setText } from "../dom.js";
import { count, exactTime, percent, several, share, shown, time } from "../format.js";
import { createFlame, SORTS } from "../flame/canvas.js";
import { createSandwich } from "../flame/sandwich_view.js";
import { exclusive, flatten, nodeAt, path, pathText, search, VALUES, valueOf } from "../flame/tree.js";
import { change } from "../route.js";

const TYPING_MS = 150;

function amount(value, number) {
  return value.unit === "ns" ? time(number) : count(number);
}

function exact(value, number) {
  return value.unit === "ns" ? exactTime(number) : count(number);
}

export function createFlameTab(process) {
  let tree = null;
  let params = {};
  let found = null;
  let shownMiddle = "";

  const chosen = VALUES.map((value) => {
    const radio = el("input", { type: "radio", name: "value", value: value.id, on: { change: () => change({ value: value.id }) } });
    return { value, radio, element: el("label", { title: value.about }, radio, el("span", {}, value.label)) };
  });
  const values = el("fieldset", { class: "choice" }, el("legend", { class: "unseen" }, "What the widths show"), ...chosen.map(({ element }) => element));
  const filter = el("input", { type: "search", id: "flame-search", placeholder: "part of a function or module…", autocomplete: "off", spellcheck: "false" });
  let typing = 0;
  filter.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ search: filter.value.trim() }, { replace: true }), TYPING_MS);
  });
  filter.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && filter.value !== "") {
      filter.value = "";
      change({ search: "" }, { replace: true });
      event.preventDefault();
    }
  });
  const matched = el("p", { class: "dim rows", role: "status" });
  const crumbs = el("nav", { class: "crumbs", "aria-label": "Zoom" });
  const details = createDetails();
  const tip = el("div", { class: "tip", hidden: true });
  const kinds = el("ul", { class: "legend kinds" }, ...SORTS.map(([id, label]) => el("li", {}, el("i", { class: `swatch flame-${id}` }), label)));
  const hint = el("p", { class: "dim hint" }, "Wider is more. Each box calls those below it; click or Enter zooms, Esc goes back, arrow keys move, c shows callers and callees. The functions tab has the same as a table.");
  const none = el("p", { class: "panel", hidden: true });
  const cut = el("p", { class: "dim" });
  const sandwich = createSandwich({
    describe: (node, of) => describe(node, of),
    choose: (number) => open(number),
    close: () => change({ fn: "", in: "" }),
  });

  const flame = createFlame({
    label: "Flame graph of the call tree, the root at the top. Arrow keys move, Enter zooms, Escape goes back, c shows callers and callees.",
    describedBy: "flame-details",
    onZoom: (node) => zoomTo(node),
    onEscape: () => zoomTo(tree.parent[nodeAt(tree, params.zoom)]),
    onFocus: (node) => details.set(node, describe(node)),
    onOpen: (node) => open(tree.functionOf[node]),
    onPoint(node, event) {
      tip.hidden = node < 0;
      if (node < 0) return;
      const told = describe(node);
      details.set(node, told);
      setChildren(tip, [el("b", {}, told.name), el("span", {}, `${told.inclusive} (${told.ofRoot} of all)`), el("span", { class: "dim" }, told.module)]);
      const wide = tip.offsetWidth;
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - wide - 8))}px`;
      tip.style.top = `${event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
    },
  });

  function describe(node, of = tree) {
    const value = valueOf(params.value);
    const { name, module, sort } = of.functions[of.functionOf[node]];
    const inclusive = of.values[value.id][node];
    const own = exclusive(of, value.id, node);
    const all = tree.values[value.id][0];
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
    const opens = el("button", { type: "button", on: { click: () => open(tree.functionOf[node]) } }, "Callers and callees");
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
        opens.disabled = at === 0;
      },
    };
  }

  function zoomTo(node) {
    change({ zoom: node > 0 ? pathText(tree, node) : "" });
    if (node >= 0) announce(`Zoomed to ${shown(tree.functions[tree.functionOf[node]].name)}.`);
  }

  function open(number) {
    const { name, module, key } = tree.functions[number];
    // The root is no function.
    if (key !== "") change({ fn: name, in: module });
  }

  function drawCrumbs(zoom) {
    const nodes = path(tree, zoom);
    const few = nodes.length > 9 ? [nodes[0], -1, ...nodes.slice(-7)] : nodes;
    setChildren(crumbs, few.map((node) => {
      if (node < 0) return el("span", { class: "dim" }, "…");
      const text = shown(tree.functions[tree.functionOf[node]].name);
      return el("button", { type: "button", title: text, "aria-current": node === zoom ? "location" : null, on: { click: () => zoomTo(node) } }, node === 0 ? `all of ${text}` : text);
    }));
  }

  function draw() {
    for (const { value, radio } of chosen) radio.checked = value === valueOf(params.value);
    if (document.activeElement !== filter) filter.value = params.search ?? "";
    if (!tree) return;
    const value = valueOf(params.value);
    const total = tree.values[value.id][0];
    const zoom = nodeAt(tree, params.zoom);
    found = search(tree, params.search ?? "", value.id);
    setText(matched, found ? `${several(found.functions, "function matches", "functions match")}: ${percent(share(found.sum, total))} of ${value.label.toLowerCase()} (${amount(value, found.sum)})` : "");
    none.hidden = total > 0;
    flame.element.hidden = total === 0;
    details.element.hidden = total === 0;
    setText(none, `${value.unit === "ns" ? `No time in this call tree is ${value.label.toLowerCase()}` : "No timer tick has found this on a processor"}. Choose another value.`);
    drawCrumbs(zoom);
    flame.set(tree, value.id, zoom, found);
    if (document.activeElement !== flame.canvas) details.set(zoom, describe(zoom));
    const number = params.fn ? tree.numbers.get(`${params.fn}\n${params.in ?? ""}`) : undefined;
    sandwich.set(tree, value, number, params.fn ? shown(params.fn) : "");
    const middle = params.fn ? `${params.fn}\n${params.in ?? ""}` : "";
    if (middle !== "" && middle !== shownMiddle) sandwich.element.scrollIntoView({ block: "nearest" });
    shownMiddle = middle;
  }

  return {
    element: el("div", { class: "flame" },
      el("div", { class: "tools" }, values, el("label", {}, el("span", {}, "Search"), filter), matched),
      el("div", { class: "tools" }, crumbs, kinds),
      flame.element, none, details.element, cut, sandwich.element, hint, tip),
    report: "calltree",
    // A graph that moves cannot be read: it is made anew when asked for.
    intervalMs: 0,
    query: (now) => ({ window: now.window, frames: now.frames }),
    show(now) {
      params = now;
      draw();
    },
    load(answer) {
      tree = flatten(answer.root);
      setText(cut, answer.truncated ? `${several(answer.cut_nodes, "small box is", "small boxes are")} put together as (cut).` : "");
      draw();
    },
  };
}

