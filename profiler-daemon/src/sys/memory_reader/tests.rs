//! The reader with a child that is this test program, on memory that is there, that is missing, and
//! that never comes.

use super::child::{Pages, serve};
use super::*;
use crate::sys::poll::poll;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(150);

/// A reader that looks whether memory is there (`careful_child`), or that does not.
pub(crate) fn reader(child: &str) -> MemoryReader {
    let name = format!("sys::memory_reader::tests::{child}");
    let words = ["--exact", name.as_str(), "--ignored", "--nocapture"];
    MemoryReader::new(std::env::current_exe().unwrap(), &words)
}

/// The numbers that the reader has put behind all others.
fn files() -> Option<[i32; 3]> {
    let words: Vec<String> = std::env::args().collect();
    let words = words.last_chunk::<3>()?;
    let numbers: Result<Vec<i32>, _> = words.iter().map(|word| word.parse()).collect();
    numbers.ok()?.try_into().ok()
}

#[test]
#[ignore = "the child of the tests below"]
fn careful_child() {
    if let Some(files) = files() {
        serve(files, Pages::Present).unwrap();
    }
}

#[test]
#[ignore = "the child of the tests below"]
fn careless_child() {
    if let Some(files) = files() {
        serve(files, Pages::All).unwrap();
    }
}

/// So many pages, none of them in memory.
fn pages(count: usize) -> *mut Page {
    // SAFETY: a new mapping.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            count * PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(start, libc::MAP_FAILED);
    // SAFETY: the mapping just made.
    unsafe { libc::madvise(start, count * PAGE_BYTES, libc::MADV_NOHUGEPAGE) };
    start.cast()
}

/// A page that begins with 1.
pub(crate) fn page_in_memory() -> *mut Page {
    let page = pages(1);
    // SAFETY: the mapping just made.
    unsafe { (*page)[0] = 1 };
    page
}

/// So many pages that somebody who is not there is to bring. `None`: the kernel has no userfaultfd,
/// or does not allow it.
pub(crate) fn pages_that_never_come(count: usize) -> Option<*mut Page> {
    let memory = pages(count);
    // SAFETY: takes flags; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    let mut api = [0xaa_u64, 0, 0];
    let bytes = (count * PAGE_BYTES) as u64;
    let mut register = [
        memory.addr() as u64,
        bytes,
        1, // UFFDIO_REGISTER_MODE_MISSING
        0,
    ];
    // SAFETY: UFFDIO_API and UFFDIO_REGISTER with their structures.
    unsafe {
        assert_eq!(libc::ioctl(fd, 0xc018_aa3f, api.as_mut_ptr()), 0);
        assert_eq!(libc::ioctl(fd, 0xc020_aa00, register.as_mut_ptr()), 0);
    }
    Some(memory)
}

pub(crate) fn range(start: *mut Page, count: u32) -> PageRange {
    PageRange {
        tid: std::process::id(),
        first: start.addr() as u64 / PAGE_BYTES as u64,
        count,
    }
}

/// The number of a question, and the bytes that were there, where anything could be read.
type Answer = (usize, Option<Vec<Option<u8>>>);

/// What is found: the first byte of each page, by range.
fn firsts(
    reader: &mut MemoryReader,
    ranges: &[PageRange],
    time: Duration,
) -> (ReadEnd, Vec<Answer>) {
    let mut found = Vec::new();
    let ended = reader.read(ranges, time, &mut |index, what| {
        let pages = match what {
            FoundPages::Pages(pages) => {
                Some(pages.iter().map(|page| page.map(|page| page[0])).collect())
            }
            FoundPages::Refused => None,
        };
        found.push((index, pages));
    });
    (ended.unwrap(), found)
}

#[test]
fn reads_what_is_in_memory() {
    // Check that pages that are in memory are read, that those that are not stay so, and that a
    // process that is not there is refused.
    let memory = pages(4);
    for page in [1, 3] {
        // SAFETY: within the mapping.
        unsafe { (*memory.add(page))[0] = 7 + page as u8 };
    }
    let gone = PageRange {
        tid: u32::MAX / 2,
        first: 1,
        count: 1,
    };
    let mut reader = reader("careful_child");
    for _ in 0..2 {
        let ranges = [range(memory, 4), gone, range(memory.wrapping_add(3), 2)];
        let (ended, found) = firsts(&mut reader, &ranges, LONG);
        assert_eq!(ended, ReadEnd::Whole);
        assert_eq!(found[0], (0, Some(vec![None, Some(8), None, Some(10)])));
        assert_eq!(found[1], (1, None));
        assert_eq!(found[2].1.as_ref().unwrap()[0], Some(10));
    }
    assert_eq!(reader.counts().started, 1, "one child serves all");
    let mut list = vec![0; 8 * 4];
    let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    let at = memory.addr() as u64 / PAGE_BYTES as u64 * 8;
    std::os::unix::fs::FileExt::read_exact_at(&pagemap, &mut list, at).unwrap();
    assert_eq!(list[7] >> 6, 0, "nothing was paged in");
}

