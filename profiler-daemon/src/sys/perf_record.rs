//! Decodes the kernel's side-band records (fork, exec, mapping, exit) from bytes. Pure: any bytes
//! give a record, nothing, or a rejection; reading them from memory shared with the kernel is
//! `perf_ring`.

use crate::units::{FileOffset, MonoNs, VirtualAddress};
use perf_event_open_sys::bindings::{
    PERF_RECORD_COMM, PERF_RECORD_EXIT, PERF_RECORD_FORK, PERF_RECORD_LOST,
    PERF_RECORD_LOST_SAMPLES, PERF_RECORD_MISC_COMM_EXEC, PERF_RECORD_MISC_MMAP_BUILD_ID,
    PERF_RECORD_MMAP2,
};
use thiserror::Error;

/// Bytes of the `sample_id` block at the end of every record: pid, tid (u32 each), time (u64).
const TRAILER_BYTES: usize = 16;
/// Bytes of the head of every record: kind u32, flags u16, size u16.
pub const HEADER_BYTES: usize = 8;
/// Longest path the kernel writes into a mapping record.
pub const MAX_PATH_BYTES: usize = 4096;

const MISC_COMM_EXEC: u16 = PERF_RECORD_MISC_COMM_EXEC as u16;
const MISC_MMAP_BUILD_ID: u16 = PERF_RECORD_MISC_MMAP_BUILD_ID as u16;

/// A device number in its two halves, as `/proc/PID/maps` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Device {
    /// Driver.
    pub major: u32,
    /// Instance; `major` 0 is a file system without a disk of its own (overlay, tmpfs, btrfs).
    pub minor: u32,
}

/// One change in who runs or what they have mapped. Times are `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A process (`pid != ppid`) or a thread (`pid == ppid`) was made.
    Fork {
        /// The new task's process.
        pid: u32,
        /// The process that made it.
        ppid: u32,
        /// The new task.
        tid: u32,
        /// The thread that made it.
        ptid: u32,
        /// When.
        time_ns: MonoNs,
    },
    /// A thread got a name, or (with `exec`) a process became another program.
    Comm {
        /// Process.
        pid: u32,
        /// Thread; equal to `pid` on exec.
        tid: u32,
        /// The name, without its padding; at most 16 bytes from the kernel, any bytes.
        comm: Box<[u8]>,
        /// Whether this is an exec: every older mapping is gone.
        exec: bool,
        /// When.
        time_ns: MonoNs,
    },
    /// Memory became executable.
    Mmap(MmapEvent),
    /// A thread ended.
    Exit {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// When.
        time_ns: MonoNs,
    },
    /// The kernel had no room for this many records.
    Lost {
        /// How many.
        records: u64,
        /// When it was noticed.
        time_ns: MonoNs,
    },
}

/// A new executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmapEvent {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First address.
    pub start: VirtualAddress,
    /// Bytes; `start + len_bytes` does not overflow.
    pub len_bytes: u64,
    /// Where in the file the mapping begins, bytes.
    pub file_offset: FileOffset,
    /// Device of the file; 0:0 without a file.
    pub device: Device,
    /// Inode of the file; 0 without a file.
    pub inode: u64,
    /// Tells apart files that used one inode after another, where the file system can.
    pub inode_generation: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// `MAP_*` bits.
    pub flags: u32,
    /// Path as the process sees it, `//anon`, `[vdso]`, …; any bytes but NUL.
    pub path: Box<[u8]>,
    /// When.
    pub time_ns: MonoNs,
}

impl Event {
    /// When it happened, monotonic nanoseconds.
    #[must_use]
    pub fn time_ns(&self) -> MonoNs {
        match self {
            Self::Fork { time_ns, .. }
            | Self::Comm { time_ns, .. }
            | Self::Exit { time_ns, .. }
            | Self::Lost { time_ns, .. } => *time_ns,
            Self::Mmap(mmap) => mmap.time_ns,
        }
    }
}

/// Why bytes are not a record. Each one is counted by the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("side-band record {0}")]
pub struct Malformed(
    /// What was wrong.
    pub &'static str,
);

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    kind: u32,
    misc: u16,
    /// Bytes of the whole record, this head included.
    pub size_bytes: u16,
}

impl Header {
    /// Reads the head from the first bytes of a record.
    ///
    /// # Errors
    ///
    /// The size it names is smaller than the head itself, so no next record can be found.
    pub fn decode(bytes: [u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let header = Self {
            kind: u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            misc: u16::from_ne_bytes([bytes[4], bytes[5]]),
            size_bytes: u16::from_ne_bytes([bytes[6], bytes[7]]),
        };
        if usize::from(header.size_bytes) < HEADER_BYTES {
            return Err(Malformed("is shorter than its own head"));
        }
        Ok(header)
    }
}

/// Takes numbers off the front of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(Malformed("ends too early"))?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.bytes().map(u64::from_ne_bytes)
    }

    /// The rest up to the first NUL.
    fn text(&self, limit: usize) -> Result<Box<[u8]>, Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = &self.0[..end.ok_or(Malformed("has text without an end"))?];
        if text.len() > limit {
            return Err(Malformed("has overlong text"));
        }
        Ok(text.into())
    }
}

