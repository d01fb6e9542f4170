// Draws a tree as boxes on one canvas, as large as what is visible of it, and says which box is meant by pointer and keys.
// What a box means is said by the callbacks, in text.

import { el } from "../dom.js";
import { shown } from "../format.js";
import { hit, layout } from "./layout.js";
import { exclusive } from "./tree.js";

export const ROW = 19;
const MAX_HEIGHT = 620;
const PAD = 4;

// The kinds of code, in the order of the legend.
export const SORTS = [
  ["program", "the program"],
  ["library", "libraries"],
  ["jit", "made at run time"],
  ["kernel", "kernel"],
  ["unknown", "unknown"],
];
const FILLS = ["program", "library", "jit", "kernel", "unknown", "cut"];
const MARKS = ["flame-match", "flame-match-text", "flame-focus"];

// How boxes look: which colours of the style are used, and which of them and what text a node has. This one colours by the kind of
// code.
export const BY_KIND = {
  colours: [...FILLS.map((sort) => `flame-${sort}`), "flame-root", "flame-text"],
  fill(tree, node) {
    const { sort } = tree.functions[tree.functionOf[node]];
    if (["process", "session", "idle"].includes(sort)) return "flame-root";
    return `flame-${FILLS.includes(sort) ? sort : "unknown"}`;
  },
  ink: () => "flame-text",
  text: (tree, node) => shown(tree.functions[tree.functionOf[node]].name),
};

