//! Takes away from this process what reading hostile files does not need: privileges, and opening
//! anything more. For processes that were started to read and answer; a daemon could do nothing
//! after it.

use std::{fs, io};

use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities},
};

/// From here on this process has no capability and can open no file, pipe or socket; where memory
/// runs out, it is the first to go.
///
/// # Errors
/// What the kernel refuses: then it is not to be trusted with hostile files.
pub fn confine() -> io::Result<()> {
    confine_to(CapabilitySet::empty(), 0)
}

/// The same, but it keeps these capabilities, as far as it has them, and can have so many files
/// open.
///
/// # Errors
/// What the kernel refuses.
pub fn confine_to(kept: CapabilitySet, open_files: u64) -> io::Result<()> {
    // Whoever may not write this is no worse off than other processes.
    fs::write("/proc/self/oom_score_adj", "1000").unwrap_or(());
    let left = capabilities(None)?.permitted & kept;
    let sets = CapabilitySets {
        effective: left,
        permitted: left,
        inheritable: CapabilitySet::empty(),
    };
    // Ambient capabilities go with the others.
    set_capabilities(None, sets)?;
    let limit = Rlimit {
        current: Some(open_files),
        maximum: Some(open_files),
    };
    // Descriptors that are open stay so.
    Ok(setrlimit(Resource::Nofile, limit)?)
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
