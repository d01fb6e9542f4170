//! Programs with known lines, and questions about them.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use profiler_daemon::elf::build_id::{self, ElfIdentity};
use profiler_daemon::processes::files::ModuleFile;
use profiler_daemon::processes::mappings::Place;
use profiler_daemon::processes::module::{FileIdentity, Module, ModuleId, ModuleKind};
use profiler_daemon::processes::seen::Seen;
use profiler_daemon::symbols::lines::finder::{LineFinder, LineOptions, WorkerOptions};
use profiler_daemon::symbols::lines::{Code, NoLine};
use profiler_daemon::symbols::request::Request;
use profiler_daemon::sys::limited_child::ChildLimits;
use profiler_daemon::units::ModuleOffset;

/// Longest wait for an answer; on a busy machine a worker takes seconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// `outer` has `inner` on line 3 inlined into its line 6.
pub(crate) const C: &str = "volatile long sink;
static inline __attribute__((always_inline)) void inner(long n) {
  sink += n * 3;
}
__attribute__((noinline)) void outer(long n) {
  inner(n);
  sink += 1;
}
int main(int argc, char **argv) {
  outer(argc);
  return 0;
}
";

/// What a worker may take in tests: enough.
pub(crate) const LIMITS: ChildLimits = ChildLimits {
    memory_bytes: 512 << 20,
    processor_s: 60,
    time: Duration::from_secs(100),
    output_bytes: 32 << 20,
};

/// Says past the harness that something was left out.
pub(crate) fn skipped(why: &str) {
    let line = format!("skipped: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Runs a tool; `None` if this machine has none of that name.
pub(crate) fn tool(program: &str, arguments: &[&str], folder: &Path) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .output();
    let output = match output {
        Ok(output) => output,
        Err(_) => {
            skipped(&format!("there is no {program}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compiles a source.
pub(crate) fn compile(
    folder: &Path,
    compiler: &str,
    source: (&str, &str),
    flags: &[&str],
) -> Option<PathBuf> {
    fs::write(folder.join(source.0), source.1).unwrap();
    let mut arguments = vec![source.0, "-o", "program"];
    arguments.extend(flags);
    tool(compiler, &arguments, folder)?;
    Some(folder.join("program"))
}

/// The C program, with debug information.
pub(crate) fn c_program(folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let flags = [&["-g", "-O2"], flags].concat();
    compile(folder, "cc", ("program.c", C), &flags)
}

/// Address and size of a function, by nm.
pub(crate) fn function(program: &Path, name: &str) -> (u64, u64) {
    let path = program.to_str().unwrap();
    let text = tool("nm", &["-S", "-C", path], Path::new("/")).unwrap();
    let line = text
        .lines()
        .find(|line| line.splitn(4, ' ').nth(3).is_some_and(|last| last == name));
    let mut parts = line
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .split(' ');
    let mut number = || u64::from_str_radix(parts.next().unwrap(), 16).unwrap();
    (number(), number())
}

/// Where in the file an address is, by readelf.
pub(crate) fn offset(program: &Path, address: u64) -> u64 {
    let path = program.to_str().unwrap();
    let text = tool("readelf", &["-lW", path], Path::new("/")).unwrap();
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
    text.lines()
        .filter_map(|line| {
            let parts: Vec<&str> = line.split_whitespace().collect();
            (parts.first() == Some(&"LOAD")).then(|| [1, 2, 4].map(|at| number(parts[at])))
        })
        .find(|[_, start, length]| (*start..start + length).contains(&address))
        .map(|[offset, start, _]| address - start + offset)
        .unwrap()
}

/// A question about a place in a program that process `pid` has mapped under `path`.
pub(crate) fn request_as(program: &Path, offset: u64, seen: Option<Seen>) -> Request {
    let file = File::open(program).unwrap();
    let build_id = match build_id::of_file(&file) {
        ElfIdentity::BuildId(build) => Some(build.id),
        _ => None,
    };
    let metadata = file.metadata().unwrap();
    let identity = FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size_bytes: metadata.size(),
        modified_unix_ns: 0,
    };
    let module = ModuleId(9);
    Request {
        place: Place {
            module,
            offset: ModuleOffset::new(offset),
        },
        module: Arc::new(Module {
            build_id,
            ..Module::named(program.to_str().unwrap(), ModuleKind::User)
        }),
        file: Some(Arc::new(ModuleFile {
            module,
            file,
            identity,
        })),
        seen,
    }
}

/// The same, mapped by this process.
pub(crate) fn request(program: &Path, offset: u64) -> Request {
    request_as(program, offset, None)
}

/// Questions about every byte of a function.
pub(crate) fn requests(program: &Path, name: &str) -> Vec<Request> {
    let (address, size) = function(program, name);
    let first = request(program, offset(program, address));
    let each = |at: u64| Request {
        place: Place {
            offset: first.place.offset + at,
            ..first.place
        },
        ..first.clone()
    };
    (0..size).map(each).collect()
}

/// Finds lines with a worker of these limits.
pub(crate) fn finder(limits: ChildLimits) -> LineFinder {
    finder_with(env!("CARGO_BIN_EXE_profiler-daemon").into(), limits)
}

/// Finds lines with this program as worker.
pub(crate) fn finder_with(program: PathBuf, limits: ChildLimits) -> LineFinder {
    LineFinder::spawn(LineOptions {
        cache_bytes: 1 << 20,
        worker: WorkerOptions { program, limits },
    })
    .unwrap()
}

/// What is known of each place.
pub(crate) fn ask(finder: &LineFinder, requests: &[Request]) -> Vec<Code> {
    let table = finder.table(requests.to_vec(), PATIENCE);
    let code = |request: &Request| table.code(request.place).unwrap().clone();
    requests.iter().map(code).collect()
}

/// What is known of one place.
pub(crate) fn ask_one(finder: &LineFinder, request: &Request) -> Code {
    ask(finder, std::slice::from_ref(request)).remove(0)
}

/// Functions and lines of a place, outermost first: `outer:6 inner:3`.
pub(crate) fn shown(code: &Code) -> Result<String, NoLine> {
    let steps = code.steps.as_ref().map_err(|why| *why)?;
    let step = |step: &profiler_daemon::symbols::lines::Step| {
        let function = step.function.as_deref().unwrap_or("?");
        let line = step.source.as_ref().and_then(|source| source.line);
        format!("{function}:{}", line.unwrap_or(0))
    };
    let steps: Vec<String> = steps.iter().map(step).collect();
    Ok(steps.join(" "))
}
