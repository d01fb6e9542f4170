//! Lengths of time as people type them (`1ms`, `30s`, `5m`), read and written.
//!
//! Used in the configuration file, in query strings and on the command line. It knows no bounds:
//! whoever asks for a length of time checks it against its own.

/// The units that a length of time may carry, with their length in nanoseconds, longest first.
const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// What a length of time must look like, for messages.
pub const FORM: &str =
    "a whole number and a unit (ns, us, ms, s, m or h), as in \"1ms\" or \"30s\"";

/// Reads a length of time and answers it in nanoseconds. `0` needs no unit; anything else does.
///
/// # Errors
///
/// A sentence that says what the form is, or that the length does not fit in 64 bits of
/// nanoseconds.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("must be {FORM}"));
    }
    let number: u64 = number
        .parse()
        .map_err(|_| "is too long to measure".to_owned())?;
    if unit.is_empty() && number == 0 {
        return Ok(0);
    }
    let length_ns = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, length_ns)| *length_ns)
        .ok_or_else(|| format!("must be {FORM}"))?;
    number
        .checked_mul(length_ns)
        .ok_or_else(|| "is too long to measure".to_owned())
}

/// Writes a length of time in the longest unit that holds it exactly: 90 000 000 000 is `90s`.
#[must_use]
pub fn format(duration_ns: u64) -> String {
    if duration_ns == 0 {
        return "0".to_owned();
    }
    let (unit, length_ns) = UNITS
        .iter()
        .find(|(_, length_ns)| duration_ns.is_multiple_of(*length_ns))
        .copied()
        .unwrap_or(("ns", 1));
    format!("{}{unit}", duration_ns / length_ns)
}

#[cfg(test)]
mod tests {
    use super::{format, parse};

    #[test]
    fn lengths_are_read_in_every_unit() {
        // Check that each unit has its length, and that zero may stand alone.
        let read: Vec<_> = ["0", "0s", "7ns", "3us", "1ms", "30s", "5m", "2h"]
            .into_iter()
            .map(parse)
            .collect();
        assert_eq!(
            read,
            [
                0,
                0,
                7,
                3_000,
                1_000_000,
                30_000_000_000,
                300_000_000_000,
                7_200_000_000_000
            ]
            .map(Ok)
        );
    }

    #[test]
    fn what_is_not_a_length_is_refused() {
        // Check that a missing, unknown or misplaced unit, a sign and an overflow are all refused.
        for text in [
            "",
            "5",
            "ms",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "5s ",
            "99999999999999999999s",
            "9999999999999h",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        // Check that writing a length of time loses nothing and picks the longest exact unit.
        for (length_ns, text) in [
            (0, "0"),
            (1, "1ns"),
            (90_000_000_000, "90s"),
            (3_600_000_000_000, "1h"),
        ] {
            assert_eq!(format(length_ns), text);
            assert_eq!(parse(text), Ok(length_ns));
        }
    }
}
