//! Reads files of `/proc` and `/sys`, each with a bound in bytes. What the bytes mean is
//! `proc_stat`, `proc_maps`, `cgroup`.

use std::{
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use super::{
    cgroup::CgroupFacts,
    proc_maps::{self, ExecMaps},
    proc_stat::ProcStat,
};

/// Most bytes read from one small file.
const MAX_SMALL_BYTES: usize = 16 << 10;
/// Most bytes read from `/proc/stat`, whose first lines are those of processors: some 8000 of them.
const MAX_PROCESSORS_BYTES: usize = 1 << 20;
/// Most bytes read from one `maps` file: some 200 000 mappings.
const MAX_MAPS_BYTES: usize = 32 << 20;
/// Bytes of `maps` looked at in one go; longer than any line.
const MAPS_CHUNK_BYTES: usize = 64 << 10;
/// Longest command line kept, bytes.
const MAX_CMDLINE_BYTES: usize = 4096;

/// Reads a file up to `limit_bytes`; what is behind is left out.
///
/// # Errors
///
/// It cannot be opened or read; for a file of `/proc/PID` usually because the process is gone.
pub fn read_bounded(path: impl AsRef<Path>, limit_bytes: usize) -> io::Result<Vec<u8>> {
    // Most are shorter: read at once.
    let mut bytes = Vec::with_capacity(limit_bytes.min(4096));
    File::open(path)?
        .take(limit_bytes as u64)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All processes of this namespace, in the order of `/proc`.
///
/// # Errors
///
/// `/proc` cannot be read.
pub fn pids() -> io::Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

/// The `stat` line of a process; `None` if it is gone.
#[must_use]
pub fn stat(pid: u32) -> Option<ProcStat> {
    ProcStat::parse(&read_bounded(format!("/proc/{pid}/stat"), MAX_SMALL_BYTES).ok()?)
}

/// The `stat` line of a thread; `None` if it is gone or may not be looked at.
#[must_use]
pub fn thread_stat(pid: u32, tid: u32) -> Option<ProcStat> {
    let path = format!("/proc/{pid}/task/{tid}/stat");
    ProcStat::parse(&read_bounded(path, MAX_SMALL_BYTES).ok()?)
}

/// The executable mappings of a process, at most `limit`; `None` if it is gone or may not be looked
/// at. Where there are more, those without a file or a name, which an engine has made, give way:
/// where they lie the program and its libraries may lie behind thousands of them.
#[must_use]
pub fn exec_maps(pid: u32, limit: usize) -> Option<ExecMaps> {
    let mut file = File::open(format!("/proc/{pid}/maps")).ok()?;
    let mut all = ExecMaps::default();
    let mut nameless = Vec::new();
    let mut chunk = vec![0; MAPS_CHUNK_BYTES];
    let (mut filled, mut total) = (0, 0);
    loop {
        let read = file.read(&mut chunk[filled..]).ok()?;
        filled += read;
        total += read;
        let complete = match chunk[..filled].iter().rposition(|byte| *byte == b'\n') {
            Some(at) if read > 0 => at + 1,
            // The end, or a line longer than any the kernel writes.
            _ => filled,
        };
        // As many as there may be lines in so many bytes.
        let part = proc_maps::parse(&chunk[..complete], MAPS_CHUNK_BYTES);
        all.malformed += part.malformed;
        for entry in part.entries {
            let list = if entry.path.is_empty() {
                &mut nameless
            } else {
                &mut all.entries
            };
            if list.len() < limit {
                list.push(entry);
            } else {
                all.truncated = true;
            }
        }
        chunk.copy_within(complete..filled, 0);
        filled -= complete;
        if read == 0 {
            break;
        }
        if total > MAX_MAPS_BYTES || all.entries.len() == limit {
            all.truncated = true;
            break;
        }
    }
    let room = limit - all.entries.len();
    all.truncated |= nameless.len() > room;
    nameless.truncate(room);
    all.entries.append(&mut nameless);
    all.entries.sort_unstable_by_key(|entry| entry.start);
    Some(all)
}

/// The program of a process; `None` for kernel threads and processes that are gone.
#[must_use]
pub fn exe(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The real user of a process.
#[must_use]
pub fn uid(pid: u32) -> Option<u32> {
    real_user(&read_bounded(format!("/proc/{pid}/status"), MAX_SMALL_BYTES).ok()?)
}

/// The real user, of the text of `status`.
fn real_user(status: &[u8]) -> Option<u32> {
    field(status, b"Uid:")?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The number that a process has in its own world, which a container's differs in.
#[must_use]
pub fn own_pid(pid: u32) -> Option<u32> {
    innermost_pid(&read_bounded(format!("/proc/{pid}/status"), MAX_SMALL_BYTES).ok()?)
}

/// The number in the innermost world, of the text of `status`.
fn innermost_pid(status: &[u8]) -> Option<u32> {
    let numbers = field(status, b"NSpid:")?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// What follows the name of a field, of the text of `status`. Line ends in names of programs are
/// escaped there.
fn field<'a>(status: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(name))?;
    std::str::from_utf8(line).ok()
}

/// The control group of a process.
#[must_use]
pub fn cgroup(pid: u32) -> Option<CgroupFacts> {
    Some(CgroupFacts::parse(
        &read_bounded(format!("/proc/{pid}/cgroup"), MAX_SMALL_BYTES).ok()?,
    ))
}

/// The command line of a process, arguments separated by spaces, at most 4096 bytes of it. It may
/// hold secrets: only read when asked for.
#[must_use]
pub fn cmdline(pid: u32) -> Option<String> {
    let mut bytes = read_bounded(format!("/proc/{pid}/cmdline"), MAX_CMDLINE_BYTES).ok()?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    for byte in &mut bytes {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// The processors that are online.
///
/// # Errors
///
/// The list cannot be read or is not one.
pub fn online_cpus() -> io::Result<Vec<u32>> {
    cpus("/sys/devices/system/cpu/online")
}

/// How long a processor has been at work since boot, nanoseconds, in steps of the kernel's clock
/// tick of user space (10 ms).
///
/// # Errors
///
/// It cannot be read, or says nothing of this processor.
pub fn work_ns(cpu: u32) -> io::Result<u64> {
    let text = read_bounded("/proc/stat", MAX_PROCESSORS_BYTES)?;
    work_of(&text, cpu).ok_or_else(|| io::Error::other(format!("/proc/stat has no line cpu{cpu}")))
}

/// The same, of the text of `/proc/stat`.
fn work_of(text: &[u8], cpu: u32) -> Option<u64> {
    let text = String::from_utf8_lossy(text);
    let name = format!("cpu{cpu}");
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let numbers = lines.find_map(|mut words| (words.next() == Some(&name)).then_some(words))?;
    // user, nice, system, then idle and waiting for disks, then interrupts of both kinds.
    let work = numbers.take(7).enumerate();
    let ticks: u64 = work
        .filter(|(place, _)| !matches!(place, 3 | 4))
        .filter_map(|(_, number)| number.parse::<u64>().ok())
        .fold(0, u64::saturating_add);
    Some(ticks.saturating_mul(10_000_000))
}

/// The processors that may ever be online, ascending: the order of the values of a map by
/// processor.
///
/// # Errors
///
/// The list cannot be read or is not one.
pub fn possible_cpus() -> io::Result<Vec<u32>> {
    cpus("/sys/devices/system/cpu/possible")
}

fn cpus(path: &str) -> io::Result<Vec<u32>> {
    let text = read_bounded(path, MAX_SMALL_BYTES)?;
    let text = String::from_utf8_lossy(&text);
    cpu_list(text.trim()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("not a list of processors: {text}"),
        )
    })
}

/// Reads `0-3,7`.
fn cpu_list(text: &str) -> Option<Vec<u32>> {
    const MAX_CPUS: usize = 8192;
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if last.checked_sub(first)? as usize >= MAX_CPUS - cpus.len().min(MAX_CPUS) {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// What reads these texts, for `crate::fuzzing`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::{cpu_list, innermost_pid, real_user, work_of};

    pub(crate) fn check(text: &[u8]) {
        let _numbers = (real_user(text), innermost_pid(text));
        assert!(work_of(text, 0).is_none_or(|ns| ns == u64::MAX || ns % 10_000_000 == 0));
        let list = String::from_utf8_lossy(text);
        let cpus = cpu_list(list.trim()).unwrap_or_default();
        assert!(cpus.len() <= 8192 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that lists of processors are read, and absurd ones refused.
    #[test]
    fn cpu_lists() {
        assert_eq!(cpu_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(cpu_list("7"), Some(vec![7]));
        for absurd in ["", "3-1", "0-4294967295", "a", "1,,2"] {
            assert_eq!(cpu_list(absurd), None, "{absurd}");
        }
        let online = online_cpus().unwrap();
        let possible = possible_cpus().unwrap();
        assert!(!online.is_empty() && possible.is_sorted());
        assert!(online.iter().all(|cpu| possible.contains(cpu)));
    }

    // Check that this process reads about itself what it knows otherwise.
    #[test]
    fn own_facts() {
        let pid = std::process::id();
        assert!(pids().unwrap().contains(&pid));
        assert_eq!(exe(pid), std::env::current_exe().ok());
        let args: Vec<_> = std::env::args().collect();
        assert_eq!(cmdline(pid), Some(args.join(" ")));
        assert!(uid(pid).is_some() && cgroup(pid).is_some());
    }

    // Check that reading maps piece by piece gives what reading it at once gives.
    #[test]
    fn maps_in_pieces() {
        let pid = std::process::id();
        let pieces = exec_maps(pid, 10_000).unwrap();
        let whole = proc_maps::parse(&std::fs::read("/proc/self/maps").unwrap(), 10_000);
        assert!(whole.entries.len() > 3);
        assert_eq!(pieces.malformed, 0);
        for entry in whole.entries.iter().filter(|entry| entry.inode != 0) {
            assert!(pieces.entries.contains(entry));
        }
        assert!(exec_maps(pid, 1).unwrap().truncated);
    }

    // Check that of a process with more mappings than are taken those of files are, though they lie
    // behind hundreds that have none.
    #[test]
    fn maps_of_files_first() {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
        let page = rustix::param::page_size();
        let bytes = 400 * page;
        let access = ProtFlags::empty();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let pages = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE).unwrap()
        };
        for index in (0..400).step_by(2) {
            // SAFETY: a page of that mapping, which nobody looks into.
            unsafe {
                mprotect(pages.byte_add(index * page), page, MprotectFlags::EXEC).unwrap();
            }
        }
        let pid = std::process::id();
        let named = |maps: &ExecMaps| {
            let entries = maps.entries.iter();
            let named = entries.filter(|entry| !entry.path.is_empty());
            named.cloned().collect::<Vec<_>>()
        };
        let whole = exec_maps(pid, 10_000).unwrap();
        let limit = named(&whole).len() + 50;
        let some = exec_maps(pid, limit).unwrap();
        assert!(some.truncated && some.entries.len() == limit);
        assert!(some.entries.is_sorted_by_key(|entry| entry.start));
        assert_eq!(named(&some), named(&whole));
        // SAFETY: exactly that mapping.
        unsafe { munmap(pages, bytes).unwrap() };
    }

    // Check that a process that does not exist gives nothing rather than an error of another kind.
    #[test]
    fn gone() {
        let pid = u32::MAX / 2;
        assert!(stat(pid).is_none() && exec_maps(pid, 1).is_none() && exe(pid).is_none());
        assert!(uid(pid).is_none() && cgroup(pid).is_none() && cmdline(pid).is_none());
    }
}
