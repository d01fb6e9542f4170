//! The budget: what profiling costs stays within it, what gives way for it is said, and totals stay
//! exact.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Daemon, Settings, say};
use crate::ledger;
use crate::reads::{self, assert_near, number, running_ns, system_call};
use crate::workload::{self, Workload};

/// A storm is over by itself after this many calls, should its test fail: a minute at the most.
const STORM: &str = "storm --count 200000000 --kind getppid";
const GIVES_WAY_WITHIN: Duration = Duration::from_secs(5);
const COMES_BACK_WITHIN: Duration = Duration::from_secs(120);

fn within_budget() -> Option<Daemon> {
    daemon::own(&Settings {
        within_budget: true,
        ..Settings::default()
    })
}

fn traced(daemon: &Daemon) -> String {
    let status = daemon.get("/status");
    reads::text(&status, "/spending/system_calls").to_owned()
}

fn wait_for(daemon: &Daemon, what: &str, within: Duration) {
    assert!(
        comes_to(daemon, what, within),
        "not {what} within {within:?}"
    );
}

fn comes_to(daemon: &Daemon, what: &str, within: Duration) -> bool {
    let begun = Instant::now();
    // Who waits for long asks seldom: where next to nothing else is at work, the calls of a
    // question may be more than what samples are to find.
    let every = (within / 25).min(Duration::from_secs(1));
    while traced(daemon) != what {
        if begun.elapsed() >= within {
            return false;
        }
        std::thread::sleep(every);
    }
    true
}

/// What programs and hooks have cost, and how long processors were at work, seconds.
fn cost_and_busy(daemon: &Daemon) -> (f64, f64) {
    let status = daemon.get("/status");
    let programs = &status["spending"]["programs_seconds_total"];
    let session = daemon.get("/session");
    (
        programs.as_f64().expect("a number"),
        running_ns(&session) as f64 / 1e9,
    )
}

fn percent(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no {pointer} in {value}"))
}

#[test]
fn a_storm_of_calls_keeps_within_the_budget() {
    // Check that tracing of all calls gives way to a storm of them, that what kernel programs and
    // hooks cost then keeps within the budget, that status, metrics and reports say so, that
    // blocked time beside the storm is exact by call all the same, and that tracing of all comes
    // back.
    let Some(daemon) = within_budget() else {
        return;
    };
    let daemon = &daemon;
    // All are traced as it begins, unless a machine that is full of others' calls does not afford
    // it: then the others' storm is as good, but does not end with this one.
    let is_quiet = comes_to(daemon, "all", GIVES_WAY_WITHIN);
    if !is_quiet {
        say("other programs make so many calls that tracing of all cannot come back: not checked");
    }
    let storm = Workload::start(STORM);
    wait_for(daemon, "samples", GIVES_WAY_WITHIN);
    thread::sleep(Duration::from_secs(3));
    let before = cost_and_busy(daemon);
    let sleeper = workload::run("contention --threads 1 --millis 10 --count 1000");
    let after = cost_and_busy(daemon);
    let share = (after.0 - before.0) / (after.1 - before.1);
    assert!(share <= 0.012, "{share} of the time at work");

    reads::ended(daemon, &sleeper);
    let events = reads::events(daemon, &sleeper);
    let row = system_call(&events, "nanosleep").unwrap_or_else(|| panic!("no sleep: {events}"));
    assert_near(
        "nanosleep",
        number(row, "/total_ns"),
        number(&sleeper.truth, "/held_ns"),
        0.01,
        20_000_000,
    );
    assert!(number(row, "/count") < 1000, "only samples are counted");
    let observed = percent(&events, "/observed_percent");
    assert!(observed < 30.0, "{observed}");
    assert!(ledger::check_process(daemon, &sleeper.selector), "it lives");
    let process = daemon.get(&format!("/processes/{}", storm.selector()));
    let [user_ns, syscall_ns, ..] = reads::classes(&process);
    let estimated_ns = number(&process, "/estimated_ns");
    assert!(estimated_ns > 0, "{process}");
    // Two thirds and more of such a loop are in the kernel: between user and system is a guess by
    // ticks, the sum is measured.
    assert!(syscall_ns > user_ns / 4, "{process}");
    let cost_ns = number(&process, "/profiler_cost_ns");
    assert!(cost_ns > 0, "{process}");
    assert!(cost_ns < (user_ns + syscall_ns) / 10, "{process}");
    let degraded = daemon.get("/status")["degraded"].to_string();
    assert!(degraded.contains("only samples"), "{degraded}");
    assert!(daemon.metric("profiler_all_system_calls_traced") == 0.0);
    storm.stop();
    if !is_quiet {
        ledger::check(daemon);
        return;
    }
    wait_for(daemon, "all", COMES_BACK_WITHIN);
    assert!(daemon.metric("profiler_all_system_calls_traced") == 1.0);
    // Calls are counted again, one by one: so few that it costs nothing.
    let counted = workload::run("storm --count 2000 --kind getppid");
    reads::ended(daemon, &counted);
    let events = reads::events(daemon, &counted);
    let row = system_call(&events, "getppid").unwrap_or_else(|| panic!("no getppid: {events}"));
    assert_eq!(number(row, "/count"), 2_000);
    ledger::check(daemon);
}

