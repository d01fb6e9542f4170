//! Numbers and names as people read them on a terminal. Widths are in columns of it: some
//! characters take two, some none.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::report::values::TotalValues;

/// Nanoseconds with three digits after the point in the largest unit that is not zero: `1.234 s`.
#[must_use]
pub fn nanoseconds(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    // Rounded down, so that parts never look larger than their sum.
    format!(
        "{}.{:03} {unit}",
        ns / unit_ns,
        ns % unit_ns / (unit_ns / 1_000)
    )
}

/// What kernel programs and hooks took of threads' time, and how much of their running time that
/// is.
pub(crate) fn profiler_cost(of: &TotalValues) -> String {
    let classes = &of.classes;
    let running_ns = [classes.user_ns, classes.syscall_ns, classes.kernel_ns]
        .into_iter()
        .fold(0, u64::saturating_add);
    let time = nanoseconds(of.profiler_cost_ns);
    if running_ns == 0 {
        return time;
    }
    let part = 100.0 * of.profiler_cost_ns as f64 / running_ns as f64;
    format!("{time} ({} of running)", percent(part))
}

/// A share in a column whose title has the sign: two digits.
pub(super) fn share(value: f64) -> String {
    format!("{value:.2}")
}

/// The last part of a path.
pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(path)
}

/// How many columns a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.width()
}

/// Text with blanks up to so many columns, behind it or before it.
pub(super) fn padded(text: &str, width: usize, to_the_right: bool) -> String {
    let blanks = " ".repeat(width.saturating_sub(columns(text)));
    if to_the_right {
        format!("{blanks}{text}")
    } else {
        format!("{text}{blanks}")
    }
}

/// Text of no more than so many columns: what is too long ends in `…`.
pub(super) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let mut left = width.saturating_sub(1);
    let fits = text.chars().take_while(|c| {
        let fits = c.width().unwrap_or_default() <= left;
        left = left.saturating_sub(c.width().unwrap_or_default());
        fits
    });
    fits.chain(['…']).collect::<String>().into()
}

/// Between a library's function and that of the program from which it was called.
const CALLED_FROM: &str = " < ";

/// A library's function with that of the program from which it was called.
pub(super) fn called_from(function: &str, caller: &str) -> String {
    /// Columns of the caller's, which has to leave room for the function's.
    const MAX_CALLER: usize = 24;
    format!("{function}{CALLED_FROM}{}", cut_name(caller, MAX_CALLER))
}

/// A function of no more than so many columns, with that from which it was called, if it says so:
/// half for either, and what the other does not need.
pub(super) fn cut_function(text: &str, width: usize) -> Cow<'_, str> {
    /// Columns in which nothing is told of two names.
    const TOO_NARROW: usize = 9;
    let Some((function, caller)) = text.split_once(CALLED_FROM) else {
        return cut_name(text, width);
    };
    if columns(text) <= width || width < TOO_NARROW {
        return cut_name(text, width);
    }
    let both = width - columns(CALLED_FROM);
    let of_caller = columns(caller).min((both / 2).max(both.saturating_sub(columns(function))));
    let function = cut_name(function, both - of_caller);
    // Names are what programs say they are: no further one is looked for.
    let caller = cut_name(caller, of_caller);
    format!("{function}{CALLED_FROM}{caller}").into()
}

/// A function's name of no more than so many columns: what is before its own name gives way first,
/// then what is behind it.
fn cut_name(text: &str, width: usize) -> Cow<'_, str> {
    if columns(text) <= width {
        return text.into();
    }
    let (indent, name) = text.split_at(text.len() - text.trim_start_matches(' ').len());
    let qualified = name.find(['(', '<', ' ']).unwrap_or(name.len());
    let shorter = name[..qualified].match_indices("::");
    let mut shorter = shorter.map(|(at, _)| format!("{indent}…{}", &name[at..]));
    let fits = |text: &String| columns(text) <= width;
    let last = name[..qualified].rfind("::");
    match (shorter.find(fits), last) {
        (Some(shorter), _) => shorter.into(),
        (None, Some(at)) => cut(&format!("{indent}…{}", &name[at..]), width)
            .into_owned()
            .into(),
        (None, None) => cut(text, width),
    }
}

