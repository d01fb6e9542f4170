//! The smallest HTTP client that these tests need: one request per connection over a plain socket.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: u16,
    /// The header lines, as sent.
    pub(crate) headers: String,
    /// The body, transfer coding removed.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; anything else fails the test with the body shown. A call tree is as deep
    /// as its stacks.
    pub(crate) fn json(&self) -> Value {
        let mut parser = serde_json::Deserializer::from_slice(&self.body);
        parser.disable_recursion_limit();
        Value::deserialize(&mut parser)
            .and_then(|value| parser.end().map(|()| value))
            .unwrap_or_else(|error| {
                panic!(
                    "not JSON ({error}), status {}: {}",
                    self.status,
                    self.text()
                )
            })
    }

    /// Whether a header has this value, names compared without case.
    pub(crate) fn has_header(&self, name: &str, value: &str) -> bool {
        self.headers
            .lines()
            .filter_map(|line| line.split_once(':'))
            .any(|(key, content)| {
                key.trim().eq_ignore_ascii_case(name)
                    && content.to_ascii_lowercase().contains(value)
            })
    }
}

/// Sends one request and reads the answer to its end. An error when nobody listens or the
/// connection breaks.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    host: &str,
    body: Option<&str>,
) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    if let Some(body) = body {
        head.push_str(&format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            body.len()
        ));
    }
    head.push_str("\r\n");
    head.push_str(body.unwrap_or_default());
    stream.write_all(head.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| std::io::Error::other(format!("no HTTP answer to {path}")))
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let (first, headers) = head.split_once("\r\n").unwrap_or((head, ""));
    let status = first.split(' ').nth(1)?.parse().ok()?;
    let mut answer = Answer {
        status,
        headers: headers.to_owned(),
        body: bytes[end + 4..].to_vec(),
    };
    if answer.has_header("transfer-encoding", "chunked") {
        answer.body = join_chunks(&answer.body)?;
    }
    Some(answer)
}

fn join_chunks(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|window| window == b"\r\n")?;
        let length =
            usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?.trim(), 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(bytes.get(end + 2..end + 2 + length)?);
        bytes = bytes.get(end + 2 + length + 2..)?;
    }
}

#[test]
fn answers_are_taken_apart() {
    // Check that status, headers and a body in chunks are read as they were meant, and half an
    // answer as none.
    let bytes = b"HTTP/1.1 404 Not Found\r\nContent-Type: a/B\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let answer = parse(bytes).expect("a whole answer");
    assert_eq!((answer.status, answer.text().as_str()), (404, "abcde"));
    assert!(answer.has_header("content-type", "a/b") && !answer.has_header("content-type", "text"));
    assert!(
        parse(&bytes[..bytes.len() - 12]).is_none(),
        "the last chunks are missing"
    );
}
