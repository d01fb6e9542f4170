//! The unwind table of a command's program, made before the command runs: else its stacks are
//! incomplete for as long as that takes, which for a short command is all of its life.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use tracing::debug;

use crate::stages::{Access, Unanswered};
use crate::sys::mapping::MappedMemory;

use super::program::begins_with;

/// How long the table is waited for: that of a large program takes longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two looks whether it is there.
const LOOK: Duration = Duration::from_millis(5);

/// The beginning of the program's file, mapped as code. A profiler hears of that as of any mapping,
/// and has the table made. `None`: there is no command, or its program is not known before it runs.
pub(super) fn map(command: &[OsString]) -> Option<MappedMemory> {
    let program = begins_with(command.first()?);
    // What is wrong with it is told when it is executed.
    let (path, file) = program.inspect_err(|error| debug!("{error:#}")).ok()??;
    let mapped = MappedMemory::code(&file);
    let not_mapped = |error: &_| debug!("{} cannot be mapped: {error}", path.display());
    mapped.inspect_err(not_mapped).ok()
}

/// Waits until the tables of what is mapped by now are made, no longer than [`PATIENCE`].
///
/// # Errors
/// [`Unanswered`].
pub(super) async fn await_tables(access: &Access) -> Result<(), Unanswered> {
    let until = Instant::now() + PATIENCE;
    // All that was mapped before is heard of with the second: the first may put off what came last,
    // to take it in in order.
    for _ in 0..2 {
        access.snapshot(0).await?;
    }
    while Instant::now() < until
        && let Some(unwinding) = access.state().await?.unwinding
        && unwinding.tables_waiting > 0
    {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
