//! What profiling costs, as the status tells it.

use profiler_common::Counter;

use crate::api::Spending;
use crate::collect::CollectorState;

/// For the status.
pub(super) fn status(collector: &CollectorState) -> Spending {
    let state = &collector.spending;
    let percent = |share: Option<f64>| share.map(|share| (share * 1e6).round() / 1e4);
    Spending {
        budget_percent: percent(state.machine_budget()),
        budget_process_percent: percent(state.process_budget()),
        late_percent: percent(state.late_share),
        programs_seconds_total: state.programs_ns as f64 / 1e9,
        system_calls: if state.only_samples() {
            "samples"
        } else {
            "all"
        }
        .to_owned(),
        gave_way_total: state.gave_way,
        came_back_total: state.came_back,
        samples_total: state.looks,
        walks_over_budget_total: collector.counter(Counter::WalksOverBudget),
        ticks_over_budget_total: collector.counter(Counter::TicksOverBudget),
        walks_percent: percent(state.walks_budget),
        untraced_seconds_total: state.untraced_ns as f64 / 1e9,
        hooks_price_ns: state.prices.hooks_ns.round(),
        call_price_ns: state.prices.of_tracing().round(),
        switch_price_ns: state.prices.switch_ns.round(),
    }
}
