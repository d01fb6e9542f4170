//! Asks a server that listens somewhere.
//!
//! Plain HTTP with one connection for each question; it follows no redirection and keeps nothing.

use std::fmt;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, Uri, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::TcpStream;

use crate::export::text::name as shown_name;

/// The longest answer, bytes.
const MAX_ANSWER_BYTES: usize = 256 << 20;
/// How long the way to the server may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long an answer may take: as long as the server may take by itself, and a little more.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// The longest part of an answer that is repeated in an error, characters.
const MAX_SHOWN: usize = 400;

/// Why there is no answer; a sentence for people that holds nothing which would reach a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoAnswer {
    /// The server cannot be reached, or breaks off.
    #[error("{0}")]
    Unreachable(String),
    /// The server refuses.
    #[error("{sentence}")]
    Refused {
        /// The status, as in 404.
        status: u16,
        /// What the server says.
        sentence: String,
    },
}

/// Whom to ask: a server by its `host:port`. Cheap to clone.
#[derive(Clone)]
pub struct Client(String);

impl Client {
    /// Asks the server at an address, as in `http://127.0.0.1:9797`; the scheme may be left out.
    ///
    /// # Errors
    /// A sentence that says what the address must look like.
    pub fn at(url: &str) -> Result<Self, String> {
        let form = "must be the address of a daemon, as in http://127.0.0.1:9797";
        let authority = match url.split_once("://") {
            Some(("http", rest)) => rest,
            Some((scheme, _)) => return Err(format!("{form}: {} is not spoken", shown(scheme))),
            None => url,
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let uri: Uri = authority.parse().map_err(|_| form.to_owned())?;
        match (uri.authority(), uri.path_and_query()) {
            (Some(found), None) if found.port().is_some() && !found.as_str().contains('@') => {
                Ok(Self(found.as_str().to_owned()))
            }
            _ => Err(form.to_owned()),
        }
    }

    /// Whether the server runs on this machine, as far as its address tells.
    #[must_use]
    pub fn is_on_this_machine(&self) -> bool {
        let host = self
            .0
            .rsplit_once(':')
            .map_or("", |(host, _)| host)
            .trim_matches(['[', ']']);
        host == "localhost"
            || host
                .parse()
                .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }

    /// The bytes that a `GET` of a path with its query answers.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn get(&self, path: &str) -> Result<Vec<u8>, NoAnswer> {
        match tokio::time::timeout(ANSWER_WITHIN, self.answer(path)).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer::Unreachable(format!(
                "{self} did not answer within {} s",
                ANSWER_WITHIN.as_secs()
            ))),
        }
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn json(&self, path: &str) -> Result<Value, NoAnswer> {
        let bytes = self.get(path).await?;
        serde_json::from_slice(&bytes).map_err(|error| {
            NoAnswer::Unreachable(format!("{self} answered no JSON to {path}: {error}"))
        })
    }

    async fn answer(&self, path: &str) -> Result<Vec<u8>, NoAnswer> {
        let request = Request::get(path)
            .header(header::HOST, &self.0)
            .header(header::CONNECTION, "close")
            .body(Body::empty())
            .map_err(|error| self.broken(&error))?;
        let connect = TcpStream::connect(&self.0);
        let stream = tokio::time::timeout(CONNECT_WITHIN, connect).await;
        let stream = stream
            .map_err(|_| self.broken(&"it takes too long"))?
            .map_err(|error| self.broken(&error))?;
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|error| self.broken(&error))?;
        // It ends with the answer; what breaks it breaks the answer, too.
        tokio::spawn(async move { connection.await.unwrap_or_default() });
        let response = sender.send_request(request).await;
        let response = response
            .map_err(|error| self.broken(&error))?
            .map(Body::new);
        let status = response.status();
        let body = to_bytes(response.into_body(), MAX_ANSWER_BYTES).await;
        let body = body.map_err(|error| self.broken(&error))?.to_vec();
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(NoAnswer::Refused {
            status: status.as_u16(),
            sentence: refusal(status, &body),
        })
    }

    fn broken(&self, why: &impl fmt::Display) -> NoAnswer {
        NoAnswer::Unreachable(format!(
            "{self} cannot be asked: {}",
            shown(&why.to_string())
        ))
    }
}

/// Whom it asks, for people.
impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "http://{}", self.0)
    }
}

/// What a server says that refuses.
fn refusal(status: StatusCode, body: &[u8]) -> String {
    let problem: Option<Value> = serde_json::from_slice(body).ok();
    let detail = problem
        .as_ref()
        .and_then(|problem| problem.get("detail"))
        .and_then(Value::as_str);
    match detail {
        Some(detail) => shown(detail),
        None => format!("the answer is {}", status.as_u16()),
    }
}

fn shown(text: &str) -> String {
    shown_name(&text.chars().take(MAX_SHOWN).collect::<String>())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::StatusCode;
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::{Client, NoAnswer};

    // Check which addresses are taken, and which are on this machine.
    #[test]
    fn addresses() {
        for (url, shown, here) in [
            ("http://127.0.0.1:9797", "http://127.0.0.1:9797", true),
            ("http://127.0.0.1:9797/", "http://127.0.0.1:9797", true),
            ("localhost:1", "http://localhost:1", true),
            ("http://[::1]:9797", "http://[::1]:9797", true),
            ("http://10.0.0.7:80", "http://10.0.0.7:80", false),
            ("example.org:9797", "http://example.org:9797", false),
        ] {
            let client = Client::at(url).unwrap();
            assert_eq!(client.to_string(), shown);
            assert_eq!(client.is_on_this_machine(), here, "{url}");
        }
        for url in [
            "",
            "http://",
            "https://a:1",
            "localhost",
            "http://localhost",
            "http://a:1/path",
            "http://a:1?q",
            "a b:1",
            "u@a:1",
            "/tmp/x",
        ] {
            assert!(Client::at(url).is_err(), "{url} was taken");
        }
    }

    fn routes() -> Router {
        Router::new()
            .route("/good", get(|| async { "{\"a\":1}" }))
            .route(
                "/bad",
                get(|| async { (StatusCode::NOT_FOUND, "{\"detail\":\"no \\u001b[31mway\"}") }),
            )
            .route(
                "/odd",
                get(|| async { (StatusCode::BAD_GATEWAY, "<html>") }),
            )
    }

    // Check that a server is asked, that a refusal is told in the server's own words and without
    // what would reach a terminal, and that one who is not there is named.
    #[tokio::test]
    async fn answers() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, routes()).await });
        let there = Client::at(&address.to_string()).unwrap();
        assert_eq!(there.json("/good").await.unwrap()["a"], 1);
        let refused = |status, sentence: &str| NoAnswer::Refused {
            status,
            sentence: sentence.to_owned(),
        };
        assert_eq!(
            there.get("/bad").await,
            Err(refused(404, "no \\u{1b}[31mway"))
        );
        assert_eq!(
            there.get("/odd").await,
            Err(refused(502, "the answer is 502"))
        );
        server.abort();
        server.await.unwrap_err();
        let sentence = there.get("/good").await.unwrap_err().to_string();
        assert!(
            sentence.starts_with(&format!("http://{address} cannot be asked: ")),
            "{sentence}"
        );
    }
}
