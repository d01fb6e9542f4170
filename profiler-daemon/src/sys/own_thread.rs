//! Threads of this program whose end is waited for, though not for ever, and the queue of questions
//! before one that answers them. What such a thread does is said elsewhere.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::oneshot;

/// A thread that was started.
#[derive(Debug)]
pub struct OwnThread {
    handle: JoinHandle<()>,
    /// Nothing ever comes: the other end is gone once the thread has done its work, or broke.
    ended: oneshot::Receiver<Infallible>,
}

/// Why a thread was not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotJoined {
    /// It takes too long.
    #[error("it is still at work")]
    Late,
    /// It panicked.
    #[error("it broke")]
    Broke,
}

impl OwnThread {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (ends, ended) = oneshot::channel();
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // Dropped last, and by a panic as well.
                let _ends: oneshot::Sender<Infallible> = ends;
                work();
            })?;
        Ok(Self { handle, ended })
    }

    /// Waits for its end, no longer than that. One that takes longer is left alone.
    ///
    /// # Errors
    /// [`NotJoined`].
    pub async fn join(self, within: Duration) -> Result<(), NotJoined> {
        if tokio::time::timeout(within, self.ended).await.is_err() {
            return Err(NotJoined::Late);
        }
        // Nothing but its last instructions is left of it.
        self.handle.join().map_err(|_| NotJoined::Broke)
    }
}

/// The way to a thread that answers questions. It ends when the last copy of this is gone, or
/// whoever has one ends it for all.
#[derive(Debug)]
pub struct Questions<Q>(Arc<Mutex<EndSignal<Q>>>);

/// What is left once the end was asked for: nothing.
#[derive(Debug)]
struct EndSignal<Q> {
    sender: Option<mpsc::SyncSender<Q>>,
    thread: Option<OwnThread>,
}

impl<Q> Clone for Questions<Q> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Q: Send + 'static> Questions<Q> {
    /// Starts a thread of this name, which takes the questions: so many may wait.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn to_thread(
        name: &str,
        most_waiting: usize,
        answer: impl FnOnce(mpsc::Receiver<Q>) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, waiting) = mpsc::sync_channel(most_waiting);
        let thread = OwnThread::spawn(name, move || answer(waiting))?;
        Ok(Self(Arc::new(Mutex::new(EndSignal {
            sender: Some(sender),
            thread: Some(thread),
        }))))
    }

    /// Asks. False if too many questions wait, or the thread is gone.
    #[must_use]
    pub fn ask(&self, question: Q) -> bool {
        let way = self.lock();
        let sender = way.sender.as_ref();
        sender.is_some_and(|sender| sender.try_send(question).is_ok())
    }

    /// Takes no more questions, and waits until the thread has answered those that wait, no longer
    /// than that.
    ///
    /// # Errors
    /// [`NotJoined`]; not where another has asked for the end before.
    pub async fn end(&self, within: Duration) -> Result<(), NotJoined> {
        let thread = {
            let mut way = self.lock();
            way.sender = None;
            way.thread.take()
        };
        match thread {
            Some(thread) => thread.join(within).await,
            None => Ok(()),
        }
    }

    /// Held for as long as it takes to put a question into the queue: nobody waits in it.
    fn lock(&self) -> MutexGuard<'_, EndSignal<Q>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn ends_are_told() {
        // Check that a thread is joined as soon as it has ended, that one that panicked is told
        // apart, and that one that goes on is waited for no longer than is said.
        let quick = OwnThread::spawn("quick", || ()).unwrap();
        assert_eq!(quick.join(LONG).await, Ok(()));
        let breaks = OwnThread::spawn("breaks", || panic!("as the test wants it")).unwrap();
        assert_eq!(breaks.join(LONG).await, Err(NotJoined::Broke));
        let (end, ended) = mpsc::channel::<()>();
        let slow = OwnThread::spawn("slow", move || assert!(ended.recv().is_err())).unwrap();
        assert_eq!(slow.join(Duration::ZERO).await, Err(NotJoined::Late));
        drop(end);
    }

    #[tokio::test]
    async fn questions_end() {
        // Check that what waits is answered before the end, that nothing is taken after it,
        // whoever has a copy, and that a second end is none.
        let (tell, told) = mpsc::channel();
        let answer = move |waiting: mpsc::Receiver<u32>| {
            waiting.iter().for_each(|asked| tell.send(asked).unwrap());
        };
        let questions = Questions::to_thread("answers", 2, answer).unwrap();
        let copy = questions.clone();
        assert!(questions.ask(1) && copy.ask(2));
        assert_eq!(copy.end(LONG).await, Ok(()));
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2]);
        assert!(!questions.ask(3));
        assert_eq!(questions.end(LONG).await, Ok(()));
    }

    #[test]
    fn queues_are_bounded_and_end_with_their_askers() {
        // Check that no more questions wait than may, and that the thread ends when nobody is left
        // who could ask.
        let (begin, begun) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let answer = move |waiting: mpsc::Receiver<u32>| {
            begun.recv().unwrap();
            waiting.iter().for_each(|asked| tell.send(asked).unwrap());
        };
        let questions = Questions::to_thread("answers", 1, answer).unwrap();
        assert!(questions.ask(1) && !questions.ask(2));
        begin.send(()).unwrap();
        drop(questions);
        assert_eq!(told.iter().collect::<Vec<_>>(), [1]);
    }
}
