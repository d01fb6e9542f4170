// Asking the daemon, and saying in a sentence what went wrong. Knows paths, not elements.

// How long an answer may take. The daemon gives up after 10 s unless it is told otherwise.
const PATIENCE_MS = 30_000;

// Answers that say nothing of the question: the daemon's, or those of a proxy before it.
const PASSING = [408, 429, 500, 502, 503, 504];

// The longest that an answer may put the next question off, in seconds.
const MOST_RETRY_S = 300;

// Something that went wrong. `kind`: "missing" (404), "gone" (410), "busy" (one of PASSING),
// "refused" (other answers), "away".
export class ApiError extends Error {
  constructor(kind, title, detail, retryAfterS = 0) {
    super(title);
    Object.assign(this, { kind, title, detail, retryAfterS });
  }

  // Whether asking again may help.
  get passing() {
    return this.kind === "busy" || this.kind === "away";
  }
}

// The address of a report: of a process ("42" or "42.7000") or of the session (null).
export function reportPath(process, report) {
  if (process === null) return `/api/v1/${report || "session"}`;
  // Ended processes that are one by image are called "image:ID" in addresses of the page.
  const image = process.startsWith("image:");
  const one = image ? `/api/v1/images/${encodeURIComponent(process.slice(6))}` : `/api/v1/processes/${encodeURIComponent(process)}`;
  return report ? `${one}/${report}` : one;
}

// A path with a query; parameters that are empty or undefined are left out.
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

// The answer to a question. Fails with an ApiError, or with an AbortError when `signal` is used.
export async function get(path, parameters, signal) {
  let response;
  try {
    response = await fetch(withQuery(path, parameters), {
      headers: { accept: "application/json" },
      signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
    });
    if (response.ok) return await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw away(error);
  }
  throw await refusal(response, " It is asked again by itself.");
}

// Asks once, to have something changed: `body` goes out as JSON. Answers what comes back, null
// where nothing does. Fails as `get` does, but nothing is asked again by itself.
export async function send(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_MS)]),
    });
    if (response.ok) return response.status === 204 ? null : await response.json();
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError("away", "The daemon does not answer", "Nothing may have been changed.");
  }
  throw await refusal(response, "");
}

// The sessions that somebody has named; the whole life of the daemon, which stands first, is none.
export async function namedSessions(signal) {
  const { sessions } = await get("/api/v1/sessions", {}, signal);
  return sessions.slice(1);
}

function away(error) {
  if (error.name === "TimeoutError") {
    return new ApiError("away", "The daemon does not answer", "It took longer than 30 seconds. It is asked again.");
  }
  return new ApiError("away", "The daemon cannot be reached", "It has stopped, or is starting again. It is asked again by itself.");
}

// `again` is said where the same question may have an answer later.
async function refusal(response, again) {
  const problem = (await response.json().catch(() => null)) ?? {};
  const detail = [problem.detail, ...(problem.errors ?? []).map((fault) => fault.detail)].filter(Boolean);
  const text = [...new Set(detail)].join("; ") || `the answer was ${response.status}`;
  const sentence = `${text[0].toUpperCase()}${text.slice(1).replace(/\.$/, "")}.`;
  if (PASSING.includes(response.status)) {
    // What is no number of seconds is as good as none.
    const afterS = Math.min(Number(response.headers.get("retry-after")) || 1, MOST_RETRY_S);
    const title = problem.title ?? "There is no answer now";
    return new ApiError("busy", title, `${sentence}${again}`, afterS);
  }
  switch (response.status) {
    case 404:
      return new ApiError("missing", problem.title ?? "It is not there", sentence);
    case 410:
      return new ApiError("gone", problem.title ?? "It is no longer kept", sentence);
    default:
      return new ApiError("refused", problem.title ?? "The daemon refused", sentence);
  }
}
