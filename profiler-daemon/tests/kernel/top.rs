//! `top` in a terminal of its own, over a running daemon and alone.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::daemon::{self, daemon_exe, privileged};
use crate::workload::{self, Workload};

/// How long something may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);
const COLUMNS: u16 = 140;
const LINES: u16 = 40;
/// What a terminal is told to show the screen that was there before.
const LEAVE: &str = "\u{1b}[?1049l";

/// A terminal and the program in it.
struct Pty {
    child: Child,
    keys: File,
    slave: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
    before: libc::termios,
}

fn settings(terminal: &OwnedFd) -> libc::termios {
    // SAFETY: all bytes zero are a termios, which the call fills.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(terminal.as_raw_fd(), &mut settings), 0);
        settings
    }
}

impl Pty {
    fn start(arguments: &[&str]) -> Self {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize {
            ws_row: LINES,
            ws_col: COLUMNS,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the numbers are written to, the size is read, and no name or settings are given.
        let opened = unsafe {
            libc::openpty(
                &mut master,
                &mut slave,
                std::ptr::null_mut(),
                std::ptr::null(),
                &size,
            )
        };
        assert_eq!(opened, 0, "a terminal can be made");
        // SAFETY: both were opened above and belong to nobody else.
        let (master, slave) =
            unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let before = settings(&slave);
        let side = || Stdio::from(slave.try_clone().expect("a descriptor is free"));
        let mut command = Command::new(daemon_exe());
        command
            .arg("top")
            .args(arguments)
            .env("TERM", "xterm-256color")
            .stdin(side())
            .stdout(side())
            .stderr(side());
        // SAFETY: between fork and exec only two system calls are made.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the program can be executed");
        let shown = Arc::new(Mutex::new(Vec::new()));
        let mut reader = File::from(master.try_clone().expect("a descriptor is free"));
        let read = Arc::clone(&shown);
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut part) {
                read.lock().expect("nobody breaks").extend(&part[..length]);
            }
        });
        Self {
            child,
            keys: File::from(master),
            slave,
            shown,
            before,
        }
    }

    /// Everything that was sent to the terminal.
    fn sent(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("nobody breaks")).into_owned()
    }

    /// Waits until the screen holds a text.
    fn until(&self, text: &str) {
        self.until_screen(text, |screen| screen.contains(text));
    }

    fn until_screen(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = screen(&self.sent());
            if holds(&screen) {
                return;
            }
            assert!(Instant::now() < deadline, "{what} did not come:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("the terminal is there");
    }

    fn signal(&self, signal: i32) {
        let pid = self.child.id().cast_signed();
        // SAFETY: plain numbers; the child was not waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "it runs");
    }

    /// Waits for its end, and checks that the terminal is as it was and that nothing told it more
    /// than a screen does.
    fn ended(mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                break status;
            }
            assert!(Instant::now() < deadline, "it did not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        while !self.sent().contains(LEAVE) {
            assert!(Instant::now() < deadline, "the screen was not given back");
            std::thread::sleep(Duration::from_millis(20));
        }
        let after = settings(&self.slave);
        for (what, before, after) in [
            ("input", self.before.c_iflag, after.c_iflag),
            ("output", self.before.c_oflag, after.c_oflag),
            ("local", self.before.c_lflag, after.c_lflag),
        ] {
            assert_eq!(before, after, "the {what} settings of the terminal");
        }
        let sent = self.sent();
        assert!(!sent.contains("\u{1b}]"), "no title was set: {sent:?}");
        status
    }
}

/// What a terminal shows that was sent this: text is put where the cursor was moved to; colours are
/// left out.
fn screen(sent: &str) -> String {
    let mut cells = vec![vec![' '; usize::from(COLUMNS)]; usize::from(LINES)];
    let (mut line, mut column) = (0, 0);
    let mut rest = sent.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            if let Some(cell) = cells
                .get_mut(line)
                .and_then(|line: &mut Vec<char>| line.get_mut(column))
            {
                *cell = c;
            }
            column += 1;
            continue;
        }
        if rest.next() != Some('[') {
            continue;
        }
        let mut numbers = String::new();
        let end = rest.by_ref().find(|c| {
            let ends = c.is_ascii_alphabetic();
            if !ends {
                numbers.push(*c);
            }
            ends
        });
        match end {
            Some('H') => {
                let mut places = numbers.split(';').map(|n| n.parse().unwrap_or(1usize) - 1);
                (line, column) = (places.next().unwrap_or(0), places.next().unwrap_or(0));
            }
            Some('J') => cells.iter_mut().flatten().for_each(|cell| *cell = ' '),
            _ => {}
        }
    }
    let lines = cells.iter().map(|line| line.iter().collect::<String>());
    lines.collect::<Vec<_>>().join("\n")
}

