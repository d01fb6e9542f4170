// Where most of a call tree's value is: one function that stands for it in a sentence. Pure.

// In which everything is, so that they say nothing.
const ENTRIES = /^(_start|__libc_start_main.*|__libc_start_call_main|main|clone3?|__clone3?|start_thread)$/;

// Goes down from the root to the callee that has most, as long as that has half of all. Answers {name, by, value, all, path}: the last
// function of the program itself on that way, else the last at all; what it called there in a library, "" where it is the last;
// how much of the value it has, of how much; and the way. Null where there is none. `read(node)` is the value.
export function whereMost(root, read) {
  const all = read(root);
  const way = [];
  for (let node = root; node; ) {
    const most = node.children.reduce((best, child) => (best === null || read(child) > read(best) ? child : best), null);
    node = most !== null && all > 0 && read(most) * 2 >= all ? most : null;
    if (node && ["user", "jit", "kernel"].includes(node.kind) && !ENTRIES.test(node.function)) way.push(node);
  }
  if (way.length === 0) return null;
  const last = way[way.length - 1];
  const own = way.findLast(({ module }) => module === root.module) ?? last;
  return { name: own.function, by: own === last ? "" : last.function, value: read(own), all, path: way.map((node) => node.function) };
}
