// Where the boxes of a flame graph lie. Pure: a tree and a width in, boxes out; what is too small to see is left out.

import { ordered } from "./tree.js";

// Boxes narrower than this are not drawn, in pixels.
const NARROWEST = 0.5;

// The boxes by row: rows[depth] = {nodes, lefts, widths}, each row from left to right. `zoom` and its callers have the
// whole width.
export function layout(tree, value, zoom, width) {
  const order = ordered(tree, value);
  const values = tree.values[value];
  const rows = [];
  const put = (depth, node, left, wide) => {
    const row = (rows[depth] ??= { nodes: [], lefts: [], widths: [] });
    row.nodes.push(node);
    row.lefts.push(left);
    row.widths.push(wide);
  };
  const callers = [];
  for (let at = zoom; at >= 0; at = tree.parent[at]) callers.unshift(at);
  for (const at of callers) put(tree.depth[at], at, 0, width);
  let count = callers.length;
  if (values[zoom] > 0) {
    const scale = width / values[zoom];
    // Row by row, so that each row stays in order.
    let above = [[zoom, 0]];
    while (above.length > 0) {
      const below = [];
      for (const [node, start] of above) {
        let left = start;
        for (let at = tree.first[node]; at < tree.last[node]; at += 1) {
          const child = order[at];
          const wide = values[child] * scale;
          // The rest is smaller still.
          if (wide < NARROWEST) break;
          put(tree.depth[child], child, left, wide);
          count += 1;
          below.push([child, left]);
          left += wide;
        }
      }
      above = below;
    }
  }
  return { rows, count };
}

// The node at a place; -1 where there is none.
export function hit({ rows }, depth, x) {
  const row = rows[depth];
  if (!row) return -1;
  let [low, high] = [0, row.nodes.length - 1];
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (x < row.lefts[middle]) high = middle - 1;
    else if (x >= row.lefts[middle] + row.widths[middle]) low = middle + 1;
    else return row.nodes[middle];
  }
  return -1;
}
