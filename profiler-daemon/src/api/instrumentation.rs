//! What a request for an instrumentation sends, read strictly.

use serde::Deserialize;
use serde_json::json;

use super::change::{invalid_body, read_name};
use super::problem::{Problem, shown};
use crate::config::duration;
use crate::config::targets::Targets;
use crate::stages::choosing::Exits;
use crate::stages::instrumenting::Wanted;
use crate::symbols::chosen::{NotAPattern, Pattern};

/// Patterns of one request.
pub(crate) const MAX_PATTERNS: usize = 64;
/// The longest pattern, bytes.
pub(crate) const MAX_PATTERN_BYTES: usize = 512;
/// How long an instrumentation runs unless said otherwise, at least, and at most, nanoseconds.
const LENGTH_NS: u64 = 60_000_000_000;
const MIN_LENGTH_NS: u64 = 1_000_000_000;
const MAX_LENGTH_NS: u64 = 3_600_000_000_000;
/// What probes may take of one processor from a process unless said otherwise, at least, and at
/// most, percent.
const BUDGET_PERCENT: f64 = 5.0;
pub(crate) const MIN_BUDGET_PERCENT: f64 = 0.1;
pub(crate) const MAX_BUDGET_PERCENT: f64 = 100.0;

/// An instrumentation as a request writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InstrumentationAsked {
    #[serde(default)]
    name: String,
    functions: Vec<String>,
    #[serde(default)]
    pids: Vec<u32>,
    #[serde(default)]
    comms: Vec<String>,
    #[serde(default)]
    cgroups: Vec<String>,
    #[serde(default = "yes")]
    children: bool,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    exits: ExitsAsked,
    #[serde(default, rename = "for")]
    length: Option<String>,
    #[serde(default)]
    budget_percent: Option<f64>,
    #[serde(default)]
    dry_run: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExitsAsked {
    #[default]
    Auto,
    Sites,
    Trampolines,
    None,
}

/// What is asked for, and whether it is only looked at.
pub(crate) struct InstrumentationMeant {
    pub(crate) wanted: Wanted,
    pub(crate) dry_run: bool,
}

impl InstrumentationAsked {
    /// What it means.
    ///
    /// # Errors
    /// What is not allowed, and what is.
    pub(crate) fn meant(self) -> Result<InstrumentationMeant, Problem> {
        if !self.name.is_empty() {
            read_name("name", &self.name)?;
        }
        let patterns = patterns(&self.functions)?;
        let exits = match self.exits {
            ExitsAsked::Auto | ExitsAsked::Sites => Exits::Sites,
            ExitsAsked::None => Exits::None,
            ExitsAsked::Trampolines => {
                return Err(invalid_body(
                    "exits: trampolines replace return addresses, which ends programs with exceptions, panics or growing stacks; \
                     use \"sites\" (the function's own returns), or \"none\" to count calls",
                ));
            }
        };
        let length_ns = match &self.length {
            None => LENGTH_NS,
            Some(text) => duration::parse(text)
                .ok()
                .filter(|ns| (MIN_LENGTH_NS..=MAX_LENGTH_NS).contains(ns))
                .ok_or_else(|| {
                    invalid_body(&format!(
                        "for: {:?} must be a time from 1s to 1h, as in \"60s\": probes are never left for longer",
                        shown(text)
                    ))
                })?,
        };
        let budget_percent = self.budget_percent.unwrap_or(BUDGET_PERCENT);
        if !(MIN_BUDGET_PERCENT..=MAX_BUDGET_PERCENT).contains(&budget_percent) {
            return Err(invalid_body(&format!(
                "budget_percent: must be from {MIN_BUDGET_PERCENT} to {MAX_BUDGET_PERCENT}: the part of one processor that probes may take from a process"
            )));
        }
        Ok(InstrumentationMeant {
            dry_run: self.dry_run,
            wanted: Wanted {
                whom: self.whom()?,
                name: self.name,
                patterns,
                exits,
                length_ns,
                budget: budget_percent / 100.0,
            },
        })
    }

