//! Room for answers: the bytes of all that clients have not taken yet have a bound together.
//!
//! An answer is written in pieces. The first is small, and its own in any case, so that whoever
//! asks for little is answered however much others hold. Each further piece has a part of the room
//! until the connection has sent it, or is gone. Whoever writes finds the room or not, and does not
//! wait: what had been written then is given up, what is missing is counted and waited for, and the
//! answer made once more. So nobody waits for room who holds some, nor memory for reports.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::options::HttpOptions;
use crate::api::problem::Problem;
use crate::metrics::RequestCounts;

/// Bytes of an answer that take nothing of the room.
pub(super) const FIRST_BYTES: usize = 128 << 10;
/// Bytes of each further piece. From this size on the heap gives memory back when it is freed
/// (`sys::heap`).
pub(super) const PIECE_BYTES: usize = 256 << 10;

/// The room of all answers.
pub(super) struct Room {
    /// Permits for a piece each.
    pieces: Arc<Semaphore>,
    /// How many of them there are.
    max_pieces: usize,
    /// Permits to wait for some of these.
    waiting: Semaphore,
    /// How long they are waited for.
    patience: Duration,
    counts: Arc<RequestCounts>,
}

impl Room {
    /// Room as these options say.
    pub(super) fn new(options: &HttpOptions) -> Self {
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let max_pieces = (options.answers_bytes / PIECE_BYTES).clamp(1, most);
        Self {
            pieces: Arc::new(Semaphore::new(max_pieces)),
            max_pieces,
            waiting: Semaphore::new((options.max_connections / 4).max(1)),
            // The rest of the time is for making the answer, and it is this refusal that is told.
            patience: options.request_timeout / 2,
            counts: Arc::clone(&options.requests),
        }
    }

    /// Takes an answer, as far as there is room meanwhile.
    pub(super) fn output(&self) -> Output {
        Output {
            pieces: Arc::clone(&self.pieces),
            counts: Arc::clone(&self.counts),
            reserved: None,
            uncounted: 0,
            written: Written::default(),
            piece: Vec::new(),
            permit: None,
            lacks: false,
            bytes: 0,
        }
    }

    /// Waits for the room that an answer lacked. One that is larger than all of it waits for all.
    ///
    /// # Errors
    /// Too many wait already, or there was no room for too long.
    pub(super) async fn wait(&self, lacking: Lacking) -> Result<Output, Problem> {
        let wanted = usize::try_from(lacking.bytes).unwrap_or(usize::MAX);
        let wanted = wanted.saturating_sub(FIRST_BYTES).div_ceil(PIECE_BYTES);
        // The profile goes on meanwhile.
        let wanted = wanted + wanted / 16;
        let reserved = wanted.min(self.max_pieces);
        let waited = async {
            let Ok(_waiting) = self.waiting.try_acquire() else {
                return None;
            };
            let pieces = Arc::clone(&self.pieces);
            let permits = u32::try_from(reserved).unwrap_or(u32::MAX);
            let found = timeout(self.patience, pieces.acquire_many_owned(permits));
            found.await.ok()?.ok()
        };
        let Some(permit) = waited.await else {
            self.counts.count_answer_refused();
            return Err(Problem::overloaded(format!(
                "the answer has {} bytes, and answers that their clients have not taken yet leave \
                 no room for it: they may hold {} MiB together; ask again, or for less",
                lacking.bytes,
                (self.max_pieces * PIECE_BYTES) >> 20
            )));
        };
        Ok(Output {
            reserved: Some(permit),
            uncounted: wanted - reserved,
            ..self.output()
        })
    }

    /// Writes an answer that needs no report, and waits for its room where it must.
    ///
    /// # Errors
    /// It cannot be written, or there is no room.
    pub(super) async fn write(
        &self,
        mut write: impl FnMut(&mut Output) -> Result<(), Problem> + Send,
    ) -> Result<Written, Problem> {
        let mut output = self.output();
        loop {
            write(&mut output)?;
            match output.finish() {
                Ok(written) => return Ok(written),
                Err(lacking) => output = self.wait(lacking).await?,
            }
        }
    }
}

