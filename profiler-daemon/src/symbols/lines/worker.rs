//! The worker's side: gives up all that reading needs no more, reads one file, answers, and ends.
//! Whatever it is fed, the worst is that it dies, which the daemon counts.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::{
    dwarf::{Broken, DebugSections, FileLines},
    protocol::{AddressCode, AddressQuery, MAX_ADDRESSES, MAX_QUESTION_BYTES, exit},
};
use crate::sys::{confine::confine, limited_child::inherited_file, mapped_file::MappedFile};

/// The name of the subcommand that starts it.
pub const SUBCOMMAND: &str = "resolve-lines";

/// Answers the question on standard input about the file that is open under the first of these
/// descriptors; the second, if there is one, is the file that it shares debug information with. The
/// answer is the process's exit code.
#[must_use]
pub fn run(files: &[i32]) -> u8 {
    let files: io::Result<Vec<File>> = files.iter().map(|fd| inherited_file(*fd)).collect();
    let (Ok(files), Ok(()), Some(question)) = (files, confine(), question()) else {
        return exit::REFUSED;
    };
    let images: Result<Vec<MappedFile>, io::Error> = files.iter().map(MappedFile::new).collect();
    let Ok(images) = images else {
        return exit::UNREADABLE;
    };
    let [image, supplementary @ ..] = images.as_slice() else {
        return exit::REFUSED;
    };
    let read = || {
        let own = DebugSections::read(image)?;
        let other = supplementary.first();
        let other = other.map(|image| DebugSections::read(image)).transpose()?;
        Ok((own, other))
    };
    let sections = catch_unwind(read).unwrap_or(Err(Broken::Unreadable));
    let opened = match &sections {
        Ok((own, other)) => {
            let open = AssertUnwindSafe(|| FileLines::open(own, other.as_ref()));
            catch_unwind(open).unwrap_or(Err(Broken::Unreadable))
        }
        Err(why) => Err(*why),
    };
    let lines = match opened {
        Ok(lines) => lines,
        Err(Broken::Unreadable) => return exit::UNREADABLE,
        Err(Broken::NoMemory) => return exit::NO_MEMORY,
    };
    let mut answer = io::stdout().lock();
    for address in question.addresses {
        let steps = catch_unwind(AssertUnwindSafe(|| lines.steps(address)));
        let found = match steps {
            Ok(Ok(steps)) => AddressCode::Steps(steps),
            Ok(Err(_)) | Err(_) => AddressCode::Unreadable,
        };
        let Ok(mut line) = serde_json::to_vec(&found) else {
            return exit::REFUSED;
        };
        line.push(b'\n');
        // Written at once: the next address may be the last of this process.
        if answer.write_all(&line).is_err() || answer.flush().is_err() {
            return exit::REFUSED;
        }
    }
    // Freeing what is about to be gone anyway takes seconds for large files.
    std::mem::forget(lines);
    std::mem::forget(sections);
    0
}

fn question() -> Option<AddressQuery> {
    let mut text = Vec::new();
    let mut input = io::stdin().lock().take(MAX_QUESTION_BYTES);
    input.read_to_end(&mut text).ok()?;
    let question: AddressQuery = serde_json::from_slice(&text).ok()?;
    (question.addresses.len() <= MAX_ADDRESSES).then_some(question)
}
