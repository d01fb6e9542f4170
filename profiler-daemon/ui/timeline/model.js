// The times of a timeline as shares of what can be drawn. Pure.
//
// A stretch is a piece of time that the daemon kept; a row has its time by class in each stretch, or nothing where it was not there.

// The order of a row's numbers in each stretch, as the daemon has it.
export const ORDER = ["user_ns", "syscall_ns", "blocked_ns", "runnable_ns", "kernel_ns"];

// The classes of a row in one stretch; null where it was not there.
export function classesIn(row, index) {
  const numbers = row.spans[index];
  return numbers ? Object.fromEntries(ORDER.map((key, at) => [key, numbers[at]])) : null;
}

function working(numbers) {
  return numbers[0] + numbers[1] + numbers[3] + numbers[4];
}

// A timeline ready to be drawn. `alone`: each row is one thread, whose time fills a stretch; else rows are as high as they worked or
// waited for a processor, and `tallest` says how many processors the highest would fill.
export function model(answer, alone) {
  const stretches = answer.spans.map(({ from_at, to_at, duration_ns }) => ({ from: from_at, to: to_at, fromMs: Date.parse(from_at), toMs: Date.parse(to_at), ns: duration_ns }));
  let tallest = 1;
  if (!alone) {
    tallest = 0;
    for (const { spans } of answer.rows) spans.forEach((numbers, index) => { if (numbers && stretches[index].ns > 0) tallest = Math.max(tallest, working(numbers) / stretches[index].ns); });
  }
  return { stretches, rows: answer.rows, alone, tallest: tallest || 1, fromMs: stretches[0]?.fromMs ?? 0, toMs: stretches.at(-1)?.toMs ?? 0 };
}

// The parts of a row in one stretch, from the bottom up, as shares of the height: [class key, share].
export function parts(made, row, index, keys) {
  const classes = classesIn(row, index);
  const whole = made.stretches[index].ns * made.tallest;
  if (!classes || !(whole > 0)) return [];
  return keys.filter((key) => (made.alone || key !== "blocked_ns") && classes[key] > 0).map((key) => [key, Math.min(1, classes[key] / whole)]);
}

// The stretches that a span of times touches: the first and the last; null where it touches none.
export function touched(made, fromMs, toMs) {
  let range = null;
  made.stretches.forEach((stretch, index) => {
    if (stretch.toMs <= fromMs || stretch.fromMs >= toMs) return;
    range = range ? [range[0], index] : [index, index];
  });
  return range;
}

// The stretch at a time; the nearest where it lies outside.
export function stretchAt(made, ms) {
  const found = made.stretches.findIndex((stretch) => ms < stretch.toMs);
  return found < 0 ? made.stretches.length - 1 : found;
}

// Round times to be written beside the strips, at most `most` of them.
export function ticks(made, most) {
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].map((s) => s * 1000);
  const length = made.toMs - made.fromMs;
  const step = steps.find((each) => length / each <= most) ?? steps.at(-1);
  const found = [];
  for (let at = Math.ceil(made.fromMs / step) * step; at <= made.toMs && found.length <= most; at += step) found.push(at);
  return found;
}