/// A process or thread number. The kernel says 0 or -1 for one outside the reader's namespace.
fn number(raw: u32) -> Option<u32> {
    (raw != 0 && i32::try_from(raw).is_ok()).then_some(raw)
}

/// Decodes one record, given whole. `None`: a kind that says nothing about places (throttling,
/// samples), or about a task this namespace cannot see.
///
/// # Errors
///
/// The bytes cannot be a record of the kind they claim to be.
pub fn decode(header: Header, record: &[u8]) -> Result<Option<Event>, Malformed> {
    if record.len() != usize::from(header.size_bytes) || record.len() < HEADER_BYTES {
        return Err(Malformed("has not the size it claims"));
    }
    let body = &record[HEADER_BYTES..];
    let wanted = matches!(
        header.kind,
        PERF_RECORD_LOST
            | PERF_RECORD_COMM
            | PERF_RECORD_EXIT
            | PERF_RECORD_FORK
            | PERF_RECORD_MMAP2
            | PERF_RECORD_LOST_SAMPLES
    );
    if !wanted {
        return Ok(None);
    }
    let split = body
        .len()
        .checked_sub(TRAILER_BYTES)
        .ok_or(Malformed("has no trailer"))?;
    let (body, trailer) = body.split_at(split);
    let time_ns = MonoNs::new(Fields(&trailer[8..]).u64()?);
    let mut fields = Fields(body);
    match header.kind {
        PERF_RECORD_FORK | PERF_RECORD_EXIT => {
            let [pid, ppid, tid, ptid] =
                [fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?];
            let (Some(pid), Some(tid)) = (number(pid), number(tid)) else {
                return Ok(None);
            };
            Ok(Some(if header.kind == PERF_RECORD_FORK {
                Event::Fork {
                    pid,
                    ppid,
                    tid,
                    ptid,
                    time_ns,
                }
            } else {
                Event::Exit { pid, tid, time_ns }
            }))
        }
        PERF_RECORD_COMM => {
            let [pid, tid] = [fields.u32()?, fields.u32()?];
            let comm = fields.text(64)?;
            let (Some(pid), Some(tid)) = (number(pid), number(tid)) else {
                return Ok(None);
            };
            let exec = header.misc & MISC_COMM_EXEC != 0;
            Ok(Some(Event::Comm {
                pid,
                tid,
                comm,
                exec,
                time_ns,
            }))
        }
        PERF_RECORD_MMAP2 => mmap(header, fields, time_ns),
        PERF_RECORD_LOST => {
            let _id = fields.u64()?;
            Ok(Some(Event::Lost {
                records: fields.u64()?,
                time_ns,
            }))
        }
        PERF_RECORD_LOST_SAMPLES => Ok(Some(Event::Lost {
            records: fields.u64()?,
            time_ns,
        })),
        _ => Ok(None),
    }
}

