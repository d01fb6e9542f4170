//! USDT points and spans that were followed.

use profiler_common::spans::UsdtRow;
use profiler_common::spans::histogram::lower_bound_ns;
use profiler_common::spans::row::least_value;
use serde::Serialize;
use utoipa::ToSchema;

use crate::collect::{Traced, TracedItem};
use crate::kernel::ProbeCosts;
use crate::units::MonoNs;

/// Below so many times what a probe takes, a span is mostly probe.
const MOSTLY_PROBE: f64 = 10.0;
/// Processes of one USDT point that are listed, those with most hits first.
const MAX_PROCESSES: usize = 1000;

/// A USDT point of one file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UsdtValues {
    /// Who made it.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Its file.
    pub module: String,
    /// How many places of the file it is at.
    pub places: usize,
    /// Hits, of all processes.
    pub hits: u64,
    /// The processes that hit it, those with most hits first; at most a thousand.
    pub processes: Vec<UsdtProcess>,
    /// The values of the argument that was asked for; `null` if none was.
    #[schema(required)]
    pub argument: Option<ArgumentValues>,
    /// How long after the recording began it was probed, nanoseconds: hits before are not counted.
    pub attached_after_ns: u64,
    /// Why it was not followed to the end.
    #[schema(required)]
    pub why: Option<String>,
}

/// A process that has hit a USDT point.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct UsdtProcess {
    /// Its id.
    pub pid: u32,
    /// Hits.
    pub hits: u64,
}

/// Integer values of an argument.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ArgumentValues {
    /// Which argument, from 0 on.
    pub number: u8,
    /// How many values were read.
    pub values: u64,
    /// Hits whose value could not be: its memory was not there.
    pub unreadable: u64,
    /// Their sum; null where it does not fit into 64 bits.
    #[schema(required)]
    pub sum: Option<i64>,
    /// The least; `null` where there is none, as in the next ones.
    #[schema(required)]
    pub min: Option<i64>,
    /// The mean: of the sum, also where that does not fit.
    #[schema(required)]
    pub mean: Option<f64>,
    /// The greatest.
    #[schema(required)]
    pub max: Option<i64>,
    /// The least value of a bucket, and how many are in it: negative ones together (-2^63), zeroes,
    /// and from each power of two up to the next.
    pub histogram: Vec<(i64, u32)>,
}

/// A span: the time from a start to the end with the same key, in whichever threads.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SpanValues {
    /// What it is called.
    pub name: String,
    /// Where it starts.
    pub start: String,
    /// Where it ends.
    pub end: String,
    /// What start and end have in common.
    pub key: String,
    /// How many places were probed.
    pub places: usize,
    /// Complete ones.
    pub count: u64,
    /// The time from start to end, waiting included, of all complete ones, nanoseconds.
    pub elapsed_ns: u64,
    /// The shortest; `null` where there is none, as in the next ones.
    #[schema(required)]
    pub min_ns: Option<u64>,
    /// The mean.
    #[schema(required)]
    pub mean_ns: Option<u64>,
    /// The longest.
    #[schema(required)]
    pub max_ns: Option<u64>,
    /// Half of them took no longer: to a hundredth, as the next ones; beyond 136 s by their share
    /// of the spans between that and the longest.
    #[schema(required)]
    pub p50_ns: Option<u64>,
    /// Nine of ten.
    #[schema(required)]
    pub p90_ns: Option<u64>,
    /// Ninety-nine of a hundred.
    #[schema(required)]
    pub p99_ns: Option<u64>,
    /// Their durations: the least one of a bucket, nanoseconds, and how many are in it.
    pub histogram: Vec<(u64, u32)>,
    /// Starts.
    pub starts: u64,
    /// Starts with the key of a span under way: it is replaced, and has no end.
    pub replaced: u64,
    /// Starts that were not kept because too many spans were under way.
    pub not_kept: u64,
    /// Ends without a start.
    pub unmatched_ends: u64,
    /// Starts and ends whose key could not be read.
    pub unreadable_keys: u64,
    /// Spans under way.
    pub open: u64,
    /// How long the first of them has been under way, nanoseconds.
    pub open_longest_ns: u64,
    /// Spans whose process exited before they ended.
    pub left_exit: u64,
    /// What probes take of each, about, nanoseconds: not subtracted.
    pub probe_ns: u64,
    /// Whether they are so short that most of what was measured may be the probes.
    pub mostly_probe: bool,
    /// How long after the recording began the last of its places was probed, nanoseconds.
    pub attached_after_ns: u64,
    /// Why it was not followed to the end.
    #[schema(required)]
    pub why: Option<String>,
}

