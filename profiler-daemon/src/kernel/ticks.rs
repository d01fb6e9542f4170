//! The ticks of each processor: started, given new rates when `tick_schedule` says so, and started
//! again where they died with their processor. Nothing tells that they did: a timer whose processor
//! went offline stands still for ever, also when it is back. So they are counted, and held against
//! those that were due (`tick_account`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use tracing::{info, warn};

use super::counts::Counts;
use super::tick_account::{ProcessorCounts, TickAccount};
use super::tick_schedule::Schedule;
use crate::sys::clock::monotonic_ns;
use crate::sys::proc_fs;
use crate::sys::tick_event::TickEvent;
use crate::units::MonoNs;

/// Turns in a row at which a processor that was idle keeps its rate; from then on it gets another
/// at every second one.
const MAX_KEPT: u32 = 4;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TickCounts {
    /// Ticks that were due and did not run the program, on processors that were not idle from one
    /// change of rate to the next.
    pub skipped: u64,
    /// Times that the ticks of one processor were started, after those of all had been.
    pub restarted: u64,
    /// Times that a processor that is online could not be given ticks, or not another rate.
    pub refused: u64,
}

/// The ticks of all processors. To be asked and changed some times a second.
pub struct Ticks {
    program: OwnedFd,
    schedule: Schedule,
    /// Every processor that is online, and its ticks, or why it has none.
    online: BTreeMap<u32, Result<ProcessorTicks, String>>,
    counts: TickCounts,
}

/// The ticks of one processor.
struct ProcessorTicks {
    event: TickEvent,
    account: TickAccount,
    /// How long the processor had been at work when no ticks were first found to come.
    work_ns: Option<u64>,
    /// Its last change of rate was refused, and that was said.
    is_refused: bool,
    /// Turns in a row at which it was idle, as far as they count.
    kept: u32,
}

impl Ticks {
    /// No ticks yet. Each will run `program`.
    pub(super) fn new(program: OwnedFd, frequency_hz: u32) -> Self {
        Self {
            program,
            schedule: Schedule::new(frequency_hz, Rng::new()),
            online: BTreeMap::new(),
            counts: TickCounts::default(),
        }
    }

