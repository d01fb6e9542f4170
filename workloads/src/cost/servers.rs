//! Servers that loads ask: each on the loopback, with nothing to keep.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::process::Running;

/// A server, and where it answers.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its process.
    pub(crate) running: Running,
    /// On the loopback.
    pub(crate) port: u16,
}

/// `redis-server`, which writes nothing to the disk.
pub(crate) fn redis() -> anyhow::Result<Server> {
    let port = free_port()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    answering(Running::start(command, libc::SIGTERM)?, port)
}

/// Where Debian puts nginx, which is not on everybody's `PATH`.
pub(crate) const NGINX: &str = "/usr/sbin/nginx";

/// `nginx` with one worker that serves a file of a kilobyte at `/`, from `directory`.
pub(crate) fn nginx(directory: &Path) -> anyhow::Result<Server> {
    let port = free_port()?;
    let root: PathBuf = directory.join("www");
    std::fs::create_dir_all(&root)?;
    std::fs::write(root.join("index.html"), "x".repeat(1024))?;
    let config = directory.join("nginx.conf");
    let (here, root) = (directory.display(), root.display());
    std::fs::write(
        &config,
        format!(
            "daemon off; worker_processes 1; user root; pid {here}/nginx.pid; error_log stderr;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n  access_log off; sendfile on; keepalive_requests 1000000;\n\
             client_body_temp_path {here}/body; proxy_temp_path {here}/proxy; fastcgi_temp_path {here}/fastcgi;\n\
             uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;\n\
             server {{ listen 127.0.0.1:{port}; root {root}; }}\n}}\n"
        ),
    )?;
    let mut command = Command::new(NGINX);
    command.arg("-c").arg(&config).arg("-p").arg(directory);
    answering(Running::start(command, libc::SIGTERM)?, port)
}

fn free_port() -> std::io::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

fn answering(mut running: Running, port: u16) -> anyhow::Result<Server> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        running.check()?;
        if Instant::now() > deadline {
            bail!("{} does not answer", running.name());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Server { running, port })
}
