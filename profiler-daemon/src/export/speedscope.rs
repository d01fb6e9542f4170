//! Stacks for speedscope (<https://www.speedscope.app>), in its own JSON format.

use std::io::{self, Write};

use serde::Serialize;

use crate::report::{StackTree, StackValue};

#[derive(Serialize)]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active_profile: usize,
    shared: SharedFrames<'a>,
    profiles: [SampledProfile<'a>; 1],
}

#[derive(Serialize)]
struct SharedFrames<'a> {
    frames: Vec<FrameName<'a>>,
}

#[derive(Serialize)]
struct FrameName<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
}

#[derive(Serialize)]
struct SampledProfile<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    #[serde(rename = "startValue")]
    start_value: u64,
    #[serde(rename = "endValue")]
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

/// Writes the stacks that have any of the value.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &StackTree, value: StackValue, out: &mut impl Write) -> io::Result<()> {
    let frames = stacks.functions.iter().map(|function| FrameName {
        name: &function.name,
        file: function
            .in_module
            .then(|| &*stacks.modules[function.module].name),
    });
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (index, node) in stacks.nodes.iter().enumerate().skip(1) {
        let weight = value.of(&node.own);
        if weight > 0 {
            samples.push(stacks.path(index));
            weights.push(weight);
        }
    }
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("profiler-daemon ", env!("CARGO_PKG_VERSION")),
        name: &stacks.title,
        active_profile: 0,
        shared: SharedFrames {
            frames: frames.collect(),
        },
        profiles: [SampledProfile {
            r#type: "sampled",
            name: value.name(),
            unit: if value.is_time() {
                "nanoseconds"
            } else {
                "none"
            },
            start_value: 0,
            end_value: weights.iter().sum(),
            samples,
            weights,
        }],
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}
