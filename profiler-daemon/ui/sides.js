// Which two sides an address compares. Both are processes, or both are parts of the session: a length of time that ends now, two
// times as FROM..TO, or a named session or a span of one, as NAME/SPAN. Of parts, who is compared: all processes, one, or those of one
// name.

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

// How a call tree of a part of the session is asked for.
export function partOf(side) {
  if (side === "session") return { window: side };
  if (side.includes("..")) {
    const [from, to] = side.split("..");
    return { from, to };
  }
  if (/^\d/.test(side)) return { window: side };
  const [session, span] = side.split("/");
  return { session, span };
}

// Whose parts are compared, as a comparison is asked for it: {pid}, {comm} or, all, {}.
export function whoOf(params) {
  if (isProcess(sidesOf(params).base)) return {};
  if (params.pid) return { pid: params.pid };
  return params.comm ? { comm: params.comm } : {};
}

// Whether the shown part of the session matters: of two spans each is its own.
export function takesSpan(params) {
  return isProcess(sidesOf(params).base);
}
