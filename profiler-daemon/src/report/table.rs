//! Sorting, filtering and cutting rows, the same for every table.

use std::cmp::Ordering;

use super::{
    error::ReportError,
    query::{Order, TableQuery},
};

/// The value of a row in one column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SortKey<'a> {
    Text(&'a str),
    Number(f64),
}

impl SortKey<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.total_cmp(b),
            (Self::Text(_), Self::Number(_)) => Ordering::Less,
            (Self::Number(_), Self::Text(_)) => Ordering::Greater,
        }
    }
}

/// A row with named columns.
pub trait Columns {
    /// Every column, dotted as in the JSON.
    const COLUMNS: &'static [&'static str];
}

/// A row that can be sorted and searched.
pub(super) trait Row: Columns {
    /// The column it is sorted by unless asked otherwise.
    const DEFAULT_SORT: &'static str;

    /// The value in one of [`Columns::COLUMNS`].
    fn key(&self, column: &str) -> Option<SortKey<'_>>;

    /// Time on processors, of rows that can be sorted by it
    /// ([`busiest_first`](TableQuery::busiest_first)).
    fn running_ns(&self) -> Option<u64> {
        None
    }

    /// What `q` searches.
    fn name(&self) -> &str;

    /// The order of rows that are equal in the sorted column.
    fn tie(&self, other: &Self) -> Ordering;
}

/// The rows of a table, with how many there were before the limit.
pub(super) struct Cut<R> {
    pub(super) rows: Vec<R>,
    pub(super) total_rows: usize,
}

/// What a row is sorted by.
fn key<'r, R: Row>(row: &'r R, column: &str, by_running: bool) -> Option<SortKey<'r>> {
    match row.running_ns() {
        Some(ns) if by_running => Some(SortKey::Number(ns as f64)),
        _ => row.key(column),
    }
}