/// A share with one digit, that is only all where it is.
pub(super) fn at_most(share: f64) -> String {
    let tenths = (share.clamp(0.0, 100.0) * 10.0).floor() / 10.0;
    if tenths == 100.0 {
        "100%".to_owned()
    } else {
        format!("{tenths:.1}%")
    }
}

/// The name of a process, or of an image and how many ended processes of it these are.
pub(super) fn title(comm: &str, ended: Option<u64>) -> String {
    match ended {
        Some(ended) => format!("{} ({ended} ended)", name(comm)),
        None => name(comm),
    }
}

/// A percentage with two digits.
pub(super) fn percent(value: f64) -> String {
    format!("{value:.2}%")
}

/// A name that came from a program, made harmless: what would move a terminal's cursor, change its
/// colours or reverse the writing direction is shown as an escape.
#[must_use]
pub fn name(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Marks that change the direction of the text around them, separators of lines, and characters of
/// no width.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check the unit at every border, and that nothing is rounded up.
    #[test]
    fn units() {
        let shown = [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.000 us"),
            (999_999, "999.999 us"),
            (1_000_000, "1.000 ms"),
            (1_234_999_999, "1.234 s"),
            (86_400_000_000_000, "86400.000 s"),
        ];
        for (ns, text) in shown {
            assert_eq!(nanoseconds(ns), text);
        }
        assert_eq!(percent(1.0 / 3.0), "0.33%");
    }

    // Check that what fits is left alone, what does not ends where it is cut, and that a folder's
    // name is its last part.
    #[test]
    fn short_names() {
        assert_eq!((&*cut("naïve", 5), &*cut("naïves", 5)), ("naïve", "naïv…"));
        let wide = "日本語";
        assert_eq!(
            (
                columns(wide),
                &*cut(wide, 6),
                &*cut(wide, 5),
                &*cut(wide, 4)
            ),
            (6, wide, "日本…", "日…")
        );
        assert_eq!(
            (padded(wide, 7, false), padded("é", 3, true)),
            ("日本語 ".to_owned(), "  é".to_owned())
        );
        let functions = [
            "work::programs::split::sixty",
            "  a::b::c::sixty",
            "ns::Class::method(int, char const*)",
            "std::vector<std::pair<int, int>>::push_back",
            "a_name_of_one_part",
        ];
        let shown = functions.map(|name| cut_function(name, 12).into_owned());
        let expected = [
            "…::sixty",
            "  …::sixty",
            "…::method(i…",
            "…::vector<s…",
            "a_name_of_o…",
        ];
        assert_eq!(shown, expected);
        let parts = ["/usr/lib/libc.so.6", "[kernel]", "/", "/usr/", ""].map(last_part);
        assert_eq!(parts, ["libc.so.6", "[kernel]", "/", "usr", ""]);
    }

    // Check that nearly all is not said to be all.
    #[test]
    fn shares() {
        let shown = [99.999, 100.0, 0.0, 99.94].map(at_most);
        assert_eq!(shown, ["99.9%", "100%", "0.0%", "99.9%"]);
    }

    // Check that of a function and where it was called from each has half, or what the other
    // leaves.
    #[test]
    fn callers_are_cut_too() {
        let text = "__futex_abstimed_wait_common < bioProcessBackgroundJobs";
        assert_eq!(cut_function(text, 27), "__futex_abs… < bioProcessB…");
        assert_eq!(
            cut_function("epoll_wait < main_loop_run", 23),
            "epoll_wait < main_loop…"
        );
        let long = "__futex_abstimed_wait_common < f";
        assert_eq!(cut_function(long, 20), "__futex_abstime… < f");
        assert_eq!(cut_function(text, 80), text);
        // Whatever a program calls its functions, a cell is as wide as it may be.
        let hostile = " < a".repeat(2_000);
        for width in 1..60 {
            assert!(columns(&cut_function(&hostile, width)) <= width, "{width}");
            assert!(columns(&cut_function(&called_from(text, &hostile), width)) <= width);
        }
    }

    // Check that escape sequences, line breaks and direction marks cannot reach a terminal, and
    // ordinary text can.
    #[test]
    fn hostile_names() {
        assert_eq!(name("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\u{a}");
        assert_eq!(name("x\u{202e}y\u{9b}z"), "x\\u{202e}y\\u{9b}z");
        assert_eq!(name("naïve<T>::größe λ"), "naïve<T>::größe λ");
    }
}
