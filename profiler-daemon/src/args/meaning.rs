//! What the command line and the file that it names mean together, as a configuration. What was
//! typed wins.

use super::{Args, RecordArgs};
use crate::config::targets::Targets;
use crate::config::{Config, ConfigError, SystemCalls};

impl Args {
    /// What was typed and the file it names mean together.
    ///
    /// # Errors
    /// The file cannot be read, or it or the command line holds something that is not allowed.
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config::default(),
        };
        config.set_frequency(self.frequency_hz)?;
        config.set_min_interval(self.min_interval)?;
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        if !self.pids.is_empty() {
            config.targets = Targets::only(self.pids.clone(), Vec::new(), config.targets.children)
                .map_err(|sentence| ConfigError::Option {
                    option: "--pid",
                    sentence,
                })?;
        }
        Ok(config)
    }
}

impl RecordArgs {
    /// What was typed and the file it names mean together. Whatever the file says of targets, only
    /// what was typed is recorded: everything where nothing was. A command's process is not known
    /// yet.
    ///
    /// # Errors
    /// As [`Args::resolve`].
    pub fn resolve(&self) -> Result<Config, ConfigError> {
        let mut config = match &self.config {
            Some(path) => Config::read(path)?,
            None => Config {
                budget_millionths: None,
                budget_process_millionths: None,
                ..Config::default()
            },
        };
        if config.system_calls == SystemCalls::Auto {
            // Whoever records something once wants all of it.
            config.system_calls = SystemCalls::All;
        }
        config.set_frequency(self.frequency_hz)?;
        config.targets = if self.pids.is_empty() && self.comms.is_empty() {
            Targets::default()
        } else {
            Targets::only(self.pids.clone(), self.comms.clone(), self.children).map_err(
                |sentence| ConfigError::Option {
                    option: "--pid and --comm",
                    sentence,
                },
            )?
        };
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::Args;

    #[test]
    fn what_was_typed_wins_over_the_file() {
        // Check that each option replaces the file's value, and is held to the same bounds.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "frequency_hz = 19\nlisten = \"127.0.0.1:1\"\n[targets]\ncomms = [\"sshd\"]\nchildren = true\n").unwrap();
        let resolve = |typed: &[&str]| {
            let args = ["profiler-daemon", "--config", file.to_str().unwrap()]
                .into_iter()
                .chain(typed.iter().copied());
            Args::try_parse_from(args).unwrap().resolve()
        };
        let config = resolve(&[
            "--frequency-hz=49",
            "--min-interval=0",
            "--listen=127.0.0.1:2",
            "--pid=5",
        ])
        .unwrap();
        assert_eq!(
            (
                config.frequency_hz,
                config.min_interval_ns,
                config.listen.port()
            ),
            (49, 0, 2)
        );
        assert_eq!(
            (config.targets.pids.as_slice(), config.targets.comms.len()),
            ([5].as_slice(), 0)
        );
        assert!(config.targets.children && !config.targets.all);
        assert_eq!(resolve(&[]).unwrap().frequency_hz, 19);
        for (typed, part) in [
            (
                "--frequency-hz=0",
                "--frequency-hz: must be a whole number from 1 to 10000",
            ),
            (
                "--min-interval=1h",
                "--min-interval: must be a length of time",
            ),
        ] {
            let sentence = resolve(&[typed]).unwrap_err().to_string();
            assert!(sentence.starts_with(part), "{sentence}");
        }
    }
}
