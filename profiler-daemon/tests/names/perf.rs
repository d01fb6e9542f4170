//! What perf says: which addresses it met, in which file, and how they are called.

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Stdio},
};

use crate::programs::Program;

/// A moment of a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) path: String,
    /// In the file.
    pub(crate) offset: u64,
    /// perf's name of the function, as linkers write it; `None` where it has none.
    pub(crate) name: Option<String>,
}

/// Runs a program for some seconds under perf; or why that cannot be.
pub(crate) fn record(
    program: &Program,
    seconds: u32,
    folder: &Path,
) -> Result<Vec<Sample>, String> {
    let data = folder.join("perf.data");
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock:u", "-F", "1999", "-o"]);
    command
        .arg(&data)
        .args(["--", "timeout", &seconds.to_string()]);
    command.arg(&program.path).args(&program.arguments);
    let recorded = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut recorded = recorded.map_err(|error| format!("perf: {error}"))?;
    program.keep_busy(&mut recorded);
    // It ends as `timeout` does, which has stopped the program: what counts is what it wrote.
    recorded.wait().map_err(|error| error.to_string())?;
    let output = Command::new("perf")
        .args([
            "script",
            "--no-demangle",
            "--no-inline",
            "-F",
            "pid,ip,sym,dso",
        ])
        .args(["--show-mmap-events", "-i"])
        .arg(&data)
        .output()
        .map_err(|error| error.to_string())?;
    let samples = parse(&String::from_utf8_lossy(&output.stdout));
    if samples.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("perf took no samples: {}", said.trim()));
    }
    Ok(samples)
}

/// Samples in files, from what perf writes: mappings and samples in the order of their time.
fn parse(text: &str) -> Vec<Sample> {
    let mut mappings: BTreeMap<(u32, u64), (u64, u64, &str)> = BTreeMap::new();
    let mut samples = Vec::new();
    for line in text.lines() {
        let Some((pid, rest)) = line.trim().split_once(' ') else {
            continue;
        };
        let Ok(pid) = pid.parse() else { continue };
        let rest = rest.trim();
        if rest.starts_with("PERF_RECORD_MMAP") {
            if let Some((start, mapping)) = mapping(rest) {
                mappings.insert((pid, start), mapping);
            }
        } else if let Some((address, name)) = rest.split_once(' ')
            && let Ok(address) = u64::from_str_radix(address, 16)
            && let Some((name, _)) = name.rsplit_once(" (")
        {
            let before = mappings.range((pid, 0)..=(pid, address)).next_back();
            let Some(((_, start), (size_bytes, offset, path))) = before else {
                continue;
            };
            if address - start < *size_bytes {
                // What the loader asks for has no name but the place of who answers.
                let is_name = name != "[unknown]" && !name.starts_with("*ABS*");
                samples.push(Sample {
                    path: (*path).to_owned(),
                    offset: address - start + offset,
                    name: is_name.then(|| name.to_owned()),
                });
            }
        }
    }
    samples
}

/// `PERF_RECORD_MMAP2 7/7: [0x5000(0x1000) @ 0x2000 fe:00 9 0]: r-xp /bin/true`: start; size,
/// offset and path.
fn mapping(text: &str) -> Option<(u64, (u64, u64, &str))> {
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (place, what) = text.split_once('[')?.1.split_once("]: ")?;
    let (start, rest) = place.split_once('(')?;
    let (size_bytes, rest) = rest.split_once(") @ ")?;
    let offset = rest.split(' ').next()?;
    let (rights, path) = what.split_once(' ')?;
    rights.contains('x').then_some(())?;
    Some((hex(start)?, (hex(size_bytes)?, hex(offset)?, path)))
}

// Check that samples are placed in the mapping that was the last one there, and that those in none
// are left out.
#[test]
fn samples_are_read() {
    let text = "    7 PERF_RECORD_MMAP2 7/7: [0x5000(0x1000) @ 0x2000 fe:00 9 0]: r-xp /bin/a b\n\
        7      5010 main (/bin/a b)\n\
        7      6010 main (/bin/a b)\n\
        8      5010 main (/bin/a b)\n\
        7 PERF_RECORD_MMAP2 7/7: [0x5000(0x1000) @ 0 fe:00 9 0]: r-xp /bin/c\n\
        7      5020 [unknown] (/bin/c)\n\
        7      5030 *ABS*+0x9f@plt (/bin/c)\n";
    let sample = |path: &str, offset, name: Option<&str>| Sample {
        path: path.to_owned(),
        offset,
        name: name.map(str::to_owned),
    };
    let expected = [
        sample("/bin/a b", 0x2010, Some("main")),
        sample("/bin/c", 0x20, None),
        sample("/bin/c", 0x30, None),
    ];
    assert_eq!(parse(text), expected);
}
