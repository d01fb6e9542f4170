//! USDT points and spans of an instrumentation: where each is probed, or why it is not.

use profiler_common::spans::role;
use serde::Serialize;
use utoipa::ToSchema;

use crate::collect::{Traced, TracedItem, TracedPlace};
use crate::kernel::ProbeCosts;

/// A USDT point of one file.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FollowedPoint {
    /// Who made it.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Its file.
    pub module: String,
    /// Which argument's values are taken; null: none.
    #[schema(required)]
    pub argument: Option<u8>,
    /// Where it is probed: compilers copy a point with the code around it.
    pub places: Vec<FollowedPlace>,
    /// `followed`, `given_up` or `refused`.
    pub state: &'static str,
    /// Why it is not followed, or not at each of its places; null: it is.
    #[schema(required)]
    pub why: Option<String>,
    /// What a hit costs here at most, nanoseconds; null of what is refused.
    #[schema(required)]
    pub ns_per_hit: Option<f64>,
}

/// A span.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FollowedSpan {
    /// What it is called.
    pub name: String,
    /// Where it starts, as it was asked for.
    pub start: String,
    /// Where it ends.
    pub end: String,
    /// What start and end have in common.
    pub key: String,
    /// Where it is probed.
    pub places: Vec<FollowedPlace>,
    /// `followed`; `waiting`: the start or the end is in no file that is mapped yet; `given_up`; or
    /// `refused`: the start or the end is nowhere that it can be probed.
    pub state: &'static str,
    /// Why it is not followed, or not at each place that is meant; null: it is.
    #[schema(required)]
    pub why: Option<String>,
    /// What a start, or an end, costs here at most, nanoseconds; null where none is probed.
    #[schema(required)]
    pub ns_per_hit: Option<f64>,
}

/// A place that is probed.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct FollowedPlace {
    /// Its file.
    pub module: String,
    /// From the start of the file, bytes.
    pub offset: u64,
    /// How the kernel executes the instruction: `emulated`, or `stepped` out of its line, which
    /// takes longer.
    pub kind: &'static str,
    /// `hit` of a USDT point; of a span `start`, `end`, or `both`: each hit ends one and starts the
    /// next.
    pub role: &'static str,
}

/// How all of them stand.
pub(super) fn followed(
    items: &[TracedItem],
    costs: &ProbeCosts,
) -> (Vec<FollowedPoint>, Vec<FollowedSpan>) {
    let (mut usdt, mut spans) = (Vec::new(), Vec::new());
    for item in items {
        let places: Vec<FollowedPlace> = item.places.iter().map(place).collect();
        let cost = costs[usize::from(item.is_stepped())];
        let ns_per_hit = (!places.is_empty()).then_some(cost.inside_ns + cost.outside_ns);
        let (state, why) = standing(item);
        match &*item.what {
            Traced::Usdt {
                provider,
                name,
                module,
                argument,
            } => usdt.push(FollowedPoint {
                provider: provider.clone(),
                name: name.clone(),
                module: module.to_string(),
                argument: *argument,
                places,
                state,
                why,
                ns_per_hit,
            }),
            Traced::Span {
                name,
                start,
                end,
                key,
            } => spans.push(FollowedSpan {
                name: name.clone(),
                start: start.clone(),
                end: end.clone(),
                key: key.clone(),
                places,
                state,
                why,
                ns_per_hit,
            }),
        }
    }
    (usdt, spans)
}

fn place(place: &TracedPlace) -> FollowedPlace {
    FollowedPlace {
        module: place.module.to_string(),
        offset: place.offset.get(),
        kind: if place.stepped { "stepped" } else { "emulated" },
        role: match place.roles {
            role::START => "start",
            role::END => "end",
            role::HIT => "hit",
            _ => "both",
        },
    }
}

fn standing(item: &TracedItem) -> (&'static str, Option<String>) {
    let said = (!item.said.is_empty()).then(|| item.said.join("; "));
    if let Some(why) = &item.gave_up {
        return ("given_up", Some(why.clone()));
    }
    let has = |role: u32| item.places.iter().any(|place| place.roles & role != 0);
    let is_whole = match &*item.what {
        Traced::Usdt { .. } => has(role::HIT),
        Traced::Span { .. } => has(role::START) && has(role::END),
    };
    match (is_whole, said) {
        (true, said) => ("followed", said),
        (false, Some(said)) => ("refused", Some(said)),
        (false, None) => {
            let what = match (has(role::START), has(role::END)) {
                (true, _) => "its end is",
                (_, true) => "its start is",
                _ => "its start and its end are",
            };
            let why = format!("{what} in no file that is mapped yet");
            ("waiting", Some(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::collect::{PlannedItem, planned};
    use crate::units::{FileOffset, MonoNs};

    fn span(roles: &[u32], said: &[&str]) -> TracedItem {
        let item = PlannedItem {
            id: 0,
            what: Arc::new(Traced::Span {
                name: "request".to_owned(),
                start: "app:begin".to_owned(),
                end: "app:end".to_owned(),
                key: "tid".to_owned(),
            }),
            places: Vec::new(),
            said: said.iter().map(|one| (*one).to_owned()).collect(),
        };
        let mut all = planned(&[item.clone(), item], MonoNs::new(1));
        assert_eq!(all.len(), 1, "of one number");
        let mut one = all.remove(0);
        one.said.truncate(said.len());
        one.places = roles
            .iter()
            .map(|roles| TracedPlace {
                module: "/usr/bin/app".into(),
                offset: FileOffset::new(0x10),
                stepped: false,
                roles: *roles,
            })
            .collect();
        one
    }

    // Check that a span is followed once both of its ends are probed, that it waits for what is not
    // mapped, that what is said of an end that is not probed is why it is refused, and that what
    // was given up is told as such.
    #[test]
    fn how_spans_stand() {
        let both = role::START | role::END;
        let mut dear = span(&[both], &[]);
        dear.gave_up = Some("given up: much".to_owned());
        let items = [
            span(&[role::START, role::END], &[]),
            span(&[both], &["one place is not"]),
            span(&[role::START], &[]),
            span(&[role::END], &["begin: no size"]),
            span(&[], &[]),
            dear,
        ];
        let (_, spans) = followed(&items, &ProbeCosts::default());
        let states: Vec<&str> = spans.iter().map(|span| span.state).collect();
        let states_wanted = [
            "followed", "followed", "waiting", "refused", "waiting", "given_up",
        ];
        assert_eq!(states, states_wanted);
        assert_eq!(spans[0].why, None);
        assert_eq!(spans[1].why.as_deref(), Some("one place is not"));
        let why = spans[2].why.as_deref().expect("it waits");
        assert!(why.starts_with("its end is in no file"), "{why}");
        assert_eq!(spans[1].places[0].role, "both");
        assert_eq!(spans[4].ns_per_hit, None);
    }
}
