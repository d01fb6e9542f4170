//! The profiler's own frames: a stack walked at a switch-out begins inside the program that walks
//! it, and a tick may come while any of its programs runs. Those frames are no work of the thread,
//! and are cut off.
//!
//! The kernel calls a program through a trampoline (`bpf_trace_run4`), and where several are at one
//! tracepoint, that through a function of the tracepoint's own. Both are anybody's: they are cut
//! where the program that was called is the profiler's, and stay where it is another's, whose cost
//! is to be seen. A tick in what they do before and after their programs does not say whose it is:
//! they are cut then, too.
//!
//! With those of a switch go `__schedule` and `schedule`, which called them: who waits does so in
//! what called these, and the kernel leaves them out where it walks a thread that sleeps.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

use crate::units::VirtualAddress;

/// The hooks with programs of the profiler.
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
/// The functions that call the programs of a hook. The second one jumps to the trampoline, so only
/// a tick within it finds it.
const TRACEPOINT: [&str; 2] = ["__traceiter_", "__bpf_trace_"];
/// What takes a thread off its processor.
const SWITCHES: [&str; 2] = ["__schedule", "schedule"];
/// What calls one program.
const TRAMPOLINE: &str = "bpf_trace_run";

/// What a function of the kernel does for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It calls all those of a hook, each through a trampoline.
    Tracepoint,
    /// It calls one of any hook.
    Trampoline,
    /// It takes a thread off its processor, and calls those of the switch.
    Switch,
}

impl Role {
    fn of(name: &str) -> Option<Self> {
        let mut prefixes = TRACEPOINT.iter();
        if let Some(hook) = prefixes.find_map(|prefix| name.strip_prefix(prefix)) {
            return HOOKS.contains(&hook).then_some(Self::Tracepoint);
        }
        if SWITCHES.contains(&name) {
            return Some(Self::Switch);
        }
        let arguments = name.strip_prefix(TRAMPOLINE)?;
        let is_count = arguments.bytes().all(|byte| byte.is_ascii_digit());
        (is_count && !arguments.is_empty()).then_some(Self::Trampoline)
    }
}

/// Where those functions are.
#[derive(Debug, Default)]
pub(super) struct OwnFrames {
    callers: Vec<(Range<VirtualAddress>, Role)>,
    /// The code of the profiler's programs.
    programs: Vec<Range<VirtualAddress>>,
    /// The kernel's own code, which holds no program.
    text: Range<VirtualAddress>,
}

impl OwnFrames {
    /// Of these programs. What calls them is found in /proc/kallsyms; where addresses are hidden,
    /// nothing is cut.
    #[must_use]
    pub(super) fn find(programs: Vec<Range<VirtualAddress>>) -> Self {
        let read = |each: &mut dyn FnMut(VirtualAddress, &str)| {
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
        let mut callers: Vec<(Range<VirtualAddress>, Role)> = Vec::new();
        let mut text = Range::default();
        read(&mut |address, name| {
            match name {
                "_stext" => text.start = address,
                "_etext" => text.end = address,
                _ => {}
            }
            if address != VirtualAddress::ZERO
                && let Some(role) = Role::of(name)
            {
                callers.push((address..VirtualAddress::new(u64::MAX), role));
            }
        });
        // A function ends where the next one begins.
        read(&mut |address, _| {
            for (range, _) in &mut callers {
                if address > range.start && address < range.end {
                    range.end = address;
                }
            }
        });
        Self {
            callers,
            programs,
            text,
        }
    }

    /// The frames of the thread itself, innermost first. What is inside of an own one goes with it
    /// however deep it is: an interrupt that came there may end a transfer of a disk.
    #[must_use]
    pub(super) fn cut<'a>(&self, kernel: &'a [VirtualAddress]) -> &'a [VirtualAddress] {
        let mut own = 0;
        for (index, address) in kernel.iter().enumerate() {
            let is_own = match self.role(*address) {
                Some(Role::Trampoline) => self.calls_own(&kernel[..index]),
                Some(Role::Tracepoint) => own == index,
                Some(Role::Switch) => own > 0 && own == index,
                None => self.is_own_program(*address),
            };
            if is_own {
                own = index + 1;
            }
        }
        &kernel[own..]
    }

    fn role(&self, address: VirtualAddress) -> Option<Role> {
        let mut callers = self.callers.iter();
        let caller = callers.find(|(range, _)| range.contains(&address));
        caller.map(|(_, role)| *role)
    }

    /// Whether the outermost program of these frames is the profiler's, or there is none.
    fn calls_own(&self, inside: &[VirtualAddress]) -> bool {
        let mut outermost_first = inside.iter().rev();
        let program = outermost_first.find(|address| !self.text.contains(address));
        program.is_none_or(|program| self.is_own_program(*program))
    }

    fn is_own_program(&self, address: VirtualAddress) -> bool {
        self.programs.iter().any(|code| code.contains(&address))
    }
}

