//! The unit that times which stand below each other are shown in.

/// A unit, and digits after the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    name: &'static str,
    ns: u64,
    digits: usize,
}

impl Unit {
    /// The one in which the largest of these times has a digit before the point, with four digits
    /// or more in all.
    pub(super) fn of(times: impl Iterator<Item = u64>) -> Self {
        let largest = times.max().unwrap_or_default();
        let (name, ns) = match largest {
            0..1_000 => {
                return Self {
                    name: "ns",
                    ns: 1,
                    digits: 0,
                };
            }
            1_000..1_000_000 => ("us", 1_000),
            1_000_000..1_000_000_000 => ("ms", 1_000_000),
            _ => ("s", 1_000_000_000),
        };
        let digits = match largest / ns {
            0..100 => 3,
            100..1_000 => 2,
            1_000..10_000 => 1,
            _ => 0,
        };
        Self { name, ns, digits }
    }

    /// `s`, `ms`, `us` or `ns`.
    pub(super) const fn name(self) -> &'static str {
        self.name
    }

    /// A time in it, without its name. Rounded down, so that parts never look larger than their
    /// sum.
    pub(super) fn show(self, ns: u64) -> String {
        let (whole, rest) = (ns / self.ns, ns % self.ns);
        if self.digits == 0 {
            return whole.to_string();
        }
        let digits = self.digits;
        let thousandths = rest / (self.ns / 1_000);
        let shown = thousandths / 10_u64.pow(3 - digits as u32);
        format!("{whole}.{shown:0digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check the unit and the digits at every border, and that nothing is rounded up.
    #[test]
    fn borders() {
        let shown = |largest: u64, ns: u64| {
            let unit = Unit::of([largest, 1].into_iter());
            format!("{} {}", unit.show(ns), unit.name())
        };
        assert_eq!(shown(0, 0), "0 ns");
        assert_eq!(shown(999, 999), "999 ns");
        assert_eq!(shown(1_000, 999), "0.999 us");
        assert_eq!(shown(999_999, 999_999), "999.99 us");
        assert_eq!(shown(99_999_999, 99_999_999), "99.999 ms");
        assert_eq!(shown(1_000_000_000, 999_999), "0.000 s");
        assert_eq!(shown(5_000_000_000_000, 1_299_999_999), "1.2 s");
        assert_eq!(shown(50_000_000_000_000, 1_999_999_999), "1 s");
    }
}
