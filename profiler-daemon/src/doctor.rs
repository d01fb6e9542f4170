//! What this kernel and these privileges allow, and how to mend what is missing.
//!
//! Two halves: `facts` reads what the machine says, `checks` decides what it means and never
//! touches the machine. The doctor attaches nothing and changes nothing.

mod checks;
mod facts;

use std::fmt::Write as _;

use serde::Serialize;

pub use checks::examine;
pub use facts::MachineFacts;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As it should be.
    Ok,
    /// The daemon works, with less.
    Limited,
    /// The daemon cannot work.
    Missing,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A short stable name.
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// What was found, and what it costs where it is not as it should be.
    pub found: String,
    /// What to do, where something is to be done.
    pub fix: Option<String>,
}

/// Everything that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Whether nothing that the daemon needs is missing.
    pub usable: bool,
    /// The checks, the most basic first.
    pub checks: Vec<Check>,
}

impl Diagnosis {
    /// The process's exit code: 0 when the daemon can work here, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        u8::from(!self.usable)
    }

    /// A line per check, with a line below each that needs mending.
    #[must_use]
    pub fn to_text(&self) -> String {
        let width = self
            .checks
            .iter()
            .map(|check| check.name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            let mark = match check.outcome {
                Outcome::Ok => "ok     ",
                Outcome::Limited => "limited",
                Outcome::Missing => "MISSING",
            };
            writeln!(text, "{mark}  {:width$}  {}", check.name, check.found)
                .expect("a string takes all text");
            if let Some(fix) = &check.fix {
                writeln!(text, "         {:width$}  fix: {fix}", "")
                    .expect("a string takes all text");
            }
        }
        let verdict = if !self.usable {
            "The daemon cannot work here until what is MISSING is mended."
        } else if self
            .checks
            .iter()
            .any(|check| check.outcome == Outcome::Limited)
        {
            "The daemon works here; what is limited makes its reports poorer."
        } else {
            "Everything the daemon needs is here."
        };
        writeln!(text, "{verdict}").expect("a string takes all text");
        text
    }

    /// The same as JSON, indented.
    ///
    /// # Errors
    ///
    /// None that is known: the structure holds only text and truth values.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

/// Looks at this machine.
#[must_use]
pub fn diagnose() -> Diagnosis {
    examine(&MachineFacts::gather())
}

#[cfg(test)]
mod tests;
