// The call tree as flat arrays: fast to lay out, search and merge. Pure: numbers and strings in, numbers and strings out.
//
// Nodes are numbered breadth first, so the children of a node are the range first[n] .. last[n]. Functions (name and
// module) are numbered too; nodes of one function share its number.

// What can be drawn: how to read a node's inclusive value, and how to say it.
export const VALUES = [
  { id: "elapsed", label: "Elapsed", unit: "ns", about: "all time, on and off the processor", read: (node) => node.elapsed.inclusive_ns },
  { id: "application", label: "Application", unit: "ns", about: "time that ran in user mode, outside any system call", read: (node) => node.application.inclusive_ns },
  { id: "samples", label: "Samples", unit: "", about: "timer ticks: where the processor was used", read: (node) => node.samples.inclusive },
  { id: "blocked", label: "Blocked", unit: "ns", about: "off the processor until woken", read: (node) => node.classes.blocked_ns },
  { id: "runnable", label: "Runnable", unit: "ns", about: "ready to run, but on no processor", read: (node) => node.classes.runnable_ns },
  { id: "syscall", label: "System calls", unit: "ns", about: "running inside system calls", read: (node) => node.classes.syscall_ns },
];

export function valueOf(id) {
  return VALUES.find((value) => value.id === id) ?? VALUES[0];
}

// An empty tree for `count` nodes.
function arrays(count) {
  const values = Object.fromEntries(VALUES.map(({ id }) => [id, new Float64Array(count)]));
  return { count, parent: new Int32Array(count).fill(-1), depth: new Int32Array(count), first: new Int32Array(count), last: new Int32Array(count), functionOf: new Int32Array(count), values, orders: new Map() };
}

// Which sort of code a function is, as colours tell it: the program itself, a library, or what the daemon calls it. Of the
// session nobody says which files are programs: those that are named like libraries are none.
function sort(node, root) {
  if (node.kind !== "user") return node.kind;
  const own = root.kind === "process" ? node.module === root.module : !/\.so(\.|$)/.test(node.module ?? "");
  return own ? "program" : "library";
}

// What a node is that stands for no function.
const NO_FUNCTION = ["process", "session", "idle"];

// The group of the waits of threads that idle; undefined where there is none.
export function idleOf(root) {
  return root.children.find(({ kind }) => kind === "idle");
}

// The nested answer as flat arrays; `without`: a child of the root that is left out, and taken off what the root has.
export function flatten(root, without) {
  const childrenOf = (node) => (node === root && without ? root.children.filter((child) => child !== without) : node.children);
  const nodes = [root];
  for (let at = 0; at < nodes.length; at += 1) for (const child of childrenOf(nodes[at])) nodes.push(child);
  const tree = arrays(nodes.length);
  const numbers = new Map();
  tree.functions = [];
  let next = 1;
  nodes.forEach((node, at) => {
    // What is no function is none whatever its name.
    const code = !NO_FUNCTION.includes(node.kind);
    const key = at === 0 ? "" : `${node.function}\n${code ? (node.module ?? "") : `\n${node.kind}`}`;
    let number = numbers.get(key);
    if (number === undefined) {
      number = tree.functions.length;
      numbers.set(key, number);
      tree.functions.push({ name: node.function, module: node.module ?? "", sort: sort(node, root), code, key, hash: hash(key) });
    }
    tree.functionOf[at] = number;
    tree.first[at] = next;
    const { length } = childrenOf(node);
    for (let child = next; child < next + length; child += 1) {
      tree.parent[child] = at;
      tree.depth[child] = tree.depth[at] + 1;
    }
    next += length;
    tree.last[at] = next;
    for (const { id, read } of VALUES) tree.values[id][at] = read(node) ?? 0;
  });
  if (without) for (const { id, read } of VALUES) tree.values[id][0] -= read(without) ?? 0;
  tree.numbers = numbers;
  tree.cutNodes = nodes.map((node) => node.cut_nodes ?? 0);
  return tree;
}

// What a node has of its own: its inclusive value less that of its children.
export function exclusive(tree, value, node) {
  const values = tree.values[value];
  let own = values[node];
  for (let child = tree.first[node]; child < tree.last[node]; child += 1) own -= values[child];
  return Math.max(0, own);
}

// The children of all nodes with the largest first: `order[first[n] .. last[n]]`.
export function ordered(tree, value) {
  let order = tree.orders.get(value);
  if (order) return order;
  const values = tree.values[value];
  order = Int32Array.from({ length: tree.count }, (_, at) => at);
  for (let node = 0; node < tree.count; node += 1) {
    if (tree.last[node] - tree.first[node] > 1) order.subarray(tree.first[node], tree.last[node]).sort((a, b) => values[b] - values[a] || a - b);
  }
  tree.orders.set(value, order);
  return order;
}

// A short name for a function in addresses of views: 32 bits of FNV-1a.
function hash(key) {
  let sum = 0x811c9dc5;
  for (let at = 0; at < key.length; at += 1) sum = Math.imul(sum ^ key.charCodeAt(at), 0x01000193);
  return (sum >>> 0).toString(36);
}

// The node and its callers, outermost first.
export function path(tree, node) {
  const nodes = [];
  for (let at = node; at >= 0; at = tree.parent[at]) nodes.unshift(at);
  return nodes;
}

// A node as text that another answer's tree understands: the functions on the way to it.
export function pathText(tree, node) {
  return path(tree, node).slice(1).map((at) => tree.functions[tree.functionOf[at]].hash).join(".");
}

// The node that a text means; where the way ends early, the last node that is there.
export function nodeAt(tree, text) {
  let node = 0;
  for (const step of (text ?? "").split(".").filter(Boolean)) {
    let found = -1;
    for (let child = tree.first[node]; child < tree.last[node] && found < 0; child += 1) {
      if (tree.functions[tree.functionOf[child]].hash === step) found = child;
    }
    if (found < 0) break;
    node = found;
  }
  return node;
}

// Which functions hold a text in their name or module, in any case, and their share of the root: each node counts once,
// below the outermost one that matches.
export function search(tree, text, value) {
  const wanted = text.toLowerCase();
  if (wanted === "") return null;
  const matches = tree.functions.map(({ name, module }) => name.toLowerCase().includes(wanted) || module.toLowerCase().includes(wanted));
  const values = tree.values[value];
  const covered = new Uint8Array(tree.count);
  let sum = 0;
  let nodes = 0;
  for (let node = 1; node < tree.count; node += 1) {
    const above = covered[tree.parent[node]];
    if (matches[tree.functionOf[node]]) {
      nodes += 1;
      if (!above) sum += values[node];
      covered[node] = 1;
    } else {
      covered[node] = above;
    }
  }
  return { matches, functions: new Set(Array.from(tree.functionOf).slice(1).filter((number) => matches[number])).size, nodes, sum };
}