/// An answer for which there was no room.
#[derive(Debug)]
pub(super) struct Lacking {
    /// All its bytes.
    bytes: u64,
}

/// Takes what is written of an answer.
pub(super) struct Output {
    pieces: Arc<Semaphore>,
    counts: Arc<RequestCounts>,
    /// Room that was waited for, as far as it is not used yet.
    reserved: Option<OwnedSemaphorePermit>,
    /// Pieces that have no room of their own: those of which an answer that has all of it has more.
    /// They are the first, which are taken first.
    uncounted: usize,
    written: Written,
    /// What is being filled.
    piece: Vec<u8>,
    /// The room of that.
    permit: Option<OwnedSemaphorePermit>,
    /// Whether there was no room: from then on it is only counted what there is to write.
    lacks: bool,
    bytes: u64,
}

impl Output {
    /// The answer, whole.
    ///
    /// # Errors
    /// There was no room for it.
    pub(super) fn finish(mut self) -> Result<Written, Lacking> {
        if self.lacks {
            return Err(Lacking { bytes: self.bytes });
        }
        self.end_piece();
        Ok(self.written)
    }

    fn end_piece(&mut self) {
        let bytes = std::mem::take(&mut self.piece);
        let permit = self.permit.take();
        if bytes.is_empty() {
            return;
        }
        let held_bytes = bytes.capacity() as u64;
        self.counts.answers.hold(held_bytes);
        self.written.bytes += bytes.len() as u64;
        self.written.pieces.push_back(Bytes::from_owner(Held {
            bytes,
            held_bytes,
            counts: Arc::clone(&self.counts),
            _permit: permit,
        }));
    }

    /// Begins a piece; or gives up, where there is no room for it.
    fn next_piece(&mut self) {
        self.end_piece();
        if self.uncounted > 0 {
            self.uncounted -= 1;
        } else {
            let reserved = self.reserved.as_mut().and_then(|some| some.split(1));
            let pieces = || Arc::clone(&self.pieces).try_acquire_owned().ok();
            self.permit = reserved.or_else(pieces);
            if self.permit.is_none() {
                self.lacks = true;
                self.written = Written::default();
                self.reserved = None;
                return;
            }
        }
        self.piece.reserve_exact(PIECE_BYTES);
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        while !self.lacks && !bytes.is_empty() {
            let is_first = self.written.pieces.is_empty();
            let most = if is_first { FIRST_BYTES } else { PIECE_BYTES };
            let (fitting, rest) = bytes.split_at(bytes.len().min(most - self.piece.len()));
            self.piece.extend_from_slice(fitting);
            bytes = rest;
            if !bytes.is_empty() {
                self.next_piece();
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The memory of a piece, which is counted until nobody has it any more: neither the answer nor its
/// connection.
struct Held {
    bytes: Vec<u8>,
    held_bytes: u64,
    counts: Arc<RequestCounts>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counts.answers.let_go(self.held_bytes);
    }
}

/// An answer, written.
#[derive(Debug, Default)]
pub(super) struct Written {
    pieces: VecDeque<Bytes>,
    /// Bytes of all pieces.
    bytes: u64,
}

impl Written {
    /// Its pieces, in order.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &**piece)
    }

    /// Its pieces between two others, without the line break at its end.
    pub(super) fn into_line(mut self, before: String, after: &'static str) -> VecDeque<Bytes> {
        if let Some(last) = self.pieces.back_mut() {
            last.truncate(last.trim_ascii_end().len());
        }
        self.pieces.push_front(before.into());
        self.pieces.push_back(Bytes::from_static(after.as_bytes()));
        self.pieces
    }
}

impl From<Written> for Body {
    fn from(written: Written) -> Self {
        Self::new(written)
    }
}

impl HttpBody for Written {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
