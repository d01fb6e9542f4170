// Draws a timeline as strips on one canvas, and lets a span of time be chosen by pointer or keys. What a place means is said by the
// callbacks, in text.

import { MEASURED } from "../classes.js";
import { el } from "../dom.js";
import { parts, stretchAt, ticks, touched } from "./model.js";

export const ROW = 26;
// The times stand above the strips.
const AXIS = 20;
// A drag shorter than this is a click, in pixels.
const DRAG = 4;
const middle = ({ fromMs, toMs }) => (fromMs + toMs) / 2;
// Room for one time on the axis, in pixels.
const TICK = 84;
const KEYS = MEASURED.map(({ key }) => key);
const COLOURS = [...MEASURED.map(({ id }) => `class-${id}`), "line", "dim", "flame-focus", "ground", "accent"];

// `onPlace(row, stretch)`: this place is meant. `onChoose(first, last)`: these stretches are chosen; without them: all time.
export function createStrip({ label, describedBy, onPlace, onChoose }) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-label": label, "aria-describedby": describedBy });
  const box = el("div", { class: "strip-box" }, canvas);
  const pen = canvas.getContext("2d");
  // The strips themselves, which stay while the pointer moves over them.
  const strips = document.createElement("canvas");
  const stripPen = strips.getContext("2d");
  let drawn = null;
  let made = null;
  let chosen = null;
  let place = { row: 0, index: -1 };
  // Where a choice began, as a time: numbers of stretches move when a new answer comes.
  let anchorMs = null;
  let drag = null;
  let waiting = false;

  const x = (ms) => ((ms - made.fromMs) / (made.toMs - made.fromMs)) * box.clientWidth;

  // The strips must be drawn anew.
  function anew() {
    drawn = null;
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
    if (!made || box.clientWidth === 0) return;
    const style = getComputedStyle(box);
    const paint = Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const dense = window.devicePixelRatio || 1;
    const [wide, high] = [box.clientWidth, made.rows.length * ROW + AXIS];
    for (const each of [canvas, strips]) {
      if (each === strips && drawn !== null) continue;
      Object.assign(each, { width: Math.round(wide * dense), height: Math.round(high * dense) });
      each.getContext("2d").setTransform(dense, 0, 0, dense, 0, 0);
    }
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    drawn ??= drawStrips(paint, wide);
    pen.drawImage(strips, 0, 0, wide, high);
    drawChosen(paint, wide);
    if (document.activeElement === canvas && place.index >= 0) {
      const { fromMs, toMs } = made.stretches[place.index];
      pen.strokeStyle = paint["flame-focus"];
      pen.lineWidth = 2;
      pen.strokeRect(x(fromMs) + 1, AXIS + place.row * ROW + 1, Math.max(x(toMs) - x(fromMs) - 2, 2), ROW - 3);
    }
    Object.assign(canvas.dataset, { drawn: String(drawn), rows: String(made.rows.length), stretches: String(made.stretches.length) });
  }

  // Draws all strips and the times above them; answers how many parts they have.
  function drawStrips(paint, wide) {
    let count = 0;
    made.rows.forEach((row, at) => {
      const bottom = AXIS + (at + 1) * ROW - 2;
      stripPen.fillStyle = paint.line;
      stripPen.fillRect(0, bottom, wide, 1);
      made.stretches.forEach((stretch, index) => {
        const left = x(stretch.fromMs);
        const width = x(stretch.toMs) - left;
        let top = bottom;
        for (const [key, part] of parts(made, row, index, KEYS)) {
          const tall = part * (ROW - 4);
          top -= tall;
          stripPen.fillStyle = paint[`class-${MEASURED[KEYS.indexOf(key)].id}`];
          stripPen.fillRect(left, top, Math.max(width - (width > 5 ? 1 : 0), 0.5), tall);
          count += 1;
        }
      });
    });
    drawAxis(paint, wide);
    return count;
  }

  function drawAxis(paint, wide) {
    stripPen.font = "11px system-ui, sans-serif";
    stripPen.textBaseline = "top";
    for (const ms of ticks(made, Math.max(2, Math.floor(wide / TICK)))) {
      const text = new Date(ms).toLocaleTimeString("en-GB");
      const half = stripPen.measureText(text).width / 2;
      stripPen.fillStyle = paint.line;
      stripPen.fillRect(Math.round(x(ms)), AXIS - 4, 1, made.rows.length * ROW + 4);
      stripPen.fillStyle = paint.dim;
      stripPen.fillText(text, Math.max(0, Math.min(x(ms) - half, wide - 2 * half)), 2);
    }
  }

  function drawChosen(paint, wide) {
    if (!chosen) return;
    const [left, right] = [x(made.stretches[chosen[0]].fromMs), x(made.stretches[chosen[1]].toMs)];
    const high = made.rows.length * ROW;
    pen.globalAlpha = 0.66;
    pen.fillStyle = paint.ground;
    pen.fillRect(0, AXIS, left, high);
    pen.fillRect(right, AXIS, wide - right, high);
    pen.globalAlpha = 1;
    pen.fillStyle = paint.accent;
    for (const at of [left, right - 2]) pen.fillRect(at, AXIS - 4, 2, high + 4);
    pen.fillRect(left, AXIS - 3, right - left, 3);
  }

  function mean(row, index) {
    place = { row: Math.max(0, Math.min(row, made.rows.length - 1)), index: Math.max(0, Math.min(index, made.stretches.length - 1)) };
    soon();
    onPlace(place.row, place.index);
  }

  // The stretches between two times, in either order.
  function between(a, b) {
    return [stretchAt(made, a), stretchAt(made, b)].sort((one, other) => one - other);
  }

  function at(event) {
    const bounds = canvas.getBoundingClientRect();
    const ms = made.fromMs + ((event.clientX - bounds.left) / bounds.width) * (made.toMs - made.fromMs);
    return { ms: Math.max(made.fromMs, Math.min(ms, made.toMs - 1)), row: Math.floor((event.clientY - bounds.top - AXIS) / ROW), px: event.clientX };
  }

  const ready = () => made !== null && made.rows.length > 0 && made.stretches.length > 0;

  canvas.addEventListener("pointerdown", (event) => {
    if (!ready() || event.button !== 0) return;
    drag = { ...at(event), moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!ready()) return;
    const here = at(event);
    mean(here.row, stretchAt(made, here.ms));
    if (!drag) return;
    drag.moved ||= Math.abs(here.px - drag.px) >= DRAG;
    if (drag.moved) chosen = between(drag.ms, here.ms);
  });
  const over = (event) => {
    const began = drag;
    drag = null;
    if (!began?.moved || !ready()) return;
    if (event.type === "pointerup") onChoose(...between(began.ms, at(event).ms));
    soon();
  };
  canvas.addEventListener("pointerup", over);
  canvas.addEventListener("pointercancel", over);
  canvas.addEventListener("keydown", (event) => {
    if (!ready() || event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, index } = place.index < 0 ? { row: 0, index: made.stretches.length - 1 } : place;
    const moves = { ArrowLeft: [row, index - 1], ArrowRight: [row, index + 1], ArrowUp: [row - 1, index], ArrowDown: [row + 1, index], Home: [row, 0], End: [row, made.stretches.length - 1] };
    if (moves[event.key]) {
      if (!event.shiftKey) anchorMs = null;
      else anchorMs ??= middle(made.stretches[index]);
      mean(...moves[event.key]);
      if (event.shiftKey) onChoose(...between(anchorMs, middle(made.stretches[place.index])));
    } else if (event.key === "Enter" || event.key === " ") {
      mean(row, index);
      onChoose(place.index, place.index);
    } else if (event.key === "Escape") {
      anchorMs = null;
      onChoose();
    } else return;
    event.preventDefault();
  });
  canvas.addEventListener("focus", () => { if (ready()) mean(place.row, place.index < 0 ? made.stretches.length - 1 : place.index); });
  canvas.addEventListener("blur", soon);
  new ResizeObserver(anew).observe(box);
  box.addEventListener("scheme", anew);

  return {
    element: box,
    canvas,
    // Shows a timeline, and which span of times of it is chosen: both null, or in milliseconds since 1970.
    set(fresh, fromMs, toMs) {
      // The place that is meant stays where it was in time: older stretches are joined, so that numbers change.
      const meant = made?.stretches[place.index];
      made = fresh;
      place = { row: Math.min(place.row, Math.max(0, made.rows.length - 1)), index: meant ? stretchAt(made, middle(meant)) : -1 };
      if (!drag) chosen = fromMs === null && toMs === null ? null : touched(made, fromMs ?? made.fromMs, toMs ?? made.toMs);
      // While it was not shown the colours may have become others.
      anew();
    },
  };
}