#[test]
fn a_page_that_never_comes() {
    // Check that memory under userfaultfd is not waited for: not read by who looks whether it is
    // there, and by who does not look, not longer than its time, after which another child goes on.
    let Some(memory) = pages_that_never_come(2) else {
        return;
    };
    let here = page_in_memory();
    let ranges = [range(here, 1), range(memory, 2), range(here, 1)];
    let (ended, found) = firsts(&mut reader("careful_child"), &ranges, LONG);
    assert_eq!(ended, ReadEnd::Whole);
    assert_eq!(found[1], (1, Some(vec![None, None])));
    let mut reader = reader("careless_child");
    let began = Instant::now();
    let (ended, found) = firsts(&mut reader, &ranges, SHORT);
    assert_eq!(ended, ReadEnd::Late(1));
    assert_eq!(found, [(0, Some(vec![Some(1)]))]);
    let (ended, found) = firsts(&mut reader, &ranges[..1], LONG);
    assert_eq!((ended, found.len()), (ReadEnd::Whole, 1));
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    let counts = reader.counts();
    assert_eq!((counts.started, counts.late, counts.died), (2, 1, 0));
}

/// Whether nobody can read what is written.
fn is_without_reader(pipe: &io::PipeWriter) -> bool {
    let mut entry = [libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(pipe),
        events: 0,
        revents: 0,
    }];
    poll(&mut entry, Duration::ZERO).unwrap();
    entry[0].revents & libc::POLLERR != 0
}

#[test]
fn a_child_that_dies_is_replaced() {
    // Check that a child that was killed while it had nothing to do is replaced, and nobody blamed;
    // that one that was killed at work is noticed, and the next question answered; that an idle one
    // ends; and that the end of one that cannot begin is seen, and not only that it is late.
    let here = pages(1);
    let ranges = [range(here, 1)];
    let mut reader = reader("careful_child");
    assert_eq!(firsts(&mut reader, &ranges, LONG).0, ReadEnd::Whole);
    let running = reader.running.as_mut().unwrap();
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    // A child that another test is just starting has its pipe too, for a moment.
    while !is_without_reader(&running.ask) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(firsts(&mut reader, &ranges, LONG).0, ReadEnd::Whole);
    assert_eq!(reader.counts().died, 1);
    let pid = reader.running.as_mut().unwrap().child.id().cast_signed();
    // SAFETY: a child that was not waited for.
    let signal = move |signal| unsafe { libc::kill(pid, signal) };
    signal(libc::SIGSTOP);
    // Until each of its threads has stopped.
    // SAFETY: no status is asked for.
    let stopped = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED) };
    assert_eq!(stopped, pid);
    let killer = std::thread::spawn(move || {
        // Not before it is asked, on a busy machine neither.
        std::thread::sleep(Duration::from_secs(2));
        signal(libc::SIGKILL)
    });
    assert_eq!(
        firsts(&mut reader, &ranges, LONG),
        (ReadEnd::Died(0), vec![])
    );
    assert_eq!(killer.join().unwrap(), 0);
    assert_eq!(firsts(&mut reader, &ranges, LONG).0, ReadEnd::Whole);
    reader.used -= IDLE;
    reader.rest();
    assert!(reader.running.is_none());
    assert_eq!(firsts(&mut reader, &ranges, LONG).0, ReadEnd::Whole);
    let mut broken = MemoryReader::new("/bin/false".into(), &[]);
    let failures = std::iter::repeat_with(|| {
        let failed = broken.read(&ranges, LONG, &mut |_, _| {});
        failed.expect_err("it reads nothing").kind()
    });
    // On a busy machine it may be late to end, too.
    assert!(
        failures
            .take(60)
            .any(|kind| kind != io::ErrorKind::TimedOut)
    );
    assert!(broken.counts().died >= 1);
}
