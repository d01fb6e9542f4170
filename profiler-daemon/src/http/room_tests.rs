//! Answers are held within the room that there is, and what is taken makes room.

use super::*;
use crate::config::Config;

/// Room for so many pieces.
fn room(pieces: usize) -> Room {
    let counts = Arc::new(RequestCounts::default());
    let mut options = HttpOptions::new(&Config::default(), counts);
    options.answers_bytes = pieces * PIECE_BYTES;
    options.request_timeout = Duration::from_millis(100);
    Room::new(&options)
}

/// An answer that takes so many pieces beside the first.
fn write(mut output: Output, pieces: usize) -> Result<Written, Lacking> {
    let text = vec![b'x'; FIRST_BYTES + pieces * PIECE_BYTES];
    output.write_all(&text).unwrap();
    output.finish()
}

fn taken(written: &mut Written) -> Option<Bytes> {
    let mut context = Context::from_waker(std::task::Waker::noop());
    match Pin::new(written).poll_frame(&mut context) {
        Poll::Ready(Some(frame)) => Some(frame.unwrap().into_data().unwrap()),
        _ => None,
    }
}

#[tokio::test]
async fn room_comes_back_piece_by_piece() {
    // Check that an answer has a part of the room for each piece until that was taken and is no
    // longer needed, that one which finds no room is refused after a while, and that it is made
    // when there is.
    let room = room(4);
    let mut first = write(room.output(), 3).expect("there is room");
    assert_eq!(HttpBody::size_hint(&first).exact(), Some(first.bytes));
    let lacking = write(room.output(), 2).expect_err("there is room for one piece");
    assert_eq!(lacking.bytes, (FIRST_BYTES + 2 * PIECE_BYTES) as u64);
    let refused = room.wait(lacking).await.err().expect("it is refused");
    assert_eq!((refused.status(), refused.retry_after_s()), (503, Some(1)));
    assert_eq!(room.counts.answers_refused(), 1);
    let small = taken(&mut first).expect("the small piece");
    let piece = taken(&mut first).expect("a piece");
    assert_eq!((small.len(), piece.len()), (FIRST_BYTES, PIECE_BYTES));
    drop(small);
    assert!(write(room.output(), 2).is_err(), "the connection has it");
    drop(piece);
    let lacking = write(room.output(), 3).expect_err("there is room for two pieces");
    let (second, ()) = tokio::join!(room.wait(lacking), async {
        tokio::task::yield_now().await;
        drop(first);
    });
    let second = write(second.expect("there is room"), 3).expect("it was waited for");
    assert!(write(room.output(), 2).is_err());
    drop(second);
    assert_eq!(room.pieces.available_permits(), 4);
    assert_eq!(room.counts.answers.held_bytes(), 0);
}

#[tokio::test]
async fn what_is_larger_than_all_room_is_alone() {
    // Check that an answer that is larger than the room has all of it, and small ones have theirs
    // meanwhile.
    let room = room(2);
    let lacking = write(room.output(), 5).expect_err("it is larger than the room");
    let output = room.wait(lacking).await.expect("nobody else has any");
    let mut large = write(output, 5).expect("it has all");
    assert!(write(room.output(), 1).is_err());
    write(room.output(), 0).expect("the first piece takes none");
    // What has no room of its own is taken first.
    for _ in 0..4 {
        assert!(taken(&mut large).is_some());
    }
    assert_eq!(room.pieces.available_permits(), 0);
    assert!(taken(&mut large).is_some());
    assert_eq!(room.pieces.available_permits(), 1);
    let text: usize = std::iter::from_fn(|| taken(&mut large))
        .map(|piece| piece.len())
        .sum();
    assert_eq!(text, PIECE_BYTES);
    assert_eq!(room.pieces.available_permits(), 2);
}

#[test]
fn events_are_lines() {
    // Check that an event has its head and end around the answer, whose line break is left out.
    let mut output = room(1).output();
    output.write_all(b"{}\n").unwrap();
    let pieces = output
        .finish()
        .unwrap()
        .into_line("data: ".to_owned(), "\n\n");
    assert_eq!(Vec::from(pieces).concat(), b"data: {}\n\n");
}
