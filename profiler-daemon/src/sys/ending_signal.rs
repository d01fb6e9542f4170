//! Signals that end a program unless whoever started it said that they shall not: a terminal that
//! goes away sends SIGHUP, which nohup has ignored. To wait for a signal would undo that.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Such a signal. Needs a runtime of tokio.
pub struct EndingSignal(Option<Signal>);

impl EndingSignal {
    /// Takes the signal from now on, where it is not ignored.
    ///
    /// # Errors
    /// The system cannot say what is done on it, or refuses that it is taken.
    pub fn new(kind: SignalKind) -> io::Result<Self> {
        if is_ignored(kind)? {
            return Ok(Self(None));
        }
        signal(kind).map(Some).map(Self)
    }

    /// Waits for the next one; for ever where it is ignored.
    pub async fn recv(&mut self) {
        match &mut self.0 {
            // Nothing comes from a runtime that ends, which does not wait for this any more.
            Some(signal) => signal.recv().await.unwrap_or_default(),
            None => std::future::pending().await,
        }
    }
}

fn is_ignored(kind: SignalKind) -> io::Result<bool> {
    // SAFETY: all bytes zero are a sigaction, which the call fills; without a new one it changes
    // nothing.
    let (result, action) = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let result = libc::sigaction(kind.as_raw_value(), std::ptr::null(), &mut action);
        (result, action)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::signal::unix::SignalKind;
    use tokio::time::timeout;

    use super::EndingSignal;

    fn raise(kind: SignalKind) {
        // SAFETY: a plain number, of a signal that is taken or ignored.
        assert_eq!(unsafe { libc::raise(kind.as_raw_value()) }, 0);
    }

    // Check that a signal is heard of, and that one that is ignored stays so, also when it comes.
    #[test]
    fn what_is_ignored_stays_ignored() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (taken, ignored) = (SignalKind::user_defined1(), SignalKind::user_defined2());
        // SAFETY: nothing else in these tests uses that signal.
        unsafe { libc::signal(ignored.as_raw_value(), libc::SIG_IGN) };
        runtime.block_on(async {
            let mut heard = EndingSignal::new(taken).unwrap();
            let mut unheard = EndingSignal::new(ignored).unwrap();
            raise(ignored);
            raise(taken);
            let both = async {
                tokio::select! {
                    () = heard.recv() => true,
                    () = unheard.recv() => false,
                }
            };
            assert_eq!(timeout(Duration::from_secs(30), both).await, Ok(true));
        });
    }
}
