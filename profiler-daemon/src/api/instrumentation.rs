//! What a request for an instrumentation sends, read strictly.

use serde::Deserialize;
use serde_json::json;

use super::change::{invalid_body, read_name};
use super::problem::{Problem, shown};
use crate::config::duration;
use crate::config::targets::Targets;
use crate::stages::choosing::{Exits, MAX_ITEMS};
use crate::stages::instrumenting::InstrumentationRequest;
use crate::stages::spanning::{Followed, NotFollowed};
use crate::symbols::chosen::{NotAPattern, Pattern};
use crate::symbols::spans::{NotTraceable, SpanText, UsdtText};

/// Patterns of functions of one request.
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
    #[serde(default)]
    functions: Vec<String>,
    #[serde(default)]
    usdt: Vec<String>,
    #[serde(default)]
    spans: Vec<SpanAsked>,
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
    #[serde(default = "yes")]
    callers: bool,
    #[serde(default, rename = "for")]
    length: Option<String>,
    #[serde(default)]
    budget_percent: Option<f64>,
    #[serde(default)]
    dry_run: bool,
}

/// A span as a request writes it.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "a span: {\"name\": \"request\", \"start\": \"app:begin\", \"end\": \"usdt:app:app:done\", \"key\": \"arg0\"}"
)]
struct SpanAsked {
    name: String,
    start: String,
    end: String,
    key: String,
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
    pub(crate) wanted: InstrumentationRequest,
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
        if self.functions.is_empty() && self.usdt.is_empty() && self.spans.is_empty() {
            return Err(invalid_body(
                "say what: \"functions\", as in [\"libpq.so*:PQexec*\"], \"usdt\", as in [\"python:gc__done,arg0\"], or \"spans\"",
            ));
        }
        let patterns = patterns(&self.functions)?;
        let followed = followed(&self.usdt, &self.spans)?;
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
            wanted: InstrumentationRequest {
                whom: self.whom()?,
                name: self.name,
                patterns,
                followed,
                callers: self.callers,
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
    if written.len() > MAX_PATTERNS {
        return Err(invalid_body(&format!(
            "functions: give at most {MAX_PATTERNS} patterns, as in [\"libpq.so*:PQexec*\"]"
        )));
    }
    let read = |text: &String| {
        short("functions", text)?;
        text.parse()
            .map_err(|wrong: NotAPattern| invalid_body(&format!("functions: {wrong}")))
    };
    written.iter().map(read).collect()
}

/// The USDT points and spans.
fn followed(usdt: &[String], spans: &[SpanAsked]) -> Result<Followed, Problem> {
    if usdt.len().max(spans.len()) > MAX_ITEMS {
        return Err(invalid_body(&format!(
            "usdt and spans: {}",
            NotFollowed::TooMany
        )));
    }
    let point = |text: &String| {
        short("usdt", text)?;
        text.parse()
            .map_err(|wrong: NotTraceable| invalid_body(&format!("usdt: {wrong}")))
    };
    let span = |span: &SpanAsked| {
        short("spans", &span.start)?;
        short("spans", &span.end)?;
        SpanText::of_parts(&span.name, &span.start, &span.end, &span.key)
            .map_err(|wrong| invalid_body(&format!("spans: {wrong}")))
    };
    let usdt = usdt
        .iter()
        .map(point)
        .collect::<Result<Vec<UsdtText>, _>>()?;
    let spans = spans
        .iter()
        .map(span)
        .collect::<Result<Vec<SpanText>, _>>()?;
    Followed::new(usdt, spans).map_err(|why| invalid_body(&format!("spans: {why}")))
}

/// Refuses a text that is too long to be a pattern.
fn short(field: &str, text: &str) -> Result<(), Problem> {
    if text.len() <= MAX_PATTERN_BYTES {
        return Ok(());
    }
    Err(invalid_body(&format!(
        "{field}: {:?} is longer than {MAX_PATTERN_BYTES} bytes; * stands for any text",
        shown(text)
    )))
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
            (r#"{"functions":[],"pids":[1]}"#, "say what"),
            (r#"{"usdt":[],"spans":[],"pids":[1]}"#, "say what"),
            (
                r#"{"usdt":["a"],"pids":[1]}"#,
                "usdt: \"a\" names no USDT point",
            ),
            (
                r#"{"usdt":["a:b,arg6"],"pids":[1]}"#,
                "usdt: \"arg6\" is none of tid",
            ),
            (r#"{"usdt":"a:b","pids":[1]}"#, "expected a sequence"),
            (
                r#"{"spans":["a=b:c,d:e,tid"],"pids":[1]}"#,
                "expected a span: {\"name\"",
            ),
            (
                r#"{"spans":[{"name":"a","start":"b:c","end":"d:e"}],"pids":[1]}"#,
                "missing field `key`",
            ),
            (
                r#"{"spans":[{"name":"a","start":"b:c","end":"d:e","key":"arg"}],"pids":[1]}"#,
                "spans: \"arg\" is none of tid",
            ),
            (
                r#"{"spans":[{"name":"","start":"b:c","end":"d:e","key":"tid"}],"pids":[1]}"#,
                "spans: \"\" is no name of a span",
            ),
            (
                r#"{"spans":[{"name":"a","start":"b","end":"d:e","key":"tid"}],"pids":[1]}"#,
                "spans: \"b\" names no function",
            ),
            (
                r#"{"spans":[{"name":"a","start":"b:c","end":"d:e","key":"tid","of":1}],"pids":[1]}"#,
                "unknown field `of`",
            ),
            (
                r#"{"spans":[{"name":"a","start":"b:c","end":"d:e","key":"tid"},{"name":"a","start":"b:c","end":"d:e","key":"arg0"}],"pids":[1]}"#,
                "spans: two spans are called a",
            ),
            (
                r#"{"usdt":["a:b"],"pids":[1],"callers":1}"#,
                "expected a boolean",
            ),
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
        let point = "b".repeat(512);
        let long = format!(r#"{{"usdt":["a:{point}"],"pids":[1]}}"#);
        assert!(meant(&long).err().unwrap().contains("usdt: "));
        let many = vec!["\"a:b\""; 257].join(",");
        let many = meant(&format!(r#"{{"usdt":[{many}],"pids":[1]}}"#));
        let many = many.err().unwrap();
        assert!(
            many.contains("usdt and spans: at most 256 of each"),
            "{many}"
        );
    }

    // Check that USDT points and spans may be asked for without functions, that everything may be
    // asked for at once, and that callers are told unless that is not wanted.
    #[test]
    fn points_and_spans_are_asked_for() {
        let points = meant(r#"{"usdt":["a:b,arg1","m:a:c"],"pids":[1]}"#);
        let points = points.ok().unwrap().wanted;
        assert!(points.patterns.is_empty() && points.callers);
        assert!(!points.followed.is_empty());
        let spans =
            r#"{"spans":[{"name":"a=b","start":"b:c","end":"usdt:d:e","key":"arg0"}],"pids":[1]}"#;
        assert!(!meant(spans).ok().unwrap().wanted.followed.is_empty());
        let all = r#"{"functions":["a:b"],"usdt":["a:b"],"spans":[{"name":"a","start":"b:c","end":"b:d","key":"tid"}],"callers":false,"pids":[1]}"#;
        let all = meant(all).ok().unwrap().wanted;
        assert!(all.patterns.len() == 1 && !all.callers);
    }
}
