//! Values that were measured at moments, as of the time between these. Pure: time is an argument.

use crate::units::MonoNs;

/// For how long values lay between two others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    ns: f64,
    low: f64,
    high: f64,
}

/// Of values that were measured at moments, between which they change evenly. Each has a nanosecond
/// of its own, so that those of one moment count alike.
pub(super) fn stretches(values: &[(MonoNs, f64)]) -> Vec<Stretch> {
    let stretch = |ns, a: f64, b: f64| Stretch {
        ns,
        low: a.min(b),
        high: a.max(b),
    };
    let own = values.iter().map(|(_, value)| stretch(1.0, *value, *value));
    let pairs = values.iter().zip(values.iter().skip(1));
    let between = pairs.map(|((from_ns, a), (to_ns, b))| {
        let ns = to_ns.saturating_since(*from_ns) as f64;
        stretch(ns, *a, *b)
    });
    own.chain(between).collect()
}

/// The value below which they lay for this share of the time. 0 of nothing.
pub(super) fn quantile(stretches: &[Stretch], share: f64) -> f64 {
    /// Halvings of the range: to a millionth of it.
    const HALVINGS: u32 = 20;
    let wanted_ns = share * stretches.iter().map(|stretch| stretch.ns).sum::<f64>();
    let below_ns = |value: f64| -> f64 {
        let below = |stretch: &Stretch| match stretch.high - stretch.low {
            _ if value >= stretch.high => stretch.ns,
            width if width > 0.0 => stretch.ns * ((value - stretch.low) / width).clamp(0.0, 1.0),
            _ => 0.0,
        };
        stretches.iter().map(below).sum()
    };
    let lows = stretches.iter().map(|stretch| stretch.low);
    let highs = stretches.iter().map(|stretch| stretch.high);
    let Some((mut low, mut high)) = lows.reduce(f64::min).zip(highs.reduce(f64::max)) else {
        return 0.0;
    };
    if below_ns(low) >= wanted_ns {
        return low;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if below_ns(middle) < wanted_ns {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a quantile lies between the values around it, and never outside of all.
    #[test]
    fn quantiles_are_of_time() {
        let of = |ns, low, high| Stretch { ns, low, high };
        let even = [of(10.0, 1.0, 3.0)];
        let at = |share| (100.0 * quantile(&even, share)).round();
        assert_eq!(
            [at(0.0), at(0.1), at(0.5), at(1.0)],
            [100.0, 120.0, 200.0, 300.0]
        );
        let steps = [of(1.0, 1.0, 1.0), of(9.0, 3.0, 3.0)];
        let at = |share| (100.0 * quantile(&steps, share)).round();
        assert_eq!([at(0.05), at(0.5), at(0.9)], [100.0, 300.0, 300.0]);
        assert_eq!(quantile(&[of(0.0, 5.0, 5.0)], 0.1), 5.0);
    }
}
