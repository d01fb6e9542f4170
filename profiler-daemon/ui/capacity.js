// What the processors could have done in the time that an answer covers.

// {spanNs, processors, ns} of an answer's window. `processors` and `ns`, the time of all processors together, are null where their
// number is not known.
export function capacityOf(window) {
  const spanNs = window.duration_ns ?? (Date.parse(window.to) - Date.parse(window.from)) * 1e6;
  const processors = window.processors || null;
  return { spanNs, processors, ns: processors && spanNs > 0 ? processors * spanNs : null };
}
