//! What profiling costs, and what gave way for it, in `GET /api/v1/status`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What profiling costs beside its budget. All of it 0 or null where nothing is known of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Spending {
    /// What it may cost, in percent of the time in which processors are at work; null: anything.
    #[schema(required)]
    pub budget_percent: Option<f64>,
    /// The same of the running time of any process that uses more than a twentieth of a processor.
    #[schema(required)]
    pub budget_process_percent: Option<f64>,
    /// What it has cost over the last ten seconds, in percent of the time in which processors were
    /// at work: kernel programs, hooks and the daemon together.
    #[schema(required)]
    pub late_percent: Option<f64>,
    /// What kernel programs and hooks have cost since the start, in seconds, by calibrated prices.
    pub programs_seconds_total: f64,
    /// Which system calls are traced now: `all` that the settings name, or `samples` of them, since
    /// all would cost more than the budget.
    pub system_calls: String,
    /// Times that all gave way to samples.
    pub gave_way_total: u64,
    /// Times that all came back.
    pub came_back_total: u64,
    /// Samples so far.
    pub samples_total: u64,
    /// Switches and exits of calls whose stacks were not walked because walks would have cost more
    /// than their part of the budget: others stand for them.
    pub walks_over_budget_total: u64,
    /// The same of timer ticks, which give way last.
    pub ticks_over_budget_total: u64,
    /// What walks may cost now, those of ticks too, in percent of the time in which processors are
    /// at work; null: anything. Beside those of ticks four tenths of the budget, or what ticks,
    /// switches and the daemon leave of it, but a tenth, or 0.05 % of one processor, in any case.
    #[schema(required)]
    pub walks_percent: Option<f64>,
    /// Time in which only samples were due and none was under way, in seconds.
    pub untraced_seconds_total: f64,
    /// What a system call costs more by the hooks' mere presence, in nanoseconds: measured at the
    /// start.
    pub hooks_price_ns: f64,
    /// What one that is traced costs beside that.
    pub call_price_ns: f64,
    /// What a switch costs with its wake, without walks.
    pub switch_price_ns: f64,
}

impl Spending {
    /// The same for people: name and value.
    pub(crate) fn lines(&self) -> Vec<(String, String)> {
        let percent = |value: Option<f64>| match value {
            Some(value) => format!("{value:.2} %"),
            None => "-".to_owned(),
        };
        [
            (
                "cost of late",
                format!(
                    "{} of busy time, of {}",
                    percent(self.late_percent),
                    percent(self.budget_percent)
                ),
            ),
            (
                "system calls traced",
                format!(
                    "{}; gave way {}, came back {}, {} samples",
                    self.system_calls,
                    self.gave_way_total,
                    self.came_back_total,
                    self.samples_total
                ),
            ),
            (
                "not walked, over budget",
                format!(
                    "{} switches and calls, {} ticks; walks may take {}",
                    self.walks_over_budget_total,
                    self.ticks_over_budget_total,
                    percent(self.walks_percent)
                ),
            ),
            (
                "prices",
                format!(
                    "hooks {:.0} ns, a call {:.0} ns, a switch {:.0} ns",
                    self.hooks_price_ns, self.call_price_ns, self.switch_price_ns
                ),
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}
