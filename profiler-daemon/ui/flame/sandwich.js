// All that calls a function and all that it calls, merged over every place where it stands. Pure.
//
// Below a function that calls itself only the outermost of its nodes counts, so that nothing counts twice.

import { VALUES } from "./tree.js";

// The outermost nodes of a function.
export function outermost(tree, number) {
  const nodes = [];
  const inside = new Uint8Array(tree.count);
  for (let node = 1; node < tree.count; node += 1) {
    const above = inside[tree.parent[node]];
    const own = tree.functionOf[node] === number;
    inside[node] = above || own ? 1 : 0;
    if (own && !above) nodes.push(node);
  }
  return nodes;
}

// A tree that grows by (function, parent): `add(parent, function, node)` adds a node's values and answers the number.
function growing(tree) {
  const made = [];
  const children = [];
  return {
    made,
    add(parent, number, node) {
      let at = parent < 0 ? (made.length > 0 ? 0 : undefined) : children[parent].get(number);
      if (at === undefined) {
        at = made.length;
        made.push({ number, parent, sums: new Float64Array(VALUES.length) });
        children.push(new Map());
        if (parent >= 0) children[parent].set(number, at);
      }
      VALUES.forEach(({ id }, index) => {
        made[at].sums[index] += tree.values[id][node];
      });
      return at;
    },
    finish() {
      return renumbered(tree, made, children);
    },
  };
}

// The grown nodes as the flat arrays of tree.js, breadth first.
function renumbered(tree, made, children) {
  const count = made.length;
  const flat = { count, parent: new Int32Array(count).fill(-1), depth: new Int32Array(count), first: new Int32Array(count), last: new Int32Array(count), functionOf: new Int32Array(count), orders: new Map(), functions: tree.functions, numbers: tree.numbers, cutNodes: [] };
  flat.values = Object.fromEntries(VALUES.map(({ id }) => [id, new Float64Array(count)]));
  const queue = count > 0 ? [0] : [];
  for (let at = 0; at < queue.length; at += 1) {
    const old = queue[at];
    flat.functionOf[at] = made[old].number;
    VALUES.forEach(({ id }, index) => {
      flat.values[id][at] = made[old].sums[index];
    });
    flat.first[at] = queue.length;
    for (const child of children[old].values()) {
      flat.parent[queue.length] = at;
      flat.depth[queue.length] = flat.depth[at] + 1;
      queue.push(child);
    }
    flat.last[at] = queue.length;
  }
  return flat;
}

// What the function calls: a tree with it as the root.
export function callees(tree, number) {
  const grown = growing(tree);
  for (const top of outermost(tree, number)) {
    const stack = [[top, -1]];
    while (stack.length > 0) {
      const [node, parent] = stack.pop();
      const at = grown.add(parent, tree.functionOf[node], node);
      for (let child = tree.first[node]; child < tree.last[node]; child += 1) stack.push([child, at]);
    }
  }
  return grown.finish();
}

// What calls the function: a tree with it as the root and its callers as children. Each caller has the value of the
// function where it was called from there.
export function callers(tree, number) {
  const grown = growing(tree);
  for (const top of outermost(tree, number)) {
    let at = -1;
    for (let node = top; node >= 0; node = tree.parent[node]) at = grown.add(at, tree.functionOf[node], top);
  }
  return grown.finish();
}
