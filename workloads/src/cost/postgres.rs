//! A PostgreSQL server of its own, whose clients only read.

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

/// A server with a small database.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) running: Running,
    programs: PathBuf,
    data: PathBuf,
}

/// A server, its client, and the process of the server that answers it.
#[derive(Debug)]
pub(crate) struct Asked {
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

/// Makes a small database below `directory` and serves it on a socket there.
pub(crate) fn serve(directory: &Path) -> anyhow::Result<Server> {
    let programs = programs().context("PostgreSQL is not installed")?;
    let data = directory.join("postgres");
    std::fs::create_dir_all(&data)?;
    process::output(Command::new("chown").arg(USER).arg(&data))?;
    process::output(
        as_user(&programs.join("initdb"), &data)
            .args(["-A", "trust", "--no-sync", "-U", USER, "-D"])
            .arg(&data),
    )?;
    let mut command = as_user(&programs.join("postgres"), &data);
    command
        .args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"])
        .arg(&data)
        .arg("-k")
        .arg(&data);
    let running = Running::start(command, libc::SIGINT)?;
    let server = Server {
        running,
        programs,
        data,
    };
    wait_for("the server answers", || server.query("select 1").ok())?;
    process::output(server.client("pgbench").args(["-q", "-i", "-s", "5", USER]))?;
    Ok(server)
}

/// The same, and one client that asks it all the time.
pub(crate) fn start(directory: &Path) -> anyhow::Result<Asked> {
    let server = serve(directory)?;
    let mut command = server.client("pgbench");
    command.args(["-S", "-c", "1", "-T", "3600", USER]);
    let client = Running::start(command, libc::SIGKILL)?;
    // Its first connection only asks how large the tables are.
    let own = "select pid from pg_stat_activity where application_name = 'pgbench' \
               and backend_start < clock_timestamp() - interval '1 second'";
    let backend = wait_for("the client has connected", || {
        server.query(own).ok()?.trim().parse().ok()
    })?;
    Ok(Asked {
        backend,
        client,
        server: server.running,
    })
}

impl Server {
    /// `pgbench -S` with so many clients and seconds; the nanoseconds from one transaction's end to
    /// the next one's.
    pub(crate) fn read_only(&self, clients: u32, seconds: u64) -> anyhow::Result<f64> {
        let (clients, seconds) = (clients.to_string(), seconds.to_string());
        let mut command = self.client("pgbench");
        command.args(["-S", "-n", "-c", &clients, "-T", &seconds, USER]);
        let printed = process::output(&mut command)?;
        let tps = printed.lines().find_map(|line| {
            let (number, _) = line.strip_prefix("tps = ")?.split_once(' ')?;
            number.parse::<f64>().ok()
        });
        Ok(1e9 / tps.with_context(|| format!("no tps in: {printed}"))?)
    }

    fn query(&self, text: &str) -> anyhow::Result<String> {
        let mut command = self.client("psql");
        command.args(["-At", "-d", USER, "-c", text]);
        process::output(&mut command)
    }

    fn client(&self, name: &str) -> Command {
        let mut command = as_user(&self.programs.join(name), &self.data);
        command.arg("-h").arg(&self.data).args(["-U", USER]);
        command
    }
}

fn as_user(program: &Path, data: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups", "--"])
        .arg(program)
        .current_dir(data);
    command
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
