//! What is asked for what is to be shown, and the paths of the HTTP interface for it.

/// Most rows that are asked for.
pub(super) const MAX_ROWS: usize = 200;

/// What is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ScreenView {
    /// All processes.
    #[default]
    Processes,
    /// Functions of one process, `processes/PID.START_TICKS`, or of the ended ones of an image,
    /// `images/ID`.
    Functions(String),
    /// Threads of one process.
    Threads(String),
}

impl ScreenView {
    /// The process, where it is of one.
    pub(super) fn process(&self) -> Option<&str> {
        match self {
            Self::Processes => None,
            Self::Functions(process) | Self::Threads(process) => Some(process),
        }
    }
}

/// One screen's worth of questions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScreenQuestion {
    pub(super) view: ScreenView,
    /// The column, as the interface calls it.
    pub(super) sort: &'static str,
    /// `session`, or a length of time.
    pub(super) window: &'static str,
    /// What names must contain; nothing for all.
    pub(super) filter: String,
}

impl ScreenQuestion {
    pub(super) fn totals_path(&self) -> String {
        let path = match self.view.process() {
            None => "/api/v1/session".to_owned(),
            Some(process) => format!("/api/v1/{process}"),
        };
        format!("{path}?window={}", self.window)
    }

    pub(super) fn table_path(&self) -> String {
        let path = match &self.view {
            ScreenView::Processes => "/api/v1/processes".to_owned(),
            ScreenView::Functions(process) => format!("/api/v1/{process}/functions"),
            ScreenView::Threads(process) => format!("/api/v1/{process}/threads"),
        };
        let mut path = format!(
            "{path}?window={}&sort={}&limit={MAX_ROWS}",
            self.window, self.sort
        );
        if !self.filter.is_empty() {
            path.push_str("&q=");
            path.push_str(&escaped(&self.filter));
        }
        path
    }
}

/// Text as a part of a query.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ScreenQuestion, ScreenView};

    // Check which paths are asked for each view, and that a filter cannot become more than a
    // filter.
    #[test]
    fn paths() {
        let mut question = ScreenQuestion {
            view: ScreenView::Processes,
            sort: "samples",
            window: "30s",
            filter: String::new(),
        };
        assert_eq!(question.totals_path(), "/api/v1/session?window=30s");
        assert_eq!(
            question.table_path(),
            "/api/v1/processes?window=30s&sort=samples&limit=200"
        );
        question.view = ScreenView::Functions("processes/12.34".to_owned());
        question.filter = "a b&limit=0é".to_owned();
        assert_eq!(question.totals_path(), "/api/v1/processes/12.34?window=30s");
        assert_eq!(
            question.table_path(),
            "/api/v1/processes/12.34/functions?window=30s&sort=samples&limit=200&q=a%20b%26limit%3D0%C3%A9"
        );
    }
}
