//! Brings the files of speedscope that the daemon serves, from npm: the same version again, or
//! another. What they are for says `profiler-daemon/ui/third-party/speedscope/README.md`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

use crate::shell;
use crate::workspace::Workspace;

/// Where the files are kept.
const FOLDER: &str = "profiler-daemon/ui/third-party/speedscope";

/// Which package the files are of, in `SOURCE.json`.
#[derive(Serialize, Deserialize)]
struct Source {
    package: String,
    version: String,
    /// The hash of the package, as npm knows it.
    integrity: String,
}

/// What npm says of a package that it has packed.
#[derive(Deserialize)]
struct Packed {
    filename: String,
    version: String,
    integrity: String,
}

/// Whether a file of the package, by its path there, is needed to show a profile of this daemon.
fn is_needed(path: &str) -> bool {
    let Some(name) = path.strip_prefix("package/dist/release/") else {
        return path == "package/LICENSE";
    };
    match name.rsplit_once('.').map(|(_, kind)| kind) {
        // The scripts beside it only name an icon each.
        Some("js") => name.starts_with("speedscope-"),
        Some("css" | "woff2" | "png") => true,
        _ => name == "source-code-pro.LICENSE.md",
    }
}

/// Takes the files of `version`; without it those of the version that is there, whose hash must be
/// the same.
pub(crate) fn speedscope(workspace: &Workspace, version: Option<&str>) -> anyhow::Result<()> {
    let folder = workspace.root().join(FOLDER);
    let note = folder.join("SOURCE.json");
    let text = fs::read(&note).with_context(|| format!("reading {}", note.display()))?;
    let known: Source = serde_json::from_slice(&text).context("reading SOURCE.json")?;
    let wanted = version.unwrap_or(&known.version);
    let place = workspace.target_dir().join("tools/speedscope");
    if place.is_dir() {
        fs::remove_dir_all(&place).with_context(|| format!("clearing {}", place.display()))?;
    }
    fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let mut pack = Command::new("npm");
    pack.args(["pack", "--json", "--ignore-scripts"])
        .arg(format!("{}@{wanted}", known.package))
        .current_dir(&place);
    let said = shell::output(&mut pack)?;
    let packed: Vec<Packed> = serde_json::from_str(&said).context("reading what npm says")?;
    let [packed] = packed.as_slice() else {
        bail!("npm packed {} packages, not one", packed.len());
    };
    if packed.version == known.version && packed.integrity != known.integrity {
        bail!(
            "npm has another package under version {}: its hash is {}, not {}",
            packed.version,
            packed.integrity,
            known.integrity
        );
    }
    take(&place, &packed.filename, &folder)?;
    let source = Source {
        version: packed.version.clone(),
        integrity: packed.integrity.clone(),
        ..known
    };
    let text = serde_json::to_string_pretty(&source)? + "\n";
    fs::write(&note, text).with_context(|| format!("writing {}", note.display()))?;
    println!("{} {} is in {FOLDER}", source.package, source.version);
    Ok(())
}

/// Replaces the files of the folder by those of an archive; the notes stay.
fn take(place: &Path, archive: &str, folder: &Path) -> anyhow::Result<()> {
    let list = Command::new("tar")
        .args(["-tzf", archive])
        .current_dir(place)
        .output()
        .context("starting tar")?;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    let needed: Vec<_> = list.lines().filter(|path| is_needed(path)).collect();
    if needed.is_empty() {
        bail!("{archive} has no file that is needed");
    }
    shell::run(
        Command::new("tar")
            .args(["-xzf", archive])
            .args(&needed)
            .current_dir(place),
    )?;
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let file = entry?.path();
        let notes = ["README.md", "SOURCE.json"];
        if !notes.iter().any(|note| file.ends_with(note)) {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
    }
    for path in needed {
        let name = Path::new(path).file_name().context("a file has a name")?;
        let bytes = fs::read(place.join(path)).with_context(|| format!("reading {path}"))?;
        let to = folder.join(name);
        fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_needed;

    #[test]
    fn only_what_shows_a_profile_is_taken() {
        // Check that the script, its style and font and the licences are taken, and neither
        // examples nor importers.
        for path in [
            "package/LICENSE",
            "package/dist/release/speedscope-Y2522XSH.js",
            "package/dist/release/speedscope-GHPHNKXC.css",
            "package/dist/release/source-code-pro.LICENSE.md",
        ] {
            assert!(is_needed(path), "{path}");
        }
        for path in [
            "package/README.md",
            "package/bin/cli.mjs",
            "package/dist/release/index.html",
            "package/dist/release/jfrview_bg-BLJXNNQB.wasm",
            "package/dist/release/perf-vertx-stacks-01-collapsed-all-ZNUIGAJL.txt",
            "package/dist/release/favicon-M34RF7BI.js",
        ] {
            assert!(!is_needed(path), "{path}");
        }
    }
}