function colours(element, names) {
  const style = getComputedStyle(element);
  return Object.fromEntries([...names, ...MARKS].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// `label`: what the graph is. `onZoom(node)`, `onPoint(node or -1, event)`, `onFocus(node)`, `onOpen(node)`: what somebody
// does. `upward`: the root is at the bottom, what is above calls what is below. `look`: as BY_KIND.
export function createFlame({ label, describedBy, upward = false, look = BY_KIND, onZoom, onPoint, onFocus, onOpen, onEscape }) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "flame graph", "aria-label": label, "aria-describedby": describedBy });
  const spacer = el("div", { class: "spacer" });
  const box = el("div", { class: "flame-box" }, canvas, spacer);
  const pen = canvas.getContext("2d");
  let state = { tree: null, value: "elapsed", zoom: 0, found: null };
  let placed = { rows: [], count: 0 };
  let widthPx = 0;
  let paint = null;
  let focused = 0;
  let pointed = -1;
  let waiting = false;

  const rowTop = (depth) => (upward ? (placed.rows.length - 1 - depth) * ROW : depth * ROW);

  function place() {
    widthPx = box.clientWidth;
    if (!state.tree || widthPx === 0) return;
    placed = layout(state.tree, state.value, state.zoom, widthPx);
    const full = placed.rows.length * ROW + 1;
    box.style.height = `${Math.min(full, MAX_HEIGHT)}px`;
    spacer.style.height = `${Math.max(0, full - Math.min(full, MAX_HEIGHT))}px`;
    soon();
  }

  function soon() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }

  function draw() {
    const { tree } = state;
    if (!tree || widthPx === 0) return;
    performance.mark("flame-begin");
    paint ??= colours(box, look.colours);
    const dense = window.devicePixelRatio || 1;
    const heightPx = box.clientHeight;
    const [wide, high] = [Math.round(widthPx * dense), Math.round(heightPx * dense)];
    if (canvas.width !== wide || canvas.height !== high) {
      Object.assign(canvas, { width: wide, height: high });
      canvas.style.width = `${widthPx}px`;
      canvas.style.height = `${heightPx}px`;
    }
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, widthPx, heightPx);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const letterPx = pen.measureText("abcdefghijklmnopqrstuvwxyz_:").width / 28;
    let drawn = 0;
    placed.rows.forEach((row, depth) => {
      const top = rowTop(depth) - box.scrollTop;
      if (!row || top > heightPx || top + ROW < 0) return;
      for (let at = 0; at < row.nodes.length; at += 1) drawn += drawBox(row.nodes[at], row.lefts[at], row.widths[at], top, depth, letterPx);
    });
    Object.assign(canvas.dataset, { boxes: String(drawn), value: state.value });
    performance.measure("flame-draw", "flame-begin");
  }

  function drawBox(node, left, wide, top, depth, letterPx) {
    const { tree, found, zoom } = state;
    const matches = found?.matches[tree.functionOf[node]] && node > 0;
    pen.globalAlpha = (found && !matches) ? 0.35 : depth < tree.depth[zoom] ? 0.6 : 1;
    pen.fillStyle = paint[matches ? "flame-match" : look.fill(tree, node)];
    const inner = Math.max(wide - (wide > 3 ? 1 : 0), 0.5);
    pen.fillRect(left, top, inner, ROW - 1);
    if (node === pointed || (node === focused && document.activeElement === canvas)) {
      pen.globalAlpha = 1;
      pen.strokeStyle = paint["flame-focus"];
      pen.lineWidth = 2;
      pen.strokeRect(left + 1, top + 1, Math.max(inner - 2, 1), ROW - 3);
    }
    const room = Math.floor((wide - 2 * PAD) / letterPx);
    if (room >= 3) {
      const text = look.text(tree, node);
      pen.globalAlpha = found && !matches ? 0.6 : 1;
      pen.fillStyle = paint[matches ? "flame-match-text" : look.ink(tree, node)];
      pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + PAD, top + ROW / 2, wide - 2 * PAD);
    }
    return 1;
  }

  function at(event) {
    const bounds = canvas.getBoundingClientRect();
    const y = event.clientY - bounds.top + box.scrollTop;
    const row = Math.floor(y / ROW);
    return hit(placed, upward ? placed.rows.length - 1 - row : row, event.clientX - bounds.left);
  }

  function focus(node) {
    focused = node;
    const top = rowTop(state.tree.depth[node]);
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW - box.clientHeight;
    soon();
    onFocus?.(node);
  }

  // The neighbour in a direction, among the boxes that are drawn.
  function neighbour(key) {
    const { tree } = state;
    const depth = tree.depth[focused];
    const inward = upward ? "ArrowUp" : "ArrowDown";
    if (key === (upward ? "ArrowDown" : "ArrowUp")) return tree.parent[focused];
    if (key === inward) return placed.rows[depth + 1]?.nodes.find((node) => tree.parent[node] === focused) ?? -1;
    const row = placed.rows[depth]?.nodes ?? [];
    const index = row.indexOf(focused);
    return row[key === "ArrowLeft" ? index - 1 : index + 1] ?? -1;
  }

  canvas.addEventListener("pointermove", (event) => {
    const node = at(event);
    canvas.classList.toggle("over", node >= 0);
    if (node !== pointed) {
      pointed = node;
      soon();
    }
    onPoint?.(node, event);
  });
  canvas.addEventListener("pointerleave", (event) => {
    pointed = -1;
    soon();
    onPoint?.(-1, event);
  });
  canvas.addEventListener("click", (event) => {
    const node = at(event);
    if (node < 0) return;
    focus(node);
    onZoom?.(node);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!state.tree || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) {
      const node = neighbour(event.key);
      if (node >= 0) focus(node);
    } else if (event.key === "Home") focus(0);
    else if (event.key === "Enter" || event.key === " ") onZoom?.(focused);
    else if (event.key === "Escape") onEscape?.();
    else if (event.key === "c") onOpen?.(focused);
    else return;
    event.preventDefault();
  });
  for (const event of ["focus", "blur"]) {
    canvas.addEventListener(event, () => {
      soon();
      if (event === "focus" && state.tree) onFocus?.(focused);
    });
  }
  box.addEventListener("scroll", soon, { passive: true });
  new ResizeObserver(() => { if (box.clientWidth !== widthPx) place(); }).observe(box);
  box.addEventListener("scheme", () => {
    paint = null;
    soon();
  });

  return {
    element: box,
    canvas,
    // Shows a tree: which value, which node over the whole width, which functions are marked.
    set(tree, value, zoom, found) {
      const sameTree = tree === state.tree;
      state = { tree, value, zoom, found };
      // While it was not shown the colours may have become others.
      paint = null;
      if (!sameTree) {
        focused = zoom;
        pointed = -1;
      } else if (tree.depth[focused] < tree.depth[zoom]) {
        focused = zoom;
      }
      place();
    },
    own: (node) => exclusive(state.tree, state.value, node),
  };
}
