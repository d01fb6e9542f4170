// Numbers and names as people read them. Nothing here knows elements; exact values are for titles.

const counts = new Intl.NumberFormat("en-US");
const UNITS = [
  [1e3, 1, "ns"],
  [1e6, 1e3, "µs"],
  [1e9, 1e6, "ms"],
  [100e9, 1e9, "s"],
];

// What could move text about or hide in it: controls, and marks that change the direction of writing.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

// A name that a program chose, fit to be shown.
export function shown(name) {
  const text = String(name ?? "").replace(UNSEEN, "\ufffd");
  return text === "" ? "(no name)" : text;
}

// The last part of a path, fit to be shown.
export function basename(path) {
  const text = shown(path);
  return text.startsWith("/") ? text.slice(text.lastIndexOf("/") + 1) || text : text;
}

export function count(number) {
  return counts.format(number);
}

function three(value) {
  if (value >= 99.95) return value.toFixed(0);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

// Nanoseconds in three digits and a unit; from 100 s on in two units.
export function time(ns) {
  if (!(ns > 0)) return "0";
  for (const [below, size, unit] of UNITS) {
    if (ns < below * 0.9995) return `${size === 1 ? Math.round(ns) : three(ns / size)} ${unit}`;
  }
  const two = (number) => String(number).padStart(2, "0");
  const seconds = Math.round(ns / 1e9);
  const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600), Math.floor(seconds / 60)];
  if (days >= 2) return `${days} d ${two(hours % 24)} h`;
  if (hours >= 1) return `${hours} h ${two(minutes % 60)} m`;
  return `${minutes} m ${two(seconds % 60)} s`;
}

// The time of threads together, over a span: "97 threads × 31.0 s", where they were there all the while or on average.
export function threadTime(ns, spanNs) {
  const mean = spanNs > 0 ? ns / spanNs : 0;
  if (mean < 1.01) return time(ns);
  const whole = Math.round(mean);
  const isWhole = Math.abs(mean - whole) < Math.min(0.05, 0.005 * mean);
  return isWhole ? `${several(whole, "thread")} × ${time(spanNs)}` : `${mean < 100 ? mean.toFixed(1) : count(whole)} threads × ${time(spanNs)}, on average`;
}

// A time to the nanosecond.
export function exactTime(ns) {
  return `${counts.format(ns)} ns`;
}

export function percent(value) {
  if (!(value > 0)) return "0 %";
  if (value < 0.05) return "<0.1 %";
  if (value >= 100) return "100 %";
  return value >= 99.95 ? ">99.9 %" : `${value.toFixed(1)} %`;
}

// A difference of percentages in percentage points, as "+3.2", or without the sign as "3.2 points".
export function points(value, signed = true) {
  const size = Math.abs(value);
  const text = size > 0 && size < 0.05 ? "<0.1" : size.toFixed(1);
  if (!signed) return `${text} ${text === "1.0" ? "point" : "points"}`;
  return size === 0 ? "0" : `${value < 0 ? "−" : "+"}${text}`;
}

// A part of a whole in percent; 0 of nothing.
export function share(part, whole) {
  return whole > 0 ? (100 * part) / whole : 0;
}

export function bytes(size) {
  const mib = size / (1 << 20);
  if (size === 0) return "0";
  return mib >= 1 ? `${three(mib)} MiB` : `${three(size / 1024)} KiB`;
}

// "1 stack", "2 stacks".
export function several(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}

// A time of the daemon (RFC 3339) as a clock reads here; with the day where it is not today.
export function clock(stamp) {
  const at = new Date(stamp);
  if (Number.isNaN(at.getTime())) return "never";
  const today = at.toDateString() === new Date().toDateString();
  const hours = at.toLocaleTimeString("en-GB");
  return today ? hours : `${at.toLocaleDateString("en-CA")} ${hours}`;
}

// The value at a dotted name of a row: "elapsed.exclusive_ns".
export function at(row, path) {
  return path.split(".").reduce((value, part) => value?.[part], row);
}
