//! How this kernel probes running programs: many places by one link (Linux 6.6), or each place by a
//! perf event of its own (5.15), of which only a few are bearable.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::thread;

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};
use aya::util::KernelVersion;
use tracing::debug;

use super::probe_program::Probe;
use super::uprobe_multi::{self, LinkSupport};
use super::uprobe_single;

/// Probes of one link of many.
const PER_LINK: usize = 64;
/// Points of one instrumentation that are attached at a time where each has a link of its own: the
/// kernel takes a tenth of a second to close one.
pub const MAX_SINGLE_POINTS: usize = 32;
/// The same of all instrumentations together. (They are closed by the kernel one after the other
/// where the profiler is killed.)
pub const MAX_SINGLE_POINTS_IN_ALL: usize = 128;
/// Threads that close links at a time: each waits for the kernel, which makes as many wait together
/// as come.
const CLOSERS: usize = 32;
/// The stack of each, bytes.
const CLOSER_STACK_BYTES: usize = 64 << 10;
/// The first kernel that tells a program which probe was hit.
const COOKIES_SINCE: KernelVersion = KernelVersion::new(5, 15, 0);
/// The first kernel on which programs at probes may use maps that are not whole from the beginning:
/// older ones take them too, but write a warning with a trace into their log.
const MAPS_GROW_SINCE: KernelVersion = KernelVersion::new(6, 1, 0);
/// The first kernel with links of many probes.
const LINKS_SINCE: KernelVersion = KernelVersion::new(6, 6, 0);
/// The first kernel on which the process of such a link is one, not a thread.
const PROCESSES_SINCE: KernelVersion = KernelVersion::new(6, 10, 0);

/// How places are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// Many by one link.
    Many {
        /// Whether a link can be of one process alone.
        of_processes: bool,
    },
    /// Each by its own event and link, in all memory or in that of one process alone.
    Single,
    /// Not at all: a program is not told which probe was hit.
    Nothing,
}

impl Probing {
    /// What this kernel does. It is asked once, not judged by its release: distributions add what
    /// is newer. Where it does not tell, the release has to do.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        static ASKED: OnceLock<Probing> = OnceLock::new();
        *ASKED.get_or_init(|| {
            let asked = Self::ask();
            asked.unwrap_or_else(|error| {
                debug!("the kernel does not tell how it probes: {error}");
                KernelVersion::current().map_or(Self::Nothing, Self::of_version)
            })
        })
    }

    fn ask() -> Result<Self, Box<dyn std::error::Error>> {
        let of_processes = match uprobe_multi::ask()? {
            LinkSupport::LinksOfProcesses => true,
            LinkSupport::Links => false,
            LinkSupport::Nothing => {
                let cookie = BpfHelper::BPF_FUNC_get_attach_cookie;
                let has_cookies = is_helper_supported(ProgramType::KProbe, cookie)?;
                return Ok(if has_cookies {
                    Self::Single
                } else {
                    Self::Nothing
                });
            }
        };
        Ok(Self::Many { of_processes })
    }

    /// What Linux does since that version.
    #[must_use]
    fn of_version(version: KernelVersion) -> Self {
        if version >= LINKS_SINCE {
            return Self::Many {
                of_processes: version >= PROCESSES_SINCE,
            };
        }
        if version >= COOKIES_SINCE {
            Self::Single
        } else {
            Self::Nothing
        }
    }

    /// Whether a program is loaded for links of many.
    pub(super) const fn is_of_many(self) -> bool {
        matches!(self, Self::Many { .. })
    }

    /// Probes of one link.
    pub(super) const fn per_link(self) -> usize {
        match self {
            Self::Many { .. } => PER_LINK,
            Self::Single | Self::Nothing => 1,
        }
    }

    /// Whether probes can be in the memory of one process alone.
    pub(super) const fn is_of_processes(self) -> bool {
        match self {
            Self::Many { of_processes } => of_processes,
            Self::Single => true,
            Self::Nothing => false,
        }
    }

    /// Attaches a program to no more than [`Probing::per_link`] probes of a file: as long as the
    /// link is open.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn attach(
        self,
        program: BorrowedFd<'_>,
        file: &File,
        probes: &[Probe],
        pid: Option<u32>,
    ) -> io::Result<OwnedFd> {
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let pid = pid.filter(|_| self.is_of_processes());
        match (self, probes) {
            (Self::Many { .. }, _) => uprobe_multi::attach(program, &path, probes, pid),
            (Self::Single, [probe]) => uprobe_single::attach(program, &path, *probe, pid),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }
}

/// Whether maps that programs at probes use are to be made whole.
pub(super) fn needs_whole_maps() -> bool {
    KernelVersion::current().is_ok_and(|version| version < MAPS_GROW_SINCE)
}

/// Closes links, which detaches their probes: several at a time where there are several, since the
/// kernel waits for each.
pub(super) fn close(links: Vec<OwnedFd>) {
    let each = links.len().div_ceil(CLOSERS).max(1);
    let mut links = links;
    thread::scope(|scope| {
        while links.len() > each {
            let some = links.split_off(links.len() - each);
            let closer = thread::Builder::new().name("detach".to_owned());
            let closer = closer.stack_size(CLOSER_STACK_BYTES);
            // Where no thread is to be had, they are closed here, with the closure.
            if let Err(error) = closer.spawn_scoped(scope, move || drop(some)) {
                debug!("links are closed one after the other: {error}");
            }
        }
        drop(links);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_does_by_its_release() {
        // Check what is believed of a kernel that does not tell, at each border.
        let of = |major, minor| Probing::of_version(KernelVersion::new(major, minor, 0));
        assert_eq!(of(5, 10), Probing::Nothing);
        assert_eq!(of(5, 14), Probing::Nothing);
        assert_eq!(of(5, 15), Probing::Single);
        assert_eq!(of(6, 5), Probing::Single);
        let many = |of_processes| Probing::Many { of_processes };
        assert_eq!(of(6, 6), many(false));
        assert_eq!(of(6, 9), many(false));
        assert_eq!(of(6, 10), many(true));
        assert_eq!(of(7, 2), many(true));
    }

    #[test]
    fn all_links_are_closed() {
        // Check that of none, one and many links each is closed, and only these.
        for count in [0, 1, 31, 32, 33, 100] {
            let made: io::Result<Vec<(io::PipeReader, io::PipeWriter)>> =
                (0..count).map(|_| io::pipe()).collect();
            let (readers, writers): (Vec<_>, Vec<_>) = made.expect("pipes").into_iter().unzip();
            close(writers.into_iter().map(OwnedFd::from).collect());
            for mut reader in readers {
                let mut end = [0];
                let read = io::Read::read(&mut reader, &mut end).expect("readable");
                assert_eq!(read, 0, "nobody can write any more");
            }
        }
    }
}
