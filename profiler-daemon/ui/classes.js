// The five classes of time: what they mean, and the bar that shows how a time divides into them.

import { el, setAttribute, setChildren, setText } from "./dom.js";
import { count, exactTime, percent, share, time } from "./format.js";

// In the order in which they stand in bars: at work first, then what keeps from it.
export const CLASSES = [
  { id: "user", key: "user_ns", label: "user", about: "running its own code, in user mode: application time" },
  { id: "fault", key: "fault_ns", label: "faults", about: "in the kernel outside any system call: page faults, interrupts; by the ticks that found it" },
  { id: "syscall", key: "syscall_ns", label: "system call", about: "running in the kernel, inside a system call" },
  { id: "kernel", key: "kernel_ns", label: "kernel", about: "a thread of the kernel, running" },
  { id: "runnable", key: "runnable_ns", label: "runnable", about: "could run, but is on no processor: others are, or the quota of its control group is used up" },
  { id: "blocked", key: "blocked_ns", label: "blocked", about: "off the processor until somebody wakes it: sleep, locks, disk, network" },
];

// The classes that answers measure: faults are a part of user there.
export const MEASURED = CLASSES.filter(({ id }) => id !== "fault");

// The classes of a row or total, what faults and interrupts took told apart from user mode.
export function partsOf(row) {
  const fault = Math.min(row.fault_ns ?? 0, row.classes.user_ns);
  return { ...row.classes, user_ns: row.classes.user_ns - fault, fault_ns: fault };
}

// Time on a processor.
export function onCpu(classes) {
  return classes.user_ns + (classes.fault_ns ?? 0) + classes.syscall_ns + classes.kernel_ns;
}

// Time on a processor, or ready for one: all in which it did not wait for anything else.
export function activeNs(classes) {
  return onCpu(classes) + classes.runnable_ns;
}

// A bar of all classes; `set(classes)` redraws it.
export function classBar() {
  const parts = CLASSES.map(({ id }) => el("span", { class: `class-${id}` }));
  const bar = el("div", { class: "bar", role: "img" });
  return {
    element: bar,
    set(classes) {
      const total = CLASSES.reduce((sum, { key }) => sum + (classes[key] ?? 0), 0);
      const present = [];
      const told = [];
      CLASSES.forEach(({ key, label }, index) => {
        if (!(classes[key] > 0)) return;
        const part = share(classes[key], total);
        const sentence = `${label} ${percent(part)}`;
        parts[index].style.flexGrow = String(part);
        setAttribute(parts[index], "title", `${sentence}: ${exactTime(classes[key])}`);
        present.push(parts[index]);
        told.push([part, sentence]);
      });
      told.sort((a, b) => b[0] - a[0]);
      setAttribute(bar, "aria-label", told.map(([, sentence]) => sentence).join(", ") || "no time yet");
      setChildren(bar, present);
    },
  };
}

// The legend with the values of one total; `set(classes)` fills it.
export function classLegend() {
  const items = CLASSES.map(({ id, label, about }) => {
    const value = el("b", {});
    const part = el("span", { class: "dim" });
    const item = el("li", { title: about }, el("i", { class: `swatch class-${id}` }), el("span", {}, label), value, part);
    return { item, value, part };
  });
  return {
    element: el("ul", { class: "legend" }, ...items.map(({ item }) => item)),
    set(classes) {
      const total = CLASSES.reduce((sum, { key }) => sum + (classes[key] ?? 0), 0);
      CLASSES.forEach(({ key, about }, index) => {
        setText(items[index].value, time(classes[key] ?? 0));
        items[index].item.classList.toggle("nothing", !(classes[key] > 0));
        setText(items[index].part, percent(share(classes[key] ?? 0, total)));
        setAttribute(items[index].item, "title", `${about} (${exactTime(classes[key] ?? 0)})`);
      });
    },
  };
}

// How many page faults there were, where they took time: "in 416,090 major faults".
export function inFaults(row) {
  if (row.major_faults > 0 && row.major_faults * 10 >= row.minor_faults) return `in ${count(row.major_faults)} major page faults`;
  return row.minor_faults > 0 ? `in ${count(row.minor_faults)} minor page faults` : "in interrupts and faults";
}

// What the active time of a row, which is all but blocked, mostly was: "80.1 % running their own code, 9.2 % in system calls".
export function mostly(row) {
  const classes = partsOf(row);
  const told = { user: "running their own code", fault: inFaults(row), syscall: "running in system calls", kernel: "running in the kernel", runnable: "ready to run, but on no processor" };
  const total = activeNs(row.classes);
  const parts = CLASSES.filter(({ id }) => id in told).map(({ id, key }) => [share(classes[key] ?? 0, total), told[id]]).filter(([part]) => part >= 5);
  parts.sort((a, b) => b[0] - a[0]);
  return parts.map(([part, words]) => `${percent(part)} ${words}`).join(", ");
}