    /// Starts the ticks of all processors that are online, each at a drawn phase. Takes one period,
    /// and no more than 20 ms.
    ///
    /// # Errors
    /// They are not allowed, or no processor has any.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let mut phases: Vec<(u64, u32)> = proc_fs::online_cpus()?
            .into_iter()
            .map(|cpu| (self.schedule.phase_ns(), cpu))
            .collect();
        phases.sort_unstable();
        let begin_ns = monotonic_ns();
        for (phase_ns, cpu) in phases {
            let wait_ns = (begin_ns + phase_ns).saturating_since(monotonic_ns());
            thread::sleep(Duration::from_nanos(wait_ns));
            // Not known: the program counts nothing until there are targets.
            match self.open(cpu, None) {
                Err(error) if went_offline(&error) => {}
                opened => opened?,
            }
        }
        if self.processors().next().is_none() {
            return Err(io::Error::other("no processor is online"));
        }
        Ok(())
    }

    /// The processors that have ticks.
    pub(super) fn processors(&self) -> impl Iterator<Item = u32> {
        let online = self.online.iter();
        online.filter_map(|(cpu, tick)| tick.is_ok().then_some(*cpu))
    }

    /// How many processors have ticks.
    #[must_use]
    pub fn processor_count(&self) -> u32 {
        u32::try_from(self.processors().count()).unwrap_or(u32::MAX)
    }

    /// The processors that are online and have no ticks, and why.
    #[must_use]
    pub fn without(&self) -> Vec<(u32, String)> {
        let online = self.online.iter();
        let without = online.filter_map(|(cpu, tick)| Some((*cpu, tick.as_ref().err()?.clone())));
        without.collect()
    }

    /// What happened so far.
    #[must_use]
    pub const fn counts(&self) -> TickCounts {
        self.counts
    }

    /// When [`Self::change`] is to be called next, monotonic nanoseconds; `None`: no processor has
    /// a turn.
    #[must_use]
    pub fn next_change_ns(&self) -> Option<MonoNs> {
        self.schedule.next_moment_ns()
    }

    /// Gives the processor ticks, and its next turn, which is in a second where that fails.
    fn open(&mut self, cpu: u32, seen: Option<ProcessorCounts>) -> io::Result<()> {
        let mut epoch = self.schedule.change(cpu, monotonic_ns(), None, 0);
        let opened = TickEvent::open(cpu, epoch.period_ns, self.program.as_fd());
        epoch.since_ns = monotonic_ns();
        let (tick, done) = match opened {
            Ok(event) => {
                let account = TickAccount::new(epoch, seen);
                (
                    Ok(ProcessorTicks {
                        event,
                        account,
                        work_ns: None,
                        is_refused: false,
                        kept: 0,
                    }),
                    Ok(()),
                )
            }
            Err(error) => {
                self.schedule.later(cpu, monotonic_ns());
                (Err(error.to_string()), Err(error))
            }
        };
        self.online.insert(cpu, tick);
        done
    }

    /// Gives the ticks of those processors another rate whose turn it is, some microseconds each.
    /// One that was idle keeps its rate for a second or two, since hardly anything was met by it,
    /// and is not woken.
    pub fn change(&mut self, now_ns: MonoNs, counts: &Counts) {
        let processors = counts.processors();
        for cpu in self.schedule.due(now_ns) {
            let seen = processors.seen(cpu, now_ns);
            match self.online.get_mut(&cpu) {
                Some(Ok(tick)) => {
                    let is_idle = tick.account.was_idle(now_ns, seen);
                    if is_idle && tick.kept < MAX_KEPT {
                        self.schedule.keep(cpu, now_ns, tick.kept);
                        tick.kept += 1;
                        continue;
                    }
                    tick.kept = if is_idle { MAX_KEPT - 1 } else { 0 };
                    let past = tick.account.epoch();
                    self.counts.skipped += tick.account.skipped(now_ns, seen);
                    let mut epoch =
                        self.schedule
                            .change(cpu, monotonic_ns(), Some(past), tick.kept);
                    let refused = tick.event.set_period(epoch.period_ns).err();
                    if let Some(error) = &refused {
                        self.counts.refused += 1;
                        epoch.period_ns = past.period_ns;
                        self.schedule.later(cpu, now_ns);
                        if !tick.is_refused {
                            warn!("the ticks of processor {cpu} keep their rate: {error}");
                        }
                    }
                    tick.is_refused = refused.is_some();
                    epoch.since_ns = monotonic_ns();
                    tick.account.begin(epoch, seen);
                }
                Some(Err(why)) => {
                    let why = why.clone();
                    self.start_again(cpu, seen, &why);
                }
                None => {}
            }
        }
    }

    /// Gives a processor ticks that has none because of `why`.
    fn start_again(&mut self, cpu: u32, seen: Option<ProcessorCounts>, why: &str) {
        match self.open(cpu, seen) {
            Ok(()) => {
                self.counts.restarted += 1;
                info!("processor {cpu} has ticks: {why}");
            }
            Err(error) if went_offline(&error) => {}
            Err(error) => {
                self.counts.refused += 1;
                // Said once: it is asked again each second.
                if error.to_string() != why {
                    warn!("processor {cpu} has no ticks: {error}");
                }
            }
        }
    }

    /// Closes the ticks that stand still, tells on which processors these were, and has them
    /// started again soon: their events have died, and not those of ticks alone. To be called some
    /// times a second.
    pub fn find_dead(&mut self, now_ns: MonoNs, counts: &Counts) -> Vec<u32> {
        let processors = counts.processors();
        let mut still = Vec::new();
        for (cpu, entry) in &mut self.online {
            let seen = processors.seen(*cpu, now_ns);
            let Ok(tick) = entry else { continue };
            if !tick.account.stands_still(now_ns, seen) {
                tick.work_ns = None;
                continue;
            }
            // As the kernel counts it: of some switches, and so of some idle time, it does not tell
            // the programs.
            let has_worked = match proc_fs::work_ns(*cpu) {
                Ok(work_ns) => {
                    let before_ns = *tick.work_ns.get_or_insert(work_ns);
                    work_ns.saturating_sub(before_ns) >= tick.account.enough_work_ns()
                }
                Err(error) => {
                    warn!("how long processor {cpu} was at work cannot be read: {error}");
                    true
                }
            };
            if has_worked {
                *entry = Err("those it had stood still".to_owned());
                self.schedule.forget(*cpu);
                self.schedule.soon(*cpu, now_ns);
                still.push(*cpu);
            }
        }
        still
    }

    /// Forgets processors that went offline, and has those that came given ticks soon. To be called
    /// about once a second.
    pub fn follow(&mut self, now_ns: MonoNs, online: &[u32]) {
        let schedule = &mut self.schedule;
        self.online.retain(|cpu, _| {
            let stays = online.contains(cpu);
            if !stays {
                schedule.forget(*cpu);
            }
            stays
        });
        for cpu in online {
            self.online.entry(*cpu).or_insert_with(|| {
                schedule.soon(*cpu, now_ns);
                Err("it came online".to_owned())
            });
        }
    }
}

/// The processor is not there any more: what is online says so soon.
fn went_offline(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}
