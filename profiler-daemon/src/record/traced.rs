//! Functions that a recording measures exactly (`--trace`): found in the files of the programs, and
//! handed over to be measured.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::args::RecordArgs;
use crate::backends::Live;
use crate::collect::{
    Command, InstrumentationCommand, InstrumentationError, MoreFunctions, Plan, RefusedFunction,
};
use crate::config::targets::Targets;
use crate::elf::ElfFile;
use crate::report::{self, Measured};
use crate::stages::Unanswered;
use crate::stages::choosing::{CodeFile, Exits};
use crate::stages::looking::Looking;
use crate::symbols::chosen::{BUDGET_NS, Pattern};
use crate::sys::clock::monotonic_ns;
use crate::units::MonoNs;

use super::program::begins_with;
use super::{progress, spanned};

/// How long attaching is waited for: the kernel verifies the program first, and calls of it are
/// timed, which takes seconds on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the names of callers are waited for.
const NAMES_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two checks who has mapped what, right after somebody has. It is twice as long each
/// time that nobody has.
const LOOK: Duration = Duration::from_millis(5);
/// The most of it while something that was chosen is missing, and once nothing is.
const LONGEST_LOOK: Duration = Duration::from_millis(40);
const LOOK_FOR_MORE: Duration = Duration::from_millis(200);
/// How often what processes that run have mapped is looked through, where the time of a look is not
/// enough, before the recording begins.
const MAX_LOOKS: usize = 8;
/// Processes that are examined at a time; others the next time.
const MAX_EXAMINED: usize = 256;
/// What probes may take of one processor unless said otherwise, in thousandths.
const BUDGET_PERMILLE: u32 = 50;

/// See the module.
pub(super) struct TracedFunctions {
    looking: Looking,
    budget: f64,
    /// Processes whose functions are measured.
    pids: Vec<u32>,
    children: bool,
    /// Whether calls may be missed: nobody waits to see the first one.
    trial: bool,
    /// The number of the instrumentation.
    id: u32,
    /// When the recording began, monotonic nanoseconds.
    began_ns: MonoNs,
}

impl TracedFunctions {
    /// What was typed; `None`: nothing is to be measured.
    ///
    /// # Errors
    /// What is no pattern.
    pub(super) fn read(args: &RecordArgs) -> anyhow::Result<Option<Self>> {
        if args.trace.is_empty() && args.trace_usdt.is_empty() && args.trace_span.is_empty() {
            return Ok(None);
        }
        if args.command.is_empty() && args.pids.is_empty() {
            return Err(anyhow!(
                "--trace, --trace-usdt and --trace-span need a command (after --) or --pid: every process on the machine is not measured"
            ));
        }
        let patterns = args.trace.iter().map(|text| text.parse());
        let patterns = patterns.collect::<Result<Vec<Pattern>, _>>();
        let exits = if args.trace_counts {
            Exits::None
        } else {
            Exits::Sites
        };
        Ok(Some(Self {
            looking: Looking::new(
                patterns.context("--trace")?,
                exits,
                spanned::read(args)?,
                BUDGET_NS,
            ),
            budget: f64::from(args.trace_budget.unwrap_or(BUDGET_PERMILLE)) / 1000.0,
            pids: args.pids.clone(),
            children: args.children || !args.command.is_empty(),
            trial: args.command.is_empty(),
            id: 0,
            began_ns: MonoNs::ZERO,
        }))
    }

    /// Before the command runs: measures what can be found by then, of the program itself and of
    /// files with whole paths. Of processes that run, all that they have mapped.
    ///
    /// # Errors
    /// No function is meant by a pattern whose file is known, or none of it can be measured; a file
    /// whose path was given cannot be looked through; more is meant than may be.
    pub(super) async fn begin(
        &mut self,
        live: &Live,
        command: Option<(u32, &OsStr)>,
    ) -> anyhow::Result<()> {
        let mut files = Vec::new();
        let patterns = self.looking.functions().patterns().iter();
        let paths = patterns.filter_map(Pattern::path);
        for path in paths.chain(self.looking.spans().paths()) {
            let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
            // Of a program that children run, nobody waits for each to be found: it would be over.
            let elf = ElfFile::read(&file);
            files.push(CodeFile {
                path: path.to_owned(),
                is_program: self.children && elf.is_ok_and(|elf| elf.is_program(&file)),
                is_named: true,
                file: Arc::new(file),
            });
        }
        if let Some((pid, program)) = command {
            self.pids = vec![pid];
            if let Some((path, file)) = begins_with(program)? {
                let program = CodeFile {
                    path: path.to_string_lossy().into_owned(),
                    file: Arc::new(file),
                    is_program: true,
                    is_named: true,
                };
                files.insert(0, program);
            }
        }
        let whom = Targets::only(self.pids.clone(), Vec::new(), self.children)
            .map_err(anyhow::Error::msg)?;
        let mut more = self.look(move |looking| looking.files(&files)).await?;
        if command.is_none() {
            // All of them, unless they go on mapping files that take long.
            for _ in 0..MAX_LOOKS {
                let meant = self.meant(live, &whom).await?;
                let look = move |looking: &mut Looking| looking.processes(&meant, usize::MAX);
                let found = self.look(look).await?;
                more.functions.extend(found.functions);
                more.refused.extend(found.refused);
                more.items.extend(found.items);
                if !self.looking.is_put_off() {
                    break;
                }
            }
        }
        if let Some(why) = self.looking.take_failure() {
            return Err(anyhow::Error::new(why).context("--trace"));
        }
        // Also where there is none yet: what probes cost is measured by now.
        let plan = Plan {
            name: String::new(),
            whom,
            functions: more.functions,
            refused: more.refused,
            items: more.items,
            missing: Vec::new(),
            callers: true,
            budget: self.budget,
            length_ns: None,
            trial: self.trial,
        };
        let start = |answer| InstrumentationCommand::Start { plan, answer };
        let asked = live.access();
        let started = asked.ask_within(PATIENCE, |answer| Command::Instrumentation(start(answer)));
        // Who asks lives as long as what is measured.
        self.id = started.await?.context("--trace")?.told();
        self.began_ns = monotonic_ns();
        let missing = self.looking.functions().missing();
        let known = |pattern: &&Pattern| command.is_none() || pattern.path().is_some();
        if let Some(pattern) = missing.iter().find(|pattern| known(pattern)) {
            return Err(anyhow!(
                "--trace {}: there is no such function in the symbols of that file",
                pattern.text()
            ));
        }
        match spanned::missing(self.looking.spans(), command.is_some()).first() {
            Some(missing) => Err(anyhow!(
                "{missing}: there is nothing of that name in the file"
            )),
            None => Ok(()),
        }
    }

