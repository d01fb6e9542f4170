//! A PostgreSQL server of its own with one client that only reads, for `cost --shares`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::process::{self, Running};

/// Where Debian puts the server's programs, one folder for each version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The server refuses to run as root.
const USER: &str = "postgres";
/// Until the server answers, or the client has connected.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A server, its client, and the process of the server that answers it.
#[derive(Debug)]
pub(crate) struct Postgres {
    pub(crate) backend: u32,
    /// Before the server, which would wait for it.
    pub(crate) client: Running,
    pub(crate) server: Running,
}

/// The folder of the newest version's programs.
pub(crate) fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(VERSIONS).ok()?.flatten();
    let version = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let newest = version.max()?;
    let programs = PathBuf::from(format!("{VERSIONS}/{newest}/bin"));
    ["initdb", "postgres", "pgbench", "psql"]
        .iter()
        .all(|name| programs.join(name).exists())
        .then_some(programs)
}

/// Makes a small database below `directory`, serves it on a socket there, and lets one client ask it.
pub(crate) fn start(directory: &Path) -> anyhow::Result<Postgres> {
    let programs = programs().context("PostgreSQL is not installed")?;
    let data = directory.join("postgres");
    std::fs::create_dir_all(&data)?;
    process::output(Command::new("chown").arg(USER).arg(&data))?;
    let as_user = |name: &str| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"])
            .arg(programs.join(name))
            .current_dir(&data);
        command
    };
    let as_client = |name: &str| {
        let mut command = as_user(name);
        command.args(["-h"]).arg(&data).args(["-U", USER]);
        command
    };
    process::output(
        as_user("initdb")
            .args(["-A", "trust", "--no-sync", "-U", USER, "-D"])
            .arg(&data),
    )?;
    let mut command = as_user("postgres");
    command
        .args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"])
        .arg(&data)
        .arg("-k")
        .arg(&data);
    let server = Running::start(command, libc::SIGINT)?;
    let query = |text: &str| {
        let mut command = as_client("psql");
        command.args(["-At", "-d", USER, "-c", text]);
        process::output(&mut command)
    };
    wait_for("the server answers", || query("select 1").ok())?;
    process::output(as_client("pgbench").args(["-q", "-i", "-s", "5", USER]))?;
    let mut command = as_client("pgbench");
    command.args(["-S", "-c", "1", "-T", "3600", USER]);
    let client = Running::start(command, libc::SIGKILL)?;
    // Its first connection only asks how large the tables are.
    let own = "select pid from pg_stat_activity where application_name = 'pgbench' \
               and backend_start < clock_timestamp() - interval '1 second'";
    let backend = wait_for("the client has connected", || {
        query(own).ok()?.trim().parse().ok()
    })?;
    Ok(Postgres {
        backend,
        client,
        server,
    })
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("waited {READY_WITHIN:?} until {what}");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