impl Drop for Pty {
    fn drop(&mut self) {
        // It has ended where all is well.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().expect("it runs");
            self.child.wait().expect("it is a child");
        }
    }
}

/// A workload under a name of its own. Ended when dropped.
struct Named(Child);

impl Named {
    fn start(exe: &Path) -> Self {
        std::fs::copy(workload::exe(), exe).expect("the workload can be copied");
        let child = Command::new(exe)
            .args(["split", "--seconds", "120"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        Self(child.expect("the copy can be executed"))
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it is a child");
    }
}

#[test]
fn over_a_daemon() {
    // Check the way from the processes to a process's functions and threads and back over a running
    // daemon, and that q gives the terminal back.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let name = format!("top{}", std::process::id());
    let busy = Named::start(&folder.path().join(&name));
    let url = format!("http://{}", daemon.address());
    let mut pty = Pty::start(&["--connect", &url, "--every", "200ms"]);
    pty.until("processes, ");
    pty.until("costs  ");
    pty.press(&format!("/{name}"));
    pty.until(&format!("/{name}_"));
    pty.press("\r");
    pty.until_screen("the one process", |screen| {
        screen.lines().any(|line| line.starts_with("1 of 1 "))
    });
    pty.until(&format!(" {} ", busy.0.id()));
    pty.press("\r");
    pty.until(&format!("functions of {} {name}", busy.0.id()));
    pty.until("split_sixty");
    pty.press("t");
    pty.until(&format!("threads of {} {name}", busy.0.id()));
    pty.press("?");
    pty.until("this help");
    pty.press("x");
    pty.until_screen("the end of the help", |screen| {
        !screen.contains("this help")
    });
    pty.press("\u{1b}");
    pty.until("processes, ");
    pty.press("q");
    assert!(pty.ended().success());
}

#[test]
fn ends_by_signals_and_keys() {
    // Check that Ctrl-C, SIGTERM and SIGINT end it, and that each gives the terminal back.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let url = format!("http://{}", daemon.address());
    for end in [
        |pty: &mut Pty| pty.press("\u{3}"),
        |pty: &mut Pty| pty.signal(libc::SIGTERM),
        |pty: &mut Pty| pty.signal(libc::SIGINT),
    ] {
        let mut pty = Pty::start(&["--connect", &url]);
        pty.until("costs  ");
        end(&mut pty);
        assert!(pty.ended().success());
    }
}

#[test]
fn alone() {
    // Check that it profiles by itself where no daemon is named, and ends what it started.
    if !privileged() {
        return;
    }
    let mut pty = Pty::start(&["--every", "200ms", "--window", "30s"]);
    pty.until("this process");
    pty.until("last 30 s");
    pty.until("costs  ");
    pty.press("q");
    assert!(pty.ended().success());
}

#[test]
fn once_as_text() {
    // Check that one screen is printed as text where there is no terminal, with names that cannot
    // do anything to one, and that without --once there is a sentence instead.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let hostile = Workload::start(&format!(
        "hostile --seconds 1 --hold --path {}",
        folder.path().display()
    ));
    let held = hostile.truth();
    crate::reads::until(daemon, "/processes?limit=0", held.unix_ns, |_| true);
    let url = format!("http://{}", daemon.address());
    let top = |arguments: &[&str]| {
        let output = Command::new(daemon_exe())
            .args(["top", "--connect", &url])
            .args(arguments)
            .stdin(Stdio::null())
            .output();
        output.expect("the program can be executed")
    };
    let output = top(&["--once", "--sort", "elapsed"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    for part in ["processes, ", "lacks  ", "costs  ", "ELAPSED▾", "NAME"] {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
    assert!(text.lines().count() > 7, "{text}");
    let odd = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(odd, None, "{text:?}");
    let output = top(&[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("needs a terminal"),
        "{said}"
    );
}