    async fn meant(&self, live: &Live, whom: &Targets) -> anyhow::Result<Vec<(u32, u64)>> {
        let whom = whom.clone();
        let command = |answer| InstrumentationCommand::Meant { whom, answer };
        let ask = |answer| Command::Instrumentation(command(answer));
        live.access().ask(ask).await?.context("--trace")
    }

    /// While it runs: measures what its processes come to map, those that they start included. What
    /// goes wrong is told: what was measured so far is worth a report.
    pub(super) async fn follow(&mut self, live: &Live) -> Infallible {
        let why = match self.follow_processes(live).await {
            Ok(()) => return std::future::pending().await,
            Err(why) => why,
        };
        progress::say(&format!(
            "--trace: what is mapped from now on is not measured: {why:#}"
        ));
        std::future::pending().await
    }

    /// Until all of its processes are gone.
    async fn follow_processes(&mut self, live: &Live) -> anyhow::Result<()> {
        let mut wait = LOOK;
        loop {
            tokio::time::sleep(wait).await;
            let id = self.id;
            let ask =
                |answer| Command::Instrumentation(InstrumentationCommand::Processes { id, answer });
            let processes = match live.access().ask(ask).await {
                Ok(Some(processes)) => processes,
                Ok(None) => return Ok(()),
                Err(Unanswered::Late(_)) => continue,
                Err(why) => return Err(why.into()),
            };
            if !self.looking.is_new(&processes) {
                let is_missing = !self.looking.missing().is_empty();
                let longest = if is_missing {
                    LONGEST_LOOK
                } else {
                    LOOK_FOR_MORE
                };
                wait = (2 * wait).min(longest);
                continue;
            }
            let began = Instant::now();
            let look = move |looking: &mut Looking| looking.processes(&processes, MAX_EXAMINED);
            let more = self.look(look).await?;
            // Of a program that goes on mapping code, a fifth of the time at most.
            wait = (4 * began.elapsed()).clamp(LOOK, LOOK_FOR_MORE);
            if more.functions.is_empty() && more.items.is_empty() {
                continue;
            }
            let command = |answer| InstrumentationCommand::More { id, more, answer };
            let ask = |answer| Command::Instrumentation(command(answer));
            let why = match live.access().ask_within(PATIENCE, ask).await {
                Ok(Ok(())) => continue,
                Ok(Err(InstrumentationError::Over)) => return Ok(()),
                Ok(Err(why)) => why.to_string(),
                Err(why @ Unanswered::Late(_)) => why.to_string(),
                Err(why) => return Err(why.into()),
            };
            progress::say(&format!(
                "--trace: what was found later is not measured: {why}"
            ));
        }
    }

    /// Ends it, so that what is told of it now and in rows of functions is the same. Answers what
    /// was measured.
    ///
    /// # Errors
    /// The collector does not answer.
    pub(super) async fn end(&self, live: &Live) -> anyhow::Result<Measured> {
        for pattern in self.looking.functions().missing() {
            progress::say(&format!(
                "--trace {}: no such function was found in what the program had mapped",
                pattern.text()
            ));
        }
        for missing in spanned::missing(self.looking.spans(), false) {
            progress::say(&format!(
                "{missing}: nothing of that name was found in what the program had mapped"
            ));
        }
        let id = self.id;
        let stop = |answer| InstrumentationCommand::Stop { id, answer };
        let asked = live.access();
        let state = asked.ask_within(PATIENCE, |answer| Command::Instrumentation(stop(answer)));
        let state = state.await?.context("what was measured is gone")?;
        let access = live.access();
        let names = access.caller_names(&state.measured, NAMES_PATIENCE).await?;
        Ok(report::measured(&state.measured, names, self.began_ns))
    }

    /// Looks for what is meant; what cannot be measured is told at once.
    async fn look(
        &mut self,
        look: impl FnOnce(&mut Looking) -> MoreFunctions + Send + 'static,
    ) -> anyhow::Result<MoreFunctions> {
        let mut looking = std::mem::take(&mut self.looking);
        // It may take a second: signals are heard meanwhile.
        let work = tokio::task::spawn_blocking(move || {
            let more = look(&mut looking);
            (looking, more)
        });
        let more;
        (self.looking, more) = work.await.context("looking for functions failed")?;
        for RefusedFunction { name, module, why } in &more.refused {
            progress::say(&format!(
                "--trace: {name} of {module} is not measured: {why}"
            ));
        }
        spanned::tell(&more.items);
        Ok(more)
    }
}