/// `ffffffff81000000 T name\t[module]`
fn parse(line: &[u8]) -> Option<(VirtualAddress, &str)> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let address = u64::from_str_radix(fields.next()?, 16).ok()?;
    let kind = fields.next()?;
    kind.eq_ignore_ascii_case("t")
        .then_some((VirtualAddress::new(address), fields.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where code is.
    fn code(range: Range<u64>) -> Range<VirtualAddress> {
        VirtualAddress::new(range.start)..VirtualAddress::new(range.end)
    }

    #[test]
    fn what_lies_inside_the_border_is_cut() {
        // Check that the frames of a program of the profiler go with what called it, wherever in
        // its functions it is, that those of other programs and of other handlers stay, that what
        // calls programs goes where none is to be seen, and that bad lines are none.
        let own = OwnFrames {
            callers: vec![
                (code(0x100..0x140), Role::Tracepoint),
                (code(0x900..0x910), Role::Trampoline),
                (code(0x800..0x820), Role::Switch),
            ],
            programs: vec![code(0xc00..0xd00), code(0xd80..0xe00)],
            text: code(0..0xa00),
        };
        let cut = |stack: &[u64]| -> Vec<u64> {
            let stack: Vec<_> = stack.iter().copied().map(VirtualAddress::new).collect();
            let left = own.cut(&stack).iter();
            left.map(|address| address.get()).collect()
        };
        for (inside, who) in [
            (&[0xc20, 0xc40, 0x905][..], "the first of several frames"),
            (
                &[0x700, 0xd90, 0xc20, 0x905],
                "a helper of a function of it",
            ),
            (&[0xd90, 0x905], "the begin of a function of it"),
            (&[0xc20, 0x905, 0x13f], "one of several programs"),
            (&[0x905], "the trampoline"),
            (&[0x700, 0x905], "what the trampoline calls"),
            (&[0x700, 0x905, 0x13f], "the same of one of several"),
            (&[0x13f], "the tracepoint's function"),
            (&[0xc20, 0x905, 0x700, 0xc20, 0x905], "one within another"),
            (&[0xf20, 0x905, 0x700, 0xc20, 0x905], "another's within one"),
            (
                &[&[0x700; 100][..], &[0xc20, 0x905]].concat(),
                "a deep interrupt of one",
            ),
            (
                &[0xc20],
                "a program at its begin, whose caller was not found",
            ),
            (&[0xc20, 0x905, 0x13f, 0x808, 0x810], "what switches"),
        ] {
            let stack = [inside, &[0x500, 0x600]].concat();
            assert_eq!(cut(&stack), [0x500, 0x600], "{who}");
        }
        for others in [
            &[0xf20, 0x905, 0x500][..],
            &[0x700, 0xf20, 0x905, 0x500],
            &[0xf20, 0x905, 0x13f, 0x500],
            &[0x700, 0x13f, 0x500],
            &[0x500, 0x600],
            &[0x808, 0x810, 0x500],
            &[0xf20, 0x905, 0x808, 0x810, 0x500],
            &[],
        ] {
            assert_eq!(cut(others), others);
        }
        // One of the profiler's within another's: that one's time is to be seen.
        assert_eq!(
            cut(&[0xc20, 0x905, 0x700, 0xf20, 0x905, 0x500]),
            [0x700, 0xf20, 0x905, 0x500]
        );
        assert_eq!(
            cut(&[0xc20, 0x905, 0x808, 0x500, 0x808]),
            [0x500, 0x808],
            "only what called it"
        );
        let function = (VirtualAddress::new(0xff), "name");
        assert_eq!(parse(b"00ff t name\t[module]\n"), Some(function));
        assert_eq!(parse(b"00ff D name\n"), None);
        assert_eq!(parse(b"\xff\xfe"), None);
    }

    #[test]
    fn functions_of_the_kernel_by_name() {
        // Check which functions call programs or switch, and that others of the same kind do not.
        for (name, role) in [
            ("__traceiter_sched_switch", Some(Role::Tracepoint)),
            ("__traceiter_sched_stat_wait", None),
            ("__bpf_trace_sys_exit", Some(Role::Tracepoint)),
            ("__bpf_trace_sched_stat_wait", None),
            ("bpf_trace_run4", Some(Role::Trampoline)),
            ("bpf_trace_run12", Some(Role::Trampoline)),
            ("bpf_trace_run", None),
            ("bpf_trace_running", None),
            ("bpf_prog_7628384a33da6101_sched_switch", None),
            ("__schedule", Some(Role::Switch)),
            ("schedule", Some(Role::Switch)),
            ("schedule_timeout", None),
        ] {
            assert_eq!(Role::of(name), role, "{name}");
        }
    }
}
