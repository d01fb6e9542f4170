// The six values of a function, a module or a thread as columns of a table.

import { at, count, exactTime, percent, time } from "./format.js";
import { numberColumn } from "./table.js";

const GROUPS = [
  ["elapsed", "Elapsed", "All time, on and off the processor", "_ns"],
  ["application", "Application", "Only time that ran in user mode, outside any system call", "_ns"],
  ["samples", "Samples", "Timer ticks that found it", ""],
];
const KINDS = [
  ["exclusive", "in which it was the innermost function itself"],
  ["inclusive", "in which it was anywhere on the stack; recursion counts once"],
];

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
          return {
            text: unit ? time(number) : count(number),
            title: `${unit ? exactTime(number) : count(number)} (${of}${percent(ofSession)} of the session)`,
            share: part,
            shareText: number > 0 ? percent(part) : "",
          };
        },
      ));
    }
  }
  return columns;
}
