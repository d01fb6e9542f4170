// A flame graph with what every one of them has: a search, the way to where it is zoomed, a tip at the pointer. What a box means is
// said by the view that it is part of.

import { announce, el, setChildren, setText } from "../dom.js";
import { count, exactTime, percent, several, share, shown, time } from "../format.js";
import { change } from "../route.js";
import { BY_KIND, createFlame } from "./canvas.js";
import { nodeAt, path, pathText, search, VALUES } from "./tree.js";

const TYPING_MS = 150;
// Of a longer way only its ends are shown.
const CRUMBS = 9;

// A number of a value, as people read it, and exactly.
export function amount(value, number) {
  return value.unit === "ns" ? time(number) : count(number);
}

export function exact(value, number) {
  return value.unit === "ns" ? exactTime(number) : count(number);
}

// The choice of a value, for the address: `set(value)` shows which is chosen.
export function valueChoice(values = VALUES) {
  const chosen = values.map((value) => {
    const radio = el("input", { type: "radio", name: "value", value: value.id, on: { change: () => change({ value: value.id }) } });
    return { value, radio, element: el("label", { title: value.about }, radio, el("span", {}, value.label)) };
  });
  return {
    element: el("fieldset", { class: "choice" }, el("legend", { class: "unseen" }, "Which value is shown"), ...chosen.map(({ element }) => element)),
    set(now) {
      for (const { value, radio } of chosen) radio.checked = value === now;
    },
  };
}

// `describe(node)`: {name, module, tip}, as text. `meant(node)`: this box is meant now. `open(function)`: somebody wants to know more
// of a function. `sum(found)`: the search's share as text, where it is not that of the shown value.
export function createPanel({ label, describedBy, look = BY_KIND, describe, meant, open, sum = null }) {
  let tree = null;
  let params = {};
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
  const tip = el("div", { class: "tip", hidden: true });
  const flame = createFlame({
    label,
    describedBy,
    look,
    onZoom: (node) => zoomTo(node),
    onEscape: () => zoomTo(tree.parent[nodeAt(tree, params.zoom)]),
    onFocus: (node) => meant(node),
    onOpen: (node) => openFunction(tree.functionOf[node]),
    onPoint(node, event) {
      tip.hidden = node < 0;
      if (node < 0) return;
      meant(node);
      const told = describe(node);
      setChildren(tip, [el("b", {}, told.name), ...told.tip.map((line) => el("span", {}, line)), el("span", { class: "dim" }, told.module)]);
      const wide = tip.offsetWidth;
      tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, window.innerWidth - wide - 8))}px`;
      tip.style.top = `${event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18}px`;
    },
  });

  function zoomTo(node) {
    change({ zoom: node > 0 ? pathText(tree, node) : "" });
    if (node >= 0) announce(`Zoomed to ${shown(tree.functions[tree.functionOf[node]].name)}.`);
  }

  function openFunction(number) {
    if (tree.functions[number].code) open(tree.functions[number]);
  }

  function drawCrumbs(zoom) {
    const nodes = path(tree, zoom);
    const few = nodes.length > CRUMBS ? [nodes[0], -1, ...nodes.slice(2 - CRUMBS)] : nodes;
    setChildren(crumbs, few.map((node) => {
      if (node < 0) return el("span", { class: "dim" }, "…");
      const text = shown(tree.functions[tree.functionOf[node]].name);
      return el("button", { type: "button", title: text, "aria-current": node === zoom ? "location" : null, on: { click: () => zoomTo(node) } }, node === 0 ? `all of ${text}` : text);
    }));
  }

  function match(value) {
    const found = search(tree, params.search ?? "", value.id);
    const told = (numbers) => sum?.(numbers) ?? `${percent(share(numbers.sum, tree.values[value.id][0]))} of ${value.label.toLowerCase()} (${amount(value, numbers.sum)})`;
    setText(matched, found ? `${several(found.functions, "function matches", "functions match")}: ${told(found)}` : "");
    return found;
  }

  return {
    canvas: flame.canvas,
    graph: flame.element,
    tip,
    crumbs,
    search: [el("label", {}, el("span", {}, "Search"), filter), matched],
    openFunction,
    // The address has changed: shows what stands in it.
    address(now) {
      params = now;
      if (document.activeElement !== filter) filter.value = params.search ?? "";
    },
    // Draws a tree; answers which node has the whole width.
    draw(fresh, value) {
      tree = fresh;
      const zoom = nodeAt(tree, params.zoom);
      const found = match(value);
      flame.element.hidden = !(tree.values[value.id][0] > 0);
      drawCrumbs(zoom);
      flame.set(tree, value.id, zoom, found);
      if (document.activeElement !== flame.canvas) meant(zoom);
      return zoom;
    },
  };
}
