//! The drawn gaps between marks, in whole numbers: random ones of 32 bits are arguments.

/// `part` of 2^32 parts of `whole_ns`.
#[inline(always)]
const fn part(whole_ns: u64, part: u32) -> u64 {
    (whole_ns >> 32) * part as u64 + (((whole_ns & 0xffff_ffff) * part as u64) >> 32)
}

/// A gap between two marks: from half to one and a half `mean_ns`.
#[inline(always)]
pub(crate) const fn gap(mean_ns: u64, draw: u32) -> u64 {
    mean_ns - mean_ns / 2 + part(mean_ns, draw)
}

/// The gap to the first mark: the law of what remains of a gap at a moment that has nothing to do
/// with the marks. Half of its weight lies evenly on the first half of the mean gap, the other half
/// falls evenly to nothing over the next whole one.
#[inline(always)]
pub(crate) fn residual(mean_ns: u64, random: &mut impl FnMut() -> u32) -> u64 {
    let (one, other) = (random(), random());
    1 + if random() & 1 == 0 {
        part(mean_ns / 2, one)
    } else {
        mean_ns / 2 + part(mean_ns, if one < other { one } else { other })
    }
}

/// As many marks as `length_ns` has on average, one more or less by chance.
#[inline(always)]
pub(crate) const fn share(length_ns: u64, mean_ns: u64, draw: u32) -> u64 {
    let rest_ns = length_ns % mean_ns + part(mean_ns, draw);
    length_ns / mean_ns + (rest_ns >= mean_ns) as u64
}
