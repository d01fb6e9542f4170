//! An error and all that caused it, for people.

use std::error::Error;
use std::fmt;

/// An error of any type, which may be sent to another thread.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// Shows an error and what caused it, outermost first, on one line and without repetition: many
/// errors have their cause in their own text, too.
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        for error in std::iter::successors(Some(self.0), |&error| error.source()) {
            let text = error.to_string();
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            if text.is_empty() || shown.contains(&text) {
                continue;
            }
            if !shown.is_empty() {
                shown.push_str(": ");
            }
            shown.push_str(&text);
        }
        f.write_str(&shown)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    enum Nested {
        #[error("cannot\n open it")]
        Silent(#[source] AnyError),
        #[error("it ends here: {0}")]
        Telling(#[source] io::Error),
    }

    // Check that causes are shown outermost first, each once, and that line breaks vanish.
    #[test]
    fn a_chain_is_one_line() {
        let bottom = io::Error::other("no such file");
        let error = Nested::Silent(Nested::Telling(bottom).into());
        assert_eq!(
            ErrorChain(&error).to_string(),
            "cannot open it: it ends here: no such file"
        );
    }
}
