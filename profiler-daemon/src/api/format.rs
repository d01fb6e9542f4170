//! The formats that answers come in, each declared once: what it is called, what it is sent as, how
//! files of it end, and who writes it. Which of them an answer has is the question's to say.

use std::io::{self, Write};

use crate::export::saved::ENDING;
use crate::export::{firefox, flamegraph, folded, speedscope};
use crate::report::{StackTree, StackValue};

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
type WriteStacks = fn(&StackTree, StackValue, &mut dyn Write) -> io::Result<()>;

/// All that is known of a format.
struct FormatDeclaration {
    name: &'static str,
    content_type: &'static str,
    /// The media type by which a client that accepts it chooses it, and the group of that; none
    /// where only its name does.
    accepted_as: Option<(&'static str, &'static str)>,
    /// How names of files end that hold it.
    endings: &'static [&'static str],
    /// The name of the file that a client is to save it as.
    download: Option<&'static str>,
    /// Who writes it, where it holds one value of stacks and not all about them.
    write_stacks: Option<WriteStacks>,
}

/// How a client accepts what is sent as bytes of no type of their own.
const BYTES: Option<(&str, &str)> = Some(("application/octet-stream", "application/*"));

/// What most formats have not.
const PLAIN: FormatDeclaration = FormatDeclaration {
    name: "",
    content_type: "application/octet-stream",
    accepted_as: None,
    endings: &[],
    download: None,
    write_stacks: None,
};

impl Format {
    /// All of them, in the order in which endings of files are listed.
    pub const ALL: [Self; 10] = [
        Self::Speedscope,
        Self::Firefox,
        Self::Json,
        Self::Pprof,
        Self::Svg,
        Self::Folded,
        Self::Csv,
        Self::Text,
        Self::Profile,
        Self::Events,
    ];

    const fn declared(self) -> &'static FormatDeclaration {
        match self {
            Self::Speedscope => &FormatDeclaration {
                name: "speedscope",
                content_type: "application/json",
                endings: &[".speedscope.json"],
                write_stacks: Some(|stacks, value, mut out| {
                    speedscope::write(stacks, value, &mut out)
                }),
                ..PLAIN
            },
            Self::Firefox => &FormatDeclaration {
                name: "firefox",
                content_type: "application/json",
                endings: &[".firefox.json"],
                write_stacks: Some(|stacks, value, mut out| {
                    firefox::write(stacks, value, &mut out)
                }),
                ..PLAIN
            },
            Self::Json => &FormatDeclaration {
                name: "json",
                content_type: "application/json",
                accepted_as: Some(("application/json", "application/*")),
                endings: &[".json"],
                ..PLAIN
            },
            Self::Pprof => &FormatDeclaration {
                name: "pprof",
                accepted_as: BYTES,
                endings: &[".pb.gz", ".pprof"],
                download: Some("profile.pb.gz"),
                ..PLAIN
            },
            Self::Svg => &FormatDeclaration {
                name: "svg",
                content_type: "image/svg+xml",
                accepted_as: Some(("image/svg+xml", "image/*")),
                endings: &[".svg"],
                write_stacks: Some(|stacks, value, mut out| {
                    flamegraph::write(stacks, value, &mut out)
                }),
                ..PLAIN
            },
            Self::Folded => &FormatDeclaration {
                name: "folded",
                content_type: "text/plain; charset=utf-8",
                endings: &[".folded"],
                write_stacks: Some(|stacks, value, mut out| folded::write(stacks, value, &mut out)),
                ..PLAIN
            },
            Self::Csv => &FormatDeclaration {
                name: "csv",
                content_type: "text/csv; charset=utf-8; header=present",
                accepted_as: Some(("text/csv", "text/*")),
                endings: &[".csv"],
                ..PLAIN
            },
            Self::Text => &FormatDeclaration {
                name: "text",
                content_type: "text/plain; charset=utf-8",
                accepted_as: Some(("text/plain", "text/*")),
                endings: &[".txt"],
                ..PLAIN
            },
            Self::Profile => &FormatDeclaration {
                name: "profile",
                accepted_as: BYTES,
                endings: &[ENDING],
                download: Some("recorded.profile"),
                ..PLAIN
            },
            Self::Events => &FormatDeclaration {
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

    /// Whether it is compressed, and nothing for a terminal.
    pub(crate) const fn is_binary(self) -> bool {
        self.declared().download.is_some()
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
        stacks: &StackTree,
        value: StackValue,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        match self.declared().write_stacks {
            Some(write) => write(stacks, value, out),
            None => Err(io::Error::other(format!(
                "{} is no format of stacks",
                self.name()
            ))),
        }
    }

    /// The format that the ending of a file's name asks for: of several that fit the longest.
    ///
    /// # Errors
    /// All endings there are, where it has none of them.
    pub(crate) fn of_file(name: &str) -> Result<Self, String> {
        let name = name.to_lowercase();
        let endings = || {
            let all = Self::ALL.into_iter();
            all.flat_map(|format| {
                format
                    .declared()
                    .endings
                    .iter()
                    .map(move |end| (*end, format))
            })
        };
        let found = endings().filter(|(ending, _)| name.ends_with(ending));
        let longest = found.max_by_key(|(ending, _)| ending.len());
        longest.map(|(_, format)| format).ok_or_else(|| {
            let all: Vec<&str> = endings().map(|(ending, _)| ending).collect();
            all.join(" ")
        })
    }
}
