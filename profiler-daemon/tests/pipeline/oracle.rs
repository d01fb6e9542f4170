//! Functions and modules against the definition, computed the slow way: stack by stack.

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::{
    StackEnd,
    kinds::{KINDS, Primary},
};
use profiler_daemon::{
    processes::{
        ids::{ProcessKey, ThreadKey},
        module::{Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable},
    },
    profile::{
        Profile,
        frames::{Frame, FrameId},
        input::{CommName, DrainPass, StackDelta, ThreadState, ThreadUpdate},
        limits::Limits,
    },
    report::{self, FrameScope, ProcessSelector, Scope, TableQuery},
    units::{BootNs, ModuleOffset, MonoNs},
};
use proptest::prelude::*;

use crate::machine::{ByOffset, START_NS, START_UNIX_NS};

type Sums = BTreeMap<(String, String), [u64; 4]>;

/// A stack: user frames, kernel frames, samples, nanoseconds of waiting. Frames are offsets; two
/// share a function.
type Stack = (Vec<u64>, Vec<u64>, u64, u64);

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let stack = (
        prop::collection::vec(0..12u64, 1..8),
        prop::collection::vec(0..6u64, 0..4),
        0..5u64,
        0..1000u64,
    );
    prop::collection::vec(stack, 1..40)
}

/// The module of an offset.
fn module_of(offset: u64, app: ModuleId, lib: ModuleId) -> ModuleId {
    if offset.is_multiple_of(3) { app } else { lib }
}

/// The definition: exclusive for the innermost, inclusive once for every distinct one.
fn add(sums: &mut Sums, on_stack: &[(String, String)], samples: u64, ns: u64) {
    let innermost = sums.entry(on_stack.last().unwrap().clone()).or_default();
    innermost[1] += samples;
    innermost[3] += ns;
    for one in on_stack.iter().collect::<BTreeSet<_>>() {
        let sums = sums.entry(one.clone()).or_default();
        sums[0] += samples;
        sums[2] += ns;
    }
}

proptest! {
    #![proptest_config(crate::ledger::config(256))]
    // Check that the tables of functions and modules equal the definition, recursion and both kinds
    // of frames included.
    #[test]
    fn tables_equal_the_definition(stacks in stacks(), all in any::<bool>()) {
        let mut profile = Profile::new(Limits::default(), START_NS, START_UNIX_NS);
        let mut modules = ModuleTable::new();
        let mut module = |name: &str| {
            modules.intern(ModuleIdentity::Named(name.into()), || Module::named(name, ModuleKind::User))
        };
        let (app, lib) = (module("app"), module("lib"));
        let process = ProcessKey { pid: 7, start_ns: BootNs::ZERO };
        let thread = ThreadKey { tid: 7, start_ns: BootNs::ZERO };
        let (mut functions, mut of_modules) = (Sums::new(), Sums::new());
        let mut pass = DrainPass { now_ns: START_NS, now_unix_ns: START_UNIX_NS, ..DrainPass::default() };
        let mut total_ns = 0;
        for (user, kernel, samples, ns) in stacks {
            let mut intern = |module, offset| {
                profile.frames().intern(Frame { module, offset: ModuleOffset::new(offset) })
            };
            let user: Vec<(ModuleId, u64)> = user.iter().map(|n| (module_of(*n, app, lib), n * 0x10)).collect();
            let kernel: Vec<(ModuleId, u64)> = kernel.iter().map(|n| (ModuleId::KERNEL, n * 0x10)).collect();
            let shown = user.iter().chain(kernel.iter().filter(|_| all));
            let labels: Vec<(String, String)> = shown
                .map(|(module, offset)| (modules.get(*module).name.to_string(), format!("f{}", offset / 0x20)))
                .collect();
            add(&mut functions, &labels, samples, ns);
            let labels: Vec<_> = labels.into_iter().map(|(module, _)| (module, String::new())).collect();
            add(&mut of_modules, &labels, samples, ns);
            let ids = |frames: &[(ModuleId, u64)], intern: &mut dyn FnMut(ModuleId, u64) -> FrameId| {
                frames.iter().map(|(module, offset)| intern(*module, *offset)).collect::<Vec<_>>()
            };
            pass.stacks.push(StackDelta {
                process,
                thread,
                user: ids(&user, &mut intern),
                kernel: ids(&kernel, &mut intern),
                end: StackEnd::Complete,
                lost: None,
                primary: Primary {
                    ticks: [samples, 0, 0, 0, 0, 0, 0],
                    exact: [ns, 0],
                    walks: samples,
                    ..Primary::default()
                },
            });
            total_ns += ns;
        }
        pass.modules = modules;
        pass.threads.push(ThreadUpdate {
            thread,
            process,
            comm: CommName::new("t"),
            state: ThreadState::Running,
            first_event_ns: MonoNs::ZERO,
            last_event_ns: MonoNs::new(total_ns),
            unobserved_ns: 0,
            classes: [0, 0, total_ns, 0, 0],
            kinds: [0; KINDS],
            minor_faults: 0,
            major_faults: 0,
            switches_missed: 0,
            profiler_cost_ns: 0,
            call: None,
            slot: 0,
        });
        profile.apply(pass);
        let names = ByOffset::new(&mut profile);
        let snapshot = profile.snapshot();
        let scope = Scope::Process(ProcessSelector { pid: 7, start_ticks: None });
        let frames = if all { FrameScope::All } else { FrameScope::User };
        let query = TableQuery { frames, ..TableQuery::default() };
        let answer = report::functions(&snapshot, &scope, &query, &names).unwrap();
        let values = |v: &report::values::RowValues| {
            [v.samples.inclusive, v.samples.exclusive, v.elapsed.inclusive_ns, v.elapsed.exclusive_ns]
        };
        let found: Sums = answer.rows.iter().map(|row| ((row.module.clone(), row.function.clone()), values(&row.values))).collect();
        let nonzero = |sums: &Sums| -> Sums {
            sums.iter().filter(|(_, v)| v.iter().any(|n| *n > 0)).map(|(k, v)| (k.clone(), *v)).collect()
        };
        prop_assert_eq!(nonzero(&found), nonzero(&functions));
        let answer = report::modules(&snapshot, &scope, &query, &names).unwrap();
        let found: Sums = answer.rows.iter().map(|row| ((row.module.clone(), String::new()), values(&row.values))).collect();
        prop_assert_eq!(nonzero(&found), nonzero(&of_modules));
    }
}
