//! Notes of USDT points, and what is made of them.

use std::fs::File;

use super::*;
use crate::sys::memory_file::memory_file;
use crate::unwind::made_files::{CODE_ADDRESS, MadeSection, program};

/// A note as the assembler writes it.
fn made_note(addresses: [u64; 3], texts: &str) -> Vec<u8> {
    let mut description: Vec<u8> = addresses.iter().flat_map(|at| at.to_le_bytes()).collect();
    description.extend(texts.bytes());
    let size = description.len() as u32;
    let mut note: Vec<u8> = [8, size, NOTE_TYPE]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    note.extend(NOTE_OWNER);
    note.extend(description);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// A program with this code and these notes.
fn file(code: &[u8], notes: &[u8]) -> File {
    let mut padded = code.to_vec();
    padded.resize(1024, 0xc3);
    let sections = [MadeSection::new(".note.stapsdt", notes.to_vec())];
    memory_file(&program(&padded, &sections)).expect("there is room")
}

fn choose_all(file: &File) -> Vec<ChosenUsdt> {
    let all = "*:*".parse().expect("a pattern");
    choose(file, &[&all]).expect("a small program")
}

// Check that a program that marks its own places is read: providers, names, and every operand that
// compilers write.
#[test]
fn operands_are_understood() {
    let of = |text: &str| {
        argument(text).map(|a| {
            (
                a.operand,
                a.size_bytes,
                a.is_signed,
                a.register,
                a.index,
                a.shift,
                a.number,
            )
        })
    };
    let (constant, register, memory) = (
        Operand::Constant as u32,
        Operand::Register as u32,
        Operand::Memory as u32,
    );
    let none = Argument::NO_REGISTER;
    assert_eq!(of("-4@%edi"), Some((register, 4, 1, 112, none, 0, 0)));
    assert_eq!(of("8@%r12"), Some((register, 8, 0, 24, none, 0, 0)));
    assert_eq!(of("4@%r8d"), Some((register, 4, 0, 72, none, 0, 0)));
    assert_eq!(of("1@%sil"), Some((register, 1, 0, 104, none, 0, 0)));
    assert_eq!(of("1@%al"), Some((register, 1, 0, 80, none, 0, 0)));
    assert_eq!(of("2@%bx"), Some((register, 2, 0, 40, none, 0, 0)));
    assert_eq!(of("4@$5"), Some((constant, 4, 0, none, none, 0, 5)));
    assert_eq!(of("-4@$-5"), Some((constant, 4, 1, none, none, 0, -5)));
    assert_eq!(of("8@-8(%rbp)"), Some((memory, 8, 0, 32, none, 0, -8)));
    assert_eq!(of("-4@(%rsp)"), Some((memory, 4, 1, 152, none, 0, 0)));
    assert_eq!(
        of("8@0x10(%rax,%r9,8)"),
        Some((memory, 8, 0, 80, 64, 3, 16))
    );
    for other in [
        "8f@%xmm0",
        "4@%ah",
        "8@counter(%rip)",
        "8@8(%rip)",
        "8@%fs:8",
        "3@%eax",
        "8@$symbol",
        "8@8(%eax)",
        "8@8(%rax,%rbx,3)",
        "8@8(%rax,%rbx,1,1)",
        "8@(",
        "8@)",
        "@",
        "",
        "8@%",
        "8@8",
    ] {
        assert_eq!(of(other), None, "{other}");
    }
}

// Check that notes are read with their texts, that one that makes no sense costs no other, and that
// addresses move with the section that says by how much.
#[test]
fn notes_are_read() {
    let mut bytes = made_note([0x1000, 0x2000, 0x3000], "app\0begin\0-4@%edi 8@%rax\0");
    bytes.extend(made_note([0x1001, 0x2000, 0], "app\0\0\0"));
    bytes.extend(made_note([0x1002, 0x2000, 0], "app\0end\0\0"));
    let read: Vec<Note> = notes(&bytes, Some(ModuleAddress::new(0x2100))).collect();
    assert_eq!(read.len(), 2);
    let addresses = |note: &Note| (note.location.get(), note.semaphore.get());
    assert_eq!(addresses(&read[0]), (0x1100, 0x3100));
    assert_eq!((&*read[0].provider, &*read[0].name), ("app", "begin"));
    assert_eq!(arguments(&read[0].arguments).len(), 2);
    assert_eq!(addresses(&read[1]), (0x1102, 0));
    // Cut anywhere, what is whole is read.
    for end in 0..bytes.len() {
        assert!(notes(&bytes[..end], None).count() <= 2);
    }
}

// Check that a place is found in the file, that the first of `nop, nop5` is taken as it is, and
// that a nop of five bytes, a place outside of the code and one that is no nop and in no function
// are refused, each with its reason.
#[test]
fn places_are_checked() {
    let code = [0x90, 0x0f, 0x1f, 0x44, 0x00, 0x00, 0x55, 0xc3];
    let at = |offset: u64| CODE_ADDRESS + offset;
    let mut bytes = made_note([at(0), 0, 0], "app\0nop\0\0");
    bytes.extend(made_note([at(1), 0, 0], "app\0nop5\0\0"));
    bytes.extend(made_note([at(6), 0, 0], "app\0push\0\0"));
    bytes.extend(made_note([1, 0, 0], "app\0outside\0\0"));
    bytes.extend(made_note([at(0), 0, 1], "app\0semaphore\0\0"));
    // Twice the same.
    bytes.extend(made_note([at(0), 0, 0], "app\0nop\0\0"));
    let chosen = choose_all(&file(&code, &bytes));
    let of = |name: &str| {
        let mut all = chosen.iter();
        let found = all.find(|chosen| chosen.name == name).expect("it is there");
        assert_eq!(found.places.len(), 1, "{name}");
        found.places[0].point.clone()
    };
    let nop = of("nop").expect("it can be probed");
    assert!(!nop.stepped);
    let why = |name| of(name).expect_err("refused").to_string();
    assert!(why("nop5").contains("nop of five bytes"), "{}", why("nop5"));
    assert_eq!(of("push"), Err(UsdtRefused::NoFunction));
    assert_eq!(of("outside"), Err(UsdtRefused::NoCode));
    assert_eq!(of("semaphore"), Err(UsdtRefused::Semaphore));
}

// Check that patterns are read from the right, that a path may be named, and what is none is
// refused.
#[test]
fn patterns_name_provider_and_name() {
    let read = |text: &str| text.parse::<UsdtPattern>();
    let two = read("python:function__*").expect("a pattern");
    assert!(two.is_of_module("/usr/bin/python3") && two.path().is_none());
    let three = read("/usr/lib/libc.so.6:libc:setjmp").expect("a pattern");
    assert_eq!(three.path(), Some("/usr/lib/libc.so.6"));
    assert!(!three.is_of_module("/usr/bin/python3"));
    assert_eq!(three.text(), "/usr/lib/libc.so.6:libc:setjmp");
    assert!(
        read("libc*:libc:*")
            .expect("a pattern")
            .is_of_module("/lib/libc.so.6")
    );
    for none in ["", "name", ":name", "provider:", ":provider:name", "::"] {
        assert!(read(none).is_err(), "{none}");
    }
}
