//! The programs whose functions are named: interpreters, a library of hand-written assembly, a
//! compiler, and two servers, which are kept busy over their sockets.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::Duration,
};

/// All of them.
pub(crate) const ALL: [&str; 6] = ["python3", "perl", "openssl", "cc1", "redis-server", "nginx"];

const PYTHON: &str = "
import json, re, random
def f(n): return 1 if n < 2 else f(n - 1) + f(n - 2)
rows = [{'name': 'row %d' % n, 'value': random.random(), 'list': list(range(n % 17))} for n in range(500)]
while True:
    f(15); json.loads(json.dumps(rows)); re.sub('a+b', '', 'aab' * 999); sorted(map(str, range(999)))
";
const PERL: &str = "sub f { my $n = shift; $n < 2 ? 1 : f($n - 1) + f($n - 2) }
while (1) { f(15); my @a = sort { $a <=> $b } map { rand } 1..999; my %h = map { $_ => 1 } @a; my $all = join(',', keys %h); $all =~ s/1+/x/g }";

/// How to run a program, without its end.
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Where it listens, and what it is asked again and again.
    requests: Option<(PathBuf, Vec<u8>)>,
}

impl Program {
    /// The program of that name, its sources and sockets in `folder`; or why it cannot be run.
    pub(crate) fn prepare(name: &str, folder: &Path) -> Result<Self, String> {
        let socket = folder.join(format!("{name}.socket"));
        let mut requests = None;
        let shown = |path: &Path| path.to_string_lossy().into_owned();
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let (path, arguments): (PathBuf, Vec<String>) = match name {
            "python3" => (on_path(name)?, texts(&["-c", PYTHON])),
            "perl" => (on_path(name)?, texts(&["-e", PERL])),
            "openssl" => {
                let arguments = [
                    "speed",
                    "-seconds",
                    "1",
                    "sha256",
                    "md5",
                    "ecdsap256",
                    "rsa2048",
                ];
                (on_path(name)?, texts(&arguments))
            }
            "cc1" => {
                let (path, source) = compiler(folder)?;
                let arguments = ["-quiet", "-O2", "-o", "/dev/null", &shown(&source)];
                (path, texts(&arguments))
            }
            "redis-server" => {
                let pipeline = redis_requests();
                requests = Some((socket.clone(), pipeline));
                let arguments = ["--port", "0", "--save", "", "--unixsocket", &shown(&socket)];
                (on_path(name)?, texts(&arguments))
            }
            "nginx" => {
                let configuration = folder.join("nginx.conf");
                let page = "<p>Every page has some text, and every text some words.</p>\n";
                let written = fs::write(folder.join("page.html"), page.repeat(300))
                    .and_then(|()| fs::write(&configuration, nginx(folder, &socket)));
                written.map_err(|error| error.to_string())?;
                let request = "GET /page.html HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n";
                requests = Some((socket, request.repeat(10).into_bytes()));
                (on_path(name)?, texts(&["-c", &shown(&configuration)]))
            }
            _ => return Err("nobody knows how to run it".to_owned()),
        };
        Ok(Self {
            path,
            arguments,
            requests,
        })
    }

    /// Asks a server until `run` has ended; does nothing for what serves nobody.
    pub(crate) fn keep_busy(&self, run: &mut Child) {
        let Some((socket, request)) = &self.requests else {
            return;
        };
        let mut answer = vec![0; 1 << 16];
        // What ends by itself is no error; what cannot be started has no samples.
        while matches!(run.try_wait(), Ok(None)) {
            let Ok(mut stream) = UnixStream::connect(socket) else {
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            stream
                .set_read_timeout(Some(Duration::from_millis(50)))
                .unwrap();
            // Until the server closes the connection, or pauses: its answer is over.
            while stream.write_all(request).is_ok()
                && stream.read(&mut answer).is_ok_and(|bytes| bytes > 0)
            {}
        }
    }
}

/// Where a program is, as a shell would find it; servers may be where only root looks.
fn on_path(name: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let mut found = folders.map(|folder| folder.join(name));
    found
        .find(|path| path.is_file())
        .ok_or_else(|| "it is not installed".to_owned())
}

/// The compiler proper, and a source that keeps it busy for long.
fn compiler(folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    let output = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let output = output.map_err(|error| format!("gcc: {error}"))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    if !path.is_absolute() {
        return Err("gcc has none".to_owned());
    }
    let functions = (0..6000).map(|n| {
        format!("int f{n}(int a, int *b) {{ int s = a; for (int i = 0; i < a; i++) {{ s += b[i] * {n}; if (s % 7 == i) s ^= b[s & 3]; }} return s; }}\n")
    });
    let source = folder.join("many.c");
    fs::write(&source, functions.collect::<String>()).map_err(|error| error.to_string())?;
    Ok((path, source))
}

fn redis_requests() -> Vec<u8> {
    let commands = (0..50).flat_map(|n| {
        [
            format!("SET key:{n} value:{n}\r\n"),
            format!("GET key:{n}\r\n"),
            format!("LPUSH list:{} {n}\r\nLTRIM list:{} 0 99\r\n", n % 5, n % 5),
            format!("ZADD sorted {n} member:{n}\r\nHSET hash field:{n} {n}\r\nINCR counter\r\n"),
        ]
    });
    commands.collect::<String>().into_bytes()
}

fn nginx(folder: &Path, socket: &Path) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {folder}/{name};"))
        .join(" ");
    format!(
        "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
        events {{}}
        http {{ access_log {folder}/access.log; gzip on; gzip_min_length 1; keepalive_requests 1000000; {temporary}
            server {{ listen unix:{}; root {folder}; }} }}",
        socket.display()
    )
}
