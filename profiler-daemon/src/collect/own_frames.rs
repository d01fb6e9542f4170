//! The profiler's own frames: a stack walked at a switch-out begins inside the program that walks
//! it, and a tick may come while any of its programs runs. Those frames are no work of the thread,
//! and are cut off.
//!
//! With several programs at a tracepoint the kernel calls them through a function of the
//! tracepoint's own; with one it calls that one's trampoline (`bpf_trace_run4`), which all
//! tracepoints share: that is ours unless a program of another is inside. A tick in what the
//! trampoline does before and after its program does not say whose it is: it is cut too.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// The hooks with programs of the profiler: some walk, and a tick may come in any.
const HOOKS: [&str; 12] = [
    "sched_switch",
    "sched_waking",
    "sched_wakeup_new",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_free",
    "task_rename",
    "sys_enter",
    "sys_exit",
    // Tracepoints of one layout share a function: those of two and of one of the above.
    "sched_wakeup_template",
    "sched_process_template",
];
/// The functions through which the kernel calls the programs of a hook: everything inside of them
/// is the profiler's. The second one jumps to the trampoline, so only a tick within it finds it.
const TRACEPOINT: [&str; 2] = ["__traceiter_", "__bpf_trace_"];
/// Through which it calls a program that is the only one.
const TRAMPOLINE: &str = "bpf_trace_run";
/// Before the tag and the name of a program.
const PROGRAM: &str = "bpf_prog_";
/// Functions that the compiler calls in programs: a tick at their begin finds no frame of whom they
/// were called by.
const CALLED: [&str; 4] = ["memset", "memcpy", "memmove", "memcmp"];
/// What the kernel keeps of a program's name, where it keeps no more.
const MAX_PROGRAM_NAME: usize = 15;
/// Most functions that are looked for: programs of others may be called as ours.
const MAX_FUNCTIONS: usize = 256;
/// No more frames than this lie between the border and the walk.
const MAX_INSIDE: usize = 12;

/// What a function of the kernel is to the profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It calls all programs of a hook.
    Tracepoint,
    /// It calls one program of any hook.
    Trampoline,
    /// A program at one of the hooks, or a function of it.
    Program,
}

impl Role {
    fn of(name: &str) -> Option<Self> {
        let mut prefixes = TRACEPOINT.iter();
        if let Some(hook) = prefixes.find_map(|prefix| name.strip_prefix(prefix)) {
            return HOOKS.contains(&hook).then_some(Self::Tracepoint);
        }
        if let Some(arguments) = name.strip_prefix(TRAMPOLINE) {
            let is_count = arguments.bytes().all(|byte| byte.is_ascii_digit());
            return (is_count && !arguments.is_empty()).then_some(Self::Trampoline);
        }
        let (_, program) = name.strip_prefix(PROGRAM)?.split_once('_')?;
        let mut hooks = HOOKS.iter();
        let is_hook =
            hooks.any(|hook| program == *hook || hook.get(..MAX_PROGRAM_NAME) == Some(program));
        (is_hook || CALLED.contains(&program)).then_some(Self::Program)
    }
}

/// Where those functions are.
#[derive(Debug, Default)]
pub(super) struct OwnFrames {
    functions: Vec<(Range<u64>, Role)>,
    /// The kernel's own code, which holds no program.
    text: Range<u64>,
}

impl OwnFrames {
    /// Finds them in /proc/kallsyms; where addresses are hidden, nothing is cut.
    #[must_use]
    pub(super) fn find() -> Self {
        let read = |each: &mut dyn FnMut(u64, &str)| {
            let Ok(file) = File::open("/proc/kallsyms") else {
                return;
            };
            let mut lines = BufReader::with_capacity(1 << 16, file);
            let mut line = Vec::new();
            while let Ok(1..) = lines.read_until(b'\n', &mut line) {
                if let Some((address, name)) = parse(&line) {
                    each(address, name);
                }
                line.clear();
            }
        };
        let mut functions: Vec<(Range<u64>, Role)> = Vec::new();
        let mut text = 0..0;
        read(&mut |address, name| {
            match name {
                "_stext" => text.start = address,
                "_etext" => text.end = address,
                _ => {}
            }
            if address != 0
                && functions.len() < MAX_FUNCTIONS
                && let Some(role) = Role::of(name)
            {
                functions.push((address..u64::MAX, role));
            }
        });
        // A function ends where the next one begins.
        read(&mut |address, _| {
            for (range, _) in &mut functions {
                if address > range.start && address < range.end {
                    range.end = address;
                }
            }
        });
        Self { functions, text }
    }

