//! Shares of a whole number by weights, rounded by largest remainder: they add up to it, and none
//! is off by one.

use core::cmp::Reverse;
use std::vec::Vec;

/// `total` divided by `weights`: one share for each, whose sum is `total`. `None` when there is no
/// weight and something to divide.
///
/// Each share is its exact value rounded up or down. The largest remainders are rounded up; of
/// equal ones the larger weight, then the earlier.
#[must_use]
pub fn shares(total: u64, weights: &[u64]) -> Option<Vec<u64>> {
    let mut all = std::vec![0; weights.len()];
    let weighted = weights.iter().copied().enumerate();
    share(total, weighted, |index, part| all[index] += part).then_some(all)
}

/// As [`shares`], of weights with any index; calls `give` with what an index has, up to twice.
/// False when there is no weight and something to divide.
pub(super) fn share(
    total: u64,
    weights: impl Iterator<Item = (usize, u64)> + Clone,
    mut give: impl FnMut(usize, u64),
) -> bool {
    if total == 0 {
        return true;
    }
    let weighted = weights.filter(|(_, weight)| *weight > 0);
    // As many as fit into memory, of 64 bits each: never too much for 128.
    let sum: u128 = weighted.clone().map(|(_, weight)| u128::from(weight)).sum();
    if sum == 0 {
        return false;
    }
    let mut left = total;
    let mut remainders = Vec::new();
    for (index, weight) in weighted {
        let scaled = u128::from(total) * u128::from(weight);
        let floor = u64::try_from(scaled / sum).expect("a share is no more than the total");
        let remainder = scaled % sum;
        if floor > 0 {
            give(index, floor);
            left -= floor;
        }
        if remainder > 0 {
            remainders.push((Reverse(remainder), Reverse(weight), index));
        }
    }
    // The remainders add up to `left` wholes, each less than one: there are more of them than
    // `left`.
    let count = usize::try_from(left).expect("there are more remainders than are left over");
    if count > 0 {
        remainders.select_nth_unstable(count - 1);
        for (_, _, index) in &remainders[..count] {
            give(*index, 1);
        }
    }
    true
}