/// The values of all, of a recording that began at `began_ns`.
#[must_use]
pub(super) fn followed(
    items: &[TracedItem],
    costs: &ProbeCosts,
    began_ns: MonoNs,
) -> (Vec<UsdtValues>, Vec<SpanValues>) {
    let (mut usdt, mut spans) = (Vec::new(), Vec::new());
    for item in items {
        match &*item.what {
            Traced::Usdt {
                provider,
                name,
                module,
                argument,
            } => usdt.push(UsdtValues {
                provider: provider.clone(),
                name: name.clone(),
                module: module.to_string(),
                ..usdt_values(item, *argument, began_ns)
            }),
            Traced::Span {
                name,
                start,
                end,
                key,
            } => spans.push(SpanValues {
                name: name.clone(),
                start: start.clone(),
                end: end.clone(),
                key: key.clone(),
                ..span_values(item, costs, began_ns)
            }),
        }
    }
    (usdt, spans)
}

fn usdt_values(item: &TracedItem, argument: Option<u8>, began_ns: MonoNs) -> UsdtValues {
    let mut all = UsdtRow::EMPTY;
    for row in item.hits.values() {
        all.merge(row);
    }
    let mut processes: Vec<UsdtProcess> = item
        .hits
        .iter()
        .map(|(process, row)| UsdtProcess {
            pid: process.pid,
            hits: row.hits,
        })
        .collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.hits));
    processes.truncate(MAX_PROCESSES);
    let any = all.values > 0;
    UsdtValues {
        provider: String::new(),
        name: String::new(),
        module: String::new(),
        places: item.places.len(),
        hits: all.hits,
        processes,
        argument: argument.map(|number| ArgumentValues {
            number,
            values: all.values,
            unreadable: all.unreadable,
            sum: i64::try_from(all.sum()).ok(),
            min: any.then_some(all.min),
            mean: any.then(|| all.sum() as f64 / all.values as f64),
            max: any.then_some(all.max),
            histogram: (0..)
                .zip(all.buckets)
                .filter(|(_, count)| *count > 0)
                .map(|(bucket, count)| (least_value(bucket), count))
                .collect(),
        }),
        attached_after_ns: item.attached_ns.saturating_since(began_ns),
        why: item.gave_up.clone(),
    }
}

