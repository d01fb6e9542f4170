//! Stacks of functions with return probes that others have attached: the kernel has put its own
//! address in place of their return addresses.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::daemon::{self, Daemon, Settings, say};
use crate::reads::{self, is_function, number, system_call, text, unix_now_ns};
use crate::unwinding::{has_chain, longest_run};
use crate::workload::{self, Workload};

/// Return probes on functions of a file, for as long as they are held. Nothing looks at their
/// events.
struct ReturnProbes {
    _events: Vec<OwnedFd>,
}

impl ReturnProbes {
    /// Probes all copies of the functions with these names.
    fn attach(exe: &Path, functions: &[&str]) -> Self {
        let bytes = fs::read(exe).expect("the workload can be read");
        let file = object::File::parse(&*bytes).expect("the workload is an ELF file");
        let mut events = Vec::new();
        for symbol in file.symbols().filter(|symbol| symbol.size() > 0) {
            let name = rustc_demangle::demangle(symbol.name().unwrap_or_default()).to_string();
            if !functions
                .iter()
                .any(|function| is_function(&name, function))
            {
                continue;
            }
            let section = symbol.section_index().expect("it is defined");
            let section = file.section_by_index(section).expect("it is there");
            let (offset, _) = section.file_range().expect("code is in the file");
            events.push(attach(exe, symbol.address() - section.address() + offset));
        }
        assert_eq!(events.len(), functions.len(), "{functions:?}");
        Self { _events: events }
    }
}

/// Attaches a return probe to the function at an offset in a file, for all processes.
fn attach(exe: &Path, offset: u64) -> OwnedFd {
    let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type");
    let kind: u64 = kind.expect("user probes").trim().parse().expect("a number");
    let path = CString::new(exe.as_os_str().as_bytes()).expect("a path");
    const RETURN: u64 = 1;
    const BYTES: u64 = 72;
    const CLOSE_ON_EXEC: u64 = 8;
    // `perf_event_attr` in its second version: kind and size, what, period, sample type, read
    // format, flags, wake-ups, path, offset.
    let attributes: [u64; 9] = [
        kind | BYTES << 32,
        RETURN,
        0,
        0,
        0,
        0,
        0,
        path.as_ptr() as u64,
        offset,
    ];
    // SAFETY: as many bytes as they say; the path lives as long as the call.
    let event = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            -1,
            0,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    let event = i32::try_from(event).unwrap_or(-1);
    assert!(
        event >= 0,
        "perf_event_open: {}",
        io::Error::last_os_error()
    );
    // SAFETY: the call just made it, and it belongs to nobody else.
    unsafe { OwnedFd::from_raw_fd(event) }
}

/// Whether this kernel's stacks are followed by tables; says so if not.
fn has_tables(daemon: &Daemon) -> bool {
    let has_tables = !daemon.get("/status")["unwinding"]["tables"].is_null();
    if !has_tables {
        say("skipped: stacks are followed by frame pointers here, which return probes leave alone");
    }
    has_tables
}

#[test]
fn stacks_pass_functions_with_return_probes() {
    // Check that walks below a recursion, each level of which has a return probe, are complete,
    // show every level and nothing else, and that the probes' own calls are none of the program's.
    let Some(daemon) = daemon::shared().filter(|daemon| has_tables(daemon)) else {
        return;
    };
    let _probes = ReturnProbes::attach(workload::exe(), &["recurse", "recursion_bottom"]);
    let workload = Workload::start("recursion --depth 20 --seconds 8");
    let path = format!("/processes/{}", workload.selector());
    let stacks = || {
        let process = reads::until(daemon, &path, unix_now_ns(), |_| true);
        (
            number(&process, "/stacks/walked"),
            number(&process, "/stacks/complete"),
        )
    };
    std::thread::sleep(Duration::from_millis(3000));
    let before = stacks();
    std::thread::sleep(Duration::from_millis(3500));
    let after = stacks();
    let (walked, complete) = (after.0 - before.0, after.1 - before.1);
    assert!(
        walked >= 100 && complete * 100 >= walked * 99,
        "{complete} of {walked} walks are complete: {:?}",
        crate::unwinding::counts(daemon)
    );
    let tree = daemon.get(&format!("{path}/calltree?window=3s"));
    let run = longest_run(&tree["root"], "recurse", 0);
    assert_eq!(run, 20, "{tree}");
    let events = daemon.get(&format!("{path}/os-events"));
    assert_eq!(system_call(&events, "syscall_335"), None);
    let functions = daemon.get(&format!("{path}/functions?limit=0&window=3s"));
    let bottom = reads::function(&functions, "recursion_bottom");
    let share = bottom["elapsed"]["inclusive_percent_of_process"].as_f64();
    // The probes take the rest: on an emulated machine some hundredths.
    let truth = workload.finish().truth;
    let [at_bottom, all] =
        ["/bottom_ns", "/recursing_ns"].map(|value| number(&truth, value) as f64);
    let off = share.expect("it has a share") - 100.0 * at_bottom / all;
    assert!(off.abs() <= 2.0, "{truth}, {bottom}");
}

#[test]
fn sleepers_in_functions_with_return_probes_have_whole_stacks() {
    // Check that threads that slept in such functions before the daemon was started have their
    // whole stacks, which are read from outside.
    if !daemon::privileged() {
        return;
    }
    let names = ["sleep_in_read", "sleep_in_futex"];
    let _probes = ReturnProbes::attach(workload::exe(), &names);
    let sleeper = Workload::start("sleeper");
    let facts = sleeper.ready();
    let Some(daemon) = daemon::own(&Settings::default()).filter(has_tables) else {
        return;
    };
    let path = format!("/processes/{}", sleeper.selector());
    for fact in facts["threads"].as_array().expect("a list") {
        let chain = ["thread_start", text(fact, "/function")];
        let tree = format!("{path}/calltree");
        reads::until(&daemon, &tree, unix_now_ns(), |tree| {
            has_chain(&tree["root"], &chain)
        });
    }
    let functions = daemon.get(&format!("{path}/functions?limit=0"));
    let cut_short = reads::rows(&functions).iter();
    let cut_short = cut_short.filter(|row| text(row, "/function").starts_with("[incomplete"));
    assert_eq!(cut_short.count(), 0, "{functions}");
}
