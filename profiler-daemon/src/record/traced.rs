//! Functions that a recording measures exactly (`--trace`): found in the files of the programs, and
//! handed over to be measured.

use std::ffi::OsStr;
use std::fs::File;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::args::RecordArgs;
use crate::backends::Live;
use crate::collect::{
    Command, InstrumentationCommand, InstrumentationError, MoreFunctions, Plan, RefusedFunction,
};
use crate::config::targets::Targets;
use crate::elf::ElfFile;
use crate::report::{self, Measured};
use crate::stages::choosing::{Chooser, CodeFile, Exits, mapped};
use crate::symbols::chosen::{BUDGET_NS, Pattern};
use crate::sys::clock::monotonic_ns;
use crate::units::MonoNs;

use super::program::begins_with;
use super::progress;
use super::spanned::Spanned;

/// How long attaching is waited for: the kernel verifies the program first, and calls of it are
/// timed, which takes seconds on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the names of callers are waited for.
const NAMES_PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks at what the program has mapped, while something that was chosen is
/// missing.
const LOOK: Duration = Duration::from_millis(5);
/// What probes may take of one processor unless said otherwise, in thousandths.
const BUDGET_PERMILLE: u32 = 50;

/// See the module.
pub(super) struct TracedFunctions {
    chooser: Chooser,
    /// USDT points and spans.
    spanned: Spanned,
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
            chooser: Chooser::new(patterns.context("--trace")?, exits, BUDGET_NS),
            spanned: Spanned::read(args)?,
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
    /// No function is meant by a pattern whose file is known, or none of it can be measured.
    pub(super) async fn begin(
        &mut self,
        live: &Live,
        command: Option<(u32, &OsStr)>,
    ) -> anyhow::Result<()> {
        let mut modules = Vec::new();
        let paths = self.chooser.patterns().iter().filter_map(Pattern::path);
        for path in paths.chain(self.spanned.paths()) {
            let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
            // Of a program that children run, nobody waits for each to be found: it would be over.
            let elf = ElfFile::read(&file);
            modules.push(CodeFile {
                path: path.to_owned(),
                is_program: self.children && elf.is_ok_and(|elf| elf.is_program(&file)),
                file,
            });
        }
        if let Some((pid, program)) = command {
            self.pids = vec![pid];
            if let Some((path, file)) = begins_with(program)? {
                modules.insert(
                    0,
                    CodeFile {
                        path: path.to_string_lossy().into_owned(),
                        file,
                        is_program: true,
                    },
                );
            }
        } else {
            modules.extend(self.mapped());
        }
        let more = self.choose(modules).await?;
        // Also where there is none yet: what probes cost is measured by now.
        let plan = Plan {
            name: String::new(),
            whom: Targets::only(self.pids.clone(), Vec::new(), self.children)
                .map_err(anyhow::Error::msg)?,
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
        let missing = self.chooser.missing();
        let known = |pattern: &&Pattern| command.is_none() || pattern.path().is_some();
        if let Some(pattern) = missing.iter().find(|pattern| known(pattern)) {
            return Err(anyhow!(
                "--trace {}: there is no such function in the symbols of that file",
                pattern.text()
            ));
        }
        match self.spanned.missing(command.is_some()).first() {
            Some(missing) => Err(anyhow!(
                "{missing}: there is nothing of that name in the file"
            )),
            None => Ok(()),
        }
    }

    /// While it runs: measures what comes to be mapped, until everything was found.
    ///
    /// # Errors
    /// What was found cannot be measured.
    pub(super) async fn follow(&mut self, live: &Live) -> anyhow::Result<()> {
        while !self.chooser.missing().is_empty() || !self.spanned.missing(false).is_empty() {
            tokio::time::sleep(LOOK).await;
            let more = self.choose(self.mapped()).await?;
            if more.functions.is_empty() && more.items.is_empty() {
                continue;
            }
            let id = self.id;
            let command = |answer| InstrumentationCommand::More { id, more, answer };
            let measured = live
                .access()
                .ask(|answer| Command::Instrumentation(command(answer)));
            match measured.await? {
                // All of its processes are gone.
                Err(InstrumentationError::Over) => break,
                measured => measured.context("--trace")?,
            }
        }
        std::future::pending().await
    }

    /// Ends it, so that what is told of it now and in rows of functions is the same. Answers what
    /// was measured.
    ///
    /// # Errors
    /// The collector does not answer.
    pub(super) async fn end(&self, live: &Live) -> anyhow::Result<Measured> {
        for pattern in self.chooser.missing() {
            progress::say(&format!(
                "--trace {}: no such function was found in what the program had mapped",
                pattern.text()
            ));
        }
        for missing in self.spanned.missing(false) {
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

    /// The files that the processes have mapped and that are meant.
    fn mapped(&self) -> Vec<CodeFile> {
        let is_meant = |path: &str| self.chooser.is_meant(path) || self.spanned.is_meant(path);
        let pids = self.pids.iter();
        pids.flat_map(|pid| mapped(*pid, is_meant)).collect()
    }

    /// What is meant of these files; what cannot be measured is told at once.
    async fn choose(&mut self, modules: Vec<CodeFile>) -> anyhow::Result<MoreFunctions> {
        if modules.is_empty() {
            return Ok(MoreFunctions::default());
        }
        let (modules, items) = self.spanned.plan(modules).await?;
        let mut chooser = std::mem::take(&mut self.chooser);
        chooser.allow(BUDGET_NS);
        // It may take a second: signals are heard meanwhile.
        let chosen = tokio::task::spawn_blocking(move || {
            let chosen = chooser.choose(modules);
            (chooser, chosen)
        });
        let (chooser, chosen) = chosen.await.context("looking for functions failed")?;
        self.chooser = chooser;
        let mut more = chosen.context("--trace")?;
        more.items = items;
        for RefusedFunction { name, why, .. } in &more.refused {
            progress::say(&format!("--trace: {name} is not measured: {why}"));
        }
        Ok(more)
    }
}
