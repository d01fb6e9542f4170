//! How far the share that was sampled can be from the true one, by chance.

/// The standard normal quantile of 97.5 %.
const Z: f64 = 1.959_963_985;

/// The 95 % interval (Wilson's score) of a share of which `count` out of `all` samples were seen,
/// percent. It takes so many samples as `each` says (at least 1) for one that was drawn at random.
/// Without samples nothing is known: 0 to 100.
#[must_use]
pub fn interval(count: u64, all: u64, each: f64) -> (f64, f64) {
    if all == 0 {
        return (0.0, 100.0);
    }
    let count = count.min(all);
    let n = all as f64 / each.max(1.0);
    let share = count as f64 / all as f64;
    let square = Z * Z / n;
    let middle = (share + square / 2.0) / (1.0 + square);
    let half = Z / (1.0 + square) * (share * (1.0 - share) / n + square / (4.0 * n)).sqrt();
    // Rounding must not move the ends past what was seen.
    let low = if count == 0 { 0.0 } else { middle - half };
    let high = if count == all { 1.0 } else { middle + half };
    (
        100.0 * low.clamp(0.0, share),
        100.0 * high.clamp(share, 1.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check known intervals, both ends, none and too many samples.
    #[test]
    fn known_intervals() {
        let close = |found: (f64, f64), low: f64, high: f64| {
            assert!(
                (found.0 - low).abs() < 0.005 && (found.1 - high).abs() < 0.005,
                "{found:?}"
            );
        };
        close(interval(5, 10, 1.0), 23.66, 76.34);
        close(interval(1, 10, 1.0), 1.79, 40.42);
        close(interval(0, 10, 1.0), 0.0, 27.75);
        close(interval(10, 10, 1.0), 72.25, 100.0);
        close(interval(500, 1000, 1.0), 46.91, 53.09);
        close(interval(500, 1000, 100.0), 23.66, 76.34);
        assert_eq!(interval(0, 0, 1.0), (0.0, 100.0));
        assert_eq!(interval(3, 2, 1.0), interval(2, 2, 1.0));
    }

    // Check that the interval holds the true share about as often as it says, over all counts that
    // chance can bring.
    #[test]
    fn it_holds_the_truth() {
        for (share, all) in [(0.02, 500u32), (0.1, 100), (0.5, 50), (0.9, 300)] {
            let mut chance = (1.0f64 - share).powi(all as i32);
            let mut held = 0.0;
            for count in 0..=all {
                let (low, high) = interval(count.into(), all.into(), 1.0);
                if (low..=high).contains(&(100.0 * share)) {
                    held += chance;
                }
                chance *= f64::from(all - count) / f64::from(count + 1) * share / (1.0 - share);
            }
            assert!((0.93..0.975).contains(&held), "{share} of {all}: {held}");
        }
    }
}
