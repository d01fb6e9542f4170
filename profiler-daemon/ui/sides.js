// Which two sides an address compares. Both are processes, or both are spans of the session that end now.

const DEFAULTS = { base: "session", other: "30s" };

export const isProcess = (side) => /^\d+(\.\d+)?$/.test(side);

// What stands on a side until it is chosen, where the opposite one is this: of processes nothing does.
export function otherOfKind(opposite, name) {
  return isProcess(opposite) ? "" : DEFAULTS[name];
}

// The two sides; `other` is "" where a process waits for a second one.
export function sidesOf(params) {
  const base = params.base || DEFAULTS.base;
  const other = params.other || "";
  return { base, other: other !== "" && isProcess(base) === isProcess(other) ? other : otherOfKind(base, "other") };
}

// Whether the shown part of the session matters: of two spans each is its own.
export function takesSpan(params) {
  return isProcess(sidesOf(params).base);
}