/// Filters, sorts and cuts. The order is the same in every answer about the same values.
pub(super) fn arrange<R: Row>(mut rows: Vec<R>, query: &TableQuery) -> Result<Cut<R>, ReportError> {
    let column = query.sort.as_deref().unwrap_or(R::DEFAULT_SORT);
    if !R::COLUMNS.contains(&column) {
        return Err(ReportError::UnknownSort {
            given: column.to_owned(),
            allowed: R::COLUMNS,
        });
    }
    if let Some(wanted) = query.q.as_deref().filter(|q| !q.is_empty()) {
        let wanted = wanted.to_lowercase();
        rows.retain(|row| row.name().to_lowercase().contains(&wanted));
    }
    let by_running = query.busiest_first && query.sort.is_none();
    let mut order: Vec<(usize, Option<SortKey<'_>>)> = rows
        .iter()
        .map(|row| key(row, column, by_running))
        .enumerate()
        .collect();
    let compare = |(at, a): &(usize, Option<SortKey<'_>>), (bt, b): &(usize, _)| {
        let by_column = match (a, b, query.order) {
            (Some(a), Some(b), Order::Asc) => a.compare(b),
            (Some(a), Some(b), Order::Desc) => b.compare(a),
            // What has no value is neither the least nor the most: it is last in either order.
            (a, b, _) => b.is_some().cmp(&a.is_some()),
        };
        by_column
            .then_with(|| rows[*at].tie(&rows[*bt]))
            .then(at.cmp(bt))
    };
    let total_rows = rows.len();
    if (1..total_rows).contains(&query.limit) {
        order.select_nth_unstable_by(query.limit, compare);
        order.truncate(query.limit);
    }
    order.sort_unstable_by(compare);
    let order: Vec<usize> = order.into_iter().map(|(at, _)| at).collect();
    let mut rows: Vec<Option<R>> = rows.into_iter().map(Some).collect();
    let rows = order.into_iter().filter_map(|at| rows[at].take()).collect();
    Ok(Cut { rows, total_rows })
}

/// A list of column names: the given ones, then those of the three groups of values.
macro_rules! columns_with_values {
    ($($own:literal),* $(,)?) => {
        &[
            $($own,)*
            "samples.inclusive", "samples.exclusive",
            "samples.inclusive_percent", "samples.exclusive_percent",
            "samples.inclusive_percent_of_process", "samples.exclusive_percent_of_process",
            "samples.inclusive_percent_low", "samples.inclusive_percent_high",
            "samples.exclusive_percent_low", "samples.exclusive_percent_high",
            "samples.inclusive_percent_of_process_low", "samples.inclusive_percent_of_process_high",
            "samples.exclusive_percent_of_process_low", "samples.exclusive_percent_of_process_high",
            "elapsed.inclusive_ns", "elapsed.inclusive_low_ns", "elapsed.inclusive_high_ns",
            "elapsed.exclusive_ns", "elapsed.exclusive_low_ns", "elapsed.exclusive_high_ns",
            "elapsed.inclusive_percent", "elapsed.exclusive_percent",
            "elapsed.inclusive_percent_of_process", "elapsed.exclusive_percent_of_process",
            "application.inclusive_ns",
            "application.inclusive_low_ns", "application.inclusive_high_ns",
            "application.exclusive_ns",
            "application.exclusive_low_ns", "application.exclusive_high_ns",
            "application.inclusive_percent", "application.exclusive_percent",
            "application.inclusive_percent_of_process", "application.exclusive_percent_of_process",
            "classes.user_ns", "classes.syscall_ns", "classes.blocked_ns",
            "classes.runnable_ns", "classes.kernel_ns",
            "exclusive_classes.user_ns", "exclusive_classes.syscall_ns", "exclusive_classes.blocked_ns",
            "exclusive_classes.runnable_ns", "exclusive_classes.kernel_ns",
            "marks.ticks", "marks.gaps", "marks.waits", "few_marks", "fault_ns", "estimated_ns",
        ]
    };
}
pub(super) use columns_with_values;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Clone)]
    struct Pair(&'static str, u64);

    /// Of this number a row has none.
    const NONE: u64 = u64::MAX;

    impl Columns for Pair {
        const COLUMNS: &'static [&'static str] = &["name", "n"];
    }

    impl Row for Pair {
        const DEFAULT_SORT: &'static str = "n";

        fn running_ns(&self) -> Option<u64> {
            Some(u64::from(self.0 == "b"))
        }

        fn key(&self, column: &str) -> Option<SortKey<'_>> {
            match column {
                "name" => Some(SortKey::Text(self.0)),
                "n" => (self.1 != NONE).then_some(SortKey::Number(self.1 as f64)),
                _ => None,
            }
        }

        fn name(&self) -> &str {
            self.0
        }

        fn tie(&self, other: &Self) -> Ordering {
            self.0.cmp(other.0)
        }
    }

    fn names(query: &TableQuery) -> Vec<&'static str> {
        let rows = vec![Pair("b", 1), Pair("Ca", 2), Pair("a", 1)];
        let cut = arrange(rows, query).expect("a known column");
        cut.rows.iter().map(|row| row.0).collect()
    }

    // Check default order, that of texts, ties, direction, search in any case, and that the limit
    // cuts after the sort.
    #[test]
    fn arranged() {
        let query = TableQuery::default();
        assert_eq!(names(&query), ["Ca", "a", "b"]);
        assert_eq!(
            names(&TableQuery {
                order: Order::Asc,
                ..query.clone()
            }),
            ["a", "b", "Ca"]
        );
        let by_name = TableQuery {
            sort: Some("name".into()),
            ..query.clone()
        };
        assert_eq!(names(&by_name), ["b", "a", "Ca"]);
        assert_eq!(
            names(&TableQuery {
                q: Some("A".into()),
                ..query.clone()
            }),
            ["Ca", "a"]
        );
        assert_eq!(
            names(&TableQuery {
                busiest_first: true,
                ..query.clone()
            }),
            ["b", "Ca", "a"]
        );
        let by_name = TableQuery {
            busiest_first: true,
            ..by_name
        };
        assert_eq!(names(&by_name), ["b", "a", "Ca"]);
        assert_eq!(names(&TableQuery { limit: 1, ..query }), ["Ca"]);
    }

    // Check that rows without a value in the sorted column are last in either order, in order of
    // their ties, and that the limit cuts them first.
    #[test]
    fn no_value_is_last() {
        let rows = || {
            let rows = [("d", NONE), ("a", 1), ("c", NONE), ("b", 2)];
            rows.map(|(name, n)| Pair(name, n)).to_vec()
        };
        for (order, expected) in [
            (Order::Asc, ["a", "b", "c", "d"]),
            (Order::Desc, ["b", "a", "c", "d"]),
        ] {
            for limit in [0, 3, 2] {
                let query = TableQuery {
                    order,
                    limit,
                    ..TableQuery::default()
                };
                let cut = arrange(rows(), &query).expect("a known column");
                let names: Vec<_> = cut.rows.iter().map(|row| row.0).collect();
                let shown = if limit == 0 { 4 } else { limit };
                assert_eq!(names, expected[..shown], "{order:?}, {limit}");
            }
        }
    }

    // Check that an unknown column is refused with the list of those there are.
    #[test]
    fn unknown_column() {
        let query = TableQuery {
            sort: Some("m".into()),
            ..TableQuery::default()
        };
        let error = arrange(vec![Pair("a", 1)], &query).err();
        let allowed = Pair::COLUMNS;
        assert_eq!(
            error,
            Some(ReportError::UnknownSort {
                given: "m".into(),
                allowed
            })
        );
    }
}
