//! Files that are made from declarations in the code: they must say what the code says.
//!
//! `UPDATE_GENERATED=1 cargo test --test generated` writes them anew.

use std::path::Path;

use profiler_daemon::{config, metrics};

fn check(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, generated).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (kept, generated)) in kept.lines().zip(generated.lines()).enumerate() {
        assert_eq!(
            kept,
            generated,
            "line {} of {file} is out of date",
            number + 1
        );
    }
    assert_eq!(
        kept, generated,
        "{file} is out of date: set UPDATE_GENERATED=1 to write it"
    );
}

#[test]
fn the_sample_configuration_is_current() {
    // Check that the sample file that ships lists the settings the code declares.
    check("deploy/profiler.toml", &config::sample());
}

#[test]
fn the_page_of_settings_is_current() {
    // Check that the page of settings lists the settings the code declares.
    check("docs/configuration.md", &config::documentation());
}

#[test]
fn the_page_of_metrics_is_current() {
    // Check that the page of metrics lists the metrics the code declares.
    check("docs/metrics.md", &metrics::documentation());
}