    /// The frames of the thread itself, innermost first.
    #[must_use]
    pub(super) fn cut<'a>(&self, kernel: &'a [u64]) -> &'a [u64] {
        let role = |address: &u64| {
            let mut functions = self.functions.iter();
            functions
                .find(|(range, _)| range.contains(address))
                .map(|(_, role)| *role)
        };
        let inside = &kernel[..kernel.len().min(MAX_INSIDE)];
        let border = (0..inside.len()).rfind(|&index| match role(&inside[index]) {
            Some(Role::Tracepoint) => true,
            Some(Role::Trampoline) => inside[..index]
                .iter()
                .all(|address| self.text.contains(address) || role(address) == Some(Role::Program)),
            Some(Role::Program) | None => false,
        });
        border.map_or(kernel, |index| &kernel[index + 1..])
    }
}

/// `ffffffff81000000 T name\t[module]`
fn parse(line: &[u8]) -> Option<(u64, &str)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?;
    kind.eq_ignore_ascii_case("t")
        .then_some((address, fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_inside_the_border_is_cut() {
        // Check that the frames up to and with the tracepoint's function go, or the trampoline of a
        // program of ours or of none, that those of other programs stay, and that bad lines are
        // none.
        let own = OwnFrames {
            functions: vec![
                (0x100..0x140, Role::Tracepoint),
                (0x900..0x910, Role::Trampoline),
                (0xc00..0xd00, Role::Program),
            ],
            text: 0..0xa00,
        };
        assert_eq!(own.cut(&[1, 2, 0x13f, 0x500, 0x600]), [0x500, 0x600]);
        assert_eq!(own.cut(&[0xc20, 0xc40, 0x905, 0x500]), [0x500]);
        assert_eq!(own.cut(&[0xc20, 0x905, 0x13f, 0x500]), [0x500]);
        assert_eq!(own.cut(&[0x700, 0xc20, 0xc40, 0x905, 0x500]), [0x500]);
        assert_eq!(own.cut(&[0x905, 0x500]), [0x500]);
        assert_eq!(own.cut(&[0x700, 0x905, 0x500]), [0x500]);
        for others in [
            &[0xe00, 0x905, 0x500][..],
            &[0x700, 0xe00, 0x905, 0x500],
            &[0xc20],
            &[0x500, 0x600],
            &[],
        ] {
            assert_eq!(own.cut(others), others);
        }
        assert_eq!(parse(b"00ff t name\t[module]\n"), Some((0xff, "name")));
        assert_eq!(parse(b"00ff D name\n"), None);
        assert_eq!(parse(b"\xff\xfe"), None);
    }

    #[test]
    fn functions_of_the_kernel_by_name() {
        // Check which functions lead to a program that walks, and that others of the same kind do
        // not.
        for (name, role) in [
            ("__traceiter_sched_switch", Some(Role::Tracepoint)),
            ("__traceiter_sched_stat_wait", None),
            ("__bpf_trace_sys_exit", Some(Role::Tracepoint)),
            ("__bpf_trace_sched_stat_wait", None),
            ("bpf_trace_run4", Some(Role::Trampoline)),
            ("bpf_trace_run12", Some(Role::Trampoline)),
            ("bpf_trace_run", None),
            ("bpf_trace_running", None),
            (
                "bpf_prog_7628384a33da6101_sched_switch",
                Some(Role::Program),
            ),
            (
                "bpf_prog_7628384a33da6101_sched_process_e",
                Some(Role::Program),
            ),
            ("bpf_prog_7628384a33da6101_tick", None),
            ("bpf_prog_7628384a33da6101_sys", None),
            ("bpf_prog_run_pin_on_cpu", None),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}
