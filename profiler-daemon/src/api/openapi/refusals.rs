//! What each status code that is no answer means, and where it may come.

/// A status code that is no answer: the code, its name in the document, and what it means.
pub(super) struct Refusal(
    pub(super) u16,
    pub(super) &'static str,
    pub(super) &'static str,
);

/// Whatever is asked.
pub(super) const OF_ALL: &[Refusal] = &[
    Refusal(
        400,
        "BadRequest",
        "A parameter, the path or the Host header is wrong; `errors` says which and what is allowed.",
    ),
    Refusal(
        403,
        "CrossSite",
        "A page of another site made the browser ask (header Sec-Fetch-Site), or the configuration does not allow it (`detail` says which setting).",
    ),
    Refusal(414, "AddressTooLong", "Path and query are too long."),
    Refusal(
        421,
        "UnknownHost",
        "The Host header names no host that the server answers for.",
    ),
    Refusal(
        431,
        "HeadersTooLarge",
        "The headers are too many or too long.",
    ),
    Refusal(
        500,
        "InternalError",
        "The answer could not be made; the daemon's log says why.",
    ),
    Refusal(
        503,
        "Unavailable",
        "Not now: the server has too much to do, stops, or has read nothing yet. Retry-After says when to ask again.",
    ),
];
/// Where there are several formats.
pub(super) const OF_FORMATS: &[Refusal] = &[Refusal(
    406,
    "NotAcceptable",
    "There is no format that the Accept header allows.",
)];
/// Where a process is named.
pub(super) const OF_PROCESSES: &[Refusal] = &[
    Refusal(404, "UnknownProcess", "There is no such process."),
    Refusal(
        410,
        "DroppedProcess",
        "The process was dropped for want of room.",
    ),
];
/// Where an image is named.
pub(super) const OF_IMAGES: &[Refusal] = &[Refusal(
    404,
    "UnknownImage",
    "No processes of that image have ended and left the list.",
)];
/// Where an instrumentation is named.
pub(super) const OF_INSTRUMENTATIONS: &[Refusal] = &[Refusal(
    404,
    "UnknownInstrumentation",
    "There is no such instrumentation.",
)];
/// Where a named session is named.
pub(super) const OF_SESSIONS: &[Refusal] = &[
    Refusal(404, "UnknownSession", "There is no such session or span."),
    Refusal(
        410,
        "DroppedSession",
        "The session was given up for want of room.",
    ),
];
/// Where both are.
pub(super) const OF_BOTH: &[Refusal] = &[
    Refusal(404, "Unknown", "There is no such process, session or span."),
    Refusal(
        410,
        "Dropped",
        "The process was dropped, or the session given up, for want of room.",
    ),
];
/// Where something is changed.
pub(super) const OF_CHANGES: &[Refusal] = &[Refusal(
    409,
    "Refused",
    "What is asked for cannot be done; nothing was changed.",
)];
/// Where a body is sent.
pub(super) const OF_BODIES: &[Refusal] = &[
    Refusal(408, "BodyTimeout", "The body did not arrive in time."),
    Refusal(413, "BodyTooLarge", "The body is too large."),
    Refusal(415, "UnsupportedMediaType", "The body is not JSON."),
];

/// All of them.
pub(super) const ALL: &[&[Refusal]] = &[
    OF_ALL,
    OF_FORMATS,
    OF_PROCESSES,
    OF_INSTRUMENTATIONS,
    OF_SESSIONS,
    OF_BOTH,
    OF_CHANGES,
    OF_BODIES,
];
