//! Follows which processors are online, and mends what dies with one that goes offline: its ticks,
//! and what is heard of processes there. (Suspending a machine takes all but one offline.)

use tracing::warn;

use crate::kernel::{Kernel, Ticks};
use crate::processes::live::Processes;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf_event::SideBand;
use crate::sys::perf_record::Event;
use crate::sys::proc_fs;

/// Events of a processor died no longer before this is noticed: ticks that stand still for a
/// second, or a check who is online.
const NOTICED_WITHIN_NS: u64 = 3_000_000_000;

/// Finds whether ticks stand still somewhere; if so, what else died there is mended as well. To be
/// called some times a second.
pub(super) fn mend(
    kernel: &mut Kernel,
    side_band: Option<&mut SideBand>,
    processes: &mut Processes,
) {
    let died = kernel.ticks.find_dead(monotonic_ns(), &kernel.counts);
    if !died.is_empty() {
        warn!(
            "ticks stand still on the processors {died:?}: they and process events are started again"
        );
        follow(&mut kernel.ticks, side_band, processes, &died);
    }
}

/// Follows which processors are online; on those that `died` process events are listened to anew.
/// To be called once a second, when what the side-band had was taken in.
pub(super) fn follow(
    ticks: &mut Ticks,
    side_band: Option<&mut SideBand>,
    processes: &mut Processes,
    died: &[u32],
) {
    let online = match proc_fs::online_cpus() {
        Ok(online) => online,
        Err(error) => {
            warn!("cannot tell which processors are online: {error}");
            return;
        }
    };
    let now_ns = monotonic_ns();
    ticks.follow(now_ns, &online);
    if side_band.is_some_and(|side_band| side_band.follow(&online, died)) {
        // Nobody counted what was not heard there: `/proc` is read again, as after any loss.
        processes.apply(&Event::Lost {
            records: 0,
            time_ns: now_ns.saturating_sub(NOTICED_WITHIN_NS),
        });
    }
}
