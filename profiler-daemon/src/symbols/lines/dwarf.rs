//! Reads lines and inlined functions from the DWARF sections of a file in memory, by addr2line.
//! Runs in the worker only: what it takes in memory and time is up to whoever wrote the file.

use std::{borrow::Cow, convert::Infallible};

use addr2line::{
    Context,
    gimli::{Dwarf, EndianSlice, LittleEndian, SectionId},
};
use miniz_oxide::inflate::decompress_slice_iter_to_slice;

use super::protocol::{FoundStep, MAX_PATH_BYTES, MAX_STEPS};
use crate::{
    elf::{self, CompressionHeader, ELFCOMPRESS_ZLIB, ElfFile, LE, Section},
    symbols::demangle::{demangle, without_control},
    units::ModuleAddress,
};

type SectionReader<'a> = EndianSlice<'a, LittleEndian>;

/// Why a file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It makes no sense, or is compressed in an unknown way.
    Unreadable,
    /// Its sections do not fit the memory there is.
    NoMemory,
}

/// What a byte that zlib packed can stand for at most is a little less.
const MAX_RATIO: usize = 1040;

/// The sections of a file that lines are read from, unpacked.
pub(super) struct DebugSections<'a>(Vec<(SectionId, Cow<'a, [u8]>)>);

impl<'a> DebugSections<'a> {
    /// Takes them out of the file.
    pub(super) fn read(image: &'a [u8]) -> Result<Self, Broken> {
        let elf = ElfFile::read(image).map_err(|_| Broken::Unreadable)?;
        let sections = elf.sections(image).ok_or(Broken::Unreadable)?;
        let there = READ
            .into_iter()
            .filter_map(|id| Some((id, sections.find(id.name())?)));
        let read = there.map(|(id, section)| Ok((id, contents(image, section)?)));
        read.collect::<Result<_, _>>().map(Self)
    }

    fn dwarf(&self) -> Dwarf<SectionReader<'_>> {
        let found = |id| self.0.iter().find(|(known, _)| *known == id);
        let Ok(dwarf) = Dwarf::load(|id| {
            let bytes = found(id).map_or(&[][..], |(_, bytes)| bytes);
            Ok::<_, Infallible>(SectionReader::new(bytes, LittleEndian))
        });
        dwarf
    }
}

/// What lines and inlined functions are found by. The other sections can be as large, and are left
/// alone.
const READ: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// The lines of one file.
pub(super) struct FileLines<'a> {
    context: Context<SectionReader<'a>>,
}

impl<'a> FileLines<'a> {
    /// Finds its way in the sections of a file, and of the supplementary one that several files
    /// share (dwz), if there is one.
    pub(super) fn open(
        sections: &'a DebugSections<'_>,
        supplementary: Option<&'a DebugSections<'_>>,
    ) -> Result<Self, Broken> {
        let mut dwarf = sections.dwarf();
        if let Some(supplementary) = supplementary {
            dwarf.set_sup(supplementary.dwarf());
        }
        let context = Context::from_dwarf(dwarf).map_err(|_| Broken::Unreadable)?;
        Ok(Self { context })
    }

    /// The functions at a virtual address, outermost first; none where nothing is known of it.
    pub(super) fn steps(&self, address: ModuleAddress) -> Result<Vec<FoundStep>, Broken> {
        let broken = |_| Broken::Unreadable;
        let frames = self.context.find_frames(address.get()).skip_all_loads();
        let mut frames = frames.map_err(broken)?;
        let mut steps = Vec::new();
        while let Some(frame) = frames.next().map_err(broken)? {
            let name = match &frame.function {
                Some(function) => Some(function.raw_name().map_err(broken)?),
                None => None,
            };
            let (file, line) = match frame.location {
                Some(location) => (location.file.map(path), location.line),
                None => (None, None),
            };
            steps.push(FoundStep {
                function: name.map(|name| demangle(&name).into()),
                file,
                line: line.filter(|line| *line > 0),
            });
        }
        // They come innermost first.
        if steps.len() > MAX_STEPS {
            steps.drain(1..=steps.len() - MAX_STEPS);
        }
        steps.reverse();
        Ok(steps)
    }
}

fn path(path: &str) -> String {
    // What replaces a control character is longer than it.
    end(&without_control(end(path))).to_owned()
}

/// The end of a path, as much as is kept.
fn end(path: &str) -> &str {
    let mut from = path.len().saturating_sub(MAX_PATH_BYTES);
    while !path.is_char_boundary(from) {
        from += 1;
    }
    &path[from..]
}

fn contents<'a>(image: &'a [u8], section: &Section) -> Result<Cow<'a, [u8]>, Broken> {
    let from = usize::try_from(section.offset.get()).map_err(|_| Broken::Unreadable)?;
    let length = usize::try_from(section.size_bytes).map_err(|_| Broken::Unreadable)?;
    let bytes = from.checked_add(length).and_then(|to| image.get(from..to));
    let bytes = bytes.ok_or(Broken::Unreadable)?;
    if section.is_compressed() {
        inflated(bytes).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(bytes))
    }
}

/// What a compressed section stands for.
fn inflated(section: &[u8]) -> Result<Vec<u8>, Broken> {
    let (header, stream) =
        elf::from_bytes::<CompressionHeader>(section).map_err(|()| Broken::Unreadable)?;
    if header.ch_type.get(LE) != ELFCOMPRESS_ZLIB {
        return Err(Broken::Unreadable);
    }
    let length = usize::try_from(header.ch_size.get(LE)).map_err(|_| Broken::NoMemory)?;
    if length > stream.len().saturating_mul(MAX_RATIO) {
        return Err(Broken::Unreadable);
    }
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(length)
        .map_err(|_| Broken::NoMemory)?;
    bytes.resize(length, 0);
    let filled = decompress_slice_iter_to_slice(&mut bytes, std::iter::once(stream), true, true);
    if filled == Ok(length) {
        Ok(bytes)
    } else {
        Err(Broken::Unreadable)
    }
}
