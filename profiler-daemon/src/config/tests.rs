//! Tests of the configuration as a user meets it.

use super::{Config, ConfigError, SystemCalls, keys, sample};

fn refused(text: &str) -> String {
    Config::parse("a.toml", text).unwrap_err().to_string()
}

/// The sample with every setting switched on.
fn switched_on() -> String {
    let lines = sample().lines().map(str::to_owned).collect::<Vec<_>>();
    let on = lines.iter().map(|line| match line.strip_prefix('#') {
        Some(setting) if !setting.starts_with(' ') => setting,
        _ => line,
    });
    on.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_sample_means_the_defaults() {
    // Check that the sample means the defaults, both as it ships and with every setting switched
    // on.
    assert_eq!(
        Config::parse("sample", &sample()).unwrap(),
        Config::default()
    );
    assert_eq!(
        Config::parse("sample", &switched_on()).unwrap(),
        Config::default()
    );
}

#[test]
fn the_sample_holds_every_setting_once() {
    // Check that no declared setting is missing from the sample, and that each has a comment of
    // whole sentences.
    let on: toml::Table = switched_on().parse().unwrap();
    for key in keys() {
        let table = if key.table.is_empty() {
            &on
        } else {
            on[key.table].as_table().unwrap()
        };
        assert!(table.contains_key(key.name), "{} is missing", key.name);
        assert!(
            key.comment.ends_with('.'),
            "the comment of {} does not end",
            key.name
        );
    }
    let written = on
        .values()
        .map(|value| value.as_table().map_or(1, toml::Table::len))
        .sum::<usize>();
    assert_eq!(written, keys().len());
}

#[test]
fn written_values_arrive() {
    // Check that numbers, lengths of time, sizes, words and lists are read, in tables and at the
    // top.
    let config = Config::parse(
        "a.toml",
        "frequency_hz = 19\nmin_interval = \"250us\"\nsystem_calls = \"targets\"\nallowed_hosts = [\"Host.Example\", \"[::1]\"]\n\
         [targets]\ncomms = [\"sshd\"]\nchildren = true\n[limits]\nstack_ring_bytes = \"1MiB\"\nexited_processes = 0\n\
         [http]\nrequest_timeout = \"2s\"\n",
    )
    .unwrap();
    assert_eq!(config.frequency_hz, 19);
    assert_eq!(config.min_interval_ns, 250_000);
    assert_eq!(config.system_calls, SystemCalls::Targets);
    assert_eq!(config.allowed_hosts, ["host.example", "::1"]);
    assert!(!config.targets.all && config.targets.children);
    assert_eq!(config.limits.stack_ring_bytes, 1 << 20);
    assert_eq!(config.limits.exited_processes, 0);
    assert_eq!(config.http.request_timeout_ns, 2_000_000_000);
}

#[test]
fn unknown_names_are_refused_with_their_line() {
    // Check that a typo at the top, in a table and in a table's name is told with its place and
    // what is known.
    assert!(
        refused("\nfrequency = 9\n")
            .starts_with("a.toml:2:1: unknown field `frequency`, expected one of `frequency_hz`")
    );
    assert!(
        refused("[limits]\n\nmax_thread = 9\n")
            .starts_with("a.toml:3:1: unknown field `max_thread`, expected one of `max_threads`")
    );
    assert!(refused("[limit]\n").starts_with("a.toml:1:2: unknown field `limit`"));
}

#[test]
fn values_out_of_bounds_are_refused_with_their_line() {
    // Check that every fault of the file is told at once, in order, each with its place and what is
    // allowed.
    let sentence = refused(
        "frequency_hz = 0\nmin_interval = 5\nlisten = \"9797\"\n[limits]\nstack_ring_bytes = 100000\n",
    );
    let faults: Vec<_> = sentence.split("; ").collect();
    assert_eq!(faults.len(), 4, "{sentence}");
    assert!(
        faults[0].starts_with("a.toml:1:16: frequency_hz: must be a whole number from 1 to 10000"),
        "{sentence}"
    );
    assert!(
        faults[1].starts_with("a.toml:2:16: min_interval: must be a whole number and a unit"),
        "{sentence}"
    );
    assert!(
        faults[2].starts_with("a.toml:3:10: listen: must be a numeric address and a port"),
        "{sentence}"
    );
    assert!(
        faults[3].starts_with("a.toml:5:20: limits.stack_ring_bytes: must be bytes"),
        "{sentence}"
    );
    assert!(faults[3].ends_with("a power of two"), "{sentence}");
}

#[test]
fn targets_that_are_nothing_are_refused() {
    // Check that a file by which nothing would be profiled is refused with the place and what to
    // do, and that one that names something, or leaves it open, is not.
    for text in [
        "\n[targets]\nall = false\n",
        "\n[targets]\nall = false\npids = []\n",
    ] {
        let sentence = refused(text);
        assert!(
            sentence
                .starts_with("a.toml:3:7: targets.all: nothing would be profiled: leave it out"),
            "{sentence}"
        );
    }
    // What is wrong with the list is told, and nothing besides.
    let sentence = refused("[targets]\nall = false\npids = [0]\n");
    assert!(!sentence.contains("nothing would"), "{sentence}");
    for text in [
        "[targets]\nchildren = true\n",
        "[targets]\nall = false\ncomms = [\"a\"]\n",
    ] {
        assert!(Config::parse("a.toml", text).is_ok(), "{text}");
    }
}

#[test]
fn wrong_types_and_broken_text_are_refused_with_their_line() {
    // Check that a value of the wrong type, a bad list item and text that is no TOML name their
    // line.
    assert!(
        refused("frequency_hz = \"fast\"")
            .starts_with("a.toml:1:16: frequency_hz: must be a whole number")
    );
    assert!(
        refused("[targets]\npids = [1, 0]")
            .starts_with("a.toml:2:8: targets.pids: 0: must be a process number")
    );
    assert!(refused("show_command_lines = 1").ends_with("must be true or false"));
    assert!(refused("allowed_hosts = [\"a:80\"]").ends_with("without a port"));
    assert!(refused("targets = 3").starts_with("a.toml:1:11: "));
    assert!(refused("a = 1\n= 2\n").starts_with("a.toml:2:1: "));
    assert!(refused("frequency_hz = 1\nfrequency_hz = 2\n").starts_with("a.toml:2:"));
}

#[test]
fn zero_is_allowed_where_it_means_something() {
    // Check that 0 is a length of time only where the setting says what it means.
    assert_eq!(
        Config::parse("a", "min_interval = 0")
            .unwrap()
            .min_interval_ns,
        0
    );
    assert_eq!(
        Config::parse("a", "min_interval = \"0\"")
            .unwrap()
            .min_interval_ns,
        0
    );
    assert!(refused("[http]\nrequest_timeout = \"0\"").contains("from \"100ms\" to \"5m\""));
}

#[test]
fn a_number_can_be_left_to_the_daemon() {
    // Check that "auto" is what is not written, and that numbers are bounded as everywhere.
    let limits = |text: &str| Config::parse("a", text).unwrap().limits.max_threads;
    assert_eq!(limits(""), None);
    assert_eq!(limits("[limits]\nmax_threads = \"auto\""), None);
    assert_eq!(limits("[limits]\nmax_threads = 64"), Some(64));
    for wrong in ["63", "\"many\"", "2000000"] {
        let sentence = refused(&format!("[limits]\nmax_threads = {wrong}\n"));
        assert!(
            sentence.ends_with("a whole number from 64 to 1048576 (threads) or \"auto\""),
            "{sentence}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    // Check that a missing file, one that is too large, and a pipe, for which would be waited, are
    // refused, with the path in the sentence.
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.toml");
    let sentence = Config::read(&missing).unwrap_err().to_string();
    assert!(
        sentence.contains("none.toml") && sentence.contains("No such file"),
        "{sentence}"
    );
    let large = folder.path().join("large.toml");
    std::fs::write(&large, "#".repeat((1 << 20) + 1)).unwrap();
    assert!(matches!(
        Config::read(&large),
        Err(ConfigError::TooLarge { .. })
    ));
    let pipe = folder.path().join("pipe.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for path in [pipe.as_path(), folder.path()] {
        let sentence = Config::read(path).unwrap_err().to_string();
        assert!(
            sentence.contains(path.to_str().unwrap()) && sentence.contains("is no plain file: "),
            "{sentence}"
        );
    }
}

#[test]
fn the_settings_in_force_can_be_shown() {
    // Check that every declared setting is shown under its name, lengths of time and words as they
    // are written.
    let shown = Config::parse("a", "system_calls = \"off\"")
        .unwrap()
        .in_force();
    for key in keys() {
        let table = if key.table.is_empty() {
            &shown
        } else {
            shown[key.table].as_object().unwrap()
        };
        assert!(!table[key.name].is_null(), "{} is not shown", key.name);
    }
    assert_eq!(shown["system_calls"], "off");
    assert_eq!(shown["min_interval"], "1ms");
    assert_eq!(shown["limits"]["stack_ring_bytes"], 4 << 20);
    assert_eq!(shown["targets"]["all"], true);
}