#[test]
fn a_storm_of_switches_keeps_within_the_budget() {
    // Check that walks at switches keep within their part of the budget where hundreds of threads
    // switch all the time, and that totals stay exact: switches and calls cost what they cost, so
    // only walks are held against it.
    let Some(daemon) = within_budget() else {
        return;
    };
    let daemon = &daemon;
    let threads: Vec<Workload> = (0..10)
        .map(|_| Workload::start("contention --threads 50 --millis 1 --count 20000"))
        .collect();
    thread::sleep(Duration::from_secs(5));
    let (before, walked_before) = (
        cost_and_busy(daemon),
        daemon.metric("profiler_walks_cost_seconds_total"),
    );
    thread::sleep(Duration::from_secs(8));
    let (after, walked_after) = (
        cost_and_busy(daemon),
        daemon.metric("profiler_walks_cost_seconds_total"),
    );
    let share = (walked_after - walked_before) / (after.1 - before.1);
    // Ticks of such stacks cost less than would have them give way.
    assert!(share <= 0.004 + 0.004, "{share} of the time at work");
    ledger::check(daemon);
    drop(threads);
}

#[test]
fn walks_keep_within_the_budget_of_their_process() {
    // Check that of a process that is at work for a small part of a processor, which another one
    // has otherwise, walks take no more than a part of its own budget, though its threads are short
    // and come one after another: what the processor affords is many times as much here.
    let Some(daemon) = daemon::own(&Settings {
        top: "system_calls = \"off\"\nbudget = \"5%\"",
        within_budget: true,
        ..Settings::default()
    }) else {
        return;
    };
    let daemon = &daemon;
    let others: Vec<Workload> = (0..2)
        .map(|cpu| Workload::start(&format!("split --seconds 600 --cpu {cpu}")))
        .collect();
    let brief = Workload::start("brief-work --seconds 16 --cpu 0 --depth 100 --kind threads");
    let selector = brief.selector();
    thread::sleep(Duration::from_secs(5));
    let before = daemon.get(&format!("/processes/{selector}"));
    thread::sleep(Duration::from_secs(10));
    let after = daemon.get(&format!("/processes/{selector}"));
    let price_ns = percent(&daemon.get("/status"), "/spending/switch_price_ns");
    let brief = brief.finish();
    drop(others);
    let gained = |of: &dyn Fn(&Value) -> u64| (of(&after) - of(&before)) as f64;
    let ran_ns = gained(&running_ns);
    let cost_ns = gained(&|process| number(process, "/profiler_cost_ns"));
    // As it rests all the time, it is switched out as often as it waits, and now and then more.
    let switches = number(&brief.truth, "/switches") as f64
        * (ran_ns / number(&brief.truth, "/running_ns") as f64);
    let walked = (cost_ns - switches * price_ns) / ran_ns;
    say(&format!(
        "walks took {walked:.4} of what the process ran, all {:.4}",
        cost_ns / ran_ns
    ));
    // Four tenths of three hundredths, those of ticks, and what the price of switches is off by.
    assert!(walked <= 0.012 + 0.008, "{walked}");
    ledger::check(daemon);
}