fn mmap(
    header: Header,
    mut fields: Fields<'_>,
    time_ns: MonoNs,
) -> Result<Option<Event>, Malformed> {
    let [pid, tid] = [fields.u32()?, fields.u32()?];
    let [start, len_bytes, file_offset] = [fields.u64()?, fields.u64()?, fields.u64()?];
    let identity = (fields.u32()?, fields.u32()?, fields.u64()?, fields.u64()?);
    let (major, minor, inode, inode_generation) = if header.misc & MISC_MMAP_BUILD_ID == 0 {
        identity
    } else {
        // The 24 bytes hold a build ID instead; it is never asked for, so such a record has no file
        // identity.
        (0, 0, 0, 0)
    };
    let [prot, flags] = [fields.u32()?, fields.u32()?];
    let path = fields.text(MAX_PATH_BYTES)?;
    if len_bytes == 0 || start.checked_add(len_bytes).is_none() {
        return Err(Malformed("maps an impossible range"));
    }
    let (Some(pid), Some(tid)) = (number(pid), number(tid)) else {
        return Ok(None);
    };
    Ok(Some(Event::Mmap(MmapEvent {
        pid,
        tid,
        start: VirtualAddress::new(start),
        len_bytes,
        file_offset: FileOffset::new(file_offset),
        device: Device { major, minor },
        inode,
        inode_generation,
        prot,
        flags,
        path,
        time_ns,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(kind: u32, misc: u16, body: &[u8], time_ns: u64) -> (Header, Vec<u8>) {
        let size = u16::try_from(HEADER_BYTES + body.len() + TRAILER_BYTES).unwrap();
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(misc.to_ne_bytes());
        bytes.extend(size.to_ne_bytes());
        bytes.extend(body);
        bytes.extend(7_u32.to_ne_bytes());
        bytes.extend(8_u32.to_ne_bytes());
        bytes.extend(time_ns.to_ne_bytes());
        let header = Header::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
        (header, bytes)
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    // Check that a fork, an exit and a loss carry their numbers and the time of the trailer.
    #[test]
    fn fork_exit_lost() {
        let mut body = words(&[10, 20, 11, 21]);
        body.extend(5_u64.to_ne_bytes());
        let (header, bytes) = record(PERF_RECORD_FORK, 0, &body, 99);
        let fork = Event::Fork {
            pid: 10,
            ppid: 20,
            tid: 11,
            ptid: 21,
            time_ns: MonoNs::new(99),
        };
        assert_eq!(decode(header, &bytes), Ok(Some(fork)));
        let (header, bytes) = record(PERF_RECORD_EXIT, 0, &body, 100);
        assert_eq!(
            decode(header, &bytes),
            Ok(Some(Event::Exit {
                pid: 10,
                tid: 11,
                time_ns: MonoNs::new(100)
            }))
        );
        let body: Vec<u8> = [1_u64, 17]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let (header, bytes) = record(PERF_RECORD_LOST, 0, &body, 101);
        assert_eq!(
            decode(header, &bytes),
            Ok(Some(Event::Lost {
                records: 17,
                time_ns: MonoNs::new(101)
            }))
        );
    }

    // Check that an exec is told from a rename by its flag, and that names may hold any byte but
    // NUL.
    #[test]
    fn comm() {
        let mut body = words(&[10, 10]);
        body.extend(b"we\xff) x\n\0\0\0");
        let (header, bytes) = record(PERF_RECORD_COMM, MISC_COMM_EXEC, &body, 1);
        let Ok(Some(Event::Comm { comm, exec, .. })) = decode(header, &bytes) else {
            panic!("not a comm");
        };
        assert!(exec);
        assert_eq!(&*comm, b"we\xff) x\n");
        let (header, bytes) = record(PERF_RECORD_COMM, 0, &body, 1);
        assert!(matches!(
            decode(header, &bytes),
            Ok(Some(Event::Comm { exec: false, .. }))
        ));
    }

    fn mmap_body(start: u64, len: u64, path: &[u8]) -> Vec<u8> {
        let mut body = words(&[10, 11]);
        for word in [start, len, 0x1000] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(words(&[8, 1]));
        for word in [77_u64, 3] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(words(&[5, 2]));
        body.extend(path);
        body
    }

    // Check that a mapping record gives range, file and path, and that a build-ID record claims no
    // inode.
    #[test]
    fn mapping() {
        let body = mmap_body(0x7000, 0x2000, b"/lib/a b.so\0\0\0\0\0");
        let (header, bytes) = record(PERF_RECORD_MMAP2, 0, &body, 4);
        let Ok(Some(Event::Mmap(mmap))) = decode(header, &bytes) else {
            panic!("not a mapping");
        };
        assert_eq!(
            (mmap.start, mmap.len_bytes, mmap.file_offset),
            (VirtualAddress::new(0x7000), 0x2000, FileOffset::new(0x1000))
        );
        assert_eq!(
            (mmap.device, mmap.inode),
            (Device { major: 8, minor: 1 }, 77)
        );
        assert_eq!(&*mmap.path, b"/lib/a b.so");
        let (header, bytes) = record(PERF_RECORD_MMAP2, MISC_MMAP_BUILD_ID, &body, 4);
        assert!(matches!(
            decode(header, &bytes),
            Ok(Some(Event::Mmap(MmapEvent { inode: 0, .. })))
        ));
    }

    // Check that impossible ranges, text without an end, cut records and wrong sizes are rejected,
    // not guessed at.
    #[test]
    fn rejects() {
        for body in [
            mmap_body(u64::MAX, 2, b"/x\0"),
            mmap_body(0x1000, 0, b"/x\0"),
            mmap_body(0x1000, 1, b"/x"),
            words(&[1, 2]),
        ] {
            let (header, bytes) = record(PERF_RECORD_MMAP2, 0, &body, 4);
            assert!(decode(header, &bytes).is_err());
        }
        let (header, bytes) = record(PERF_RECORD_FORK, 0, &words(&[1, 1, 1, 1]), 4);
        assert!(decode(header, &bytes[..bytes.len() - 1]).is_err());
        assert!(Header::decode([0, 0, 0, 0, 0, 0, 7, 0]).is_err());
    }

    // Check that a task outside this namespace is passed over rather than filed under number 0 or
    // -1.
    #[test]
    fn foreign_tasks() {
        for pid in [0, u32::MAX] {
            let (header, bytes) = record(PERF_RECORD_EXIT, 0, &words(&[pid, 1, pid, 1, 0, 0]), 4);
            assert_eq!(decode(header, &bytes), Ok(None));
        }
    }

    proptest! {
        // Check that no bytes make the decoder panic, and that a decoded range never wraps.
        #[test]
        fn any_bytes(kind in 0_u32..20, misc: u16, body in prop::collection::vec(any::<u8>(), 0..200)) {
            let (header, bytes) = record(kind, misc, &body, 1);
            if let Ok(Some(Event::Mmap(mmap))) = decode(header, &bytes) {
                prop_assert!(mmap.start.checked_add(mmap.len_bytes).is_some());
            }
        }
    }
}
