//! Instrumentations: which functions, USDT points and spans were chosen, how each is probed, and
//! what was measured.

use serde::Serialize;
use utoipa::ToSchema;

use super::followed::{FollowedPoint, FollowedSpan, followed};
use super::measured::{Measured, measured};
use super::times::rfc3339;
use crate::collect::{End, InstrumentationState, MeasuredFunction, PlannedPoint, Stage};
use crate::config::targets::Targets;
use crate::profile::frames::FrameId;
use crate::units::MonoNs;

/// All instrumentations that are kept.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Instrumentations {
    /// Each of them, in the order in which they began.
    pub instrumentations: Vec<Instrumentation>,
}

/// An instrumentation.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Instrumentation {
    /// Its number; null of one that was only looked at (`dry_run`).
    #[schema(required)]
    pub id: Option<u32>,
    /// Its name; empty where none was given.
    pub name: String,
    /// `waiting`: nothing that was chosen is mapped yet. `trial`: entries are counted, to see what
    /// measuring would cost. `measuring`. `ended`: everything is detached. `dry_run`: nothing was
    /// or will be attached.
    pub state: &'static str,
    /// Why it ended: `asked`, `time`, `no_process` (all that it named are gone) or `given_up` (all
    /// that it measures costs too much); null while it runs.
    #[schema(required)]
    pub ended: Option<&'static str>,
    /// When it began, RFC 3339.
    pub began_at: String,
    /// When it ended, or will; null where that was not said.
    #[schema(required)]
    pub until: Option<String>,
    /// Of whom functions are measured, of those that are profiled.
    pub of: Targets,
    /// Processes that are measured now; 0 where it is of all.
    pub processes: usize,
    /// What probes may take of one processor from a process, percent; 0 = any.
    pub budget_percent: f64,
    /// Points that are attached now.
    pub points: usize,
    /// The functions that were chosen, those that are refused included.
    pub functions: Vec<ChosenFunction>,
    /// The USDT points that were found.
    pub usdt: Vec<FollowedPoint>,
    /// The spans that were asked for.
    pub spans: Vec<FollowedSpan>,
    /// What was asked for and is in no file that is mapped yet, with the field that it stands in.
    pub missing: Vec<String>,
    /// Functions of which all, or some later, calls are not measured because that cost too much,
    /// and the same of USDT points and spans.
    pub given_up: usize,
    /// What went wrong last while new processes and files were followed; null: nothing.
    #[schema(required)]
    pub trouble: Option<String>,
    /// What was measured: a row for each function that is no longer tried, for each USDT point and
    /// for each span.
    pub measured: Measured,
}

/// A function that was chosen.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChosenFunction {
    /// Its name; of a file that is refused, what was meant of it, as it was written.
    pub function: String,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// The path of its file.
    pub module: String,
    /// Where it begins, a virtual address of the file, hexadecimal; null of what is refused.
    #[schema(required)]
    pub address: Option<String>,
    /// Where it is entered; null of what is refused.
    #[schema(required)]
    pub entry: Option<EntryPoint>,
    /// How its calls are seen to end.
    pub exits: ExitPoints,
    /// `measured`, `counted`, `trial`, `given_up` or `refused`.
    pub state: &'static str,
    /// Why it is not measured, or only counted, or not all of its calls; null: it is.
    #[schema(required)]
    pub why: Option<String>,
    /// What the probes of one call cost here at most, nanoseconds; null of what is refused.
    #[schema(required)]
    pub ns_per_call: Option<f64>,
}

/// Where a function is entered.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EntryPoint {
    /// From the start of the file, bytes.
    pub offset: u64,
    /// How the kernel executes the instruction: `emulated`, or `stepped` out of its line, which
    /// takes longer.
    pub kind: &'static str,
}

/// Where a function is left.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ExitPoints {
    /// `sites`: its own returns and jumps to other functions; `none`: calls are counted.
    pub how: &'static str,
    /// How many.
    pub points: usize,
}