fn span_values(item: &TracedItem, costs: &ProbeCosts, began_ns: MonoNs) -> SpanValues {
    let row = &item.spans;
    let any = row.complete > 0;
    let elapsed_ns = row.elapsed_ns;
    let mean_ns = elapsed_ns.checked_div(row.complete);
    // A hit that is only counted: a half of it is before the end's clock is read, the other after
    // the start's.
    let cost = costs[usize::from(item.is_stepped())];
    let probe_ns = cost.inside_ns + cost.outside_ns;
    SpanValues {
        name: String::new(),
        start: String::new(),
        end: String::new(),
        key: String::new(),
        places: item.places.len(),
        count: row.complete,
        elapsed_ns,
        min_ns: any.then_some(row.min_ns),
        mean_ns,
        max_ns: any.then_some(row.max_ns),
        p50_ns: row.quantile_ns(0.5),
        p90_ns: row.quantile_ns(0.9),
        p99_ns: row.quantile_ns(0.99),
        histogram: (0..)
            .zip(row.buckets)
            .filter(|(_, count)| *count > 0)
            .map(|(bucket, count)| (lower_bound_ns(bucket), count))
            .collect(),
        starts: row.starts,
        replaced: row.replaced,
        not_kept: row.not_kept,
        unmatched_ends: row.unmatched,
        unreadable_keys: row.unreadable,
        open: item.open,
        open_longest_ns: item.open_longest_ns,
        left_exit: item.left_exit,
        probe_ns: probe_ns as u64,
        mostly_probe: mean_ns.is_some_and(|mean_ns| (mean_ns as f64) < MOSTLY_PROBE * probe_ns),
        attached_after_ns: item.attached_ns.saturating_since(began_ns),
        why: item.gave_up.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use profiler_common::spans::SpanRow;
    use profiler_common::spans::row::Start;

    use super::*;
    use crate::kernel::ProbeCost;
    use crate::processes::ids::ProcessKey;
    use crate::units::BootNs;

    fn item(what: Traced) -> TracedItem {
        TracedItem {
            what: Arc::new(what),
            places: Vec::new(),
            said: Vec::new(),
            attached_ns: MonoNs::new(5_000),
            gave_up: None,
            hits: BTreeMap::new(),
            spans: SpanRow::EMPTY,
            open: 0,
            open_longest_ns: 0,
            left_exit: 0,
        }
    }

    fn usdt(argument: Option<u8>) -> TracedItem {
        item(Traced::Usdt {
            provider: "app".to_owned(),
            name: "begin".to_owned(),
            module: "/usr/bin/app".into(),
            argument,
        })
    }

    fn span() -> TracedItem {
        item(Traced::Span {
            name: "request".to_owned(),
            start: "app:begin".to_owned(),
            end: "app:end".to_owned(),
            key: "tid".to_owned(),
        })
    }

    // Check that hits are told by process, those with most first, and values of all together; and
    // that without an argument none are.
    #[test]
    fn hits_are_told_by_process() {
        let mut point = usdt(Some(0));
        for (pid, values) in [(7, &[1_i64][..]), (8, &[3, -2])] {
            let row = point.hits.entry(ProcessKey {
                pid,
                start_ns: BootNs::ZERO,
            });
            let row = row.or_insert(UsdtRow::EMPTY);
            for value in values {
                row.hit(Some(Some(*value)));
            }
        }
        let (points, _) = followed(
            &[point, usdt(None)],
            &ProbeCosts::default(),
            MonoNs::new(2_000),
        );
        assert_eq!(points[0].hits, 3);
        assert_eq!(points[0].attached_after_ns, 3_000);
        let by_pid = points[0].processes.iter();
        let by_pid: Vec<_> = by_pid.map(|process| (process.pid, process.hits)).collect();
        assert_eq!(by_pid, [(8, 2), (7, 1)]);
        let argument = points[0].argument.as_ref().expect("it was asked for");
        assert_eq!(
            (argument.sum, argument.min, argument.max),
            (Some(2), Some(-2), Some(3))
        );
        assert_eq!(argument.histogram, [(i64::MIN, 1), (1, 1), (2, 1)]);
        assert!(points[1].argument.is_none() && points[1].hits == 0);
    }

    // Check that the mean of values whose sum does not fit into 64 bits is theirs, and that the sum
    // is then not told.
    #[test]
    fn the_mean_of_large_values() {
        let mut point = usdt(Some(0));
        let row = point.hits.entry(ProcessKey {
            pid: 7,
            start_ns: BootNs::ZERO,
        });
        let row = row.or_insert(UsdtRow::EMPTY);
        let large = 0x7f00_0000_0000_0000;
        for _ in 0..1000 {
            row.hit(Some(Some(large)));
        }
        let (points, _) = followed(&[point], &ProbeCosts::default(), MonoNs::ZERO);
        let argument = points[0].argument.as_ref().expect("it was asked for");
        assert_eq!((argument.sum, argument.mean), (None, Some(large as f64)));
    }

    // Check that a span's values are those of its complete ones, that it is marked where it is
    // shorter than probes take, and that one without any has none.
    #[test]
    fn spans_have_values() {
        let mut long = span();
        long.spans.start(Start::Kept);
        long.spans.end(Some(10_000_000));
        let mut short = span();
        short.spans.end(Some(4_000));
        let mut costs = ProbeCosts::default();
        costs[0] = ProbeCost {
            inside_ns: 0.0,
            outside_ns: 1_000.0,
            inside_error_ns: 0.0,
            error_ns: 0.0,
        };
        let (_, spans) = followed(&[long, short, span()], &costs, MonoNs::ZERO);
        assert_eq!((spans[0].count, spans[0].starts), (1, 1));
        assert_eq!(spans[0].mean_ns, Some(10_000_000));
        assert_eq!(
            (spans[0].p50_ns, spans[0].p99_ns),
            (Some(10_000_000), Some(10_000_000))
        );
        assert!(!spans[0].mostly_probe && spans[1].mostly_probe);
        assert_eq!(spans[1].probe_ns, 1_000);
        assert_eq!(
            (spans[2].mean_ns, spans[2].min_ns, spans[2].p50_ns),
            (None, None, None)
        );
        assert!(!spans[2].mostly_probe);
    }
}
