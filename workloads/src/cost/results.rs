//! What was measured, as ratios with their spread, in Markdown and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::loads::Session;
use crate::profilers::Profiler;

/// One session under a profiler against the mean of its neighbours, by load.
#[derive(Debug)]
pub(crate) struct Ratios(BTreeMap<&'static str, (f64, f64)>);

impl Ratios {
    /// Ratio and nanoseconds per unit without a profiler, by load.
    pub(crate) fn of(before: &Session, under: &Session, after: &Session) -> Self {
        Self(
            under
                .iter()
                .filter_map(|(load, value)| {
                    let none = f64::midpoint(*before.get(load)?, *after.get(load)?);
                    Some((*load, (value / none, none)))
                })
                .collect(),
        )
    }
}

/// What the daemon takes for itself.
#[derive(Debug)]
pub(crate) struct Own {
    /// In which state.
    pub(crate) what: String,
    /// Processor seconds per second.
    pub(crate) cpu_seconds_per_second: f64,
    /// Resident memory.
    pub(crate) rss_mib: f64,
    /// The most it ever was.
    pub(crate) peak_rss_mib: f64,
}

/// What one of its kernel programs costs.
#[derive(Debug)]
pub(crate) struct ProgramCost {
    /// The program.
    pub(crate) name: String,
    /// How often it ran.
    pub(crate) runs: u64,
    /// Mean time per run, by the kernel's statistics, which add about 30 ns themselves.
    pub(crate) ns_per_run: f64,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Results {
    rounds: usize,
    missing_loads: Vec<&'static str>,
    profilers: Vec<String>,
    ratios: BTreeMap<(String, &'static str), Vec<(f64, f64)>>,
    faults: Vec<(String, String)>,
    /// The daemon by itself.
    pub(crate) own: Vec<Own>,
    /// Its kernel programs.
    pub(crate) programs: Vec<ProgramCost>,
}

impl Results {
    /// Nothing measured yet.
    pub(crate) fn new(
        rounds: usize,
        missing_loads: &[&'static str],
        profilers: &[Profiler],
    ) -> Self {
        Self {
            rounds,
            missing_loads: missing_loads.to_vec(),
            profilers: profilers
                .iter()
                .map(|profiler| profiler.name.clone())
                .collect(),
            ratios: BTreeMap::new(),
            faults: Vec::new(),
            own: Vec::new(),
            programs: Vec::new(),
        }
    }

    /// Adds one session.
    pub(crate) fn add(&mut self, profiler: &str, ratios: &Ratios) {
        for (load, pair) in &ratios.0 {
            self.ratios
                .entry((profiler.to_owned(), *load))
                .or_default()
                .push(*pair);
        }
    }

    /// Notes that a profiler could not be started or stopped.
    pub(crate) fn fault(&mut self, profiler: &str, reason: &str) {
        self.faults.push((profiler.to_owned(), reason.to_owned()));
    }

    fn loads(&self) -> Vec<&'static str> {
        let mut loads: Vec<_> = self.ratios.keys().map(|(_, load)| *load).collect();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    fn values(&self, profiler: &str, load: &'static str) -> Option<Spread> {
        let pairs = self.ratios.get(&(profiler.to_owned(), load))?;
        Spread::of(pairs.iter().map(|(ratio, _)| *ratio).collect())
    }

    /// Nanoseconds per unit without a profiler.
    fn baseline(&self, load: &'static str) -> Option<Spread> {
        let of_load = self.ratios.iter().filter(|((_, name), _)| *name == load);
        Spread::of(
            of_load
                .flat_map(|(_, pairs)| pairs.iter().map(|(_, none)| *none))
                .collect(),
        )
    }

    /// Tables for people.
    pub(crate) fn markdown(&self) -> String {
        let loads = self.loads();
        let mut out = format!(
            "Slowdown: time under the profiler / time under none, median of {} (lowest to highest).\n\n| |",
            self.rounds
        );
        let mut line =
            |text: std::fmt::Arguments<'_>| out.write_fmt(text).expect("a string takes everything");
        for load in &loads {
            line(format_args!(" {load} |"));
        }
        line(format_args!(
            "\n|---|{}\n| none, ns per unit |",
            "---|".repeat(loads.len())
        ));
        for load in &loads {
            line(format_args!(
                " {:.1} |",
                self.baseline(load).map_or(0.0, |spread| spread.median)
            ));
        }
        line(format_args!("\n"));
        for profiler in &self.profilers {
            line(format_args!("| {profiler} |"));
            for load in &loads {
                match self.values(profiler, load) {
                    Some(spread) => line(format_args!(
                        " {:.3} ({:.3} to {:.3}) |",
                        spread.median, spread.low, spread.high
                    )),
                    None => line(format_args!(" - |")),
                }
            }
            line(format_args!("\n"));
        }
        if !self.own.is_empty() {
            line(format_args!(
                "\n| the daemon itself | CPU s/s | RSS MiB | peak RSS MiB |\n|---|---|---|---|\n"
            ));
        }
        for own in &self.own {
            line(format_args!(
                "| {} | {:.4} | {:.1} | {:.1} |\n",
                own.what, own.cpu_seconds_per_second, own.rss_mib, own.peak_rss_mib
            ));
        }
        if !self.programs.is_empty() {
            line(format_args!(
                "\n| kernel program | runs | ns per run |\n|---|---|---|\n"
            ));
        }
        for program in &self.programs {
            line(format_args!(
                "| {} | {} | {:.0} |\n",
                program.name, program.runs, program.ns_per_run
            ));
        }
        for load in &self.missing_loads {
            line(format_args!(
                "\nNot run, its program is not installed: {load}.\n"
            ));
        }
        for (profiler, reason) in &self.faults {
            line(format_args!("\nIncomplete, {profiler}: {reason}.\n"));
        }
        out
    }

    /// The same for programs, with every single ratio.
    pub(crate) fn json(&self) -> Value {
        let ratios: Vec<_> = self
            .ratios
            .iter()
            .map(|((profiler, load), pairs)| {
                let [ratios, none_ns] = [0, 1].map(|part| {
                    pairs.iter().map(|pair| if part == 0 { pair.0 } else { pair.1 }).collect::<Vec<_>>()
                });
                json!({"profiler": profiler, "load": load, "ratios": ratios, "none_ns_per_unit": none_ns})
            })
            .collect();
        let own: Vec<_> = self
            .own
            .iter()
            .map(|own| {
                json!({"state": own.what, "cpu_seconds_per_second": own.cpu_seconds_per_second, "rss_mib": own.rss_mib,
                       "peak_rss_mib": own.peak_rss_mib})
            })
            .collect();
        let programs: Vec<_> = self
            .programs
            .iter()
            .map(|program| json!({"name": program.name, "runs": program.runs, "ns_per_run": program.ns_per_run}))
            .collect();
        let faults: Vec<_> = self
            .faults
            .iter()
            .map(|(profiler, reason)| json!({"profiler": profiler, "reason": reason}))
            .collect();
        json!({"rounds": self.rounds, "ratios": ratios, "daemon": own, "programs": programs,
               "missing_loads": self.missing_loads, "faults": faults})
    }
}

/// A median and the ends around it.
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (low, high) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { low, median, high })
    }
}
