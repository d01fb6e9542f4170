// The six values of a function, a module or a thread as columns of a table.

import { at, count, exactTime, percent, time } from "./format.js";
import { numberColumn } from "./table.js";

const GROUPS = [
  ["elapsed", "Elapsed", "All time, on and off the processor", "_ns"],
  ["application", "Application", "Only time that ran in user mode, without any operating-system event", "_ns"],
  ["samples", "Samples", "Timer ticks that found it", ""],
];
const KINDS = [
  ["exclusive", "in which it was the innermost function itself"],
  ["inclusive", "in which it was anywhere on the stack; recursion counts once"],
];

// Where the true value is, at 95 %, as shares for the whisker and in words; nothing for what is measured.
function interval(row, group, kind, unit, number, part) {
  const ends = unit === ""
    ? ["low", "high"].map((end) => at(row, `${group}.${kind}_percent_of_process_${end}`) ?? at(row, `${group}.${kind}_percent_${end}`))
    : ["low", "high"].map((end) => at(row, `${group}.${kind}_${end}_ns`));
  if (ends.includes(undefined)) return { told: "" };
  if (unit === "") return { low: ends[0], high: ends[1], told: `\n95 % interval: ${percent(ends[0])} to ${percent(ends[1])}` };
  const [low, high] = ends.map((ns) => (number > 0 ? (part * ns) / number : 0));
  const few = row.few_marks ? "; it rests on fewer than three marks" : "";
  return { low, high, told: `\n95 % interval: ${time(ends[0])} to ${time(ends[1])}${few}` };
}

// The columns; `kinds` limits them, as for threads, whose inclusive values are their exclusive ones.
export function valueColumns(kinds = ["exclusive", "inclusive"]) {
  const columns = [];
  for (const [group, label, about, unit] of GROUPS) {
    for (const [kind, meaning] of KINDS.filter(([name]) => kinds.includes(name))) {
      const single = kinds.length === 1;
      columns.push(numberColumn(
        {
          id: `${group}.${kind}${unit}`,
          label: single ? label : kind,
          group: single ? undefined : label,
          groupTitle: about,
          title: single ? about : `${about}, ${meaning}`,
          shares: true,
        },
        (row) => {
          const number = at(row, `${group}.${kind}${unit}`);
          const ofProcess = at(row, `${group}.${kind}_percent_of_process`);
          const ofSession = at(row, `${group}.${kind}_percent`);
          const part = ofProcess ?? ofSession;
          const of = ofProcess === undefined ? "" : `${percent(ofProcess)} of the process, `;
          const { low, high, told } = interval(row, group, kind, unit, number, part);
          return {
            text: unit ? time(number) : count(number),
            title: `${unit ? exactTime(number) : count(number)} (${of}${percent(ofSession)} of the session)${told}`,
            share: part,
            low,
            high,
            shareText: number > 0 ? percent(part) : "",
          };
        },
      ));
    }
  }
  return columns;
}
