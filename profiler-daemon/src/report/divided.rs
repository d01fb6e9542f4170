//! Divides the exact totals of a view's strata among the places that hold their marks, to the
//! nanosecond (docs/semantics.md section 4).

use profiler_common::{
    division::{
        Product, Stratum, shares,
        strata::{part_of, totals_of},
    },
    kinds::{Kind, KindNs, Primary},
};

use super::{accuracy::Holdings, product::Values, strata::Shared};
use crate::profile::values::class_of;

/// What a place holds of one member of the view.
#[derive(Clone, Debug)]
pub(super) struct MemberCell {
    pub(super) member: u32,
    pub(super) node: u32,
    pub(super) primary: Primary,
}

/// The products.
#[derive(Default)]
pub(super) struct Divided {
    /// By cell.
    pub(super) values: Vec<Values>,
    /// By member: time of kinds of which its stratum has no mark, or too few.
    pub(super) not_sampled: Vec<Values>,
    /// What they rest on.
    pub(super) holdings: Holdings,
}

impl Divided {
    /// Divides `strata`, whose members have the exact totals `kinds`, among `cells`. `span_ns`: the
    /// time that the report covers.
    pub(super) fn new(
        strata: &[Shared],
        kinds: &[KindNs],
        cells: &[MemberCell],
        span_ns: u64,
    ) -> Self {
        let mut by_member: Vec<Vec<u32>> = vec![Vec::new(); kinds.len()];
        for (index, cell) in (0u32..).zip(cells) {
            by_member[cell.member as usize].push(index);
        }
        let mut divided = Self {
            values: cells.iter().map(as_counted).collect(),
            not_sampled: vec![Values::default(); kinds.len()],
            holdings: Holdings::default(),
        };
        // Exact waits are of no kind: they go with the first stratum of each member.
        let mut has_exact = vec![false; kinds.len()];
        for shared in strata {
            let members = shared.members.iter();
            let most = members.map(|(member, _)| by_member[*member as usize].len());
            let mut held: Vec<(u32, Primary)> = Vec::with_capacity(most.sum());
            for (member, set) in &shared.members {
                let with_exact = !std::mem::replace(&mut has_exact[*member as usize], true);
                for cell in &by_member[*member as usize] {
                    let part = part_of(set, with_exact, &cells[*cell as usize].primary);
                    if part != Primary::default() {
                        held.push((*cell, part));
                    }
                }
            }
            divided.take(shared, kinds, (cells, held), span_ns);
        }
        divided
    }

    fn take(
        &mut self,
        shared: &Shared,
        kinds: &[KindNs],
        (cells, held): (&[MemberCell], Vec<(u32, Primary)>),
        span_ns: u64,
    ) {
        let mut sum = Primary::default();
        held.iter().for_each(|(_, part)| sum.add(part));
        let stratum = Stratum::new(&shared.kinds, &sum, span_ns);
        let (products, _) = stratum.divide(held.iter().map(|(_, part)| part));
        for ((cell, _), product) in held.iter().zip(&products) {
            self.values[*cell as usize].add(&Values::from(product));
        }
        let not_sampled = stratum.not_sampled_kinds();
        let kinds_of = Kind::ALL.into_iter();
        for kind in kinds_of.filter(|kind| not_sampled[*kind as usize] > 0) {
            let members = shared.members.iter();
            let of_members: Vec<u64> = members
                .map(|(member, set)| totals_of(set, &kinds[*member as usize])[kind as usize])
                .collect();
            let Some(parts) = shares(not_sampled[kind as usize], &of_members) else {
                continue;
            };
            for ((member, _), ns) in shared.members.iter().zip(parts) {
                let mut values = Values::of_class(class_of(kind), ns);
                values.estimated_ns = if kind == Kind::Untraced { ns } else { 0 };
                self.not_sampled[*member as usize].add(&values);
            }
        }
        // In the same memory: there may be a hundred bytes for each node of all trees.
        let places = held.into_iter();
        let places = places.map(|(cell, part)| (cells[cell as usize].node, part));
        let mut places: Vec<(u32, Primary)> = places.collect();
        places.shrink_to_fit();
        self.holdings.add(stratum, places);
    }
}

/// What a cell has without any division.
fn as_counted(cell: &MemberCell) -> Values {
    Values {
        samples: cell.primary.samples(),
        walks: cell.primary.walks,
        ..Values::default()
    }
}

impl From<&Product> for Values {
    fn from(product: &Product) -> Self {
        Self {
            samples: 0,
            walks: 0,
            classes: product.classes,
            fault_ns: product.fault_ns,
            estimated_ns: product.estimated_ns,
        }
    }
}
