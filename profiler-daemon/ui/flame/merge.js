// Two call trees as one, joined by path, and how much each node's share differs between them. Pure.
//
// A function is the same where its name and the path of its module are. The joined tree has the arrays of tree.js; its values are
// the mean of both shares, in percent, so that what only one side has is there too.

import { share } from "../format.js";
import { VALUES } from "./tree.js";

// From how many points on a change is drawn stronger; below the first it is none.
export const LEVELS = [0.1, 1, 5];

// The children of a node by their functions; a function that stands there again has a key of its own.
function childrenByKey(tree, node, add) {
  if (node < 0) return;
  const seen = new Map();
  for (let child = tree.first[node]; child < tree.last[node]; child += 1) {
    const of = tree.functions[tree.functionOf[child]];
    const times = seen.get(of.key) ?? 0;
    seen.set(of.key, times + 1);
    add(times === 0 ? of.key : `${of.key}\n${times}`, of, child);
  }
}

// The joined tree of two flat trees. `pairs` has the nodes of both sides, -1 where one has none.
export function merge(base, other) {
  const pairs = [[0, 0]];
  const functions = [other.functions[other.functionOf[0]]];
  const numbers = new Map([["", 0]]);
  const [functionOf, parent, depth, first, last] = [[0], [-1], [0], [], []];
  for (let at = 0; at < pairs.length; at += 1) {
    const children = new Map();
    childrenByKey(base, pairs[at][0], (key, of, child) => children.set(key, { of, pair: [child, -1] }));
    childrenByKey(other, pairs[at][1], (key, of, child) => {
      const known = children.get(key);
      if (known) known.pair[1] = child;
      else children.set(key, { of, pair: [-1, child] });
    });
    first[at] = pairs.length;
    for (const { of, pair } of children.values()) {
      let number = numbers.get(of.key);
      if (number === undefined) {
        number = functions.length;
        numbers.set(of.key, number);
        functions.push(of);
      }
      pairs.push(pair);
      functionOf.push(number);
      parent.push(at);
      depth.push(depth[at] + 1);
    }
    last[at] = pairs.length;
  }
  const side = (tree, index) => Object.fromEntries(VALUES.map(({ id }) => [id, Float64Array.from(pairs, (pair) => (pair[index] < 0 ? 0 : tree.values[id][pair[index]]))]));
  const [baseValues, otherValues] = [side(base, 0), side(other, 1)];
  const tree = {
    count: pairs.length,
    parent: Int32Array.from(parent),
    depth: Int32Array.from(depth),
    first: Int32Array.from(first),
    last: Int32Array.from(last),
    functionOf: Int32Array.from(functionOf),
    functions,
    numbers,
    orders: new Map(),
    cutNodes: [],
    base: baseValues,
    other: otherValues,
  };
  tree.values = Object.fromEntries(VALUES.map(({ id }) => [id, Float64Array.from(pairs, (_, node) => {
    const { before, after } = shares(tree, id, node);
    return (before + after) / 2;
  })]));
  return tree;
}

// A node's share of each side, in percent, and by how many points it differs.
export function shares(tree, value, node) {
  const before = share(tree.base[value][node], tree.base[value][0]);
  const after = share(tree.other[value][node], tree.other[value][0]);
  return { before, after, change: after - before };
}

// How strong a change is: 0 none, 1 to 3 grew, -1 to -3 shrank.
export function level(change) {
  let strength = 0;
  for (const [index, from] of LEVELS.entries()) if (Math.abs(change) >= from) strength = index + 1;
  return change < 0 ? -strength : strength;
}
