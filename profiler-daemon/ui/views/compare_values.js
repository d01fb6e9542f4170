// What can be compared: all that call trees show, and time on a processor.

import { VALUES } from "../flame/tree.js";

export const RUNNING = { id: "running", label: "Running", unit: "ns", about: "on a processor, in user mode or in the kernel" };
export const COMPARED = [...VALUES, RUNNING];

// The value of that name, else the one that is shown without a word.
export function comparedValue(id, otherwise) {
  return COMPARED.find((value) => value.id === id) ?? otherwise;
}
