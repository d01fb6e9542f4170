//! Stacks for the Firefox Profiler (<https://profiler.firefox.com>), as a processed profile of
//! version 62.
//!
//! One track holds everything: a sample per stack, a millisecond apart, weighted by the value.
//! Where something happened in time is not known to a profile that adds up, so the viewer's call
//! tree and flame graph are what to look at. (The crate fxprof-processed-profile is not used: its
//! weights are 32-bit numbers, which end after two seconds of nanoseconds.)

use std::{
    collections::HashMap,
    io::{self, Write},
};

use serde_json::{Value, json};

use crate::report::{StackTree, StackValue};

/// The version of the format that is written; viewers convert older ones.
const VERSION: u32 = 62;
/// The colours of the categories, by kind of function.
const CATEGORIES: [(&str, &str, &str); 4] = [
    ("unknown", "Other", "grey"),
    ("user", "User", "blue"),
    ("kernel", "Kernel", "orange"),
    ("jit", "JIT", "yellow"),
];

/// Writes the stacks that have any of the value.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &StackTree, value: StackValue, out: &mut impl Write) -> io::Result<()> {
    let mut text = StringTable::default();
    let shared = shared(stacks, &mut text);
    let profile = json!({
        "meta": meta(stacks),
        "libs": libs(stacks),
        "pages": [],
        "counters": [],
        "profilerOverhead": [],
        "shared": shared,
        "threads": [thread(stacks, value)],
    });
    serde_json::to_writer(&mut *out, &profile)?;
    out.write_all(b"\n")
}

fn meta(stacks: &StackTree) -> Value {
    let category = |(_, name, color): &(&str, &str, &str)| json!({"name": name, "color": color, "subcategories": ["Other"]});
    json!({
        "categories": CATEGORIES.iter().map(category).collect::<Vec<_>>(),
        "debug": false,
        "extensions": {"baseURL": [], "id": [], "length": 0, "name": []},
        "interval": 1.0,
        "markerSchema": [],
        "pausedRanges": [],
        "preprocessedProfileVersion": VERSION,
        "processType": 0,
        "product": stacks.title,
        "sampleUnits": {"eventDelay": "ms", "threadCPUDelta": "µs", "time": "ms"},
        "sourceCodeIsNotOnSearchfox": true,
        "startTime": stacks.from_unix_ns.ns() as f64 / 1e6,
        "symbolicated": true,
        "usesOnlyOneStackType": true,
        "version": 24,
    })
}

fn libs(stacks: &StackTree) -> Vec<Value> {
    let lib = |module: &crate::report::stacks::StackModule| {
        let name = module.name.rsplit('/').next().unwrap_or(&module.name);
        json!({
            "arch": null,
            "breakpadId": "",
            "codeId": module.build_id,
            "debugName": name,
            "debugPath": module.name,
            "name": name,
            "path": module.name,
        })
    };
    stacks.modules.iter().map(lib).collect()
}

/// The tables of frames, functions and stacks; all by the numbers that they have in `stacks`.
fn shared(stacks: &StackTree, text: &mut StringTable) -> Value {
    let functions = &stacks.functions;
    let count = functions.len();
    let all = |value: Value| vec![value; count];
    let category = |kind: &str| {
        let position = CATEGORIES.iter().position(|(known, _, _)| *known == kind);
        position.unwrap_or_default()
    };
    let names: Vec<usize> = functions.iter().map(|f| text.number(&f.name)).collect();
    let resource_names: Vec<usize> = stacks
        .modules
        .iter()
        .map(|module| text.number(module.name.rsplit('/').next().unwrap_or(&module.name)))
        .collect();
    let resource = |function: &crate::report::stacks::StackFunction| {
        if function.in_module {
            json!(function.module)
        } else {
            json!(-1)
        }
    };
    // The root of the nodes is no stack: numbers are one less.
    let prefix = |parent: u32| parent.checked_sub(1).map_or(Value::Null, Value::from);
    let modules = stacks.modules.len();
    json!({
        "frameTable": {
            "length": count,
            "address": all(json!(-1)),
            "category": functions.iter().map(|f| category(f.kind)).collect::<Vec<_>>(),
            "subcategory": all(json!(0)),
            "func": (0..count).collect::<Vec<_>>(),
            "inlineDepth": all(json!(0)),
            "innerWindowID": all(json!(0)),
            "line": all(Value::Null),
            "column": all(Value::Null),
            "nativeSymbol": all(Value::Null),
        },
        "funcTable": {
            "length": count,
            "name": names,
            "isJS": all(json!(false)),
            "relevantForJS": all(json!(false)),
            "resource": functions.iter().map(resource).collect::<Vec<_>>(),
            "source": all(Value::Null),
            "lineNumber": all(Value::Null),
            "columnNumber": all(Value::Null),
        },
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "resourceTable": {
            "length": modules,
            "lib": (0..modules).collect::<Vec<_>>(),
            "name": resource_names,
            "host": vec![Value::Null; modules],
            // A library.
            "type": vec![1; modules],
        },
        "sources": {"length": 0, "id": [], "filename": [], "startLine": [], "startColumn": [], "sourceMapURL": []},
        "stackTable": {
            "length": stacks.nodes.len() - 1,
            "frame": stacks.nodes[1..].iter().map(|node| node.function).collect::<Vec<_>>(),
            "prefix": stacks.nodes[1..].iter().map(|node| prefix(node.parent)).collect::<Vec<_>>(),
        },
        "stringArray": text.table,
    })
}

fn thread(stacks: &StackTree, value: StackValue) -> Value {
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (index, node) in stacks.nodes.iter().enumerate().skip(1) {
        let amount = value.of(&node.own);
        if amount > 0 {
            samples.push(index - 1);
            weights.push(match value {
                StackValue::Samples => json!(amount),
                // Milliseconds.
                _ => json!(amount as f64 / 1e6),
            });
        }
    }
    let pid = stacks.pid.unwrap_or_default().to_string();
    let count = samples.len();
    json!({
        "name": value.name(),
        "isMainThread": true,
        "pid": pid,
        "tid": pid,
        "processName": stacks.title,
        "processType": "default",
        "processStartupTime": 0.0,
        "processShutdownTime": null,
        "registerTime": 0.0,
        "unregisterTime": null,
        "pausedRanges": [],
        "showMarkersInTimeline": false,
        "markers": {"length": 0, "category": [], "data": [], "endTime": [], "name": [], "phase": [], "startTime": []},
        "samples": {
            "length": count,
            "stack": samples,
            "timeDeltas": (0..count).map(|index| if index == 0 { 0.0 } else { 1.0 }).collect::<Vec<_>>(),
            "weight": weights,
            "weightType": if value == StackValue::Samples { "samples" } else { "tracing-ms" },
        },
    })
}

/// All text by number.
#[derive(Default)]
struct StringTable {
    table: Vec<String>,
    numbers: HashMap<String, usize>,
}

impl StringTable {
    fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.table.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.table.len() - 1);
        self.table.len() - 1
    }
}
