// The comparison as a flame graph: one box for each path of either side, as wide as its share of both on average, coloured and
// marked by how its share changed.

import { el, setText } from "../dom.js";
import { percent, points, several, shown } from "../format.js";
import { amount, createPanel, exact, valueChoice } from "../flame/panel.js";
import { level, LEVELS, merge, shares } from "../flame/merge.js";
import { exclusive, flatten, valueOf } from "../flame/tree.js";

const DEGREES = [-3, -2, -1, 0, 1, 2, 3];
const colour = (degree) => `diff-${degree < 0 ? "down" : "up"}-${Math.abs(degree)}`.replace(/-(up|down)-0$/, "-same");

function degreeText(degree) {
  if (degree === 0) return "same";
  const from = LEVELS[Math.abs(degree) - 1];
  return `${degree < 0 ? "−" : "+"}${from}${Math.abs(degree) === LEVELS.length ? " or more" : ""}`;
}

const BY_CHANGE = (value) => ({
  colours: DEGREES.flatMap((degree) => [colour(degree), `${colour(degree)}-text`]),
  fill: (tree, node) => colour(level(shares(tree, value(), node).change)),
  ink: (tree, node) => `${colour(level(shares(tree, value(), node).change))}-text`,
  text(tree, node) {
    const { change } = shares(tree, value(), node);
    const name = shown(tree.functions[tree.functionOf[node]].name);
    return level(change) === 0 ? name : `${points(change)} ${name}`;
  },
});

export function createCompareFlame() {
  let tree = null;
  let params = {};
  const values = valueChoice();
  const name = el("b", { class: "code" });
  const sentence = el("span", {});
  const own = el("span", {});
  const module = el("span", { class: "dim" });
  const details = el("section", { class: "details", "aria-label": "The box that is meant" }, el("p", { id: "compare-details", "aria-live": "polite" }, name, " ", sentence, " ", own, " ", module));
  const legend = el("ul", { class: "legend kinds changes", "aria-label": "Change of the share, in percentage points: blue shrank, red grew" },
    el("li", {}, "shrank"), ...DEGREES.map((degree) => el("li", {}, el("i", { class: `swatch ${colour(degree)}` }), degreeText(degree))), el("li", {}, "grew"));
  const none = el("p", { class: "panel", hidden: true });
  const cut = el("p", { class: "dim" });
  const hint = el("p", { class: "dim hint" }, "Each box is a function called on this way on either side, as wide as its mean share of both. Its colour and the number before its name say by how many percentage points its share differs on the other side. Click or Enter zooms, Esc goes back, arrow keys move.");
  const panel = createPanel({
    label: "Flame graph of both call trees, coloured by change, the root at the top. Arrow keys move, Enter zooms, Escape goes back.",
    describedBy: "compare-details",
    look: BY_CHANGE(() => valueOf(params.value).id),
    describe(node) {
      const told = describe(node);
      return { ...told, tip: [`${told.before} → ${told.after}: ${told.verdict}`] };
    },
    meant: (node) => tell(describe(node)),
    open() {},
    sum: (found) => `${percent(found.sum)} of both on average`,
  });

  function describe(node) {
    const value = valueOf(params.value);
    const { before, after, change } = shares(tree, value.id, node);
    const of = tree.functions[tree.functionOf[node]];
    const [base, other] = [tree.base[value.id][node], tree.other[value.id][node]];
    let verdict = "the same on both";
    if (level(change) !== 0) verdict = `${change > 0 ? "grew" : "shrank"} by ${points(Math.abs(change), false)}`;
    if (node > 0 && base === 0) verdict = `only in the other, ${verdict}`;
    if (node > 0 && other === 0) verdict = `only in the base, ${verdict}`;
    const alone = ["base", "other"].map((side) => {
      const mine = exclusive({ ...tree, values: tree[side] }, value.id, node);
      return `${amount(value, mine)} of the ${side}`;
    });
    return {
      name: shown(of.name),
      module: of.module ? shown(of.module) : "",
      before: percent(before),
      after: percent(after),
      verdict,
      sentence: `${value.label}: ${percent(before)} of the base (${amount(value, base)}), ${percent(after)} of the other (${amount(value, other)}): ${verdict}.`,
      exact: `${exact(value, base)} and ${exact(value, other)}`,
      own: `Its own: ${alone.join(", ")}.`,
    };
  }

  function tell(told) {
    setText(name, told.name);
    setText(sentence, told.sentence);
    sentence.title = told.exact;
    setText(own, told.own);
    setText(module, told.module);
  }

  function draw() {
    const value = valueOf(params.value);
    values.set(value);
    panel.address(params);
    if (!tree) return;
    const empty = !(tree.values[value.id][0] > 0);
    none.hidden = !empty;
    details.hidden = empty;
    setText(none, `Neither side has any ${value.label.toLowerCase()}. Choose another value.`);
    panel.draw(tree, value);
  }

  return {
    element: el("div", { class: "flame" },
      el("div", { class: "tools" }, values.element, ...panel.search),
      el("div", { class: "tools" }, panel.crumbs, legend),
      panel.graph, none, details, cut, hint, panel.tip),
    show(now) {
      params = now;
      draw();
    },
    // Takes the call trees of both sides.
    load(base, other) {
      tree = merge(flatten(base.root), flatten(other.root));
      tree.functions[0] = { ...tree.functions[0], name: "both sides", module: "" };
      const small = base.cut_nodes + other.cut_nodes;
      setText(cut, small > 0 ? `${several(small, "small box is", "small boxes are")} put together as (cut): what is below one on a side may not be so on the other.` : "");
      draw();
    },
  };
}
