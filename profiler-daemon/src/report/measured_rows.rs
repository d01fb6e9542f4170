//! What was measured exactly, beside what was sampled: which calls a view covers, and to which row
//! of functions they belong.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::{
    agreement::{Agreement, Compared, Comparing, names, places},
    call_values::{About, CallValues, ProbeTimes},
    covered::{Covered, covered},
    fold::Folding,
    merged_tree::{Label, Standing, TreeFunction},
    query::FrameScope,
    scope::View,
    table::SortKey,
    times::rfc3339,
};
use crate::{
    processes::{ids::ProcessKey, module::ModuleId},
    profile::measured::Calls,
    symbols::names::FunctionKind,
    units::ModuleAddress,
    units::UnixNs,
};

/// What is to be known of a row that is of several functions.
const SEVERAL: &str = "the row is of several functions of one name, or of several measurements";

/// The exact values of a function, beside the sampled ones.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct MeasuredGroup {
    /// Its calls.
    #[serde(flatten)]
    pub values: CallValues,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// Since when calls are counted: of the window, what was measured. RFC 3339.
    #[schema(format = DateTime)]
    pub from_at: String,
    /// Up to when.
    #[schema(format = DateTime)]
    pub to_at: String,
    /// Whether the sampled elapsed inclusive time and the measured one agree: the interval of the
    /// sampled one, of the same time and the same processes, has the measured one in it, as that
    /// was with what its probes took. Null where they cannot be compared.
    #[schema(required)]
    pub agrees: Option<bool>,
    /// Why they cannot be compared, or may differ; null where they agree.
    #[schema(required)]
    pub agrees_why: Option<String>,
    /// What was compared; null where nothing was.
    #[schema(required)]
    pub compared: Option<Compared>,
}

impl MeasuredGroup {
    /// The value in one of the columns.
    pub(super) fn key(&self, name: &str) -> Option<SortKey<'_>> {
        let number = match name {
            "exits" => return Some(SortKey::Text(self.values.exits)),
            "why" => return self.values.why.as_deref().map(SortKey::Text),
            "from_at" => return Some(SortKey::Text(&self.from_at)),
            "to_at" => return Some(SortKey::Text(&self.to_at)),
            "agrees_why" => return self.agrees_why.as_deref().map(SortKey::Text),
            "agrees" => self.agrees.map(|agrees| f64::from(u8::from(agrees))),
            _ => match name.strip_prefix("compared.") {
                Some(column) => self.compared?.column(column),
                None => self.values.column(name),
            },
        };
        number.map(SortKey::Number)
    }
}

/// The measured functions of one row.
struct OfRow<'a> {
    parts: Vec<Covered<'a>>,
}

/// To which row of functions something belongs.
pub(super) enum RowOf<'a> {
    /// To that of this function.
    Function(usize),
    /// There is no sample of it: to one of its own.
    Own(TreeFunction<'a>),
}

/// What was measured, with the rows that it belongs to.
pub(super) fn measured_of_rows<'a, 'n>(
    view: &View<'a>,
    (frames, label, folding): (FrameScope, Label<'n>, &Folding),
    functions: &[TreeFunction<'n>],
) -> Vec<(RowOf<'a>, MeasuredGroup)> {
    let covered = covered(view);
    if covered.is_empty() {
        return Vec::new();
    }
    let by_place: HashMap<(ModuleId, ModuleAddress), usize> = places(functions);
    let by_name = names(functions);
    // Of what was measured twice, each process counts once: as measured last.
    let mut seen: HashSet<(ModuleId, ModuleAddress, ProcessKey)> = HashSet::new();
    let mut of_rows: BTreeMap<usize, OfRow<'a>> = BTreeMap::new();
    let mut without: BTreeMap<(ModuleId, ModuleAddress), OfRow<'a>> = BTreeMap::new();
    for mut part in covered.into_iter().rev() {
        let function = &part.state.function;
        let place = (function.module, function.address);
        part.calls
            .retain(|key, _| seen.insert((place.0, place.1, *key)));
        if part.calls.is_empty() || folding.hides(function.module) {
            continue;
        }
        let named = std::iter::once(&function.name).chain(&function.aliases);
        let named = named.filter_map(|name| by_name.get(&(function.module, &**name)));
        let row = by_place.get(&place).or_else(|| named.min());
        let of = match row {
            Some(row) => of_rows.entry(*row).or_insert(OfRow { parts: Vec::new() }),
            None => without.entry(place).or_insert(OfRow { parts: Vec::new() }),
        };
        of.parts.push(part);
    }
    let known = of_rows
        .into_iter()
        .map(|(row, of)| (RowOf::Function(row), of));
    let own = without.into_values().map(|of| {
        let function = &of.parts[0].state.function;
        let row = TreeFunction {
            module: function.module,
            address: Some(function.address),
            kind: FunctionKind::User,
            ..TreeFunction::unknown((&*function.name).into(), Standing::Named)
        };
        (RowOf::Own(row), of)
    });
    let wanted: Vec<(RowOf<'_>, OfRow<'_>)> = known.chain(own).collect();
    let mut comparing = Comparing::new(view, (frames, label, folding));
    for (_, of) in &wanted {
        if let [part] = &of.parts[..] {
            comparing.want(part);
        }
    }
    let sampled = comparing.sampled();
    let groups = wanted.into_iter().map(|(row, of)| {
        let agreement = match &of.parts[..] {
            [part] => sampled.compare(view, part),
            _ => Agreement::unknown(SEVERAL),
        };
        (row, group(view, &of.parts, agreement))
    });
    groups.collect()
}

fn group(view: &View<'_>, parts: &[Covered<'_>], agreement: Agreement) -> MeasuredGroup {
    let mut calls = Calls::default();
    let mut probes = ProbeTimes::default();
    for part in parts {
        let costs = view.snapshot.measured().costs_of(&part.state.function);
        for of in part.calls.values() {
            calls.merge(of);
            probes += ProbeTimes::of(of, &costs);
        }
    }
    let states = || parts.iter().map(|part| part.state);
    let about = About {
        counted_only: states().find_map(|of| of.function.counted_only.as_deref()),
        gave_up: states().find_map(|of| of.gave_up.as_deref()),
        goroutines: states().any(|of| of.function.goroutines),
    };
    let coverage = &view.coverage;
    let attached = states().map(|of| of.function.attached.unix_ns).min();
    let detached = states().map(|of| of.detached.map_or(UnixNs::MAX, |at| at.unix_ns));
    let from = attached.unwrap_or_default().max(coverage.from_unix_ns);
    let to = detached
        .max()
        .unwrap_or(UnixNs::MAX)
        .min(coverage.to_unix_ns);
    let mut aliases: Vec<String> = states()
        .flat_map(|of| &of.function.aliases)
        .map(|name| name.to_string())
        .collect();
    aliases.sort();
    aliases.dedup();
    MeasuredGroup {
        values: CallValues::new(&calls, about, probes, Some(&view.denominators)),
        aliases,
        from_at: rfc3339(from),
        to_at: rfc3339(to.max(from)),
        agrees: agreement.agrees,
        agrees_why: agreement.why,
        compared: agreement.compared,
    }
}
