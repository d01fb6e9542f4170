//! The formats that answers come in, each declared once: what it is called, what it is sent as, and
//! who writes it. Which of them an answer has is the question's to say.

use std::io;

use crate::export::{firefox, flamegraph, folded, speedscope};
use crate::report::{StackValue, Stacks};

/// A format that answers come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For speedscope.
    Speedscope,
    /// For the Firefox Profiler.
    Firefox,
    /// For programs.
    Json,
    /// For pprof, compressed.
    Pprof,
    /// A flame graph.
    Svg,
    /// A line per stack.
    Folded,
    /// For spreadsheets.
    Csv,
    /// Aligned columns for people.
    Text,
    /// Everything, for `--replay`.
    Profile,
    /// The JSON again and again, as server-sent events.
    Events,
}

/// Writes one value of stacks.
type WriteStacks = fn(&Stacks, StackValue, &mut Vec<u8>) -> io::Result<()>;

/// All that is known of a format.
struct Declared {
    name: &'static str,
    content_type: &'static str,
    /// The media type by which a client that accepts it chooses it, and the group of that; none where only its name does.
    accepted_as: Option<(&'static str, &'static str)>,
    /// The name of the file that a client is to save it as.
    download: Option<&'static str>,
    /// Who writes it, where it holds one value of stacks and not all about them.
    write_stacks: Option<WriteStacks>,
}

/// What most formats have not.
const PLAIN: Declared = Declared {
    name: "",
    content_type: "application/octet-stream",
    accepted_as: None,
    download: None,
    write_stacks: None,
};

impl Format {
    const fn declared(self) -> &'static Declared {
        match self {
            Self::Speedscope => &Declared {
                name: "speedscope",
                content_type: "application/json",
                write_stacks: Some(speedscope::write),
                ..PLAIN
            },
            Self::Firefox => &Declared {
                name: "firefox",
                content_type: "application/json",
                write_stacks: Some(firefox::write),
                ..PLAIN
            },
            Self::Json => &Declared {
                name: "json",
                content_type: "application/json",
                accepted_as: Some(("application/json", "application/*")),
                ..PLAIN
            },
            Self::Pprof => &Declared {
                name: "pprof",
                download: Some("profile.pb.gz"),
                ..PLAIN
            },
            Self::Svg => &Declared {
                name: "svg",
                content_type: "image/svg+xml",
                accepted_as: Some(("image/svg+xml", "image/*")),
                write_stacks: Some(flamegraph::write),
                ..PLAIN
            },
            Self::Folded => &Declared {
                name: "folded",
                content_type: "text/plain; charset=utf-8",
                write_stacks: Some(folded::write),
                ..PLAIN
            },
            Self::Csv => &Declared {
                name: "csv",
                content_type: "text/csv; charset=utf-8; header=present",
                accepted_as: Some(("text/csv", "text/*")),
                ..PLAIN
            },
            Self::Text => &Declared {
                name: "text",
                content_type: "text/plain; charset=utf-8",
                accepted_as: Some(("text/plain", "text/*")),
                ..PLAIN
            },
            Self::Profile => &Declared {
                name: "profile",
                download: Some("recorded.profile"),
                ..PLAIN
            },
            Self::Events => &Declared {
                name: "events",
                content_type: "text/event-stream",
                // Who takes any text does not expect one that never ends.
                accepted_as: Some(("text/event-stream", "text/event-stream")),
                ..PLAIN
            },
        }
    }

    /// What it is called, as in `format=` and `--format`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.declared().name
    }

    /// What it is sent as.
    pub(crate) const fn content_type(self) -> &'static str {
        self.declared().content_type
    }

    /// What it is sent as, without parameters.
    pub(crate) fn media_type(self) -> &'static str {
        let content_type = self.content_type();
        content_type
            .split_once(';')
            .map_or(content_type, |(media, _)| media)
    }

    /// The media type that chooses it, and the group of it; none where only its name does.
    pub(crate) const fn accepted_as(self) -> Option<(&'static str, &'static str)> {
        self.declared().accepted_as
    }

    /// The name of the file that a client is to save it as, where it is nothing to look at.
    pub(crate) const fn download(self) -> Option<&'static str> {
        self.declared().download
    }

    /// Whether it holds one value of stacks, and not all about them.
    pub(crate) const fn is_of_stacks(self) -> bool {
        self.declared().write_stacks.is_some()
    }

    /// Writes one value of stacks.
    ///
    /// # Errors
    /// It is no format of stacks, or they are too many to be written.
    pub(crate) fn write_stacks(
        self,
        stacks: &Stacks,
        value: StackValue,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        match self.declared().write_stacks {
            Some(write) => write(stacks, value, out),
            None => Err(io::Error::other(format!(
                "{} is no format of stacks",
                self.name()
            ))),
        }
    }
}
