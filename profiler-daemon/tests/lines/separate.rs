//! Debug information that was taken out of the program.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use profiler_daemon::elf::build_id::{self, ElfIdentity};
use profiler_daemon::processes::seen::Seen;
use profiler_daemon::symbols::lines::NoLine;
use profiler_daemon::symbols::symbolizer::{SymbolOptions, Symbolizer};

use crate::programs::{self, LIMITS, ask_one, finder, request, request_as, shown, skipped, tool};

/// A program without symbols, the file that has them, and a place in the inlined function.
struct Split {
    folder: tempfile::TempDir,
    stripped: PathBuf,
    debug: PathBuf,
    offset: u64,
}

fn split(flags: &[&str]) -> Option<Split> {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::c_program(folder.path(), flags)?;
    let requests = programs::requests(&program, "outer");
    let codes = programs::ask(&finder(LIMITS), &requests);
    let at = codes
        .iter()
        .position(|code| shown(code) == Ok("outer:6 inner:3".into()));
    let offset = requests[at.unwrap()].place.offset.get();
    let run = |arguments: &[&str]| tool("objcopy", arguments, folder.path());
    run(&["--only-keep-debug", "program", "stripped.debug"])?;
    let link = "--add-gnu-debuglink=stripped.debug";
    run(&["--strip-all", link, "program", "stripped"])?;
    fs::remove_file(&program).unwrap();
    Some(Split {
        stripped: folder.path().join("stripped"),
        debug: folder.path().join("stripped.debug"),
        folder,
        offset,
    })
}

impl Split {
    fn move_debug(&mut self, to: &Path) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(&self.debug, to).unwrap();
        self.debug = to.to_owned();
    }

    fn line(&self) -> Result<String, NoLine> {
        shown(&ask_one(
            &finder(LIMITS),
            &request(&self.stripped, self.offset),
        ))
    }

    fn name(&self) -> String {
        let symbolizer = Symbolizer::spawn(SymbolOptions::default()).unwrap();
        let request = request(&self.stripped, self.offset);
        let named = symbolizer
            .names(vec![request], programs::PATIENCE)
            .remove(0);
        named.function.name.clone().into()
    }
}

const FOUND: &str = "outer:6 inner:3";

// Check that the linked file gives lines and names, beside the program and in its folder .debug,
// with a build ID and without.
#[test]
fn linked() {
    for flags in [&["-Wl,--build-id"][..], &["-Wl,--build-id=none"]] {
        let Some(mut split) = split(flags) else {
            return;
        };
        assert_eq!(split.line().as_deref(), Ok(FOUND), "{flags:?}");
        assert_eq!(split.name(), "outer");
        let beneath = split.folder.path().join(".debug/stripped.debug");
        split.move_debug(&beneath);
        assert_eq!(split.line().as_deref(), Ok(FOUND), "{flags:?}");
        assert_eq!(split.name(), "outer");
        let elsewhere = split.folder.path().join("elsewhere/stripped.debug");
        split.move_debug(&elsewhere);
        assert_eq!(split.line(), Err(NoLine::NoDebugInformation));
        let name = split.name();
        assert!(name.starts_with("stripped+0x"), "{name}");
    }
}

// Check that a file of another program, or a changed one, is not taken for the right one, nor one
// that anybody may write.
#[test]
fn not_the_right_one() {
    let (Some(with_id), Some(without)) = (split(&[]), split(&["-Wl,--build-id=none"])) else {
        return;
    };
    let mut changed = fs::read(&without.debug).unwrap();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    fs::write(&without.debug, changed).unwrap();
    assert_eq!(without.line(), Err(NoLine::NoDebugInformation));
    fs::copy(&without.debug, &with_id.debug).unwrap();
    assert_eq!(with_id.line(), Err(NoLine::NoDebugInformation));
    let Some(split) = split(&[]) else { return };
    if !is_root() {
        skipped("only root can give files away");
        return;
    }
    std::os::unix::fs::chown(&split.debug, Some(65534), None).unwrap();
    assert_eq!(split.line(), Err(NoLine::NoDebugInformation));
    std::os::unix::fs::chown(&split.stripped, Some(65534), None).unwrap();
    assert_eq!(split.line().as_deref(), Ok(FOUND), "its owner may");
    std::os::unix::fs::chown(&split.debug, Some(0), None).unwrap();
    assert_eq!(split.line().as_deref(), Ok(FOUND), "root may");
    fs::set_permissions(&split.debug, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(split.line(), Err(NoLine::NoDebugInformation));
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// A process that has this folder for its root, and nothing else. Killed when dropped.
struct Confined(i32);

impl Confined {
    fn new(root: &Path) -> Self {
        let root = std::ffi::CString::new(root.as_os_str().as_bytes()).unwrap();
        // SAFETY: the child only makes system calls, on memory made before.
        let pid = unsafe {
            match libc::fork() {
                0 => {
                    if libc::chroot(root.as_ptr()) != 0 {
                        libc::_exit(1);
                    }
                    loop {
                        libc::pause();
                    }
                }
                pid => pid,
            }
        };
        assert!(pid > 0);
        let confined = Self(pid);
        let link = format!("/proc/{pid}/root");
        let deadline = std::time::Instant::now() + programs::PATIENCE;
        while fs::read_link(&link).unwrap() == Path::new("/") {
            assert!(std::time::Instant::now() < deadline);
            std::thread::yield_now();
        }
        confined
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        // SAFETY: a child that was not waited for, so the number is its own; no status is asked
        // for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

// Check that the file is found by its build ID, and by its link below /usr/lib/debug, in the root
// of the process that has the program mapped, through links that stay in that root; and not once
// the process is gone.
#[test]
fn in_the_root_of_the_process() {
    if !is_root() {
        skipped("only root can change the root of a process");
        return;
    }
    let Some(mut split) = split(&["-Wl,--build-id"]) else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let file = fs::File::open(&split.stripped).unwrap();
    let ElfIdentity::BuildId(build) = build_id::of_file(&file) else {
        panic!("no build ID");
    };
    let hex: String = build.id.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = format!("usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    let by_id = root.path().join(by_id);
    let confined = Confined::new(root.path());
    let ask = |split: &Split| {
        let seen = Seen {
            pid: confined.0.cast_unsigned(),
            path: b"/opt/stripped".as_slice().into(),
        };
        let request = request_as(&split.stripped, split.offset, Some(seen));
        shown(&ask_one(&finder(LIMITS), &request))
    };
    assert_eq!(ask(&split), Err(NoLine::NoDebugInformation));
    split.move_debug(&by_id);
    assert_eq!(ask(&split).as_deref(), Ok(FOUND));
    split.move_debug(&root.path().join("usr/lib/debug/opt/stripped.debug"));
    assert_eq!(ask(&split).as_deref(), Ok(FOUND));
    // A link as packages make them; it leads out of the root if it is followed as this process
    // would.
    std::os::unix::fs::symlink("/usr/lib/debug/opt/renamed", &by_id).unwrap();
    split.move_debug(&root.path().join("usr/lib/debug/opt/renamed"));
    assert_eq!(ask(&split).as_deref(), Ok(FOUND));
    let pid = confined.0.cast_unsigned();
    drop(confined);
    let seen = Seen {
        pid,
        path: b"/opt/stripped".as_slice().into(),
    };
    let request = request_as(&split.stripped, split.offset, Some(seen));
    let code = ask_one(&finder(LIMITS), &request);
    assert_eq!(shown(&code), Err(NoLine::NoDebugInformation));
}