/// How an instrumentation stands. `name_of` tells the function and the file of callers, as for
/// [`measured`].
#[must_use]
pub fn instrumentation(
    state: &InstrumentationState,
    name_of: impl Fn(FrameId) -> (String, String),
) -> Instrumentation {
    let at = |ns: MonoNs| rfc3339(state.began_unix_ns + ns.saturating_since(state.began_ns));
    let all = &state.measured;
    let mut functions: Vec<ChosenFunction> =
        all.functions.iter().map(|one| chosen(one, all)).collect();
    functions.extend(
        state
            .tried
            .iter()
            .map(|(function, module)| unprobed(function, module, "trial", None)),
    );
    functions.extend(state.refused.iter().map(|refused| {
        unprobed(
            &refused.name,
            &refused.module,
            "refused",
            Some(&refused.why),
        )
    }));
    let (usdt, spans) = followed(&all.items, &all.costs);
    Instrumentation {
        id: (state.id > 0).then_some(state.id),
        name: state.name.clone(),
        state: match state.stage {
            _ if state.id == 0 => "dry_run",
            Stage::Waiting => "waiting",
            Stage::Trial => "trial",
            Stage::Measuring => "measuring",
            Stage::Ended(_) => "ended",
        },
        ended: match state.stage {
            Stage::Ended(End::Asked) => Some("asked"),
            Stage::Ended(End::Time) => Some("time"),
            Stage::Ended(End::NoProcess) => Some("no_process"),
            Stage::Ended(End::GivenUp) => Some("given_up"),
            _ => None,
        },
        began_at: at(state.began_ns),
        until: state.until_ns.map(at),
        of: state.whom.clone(),
        processes: state.processes,
        budget_percent: 100.0 * state.budget,
        points: state.points,
        given_up: functions
            .iter()
            .map(|one| one.state)
            .chain(usdt.iter().map(|one| one.state))
            .chain(spans.iter().map(|one| one.state))
            .filter(|state| *state == "given_up")
            .count(),
        functions,
        usdt,
        spans,
        missing: state.missing.clone(),
        trouble: state.trouble.clone(),
        measured: measured(all, name_of, state.began_ns),
    }
}

fn chosen(one: &MeasuredFunction, all: &crate::collect::MeasuredFunctions) -> ChosenFunction {
    let plan = &one.plan;
    let exits = plan.exits.as_ref();
    let refused = exits.err().cloned();
    let (state, why) = match (&one.gave_up, refused) {
        (Some(why), _) => ("given_up", Some(why.clone())),
        (None, Some(why)) => ("counted", Some(why)),
        (None, None) => ("measured", one.unseen.clone()),
    };
    ChosenFunction {
        function: plan.name.clone(),
        aliases: plan.aliases.clone(),
        module: plan.module.to_string(),
        address: Some(format!("{:#x}", plan.address)),
        entry: Some(EntryPoint {
            offset: plan.entry.offset.get(),
            kind: kind(plan.entry),
        }),
        exits: ExitPoints {
            how: if exits.is_ok() { "sites" } else { "none" },
            points: exits.map_or(0, Vec::len),
        },
        state,
        why,
        ns_per_call: Some(plan.cost_ns(&all.costs)),
    }
}

fn unprobed(
    function: &str,
    module: &str,
    state: &'static str,
    why: Option<&str>,
) -> ChosenFunction {
    ChosenFunction {
        function: function.to_owned(),
        aliases: Vec::new(),
        module: module.to_owned(),
        address: None,
        entry: None,
        exits: ExitPoints {
            how: "none",
            points: 0,
        },
        state,
        why: why.map(str::to_owned),
        ns_per_call: None,
    }
}

fn kind(point: PlannedPoint) -> &'static str {
    if point.stepped { "stepped" } else { "emulated" }
}
