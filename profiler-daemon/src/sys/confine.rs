//! Takes away from this process what reading hostile files does not need: privileges, and opening
//! anything more. For processes that were started to read and answer; a daemon could do nothing
//! after it.

use std::{fs, io};

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAP_VERSION: u32 = 0x2008_0522;

/// May look into other processes.
pub const CAP_SYS_PTRACE: u32 = 19;
/// May open files of others for reading.
pub const CAP_DAC_READ_SEARCH: u32 = 2;

/// From here on this process has no capability and can open no file, pipe or socket; where memory
/// runs out, it is the first to go.
///
/// # Errors
/// What the kernel refuses: then it is not to be trusted with hostile files.
pub fn confine() -> io::Result<()> {
    confine_to(&[], 0)
}

/// The same, but it keeps these capabilities, as far as it has them, and can have so many files
/// open.
///
/// # Errors
/// What the kernel refuses.
pub fn confine_to(kept: &[u32], open_files: u64) -> io::Result<()> {
    // Whoever may not write this is no worse off than other processes.
    fs::write("/proc/self/oom_score_adj", "1000").unwrap_or(());
    let header = CapHeader {
        version: CAP_VERSION,
        pid: 0,
    };
    let mut sets = [CapData::default(); 2];
    // SAFETY: a header and room for two sets, as the third version of the call takes them.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.as_mut_ptr()) })?;
    let wanted = kept.iter().fold(0, |set, capability| set | 1 << capability);
    let left = CapData {
        effective: sets[0].permitted & wanted,
        permitted: sets[0].permitted & wanted,
        inheritable: 0,
    };
    let sets = [left, CapData::default()];
    // SAFETY: a header and two sets; ambient capabilities go with the others.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })?;
    let limit = libc::rlimit {
        rlim_cur: open_files,
        rlim_max: open_files,
    };
    // SAFETY: a valid limit. Descriptors that are open stay so.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }.into())
}

fn check(result: i64) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    // Check that a process that has confined itself has no capability, can open nothing, and can go
    // on reading what is open.
    #[test]
    fn confined() {
        let own = std::env::current_exe().unwrap();
        let output = Command::new(own)
            .args([
                "--exact",
                "sys::confine::tests::confined_child",
                "--ignored",
            ])
            .env("CONFINE_TEST", "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
    }

    #[test]
    #[ignore = "what the test above runs in a process of its own"]
    fn confined_child() {
        if std::env::var_os("CONFINE_TEST").is_none() {
            return;
        }
        let status = fs::File::open("/proc/thread-self/status").unwrap();
        confine().unwrap();
        let mut text = vec![0; 8192];
        let length = std::os::unix::fs::FileExt::read_at(&status, &mut text, 0).unwrap();
        let text = String::from_utf8_lossy(&text[..length]).into_owned();
        for kind in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert!(
                text.contains(&format!("{kind}:\t0000000000000000")),
                "{text}"
            );
        }
        assert!(fs::File::open("/dev/null").is_err());
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_err());
    }
}
