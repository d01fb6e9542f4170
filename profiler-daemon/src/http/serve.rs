//! The accept loop: bounds the number, the idle time and the age of connections, and stops
//! gracefully.
//!
//! A client that hangs holds one of a bounded number of connections for a bounded time: the head of
//! a request, its body, the making of the answer and the taking of it each have a deadline, and the
//! connection as a whole has an age. Where all are held, the one silent longest gives way to a new
//! one at once (`seats`).

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::options::HttpOptions;
use super::seats::{Arriving, Begun, Seat, Seats};
use super::stall::Stalling;
use super::ties::{Endless, Ties};
use crate::api::problem::Problem;

/// The longest head of a request that is read, in bytes. `guard::limit_head` allows half of it, and
/// can say so.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The most headers of a request that are read. As above.
const MAX_HEADERS: usize = 1_024;
/// Connections beyond the limit that are told so at the same time. For one more, the one silent
/// longest is closed without a word.
const MAX_REFUSALS: usize = 32;
/// How long a client that is refused may take to listen.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait when no connection can be accepted, as without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` ends, then stops accepting, lets running requests finish within
/// [`HttpOptions::shutdown_grace`], and returns once no connection is left.
///
/// # Errors
///
/// None that is known: a connection that cannot be accepted is logged and the next is tried.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    options: HttpOptions,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let seats = Seats::new(options.max_connections);
    let refusals = Seats::new(MAX_REFUSALS);
    let refusal = refusal_app(&options);
    let stopped = options.stopping.subscribe();
    let mut connections = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
            Some(ended) = connections.join_next() => {
                report_panic(ended);
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                if !is_about_the_client(&error) {
                    tracing::warn!("cannot accept a connection: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
        };
        if let Some((seat, gave_way)) = seats.take() {
            if gave_way {
                options.requests.count_given_up();
            }
            let connection = Connection {
                app: app.clone(),
                seat,
                stopped: stopped.clone(),
            };
            connections.spawn(connection.run(stream, options.clone()));
        } else if let Some((seat, _)) = refusals.take() {
            let connection = Connection {
                app: refusal.clone(),
                seat,
                stopped: stopped.clone(),
            };
            connections.spawn(connection.refuse(stream, options.clone()));
        }
    }
    drop(listener);
    options.stopping.send_replace(true);
    let finish = async {
        while let Some(ended) = connections.join_next().await {
            report_panic(ended);
        }
    };
    if timeout(options.shutdown_grace, finish).await.is_err() {
        tracing::warn!(
            "{} connections did not end in time and were closed",
            connections.len()
        );
        connections.shutdown().await;
    }
    Ok(())
}

/// Whether accepting failed because of that one client.
fn is_about_the_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn report_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!("a connection ended early: {error}");
    }
}

fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("answering a request failed: {error}");
    }
}

/// What connections beyond the limit are told.
fn refusal_app(options: &HttpOptions) -> Router {
    let max = options.max_connections;
    let requests = Arc::clone(&options.requests);
    Router::new().fallback(move |_: Request| {
        requests.count("none", 503);
        let problem = Problem::overloaded(format!(
            "{max} connections are open already (setting http.max_connections)"
        ));
        std::future::ready(
            (
                [("connection", "close"), ("cache-control", "no-store")],
                problem,
            )
                .into_response(),
        )
    })
}

/// One connection and its place among the bounded number.
struct Connection {
    app: Router,
    seat: Seat,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    /// Tells a client beyond the limit so.
    async fn refuse(self, stream: TcpStream, options: HttpOptions) {
        let hasty = HttpOptions {
            header_timeout: REFUSAL_PATIENCE,
            write_stall: REFUSAL_PATIENCE,
            ..options
        };
        // A refused client that goes on listening is not worth a place.
        if timeout(REFUSAL_PATIENCE * 2, self.run(stream, hasty))
            .await
            .is_err()
        {
            tracing::debug!("a refused client did not leave");
        }
    }

    /// Answers requests until the client leaves, time is up or the server stops.
    async fn run(mut self, stream: TcpStream, options: HttpOptions) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("a connection ended before it began: {error}");
            return;
        }
        let endless = Endless::default();
        let place = self.seat.place();
        let io = TokioIo::new(Stalling::new(
            stream,
            options.write_stall,
            endless.clone(),
            Arc::clone(&place),
        ));
        let app = self.app;
        let service = tower::service_fn(move |request: hyper::Request<Incoming>| {
            // The rest of a request is its client's to send: until then nothing is at work.
            let work = request.body().is_end_stream().then(|| place.work());
            let begun = Begun::default();
            let arriving = Arc::clone(&begun);
            let request = request.map(|body| Arriving::new(body, Arc::clone(&place), arriving));
            let answer = app.clone().oneshot(request);
            let (place, endless) = (Arc::clone(&place), endless.clone());
            async move {
                let Ok(response) = answer.await;
                if let Some(ties) = response.extensions().get::<Arc<Ties>>() {
                    endless.begin(Arc::clone(ties));
                }
                let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
                let work = work.or(begun).unwrap_or_else(|| place.work());
                Ok::<_, Infallible>(response.map(|body| work.until_the_end_of(body)))
            }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(io, TowerToHyperService::new(service));
        tokio::pin!(served);
        let ended = tokio::select! {
            ended = served.as_mut() => Some(ended),
            () = self.seat.given_up() => {
                tracing::debug!("a silent connection gave way to a new one");
                return;
            }
            () = sleep(options.max_connection_age) => None,
            // An error means that the server is gone, which is the same.
            _ = self.stopped.wait_for(|stopped| *stopped) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                served.as_mut().graceful_shutdown();
                // The answer under way is made and taken; of a client that takes it by the byte, no
                // longer than a stream. Where the server stops, that ends it sooner.
                let last = timeout(options.max_answer_age, served);
                tokio::select! {
                    ended = last => ended.unwrap_or_else(|_| {
                        tracing::debug!("a connection outlived its age and was closed");
                        Ok(())
                    }),
                    () = self.seat.given_up() => Ok(()),
                }
            }
        };
        report_end(ended);
    }
}
