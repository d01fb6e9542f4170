//! Estimates what the programs cost without paying for it all the time: run-time statistics add
//! some 30 ns to each run, so they are switched on for a short while now and then, and what they
//! show is scaled up.

use std::collections::BTreeMap;

use crate::kernel::ProgramStats;
use crate::units::MonoNs;

/// How often they are switched on: the second time this long after the first, and then at twice the
/// distance each time, up to the longest.
const FIRST_PERIOD_NS: u64 = 1_000_000_000;
const PERIOD_NS: u64 = 10_000_000_000;
/// For how long.
const MEASURED_NS: u64 = 200_000_000;

/// Estimated cost of one program since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EstimatedCost {
    /// Runs.
    pub runs: u64,
    /// Nanoseconds, the cost of measuring included.
    pub run_ns: u64,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostStep {
    Nothing,
    SwitchOn,
    /// Read the statistics, hand them to [`CostEstimate::add`], and switch them off.
    ReadAndSwitchOff,
}

/// The estimate, and where in its cycle it is.
#[derive(Debug, Default)]
pub(super) struct CostEstimate {
    costs: BTreeMap<String, EstimatedCost>,
    seen: BTreeMap<String, EstimatedCost>,
    on_since_ns: Option<MonoNs>,
    covered_until_ns: MonoNs,
    /// How long they stay off now.
    period_ns: u64,
}

impl CostEstimate {
    pub(super) fn new(now_ns: MonoNs) -> Self {
        Self {
            covered_until_ns: now_ns,
            period_ns: FIRST_PERIOD_NS,
            ..Self::default()
        }
    }

    /// What is to be done at `now_ns`.
    pub(super) fn step(&mut self, now_ns: MonoNs) -> CostStep {
        match self.on_since_ns {
            None if self.costs.is_empty()
                || now_ns.saturating_since(self.covered_until_ns) >= self.period_ns =>
            {
                if !self.costs.is_empty() {
                    self.period_ns = (2 * self.period_ns).min(PERIOD_NS);
                }
                self.on_since_ns = Some(now_ns);
                CostStep::SwitchOn
            }
            Some(since_ns) if now_ns.saturating_since(since_ns) >= MEASURED_NS => {
                CostStep::ReadAndSwitchOff
            }
            _ => CostStep::Nothing,
        }
    }

    /// Takes the statistics gathered while they were on, and lets them stand for all the time since
    /// the last time.
    pub(super) fn add(&mut self, now_ns: MonoNs, programs: &[ProgramStats]) {
        let Some(since_ns) = self.on_since_ns.take() else {
            return;
        };
        let measured_ns = now_ns.saturating_since(since_ns).max(1);
        let stands_for_ns = now_ns.saturating_since(self.covered_until_ns);
        let scale = |value: u64| {
            u64::try_from(u128::from(value) * u128::from(stands_for_ns) / u128::from(measured_ns))
                .unwrap_or(u64::MAX)
        };
        for program in programs {
            let seen = self.seen.entry(program.name.clone()).or_default();
            let cost = self.costs.entry(program.name.clone()).or_default();
            cost.runs += scale(program.runs.saturating_sub(seen.runs));
            cost.run_ns += scale(program.run_ns.saturating_sub(seen.run_ns));
            *seen = EstimatedCost {
                runs: program.runs,
                run_ns: program.run_ns,
            };
        }
        self.covered_until_ns = now_ns;
    }

    /// The estimate by program.
    pub(super) const fn costs(&self) -> &BTreeMap<String, EstimatedCost> {
        &self.costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_stands_for_the_time_in_between() {
        // Check that statistics of a fifth of a second are scaled to the time since they were last
        // taken.
        let program = |runs, run_ns| {
            [ProgramStats {
                name: "tick".into(),
                runs,
                run_ns,
            }]
        };
        let second = 1_000_000_000;
        let mut estimate = CostEstimate::new(MonoNs::ZERO);
        assert_eq!(estimate.step(MonoNs::ZERO), CostStep::SwitchOn);
        assert_eq!(estimate.step(MonoNs::new(second / 10)), CostStep::Nothing);
        assert_eq!(
            estimate.step(MonoNs::new(second / 5)),
            CostStep::ReadAndSwitchOff
        );
        estimate.add(MonoNs::new(second / 5), &program(10, 1000));
        assert_eq!(
            estimate.costs()["tick"],
            EstimatedCost {
                runs: 10,
                run_ns: 1000
            }
        );
        assert_eq!(estimate.step(MonoNs::new(second)), CostStep::Nothing);
        assert_eq!(estimate.step(MonoNs::new(11 * second)), CostStep::SwitchOn);
        estimate.add(MonoNs::new(11 * second + second / 5), &program(20, 3000));
        assert_eq!(
            estimate.costs()["tick"],
            EstimatedCost {
                runs: 10 + 550,
                run_ns: 1000 + 110_000
            }
        );
    }
    // Check that they are on soon again at first, since prices rest on them, and rarely later.
    #[test]
    fn soon_at_first_and_rarely_later() {
        let mut estimate = CostEstimate::new(MonoNs::ZERO);
        let mut starts = Vec::new();
        for tenth in 0..500 {
            let now_ns = tenth * 100_000_000;
            match estimate.step(MonoNs::new(now_ns)) {
                CostStep::Nothing => {}
                CostStep::SwitchOn => starts.push(tenth),
                CostStep::ReadAndSwitchOff => {
                    let program = ProgramStats {
                        name: "tick".into(),
                        runs: 0,
                        run_ns: 0,
                    };
                    estimate.add(MonoNs::new(now_ns), &[program]);
                }
            }
        }
        assert_eq!(starts, [0, 12, 34, 76, 158, 260, 362, 464]);
    }
}