#[test]
fn ticks_of_deep_stacks_keep_within_the_budget() {
    // Check that where walks of ticks alone would break their part of the budget, only some are
    // walked, that these stand for the others without telling one function for another, and that
    // status, metrics and the answer say so.
    let Some(daemon) = daemon::own(&Settings {
        top: "frequency_hz = 997",
        within_budget: true,
        ..Settings::default()
    }) else {
        return;
    };
    let daemon = &daemon;
    let deep = Workload::start("split --seconds 14 --depth 480");
    thread::sleep(Duration::from_secs(3));
    let (before, walked_before) = (
        cost_and_busy(daemon),
        daemon.metric("profiler_walks_cost_seconds_total"),
    );
    thread::sleep(Duration::from_secs(10));
    let (after, walked_after) = (
        cost_and_busy(daemon),
        daemon.metric("profiler_walks_cost_seconds_total"),
    );
    let deep = deep.finish();
    reads::ended(daemon, &deep);
    let share = (walked_after - walked_before) / (after.1 - before.1);
    // Beside the part of those of ticks there is the tenth of the budget that others have in any
    // case.
    assert!(share <= 0.005 * 1.2, "{share} of the time at work");

    let selector = &deep.selector;
    let answer = daemon.get(&format!("/processes/{selector}/functions?limit=0"));
    let each = percent(&answer, "/completeness/samples_each");
    assert!(each > 2.0, "{answer}");
    for (function, truth) in [
        ("split_sixty", 60.0),
        ("split_thirty", 30.0),
        ("split_ten", 10.0),
    ] {
        let row = reads::function(&answer, function);
        let value =
            |end: &str| percent(row, &format!("/samples/exclusive_percent_of_process{end}"));
        let (low, found, high) = (value("_low"), value(""), value("_high"));
        // Twice as far as 95 of 100 are.
        assert!(
            2.0 * low - found <= truth && truth <= 2.0 * high - found,
            "{function}: {low} {found} {high}"
        );
        assert!(high - low > 1.0, "{function}: {low} {found} {high}");
    }
    let status = daemon.get("/status");
    assert!(
        number(&status, "/spending/ticks_over_budget_total") > 1000,
        "{status}"
    );
    let process = daemon.get(&format!("/processes/{selector}"));
    let stood_for = number(&process, "/samples") as f64;
    let due = 997.0 * running_ns(&process) as f64 / 1e9;
    assert!(
        (0.7..1.3).contains(&(stood_for / due)),
        "{stood_for} of {due}"
    );
    let text = daemon.request(
        "GET",
        &format!("/api/v1/processes/{selector}/functions?format=text"),
        None,
    );
    let text = text.text();
    assert!(text.contains("# of ticks only some were walked"), "{text}");
    ledger::check(daemon);
}

#[test]
fn a_storm_of_processes_loses_nothing() {
    // Check that while processes come and go as fast as the machine makes them, each is counted and
    // the ledger holds, and that walks keep within their part of the budget. What is done for each
    // process as it comes and goes cannot be turned off, and is told.
    let Some(daemon) = within_budget() else {
        return;
    };
    let daemon = &daemon;
    let before = cost_and_busy(daemon);
    let processes = |daemon: &Daemon| number(&daemon.get("/session"), "/processes");
    let known = processes(daemon);
    let storms: Vec<Workload> = (0..2)
        .map(|_| Workload::start("vanish --count 4000"))
        .collect();
    let finished: Vec<_> = storms.into_iter().map(Workload::finish).collect();
    for storm in &finished {
        reads::ended(daemon, storm);
    }
    // What the programs cost is told once a second, and the storm may be over sooner.
    let told = Instant::now();
    let mut after = cost_and_busy(daemon);
    while after.0 <= before.0 && told.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(200));
        after = cost_and_busy(daemon);
    }
    assert!(after.0 > before.0, "{before:?}, {after:?}");
    // The children, and who made them; by name they need not be, since some were gone before
    // anybody could ask for it.
    let met = processes(daemon) - known;
    assert!(met >= 8_002, "{met} of 8002");
    ledger::check(daemon);
    daemon::say(&format!(
        "processes: programs and hooks took {:.3} s of {:.3} s at work",
        after.0 - before.0,
        after.1 - before.1
    ));
}
