//! Functions of shapes that mislead whoever looks for their exits: each of their calls is counted
//! once, and with its time, or it is said why not.

use crate::exact_functions::row;
use crate::exact_survival::Compiled;
use crate::reads::{number, text};

const SHAPES: &str = include_str!("exact_shapes/shapes.c");
/// As in the program.
const CALLS: u64 = 400;
const DEEP: u64 = 300;
/// What each call of those that work takes at least, nanoseconds.
const WORK_NS: u64 = 20_000;

/// The program; `None`: there is no compiler (said).
fn program() -> Option<Compiled> {
    let options = ["-O1", "-no-pie", "-fno-optimize-sibling-calls"];
    Compiled::new("cc", ("shapes.c", SHAPES), &options)
}

// Check that turns of a loop around a whole function, each of which hits its probe, count for the
// budget though they are no calls: the program is let go long before its turns are over.
#[test]
fn turns_are_in_the_budget() {
    let Some(program) = program() else {
        return;
    };
    let Some(report) = program.with_and_without(&["--trace", "program:shape_loop"], &["turns"])
    else {
        return;
    };
    let row = row(&report, "shape_loop");
    assert_eq!(number(row, "/calls"), 1, "{row:#}");
    assert!(text(row, "/why").starts_with("given up"), "{row:#}");
    // What the turns took before that is told.
    assert!(
        number(&report, "/measured/probes_ns") > 10_000_000,
        "{row:#}"
    );
}

// Check that a conditional jump out of a function ends the call only when it is taken; that code
// without a name which a function jumps to is its own; that turns of a loop around a whole function
// are no calls; that a function whose first instruction leaves it, and one that jumps through a
// table of functions, are counted and it is said why; and that what the probes of calls too deep to
// be followed took is subtracted.
#[test]
fn each_shape_has_its_calls() {
    let Some(program) = program() else {
        return;
    };
    let report = program.with_and_without(
        &[
            "--trace",
            "program:shape_cold",
            "--trace",
            "program:shape_conditional",
            "--trace",
            "program:shape_loop",
            "--trace",
            "program:shape_jump",
            "--trace",
            "program:shape_table",
            "--trace",
            "program:shape_deep",
            "--trace-budget=0%",
        ],
        &[],
    );
    let Some(report) = report else {
        return;
    };
    for function in ["shape_cold", "shape_conditional", "shape_loop"] {
        let row = row(&report, function);
        assert_eq!(number(row, "/calls"), CALLS, "{row:#}");
        assert_eq!(number(row, "/outermost"), CALLS, "{row:#}");
        for none in ["/left_unseen", "/exits_unmatched", "/counted_only", "/open"] {
            assert_eq!(number(row, none), 0, "{none} of {row:#}");
        }
    }
    let cold = row(&report, "shape_cold");
    assert!(
        number(cold, "/elapsed/inclusive_ns") > CALLS * WORK_NS * 9 / 10,
        "{cold:#}"
    );
    // Every other call of it ends where the work begins.
    let conditional = row(&report, "shape_conditional");
    let (elapsed_ns, application_ns) = (
        number(conditional, "/elapsed/inclusive_ns"),
        number(conditional, "/application/inclusive_ns"),
    );
    assert!(elapsed_ns > CALLS / 2 * WORK_NS * 9 / 10, "{conditional:#}");
    assert!(application_ns < CALLS * WORK_NS * 3 / 4, "{conditional:#}");
    let why = |function: &str, expected: &str| {
        let row = row(&report, function);
        assert_eq!(number(row, "/calls"), CALLS, "{row:#}");
        assert_eq!(number(row, "/outermost"), 0, "{row:#}");
        assert!(text(row, "/why").contains(expected), "{row:#}");
    };
    why("shape_jump", "its first instruction leaves it");
    why("shape_table", "an indirect jump at +0xd may be a tail call");
    let deep = row(&report, "shape_deep");
    assert_eq!(number(deep, "/calls"), DEEP, "{deep:#}");
    assert_eq!(number(deep, "/outermost"), 1, "{deep:#}");
    // No call does anything: all that was measured was probes, those of calls without a place too,
    // and what is left of them is what is told that it may be, and some that is beside each hit.
    assert_eq!(deep["mostly_probe"], true, "{deep:#}");
    let (left_ns, probe_ns) = (
        number(deep, "/elapsed/inclusive_ns") - number(deep, "/classes/runnable_ns"),
        number(deep, "/probe_ns"),
    );
    let error_ns = number(deep, "/error_ns");
    assert!(left_ns < error_ns + probe_ns / 5, "{deep:#}");
    assert!(left_ns < probe_ns, "{deep:#}");
}
