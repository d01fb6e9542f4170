//! What reads bytes from outside, one function each. They check what holds whatever the bytes are:
//! that reading ends, keeps its bounds, and that what is taken holds together. For `cargo xtask
//! fuzz`, and for a test that gives each its corpus (`fuzz/corpus`). Not there otherwise.

#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod seed_tests;

use crate::elf::build_id::{self, ElfIdentity};
use crate::elf::{ElfFile, PT_LOAD, address_of};
use crate::processes::kernel_modules::KernelModules;
use crate::processes::module::ModuleTable;
use crate::sys::cgroup::CgroupFacts;
use crate::sys::clock::thread_ns;
use crate::sys::perf_record::{self, Event, HEADER_BYTES, Header, MAX_PATH_BYTES};
use crate::sys::proc_stat::ProcStat;
use crate::sys::{proc_fs, proc_maps, quota};
use crate::{config, export, http, symbols, units::VirtualAddress, unwind};

/// Most time of a processor that one input may take, nanoseconds. Most take a ten-thousandth.
const MAX_NS: u64 = 5_000_000_000;

/// Gives a function its input, and fails when it takes too long: by the time that it ran, as the
/// machine may have other things to do.
fn in_time(read: FuzzTarget, bytes: &[u8]) {
    let start_ns = thread_ns();
    read(bytes);
    let took_ns = thread_ns() - start_ns;
    assert!(took_ns < MAX_NS, "it took {took_ns} ns");
}

/// A function that is given bytes from outside.
pub type FuzzTarget = fn(&[u8]);

macro_rules! targets {
    ($($(#[doc = $doc:literal])+ $name:ident => $function:expr;)+) => {
        $($(#[doc = $doc])+ pub fn $name(bytes: &[u8]) {
            in_time($function, bytes);
        })+

        /// All of them by name.
        pub const TARGETS: &[(&str, FuzzTarget)] = &[$((stringify!($name), $name)),+];
    };
}

targets! {
    /// The headers of a program file, and its build ID.
    elf_headers => read_elf;
    /// A program file as a whole, to its unwind table.
    unwind_table => unwind::fuzzing::table_of_file;
    /// `.eh_frame` or `.debug_frame`.
    frame_section => unwind::fuzzing::frame_section;
    /// Go's table of functions.
    go_table => unwind::fuzzing::go_table;
    /// Machine code that no unwind information describes.
    machine_code => unwind::fuzzing::code;
    /// A compressed section.
    packed_section => unwind::fuzzing::packed_section;
    /// An unwind table that was kept on disk.
    kept_table => unwind::fuzzing::kept_table;
    /// A linker's name of a function.
    symbol_name => symbols::fuzzing::symbol_name;
    /// The symbol table of a program file.
    symbol_table => symbols::fuzzing::symbol_table;
    /// Where a program file jumps to functions of others.
    jump_table => symbols::fuzzing::jump_table;
    /// Code and a symbol table, whose functions are to be measured.
    chosen_functions => symbols::fuzzing::chosen_functions;
    /// Notes of USDT points.
    usdt_notes => symbols::fuzzing::usdt_notes;
    /// Debug information, as the process that finds lines reads it.
    debug_lines => symbols::fuzzing::debug_lines;
    /// What that process answers.
    line_answers => symbols::fuzzing::line_answers;
    /// The sections that name a file with debug information.
    debug_file_link => symbols::fuzzing::debug_file_link;
    /// The file in which a process names code that it makes.
    perf_map => symbols::fuzzing::perf_map;
    /// `/proc/kallsyms`.
    kernel_names => symbols::fuzzing::kernel_names;
    /// The other texts of `/proc`: each reader is given all of them.
    proc_text => read_proc_text;
    /// Records of processes and mappings from the kernel.
    process_records => read_records;
    /// The address of an HTTP request, then lines with what is accepted and which host is meant.
    http_query => http::fuzzing::query;
    /// The body of an HTTP request.
    http_body => http::fuzzing::body;
    /// The configuration.
    configuration => read_configuration;
    /// A recorded profile.
    saved_profile => export::saved::fuzzing::file;
    /// A recorded profile, unpacked and without its head.
    saved_content => export::saved::fuzzing::content;
}

fn read_elf(file: &[u8]) {
    if let ElfIdentity::BuildId(build) = build_id::of_bytes(file) {
        assert!((8..=64).contains(&build.id.len()) && build.id.iter().any(|byte| *byte != 0));
        assert!(build.code.len() <= 256);
    }
    let Ok(elf) = ElfFile::read(file) else {
        return;
    };
    if let Ok(programs) = elf.programs(file) {
        assert!(programs.len() <= 256);
        for program in &programs {
            let segment = program.segment;
            if let Some(address) = address_of(&programs, segment.offset) {
                let holds = programs.iter().any(|program| {
                    program.kind == PT_LOAD
                        && (program.segment.address..=program.segment.end()).contains(&address)
                });
                assert!(holds, "{address:#x} is in nothing that is loaded");
            }
        }
    }
    if let Some(sections) = elf.sections(file) {
        for name in [".text", ".symtab", ".gnu_debuglink", ""] {
            let found = sections.find(name);
            assert!(found.is_none_or(|section| section.size_bytes > 0));
        }
    }
}

fn read_proc_text(text: &[u8]) {
    let maps = proc_maps::parse(text, 100);
    assert!(maps.entries.len() <= 100);
    assert!(maps.entries.iter().all(|entry| entry.start < entry.end));
    if let Some(stat) = ProcStat::parse(text) {
        assert!(stat.comm.len() <= 3 * text.len());
    }
    let facts = CgroupFacts::parse(text);
    for part in [facts.unit, facts.container_id].into_iter().flatten() {
        let path = facts.path.as_deref().expect("they are parts of it");
        assert!(path.contains(&*part) && !part.contains('/'));
    }
    let mut table = ModuleTable::new();
    let modules = KernelModules::parse(text, &mut table);
    for address in [0, 0xffff_ffff_c000_0000, u64::MAX] {
        let address = VirtualAddress::new(address);
        assert_eq!(modules.place(address).offset.in_memory(), address);
    }
    proc_fs::fuzzing::check(text);
    quota::fuzzing::check(text);
}

fn read_records(mut records: &[u8]) {
    while let Some((head, _)) = records.split_first_chunk::<HEADER_BYTES>() {
        let Ok(header) = Header::decode(*head) else {
            return;
        };
        let length = usize::from(header.size_bytes).min(records.len());
        let (record, rest) = records.split_at(length);
        records = rest;
        match perf_record::decode(header, record) {
            Ok(Some(Event::Mmap(mapped))) => {
                assert!(mapped.len_bytes > 0);
                assert!(mapped.start.checked_add(mapped.len_bytes).is_some());
                assert!(mapped.path.len() <= MAX_PATH_BYTES && !mapped.path.contains(&0));
            }
            Ok(Some(Event::Comm { comm, .. })) => assert!(comm.len() <= 64 && !comm.contains(&0)),
            Ok(_) | Err(_) => {}
        }
    }
}

fn read_configuration(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    match config::Config::parse("fuzz.toml", text) {
        Ok(config) => {
            let shown = serde_json::Value::Object(config.in_force());
            assert!(shown.is_object());
            assert!(config.targets.all || config.targets.names_any());
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
}