    fn whom(&self) -> Result<Targets, Problem> {
        let names_any = !(self.pids.is_empty() && self.comms.is_empty() && self.cgroups.is_empty());
        match (self.all, names_any) {
            (false, false) => Err(invalid_body(
                "say of whom: \"pids\", \"comms\" or \"cgroups\"; or \"all\": true, which puts breakpoints into every process that maps the file",
            )),
            (true, true) => Err(invalid_body(
                "\"all\" means every process: name no pids, comms or cgroups beside it",
            )),
            _ => {
                let whom = json!({
                    "all": self.all,
                    "pids": self.pids,
                    "comms": self.comms,
                    "cgroups": self.cgroups,
                    "children": self.children && !self.all,
                });
                serde_json::from_value(whom).map_err(|error| invalid_body(&error.to_string()))
            }
        }
    }
}

fn patterns(written: &[String]) -> Result<Vec<Pattern>, Problem> {
    if written.is_empty() || written.len() > MAX_PATTERNS {
        return Err(invalid_body(&format!(
            "functions: give 1 to {MAX_PATTERNS} patterns, as in [\"libpq.so*:PQexec*\"]"
        )));
    }
    let read = |text: &String| {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(invalid_body(&format!(
                "functions: {:?} is longer than {MAX_PATTERN_BYTES} bytes; * stands for any text",
                shown(text)
            )));
        }
        text.parse()
            .map_err(|wrong: NotAPattern| invalid_body(&format!("functions: {wrong}")))
    };
    written.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::change::checked_object;

    fn meant(body: &str) -> Result<InstrumentationMeant, String> {
        let asked = checked_object::<InstrumentationAsked>(body.as_bytes(), "{}");
        asked
            .and_then(InstrumentationAsked::meant)
            .map_err(|problem| problem.to_string())
    }

    // Check that defaults are those of the documentation, and that each refusal says what instead.
    #[test]
    fn what_is_asked_for() {
        let all = meant(r#"{"functions":["a:b"],"all":true}"#).ok().unwrap();
        assert!(all.wanted.whom.all && !all.wanted.whom.children && !all.dry_run);
        assert_eq!(all.wanted.length_ns, LENGTH_NS);
        let one = r#"{"functions":["a:b"],"pids":[1],"for":"2s","budget_percent":1,"exits":"none","dry_run":true}"#;
        let one = meant(one).ok().unwrap();
        assert!(one.wanted.whom.children && one.dry_run);
        assert_eq!(one.wanted.length_ns, 2_000_000_000);
        assert_eq!(one.wanted.exits, Exits::None);
        for (body, instead) in [
            (r#"{"functions":["a:b"]}"#, "say of whom"),
            (
                r#"{"functions":["a:b"],"all":true,"pids":[1]}"#,
                "name no pids",
            ),
            (r#"{"functions":[],"pids":[1]}"#, "give 1 to 64"),
            (r#"{"functions":["a"],"pids":[1]}"#, "give MODULE:FUNCTION"),
            (r#"{"functions":["a:b"],"pids":[0]}"#, "from 1 to"),
            (
                r#"{"functions":["a:b"],"pids":[1],"for":"2h"}"#,
                "from 1s to 1h",
            ),
            (
                r#"{"functions":["a:b"],"pids":[1],"budget_percent":0}"#,
                "from 0.1 to 100",
            ),
            (
                r#"{"functions":["a:b"],"pids":[1],"exits":"trampolines"}"#,
                "use \"sites\"",
            ),
            (r#"{"functions":["a:b"],"pids":[1],"name":"-"}"#, "name"),
            (r#"{"functions":["a:b"],"pid":[1]}"#, "unknown field"),
        ] {
            let refused = meant(body).err().unwrap();
            assert!(refused.contains(instead), "{body}: {refused}");
        }
        let long = format!(r#"{{"functions":["a:{}"],"pids":[1]}}"#, "b".repeat(512));
        assert!(meant(&long).err().unwrap().contains("longer than 512"));
    }
}
