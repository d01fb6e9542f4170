//! What is said where nobody who was named was there: an empty report alone looks like one of
//! processes that did nothing.

use crate::args::RecordArgs;
use crate::report::SessionReport;

/// Names that are said at most.
const MAX_SAID: usize = 8;

/// A sentence about whom was looked for and what to look at, where processes were named and the
/// report has none of them.
pub(super) fn nobody(args: &RecordArgs, found: &SessionReport) -> Option<String> {
    let ended = found.retired.processes.unwrap_or_default();
    if found.processes + ended > 0 || found.totals.elapsed_ns > 0 {
        return None;
    }
    let pids = args.pids.iter().map(|pid| format!("--pid {pid}"));
    let comms = args.comms.iter().map(|comm| format!("--comm {comm}"));
    let named: Vec<String> = pids.chain(comms).collect();
    if named.is_empty() {
        return None;
    }
    let mut said = named[..named.len().min(MAX_SAID)].join(", ");
    if named.len() > MAX_SAID {
        said += &format!(" and {} more", named.len() - MAX_SAID);
    }
    let check = if args.comms.is_empty() {
        "whether it still ran when the recording began (ps -p PID)"
    } else {
        "the names in ps -e -o pid,comm, which are whole names of at most 15 bytes and need not be \
         those of the files"
    };
    Some(format!(
        "nothing was recorded, as no process matched {said}: check {check}"
    ))
}

#[cfg(test)]
mod tests {
    use super::nobody;
    use crate::args::RecordArgs;
    use crate::processes::ids::ProcessKey;
    use crate::profile::frames::FrameId;
    use crate::profile::input::{CommName, DrainPass, ProcessInfo};
    use crate::profile::{Profile, limits::Limits};
    use crate::report::{self, SessionReport, ViewQuery, names::Names};
    use crate::symbols::names::FunctionName;
    use crate::units::{BootNs, MonoNs, UnixNs};

    /// There are no frames to be named.
    struct NoNames;

    impl Names for NoNames {
        fn function(&self, _: FrameId) -> &FunctionName {
            unreachable!("a process without stacks has no frames")
        }
    }

    fn totals(comms: &[&str]) -> SessionReport {
        let mut profile = Profile::new(Limits::default(), MonoNs::ZERO, UnixNs::ZERO);
        let info = |(pid, comm): (u32, &&str)| {
            let start_ns = BootNs::new(1);
            let key = ProcessKey { pid, start_ns };
            ProcessInfo::unknown(key, CommName::new(comm), UnixNs::ZERO)
        };
        profile.apply(DrainPass {
            processes: (1..).zip(comms).map(info).collect(),
            ..DrainPass::default()
        });
        let snapshot = profile.snapshot();
        report::session(&snapshot, &ViewQuery::default(), &NoNames).unwrap()
    }

    // Check that nobody is told with all that was named, few of many, and what to check; and that
    // nothing is said of somebody, nor where nobody was named.
    #[test]
    fn nobody_is_told() {
        let args = |pids: &[u32], comms: &[&str]| RecordArgs {
            pids: pids.to_vec(),
            comms: comms.iter().map(|comm| (*comm).to_owned()).collect(),
            ..RecordArgs::default()
        };
        let (none, some) = (totals(&[]), totals(&["sh"]));
        let by_name = nobody(&args(&[], &["nosuch"]), &none).unwrap();
        assert!(by_name.contains("no process matched --comm nosuch: check the names in ps"));
        let by_number = nobody(&args(&[7, 8], &[]), &none).unwrap();
        assert!(by_number.contains("--pid 7, --pid 8: check whether it still ran"));
        let both = nobody(&args(&[7], &["a", "b"]), &none).unwrap();
        assert!(both.contains("--pid 7, --comm a, --comm b: check the names"));
        let many = nobody(&args(&[], &["x"; 10]), &none).unwrap();
        assert!(many.contains("--comm x and 2 more: check"), "{many}");
        assert_eq!(nobody(&args(&[], &["sh"]), &some), None);
        assert_eq!(nobody(&args(&[], &[]), &none), None);
    }
}
