// What the daemon last said of itself, for views that ask for something else.

let status = null;

export function learn(fresh) {
  status = fresh;
}

// Whether it is a profile that was saved: nothing of it can be changed.
export function isReplay() {
  return Boolean(status?.replay);
}

// Whose system calls are traced: "auto", "all", "targets" or "off"; undefined while the daemon has
// not said.
export function traced() {
  return status?.settings?.system_calls;
}
