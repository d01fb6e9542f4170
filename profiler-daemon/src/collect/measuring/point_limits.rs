//! How many points may be attached at a time.

use super::MAX_POINTS;
use crate::kernel::{
    FunctionProbes, Kernel, MAX_SINGLE_POINTS, MAX_SINGLE_POINTS_IN_ALL, MeasureError, Probing,
};

/// Whether there is room for `more` points of an instrumentation beside those that are attached.
///
/// # Errors
/// [`MeasureError::TooMany`], [`MeasureError::TooManySingle`].
pub(in crate::collect) fn check(
    kernel: &Kernel,
    instrumentation: u8,
    more: usize,
) -> Result<(), MeasureError> {
    let own =
        kernel.measured.points_of(instrumentation) + kernel.spans.probed_by(instrumentation) + more;
    let all = kernel.measured.points() + kernel.spans.probed() + more;
    of_probing(FunctionProbes::supported()?, own, all)
}

/// Whether an instrumentation may have so many points once all that was asked for is attached,
/// which may be later than this.
///
/// # Errors
/// [`MeasureError::TooManySingle`].
pub(super) fn check_planned(points: usize) -> Result<(), MeasureError> {
    match FunctionProbes::supported()? {
        Probing::Single => of_probing(Probing::Single, points, points),
        _ => Ok(()),
    }
}

/// Whether one may have `own` of `all` points.
fn of_probing(probing: Probing, own: usize, all: usize) -> Result<(), MeasureError> {
    if probing == Probing::Single {
        let bounds = [
            (own, MAX_SINGLE_POINTS, " of one instrumentation"),
            (
                all,
                MAX_SINGLE_POINTS_IN_ALL,
                " of all instrumentations together",
            ),
        ];
        for (wanted, most, of) in bounds {
            if wanted > most {
                return Err(MeasureError::TooManySingle { wanted, most, of });
            }
        }
    }
    if all > MAX_POINTS {
        return Err(MeasureError::TooMany {
            wanted: all,
            most: MAX_POINTS,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that of links of many the number of all points counts, and that where each has its own
    // those of one instrumentation are few, those of all not many, each refused with what to do.
    #[test]
    fn what_is_too_much_depends_on_the_kernel() {
        let many = Probing::Many { of_processes: true };
        assert!(of_probing(many, 4096, 4096).is_ok());
        let refused = of_probing(many, 1, 4097).expect_err("one too many");
        assert!(refused.to_string().contains("at most 4096"), "{refused}");

        assert!(of_probing(Probing::Single, 32, 128).is_ok());
        let refused = of_probing(Probing::Single, 33, 33).expect_err("one too many");
        let text = refused.to_string();
        assert!(text.starts_with("33 points"), "{text}");
        for said in ["(Linux 6.6)", "at most 32", "of one", "choose fewer"] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let refused = of_probing(Probing::Single, 1, 129).expect_err("one too many");
        let text = refused.to_string();
        assert!(text.contains("at most 128 can be of all"), "{text}");
    }
}
