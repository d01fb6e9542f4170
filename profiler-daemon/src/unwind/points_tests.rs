//! Points of functions that were assembled by hand, and of bytes that are none.

use proptest::prelude::*;

use super::*;

const AT: ModuleAddress = ModuleAddress::new(0x1000);

/// A file that has this code without a name, and this data.
#[derive(Default)]
struct Around {
    nameless: Vec<Piece>,
    data: Vec<Piece>,
}

impl Around {
    fn bytes(of: &[Piece], address: ModuleAddress) -> Option<&[u8]> {
        let piece = of.iter().find(|piece| {
            (piece.address..piece.address + piece.code.len() as u64).contains(&address)
        })?;
        Some(&piece.code[(address - piece.address) as usize..])
    }
}

impl Surroundings for Around {
    fn nameless_code(&self, address: ModuleAddress, at_most: usize) -> Option<Vec<u8>> {
        let code = Self::bytes(&self.nameless, address)?;
        Some(code[..code.len().min(at_most)].to_vec())
    }

    fn constant(&self, address: ModuleAddress, bytes: usize) -> Option<Vec<u8>> {
        Some(Self::bytes(&self.data, address)?.get(..bytes)?.to_vec())
    }
}

fn piece(code: &[u8], address: ModuleAddress) -> Piece {
    Piece {
        code: code.to_vec(),
        address,
    }
}

/// Of code that has nothing around it that it jumps to.
fn points_of(code: &[u8]) -> Result<Points, NoProbe> {
    find(&piece(code, AT), Some(&[]), &Around::default())
}

fn at(exits: &[Point]) -> Vec<u64> {
    exits.iter().map(|exit| exit.address - AT).collect()
}

fn exits_at(code: &[u8]) -> Vec<u64> {
    at(&points_of(code).unwrap().exits.unwrap())
}

fn plain(address: ModuleAddress, stepped: bool) -> Point {
    Point {
        address,
        stepped,
        condition: Condition::ALWAYS,
    }
}

/// push rbp; test edi, edi; je +2; pop rbp; ret; pop rbp; ret.
const TWO_RETURNS: &[u8] = &[0x55, 0x85, 0xff, 0x74, 0x02, 0x5d, 0xc3, 0x5d, 0xc3];

#[test]
fn each_return_is_an_exit() {
    assert_eq!(exits_at(TWO_RETURNS), [6, 8]);
    let points = points_of(TWO_RETURNS).unwrap();
    assert_eq!(points.entry, plain(AT, false));
    assert!(points.exits.unwrap().iter().all(|exit| exit.stepped));
    // rep ret; bnd ret; ret 8: prefixes belong to the instruction.
    assert_eq!(exits_at(&[0x31, 0xc0, 0xf3, 0xc3]), [2]);
    assert_eq!(exits_at(&[0x31, 0xc0, 0xf2, 0xc3]), [2]);
    assert_eq!(exits_at(&[0x31, 0xc0, 0xc2, 0x08, 0x00]), [2]);
}

#[test]
fn the_mark_of_jump_targets_is_stepped_over() {
    let points = points_of(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3]).unwrap();
    assert_eq!(points.entry, plain(AT + 4, false));
    let only = points_of(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap();
    assert_eq!(only.entry, plain(AT, true));
}

// Check that functions of Go are entered behind the check of their stack, whose failure begins them
// anew, in each of its forms; at once where there is none; and that they are left at their returns,
// but for those whose goroutine is not where it is looked for, and those that jump to others.
#[test]
fn functions_of_go_are_entered_behind_the_check_of_the_stack() {
    let found = |code: &[u8]| {
        let points = find_go(&piece(code, AT), &Around::default()).unwrap();
        let exits = points.exits.map(|exits| {
            let exits = exits.iter().map(|exit| exit.address - AT);
            exits.collect::<Vec<_>>()
        });
        (points.entry.address - AT, exits)
    };
    // cmp rsp, [r14+0x10]; jbe +3; push rbp; pop rbp; ret; jmp to the begin.
    let small = [
        0x49, 0x3b, 0x66, 0x10, 0x76, 0x03, 0x55, 0x5d, 0xc3, 0xeb, 0xf5,
    ];
    assert_eq!(found(&small), (6, Ok(vec![8])));
    // lea r12, [rsp-0x1a0]; cmp r12, [r14+0x10]; jbe; push rbp; ret.
    let large = [
        0x4c, 0x8d, 0xa4, 0x24, 0x60, 0xfe, 0xff, 0xff, 0x4d, 0x3b, 0x66, 0x10, 0x76, 0x02, 0x55,
        0xc3, 0xeb, 0xee,
    ];
    assert_eq!(found(&large), (14, Ok(vec![15])));
    // mov rcx, fs:[-8]; cmp rsp, [rcx+0x10]; jbe; ret.
    let old = [
        0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 0xff, 0xff, 0xff, 0x48, 0x3b, 0x61, 0x10, 0x76, 0x01,
        0xc3, 0xeb, 0xee,
    ];
    assert_eq!(found(&old), (15, Err(NoExits::OldGo)));
    // No check: cmp rcx, [rax+0x10]; jbe; ret; ret (a bound of what the function reads).
    let bound = [0x48, 0x3b, 0x48, 0x10, 0x76, 0x01, 0xc3, 0xc3];
    assert_eq!(found(&bound), (0, Ok(vec![6, 7])));
    // test edi, edi; je +0x100; ret.
    let wrapper = [0x85, 0xff, 0x0f, 0x84, 0x00, 0x01, 0x00, 0x00, 0xc3];
    assert_eq!(found(&wrapper), (0, Err(NoExits::GoJump(2))));
}

// Check that jumps to functions are exits, conditional ones when they are taken; that those to
// other code of the function are none, and that this is left where it returns.
#[test]
fn jumps_to_other_functions_are_exits() {
    // test edi, edi; je 0x2000; jmp to the je.
    let code = [0x85, 0xff, 0x0f, 0x84, 0xf8, 0x0f, 0x00, 0x00, 0xeb, 0xf8];
    let exits = points_of(&code).unwrap().exits.unwrap();
    let if_equal = Point {
        condition: Condition::of_opcode(0x84),
        ..plain(AT + 2, false)
    };
    assert_eq!(exits, [if_equal]);
    assert!(exits[0].condition.holds(1 << 6) && !exits[0].condition.holds(0));
    // The same, to its own code elsewhere: jmp behind the je; ret.
    let part_at = ModuleAddress::new(0x2000);
    let part = piece(&[0xe9, 0x03, 0xf0, 0xff, 0xff, 0xc3], part_at);
    let own = piece(&code, AT);
    let points = find(&own, Some(std::slice::from_ref(&part)), &Around::default());
    assert_eq!(points.unwrap().exits.unwrap(), [plain(part_at + 5, true)]);
    // Which cannot be read.
    let points = find(&own, None, &Around::default()).unwrap();
    assert_eq!(points.exits, Err(NoExits::Part));
    // jrcxz 0x1010: no flags say whether that is taken. nop; ret.
    let by_register = [0x90, 0xe3, 0x0d, 0xc3];
    assert!(matches!(
        points_of(&by_register).unwrap().exits,
        Err(NoExits::Exit(1, _))
    ));
    // push rbx; jmp 0x2000: with something on the stack none is left.
    let pushed = [0x53, 0xe9, 0xfa, 0x0f, 0x00, 0x00];
    assert_eq!(
        points_of(&pushed).unwrap().exits,
        Err(NoExits::Elsewhere(1))
    );
}

// Check that code without a name is followed where it is the function's: from a conditional jump,
// and from one with something on the stack. It is left by its returns, and by its jumps to other
// functions; where it cannot be read to its end, the exits are not known. A jump with nothing on
// the stack ends the function.
#[test]
fn code_without_a_name_is_followed() {
    let cold_at = ModuleAddress::new(0x2000);
    // nop; je 0x2000; push rbx; jmp 0x2010.
    let own = [
        0x90, 0x0f, 0x84, 0xf9, 0x0f, 0x00, 0x00, 0x53, 0xe9, 0x03, 0x10, 0x00, 0x00,
    ];
    let find_with = |nameless: &[u8]| {
        let around = Around {
            nameless: vec![piece(nameless, cold_at)],
            ..Around::default()
        };
        find(&piece(&own, AT), Some(&[]), &around).unwrap().exits
    };
    let mut cold = [0x90; 0x20];
    // call; jne 0x3000; jmp to the push. At 0x2010: je 0x2018; pop rbx; ret. At 0x2018: ud2.
    cold[..5].copy_from_slice(&[0xe8, 0, 0, 0, 0]);
    cold[5..11].copy_from_slice(&[0x0f, 0x85, 0xf5, 0x0f, 0x00, 0x00]);
    cold[11..16].copy_from_slice(&[0xe9, 0xf7, 0xef, 0xff, 0xff]);
    cold[16..20].copy_from_slice(&[0x74, 0x06, 0x5b, 0xc3]);
    cold[24..26].copy_from_slice(&[0x0f, 0x0b]);
    let exits = find_with(&cold).unwrap();
    let unequal = Point {
        condition: Condition::of_opcode(0x85),
        ..plain(cold_at + 5, false)
    };
    let mut sorted = exits;
    sorted.sort_by_key(|exit| exit.address);
    assert_eq!(sorted, [unequal, plain(cold_at + 19, true)]);
    // An instruction that is cut off; one that is none.
    assert_eq!(find_with(&cold[..18]), Err(NoExits::Nameless(8)));
    cold[16] = 0x06;
    assert_eq!(find_with(&cold), Err(NoExits::Nameless(8)));
    // nop; jmp 0x2000.
    let around = Around {
        nameless: vec![piece(&cold, cold_at)],
        ..Around::default()
    };
    let own = piece(&[0x90, 0xe9, 0xfa, 0x0f, 0x00, 0x00], AT);
    let points = find(&own, Some(&[]), &around).unwrap();
    assert_eq!(points.exits.unwrap(), [plain(AT + 1, false)]);
}

// Check that code which jumps back to where it is entered is known for it: where its exits are
// known, turns are told from calls there; else it is refused. Nor is one measured whose first
// instruction leaves it.
#[test]
fn functions_that_jump_to_their_entry() {
    // cmp byte [rdi], 0; lea rdi, [rdi+1]; jne to the begin; ret.
    let length = [0x80, 0x3f, 0x00, 0x48, 0x8d, 0x7f, 0x01, 0x75, 0xf7, 0xc3];
    let points = points_of(&length).unwrap();
    assert!(points.loops);
    assert_eq!(at(&points.exits.unwrap()), [9]);
    // endbr64 before it: jumped to either.
    for (back, loops) in [(0xf7, true), (0xf3, true), (0xfa, false)] {
        let mut marked = vec![0xf3, 0x0f, 0x1e, 0xfa];
        marked.extend(length);
        marked[12] = back;
        assert_eq!(points_of(&marked).unwrap().loops, loops, "{back:#x}");
    }
    // With a jump that could lead anywhere in place of the return.
    let mut anywhere = length[..9].to_vec();
    anywhere.extend([0xff, 0xe0]);
    assert_eq!(points_of(&anywhere), Err(NoProbe::Loop));
    // From code of it that lies apart.
    let part_at = ModuleAddress::new(0x2000);
    let back = piece(&[0xe9, 0xfb, 0xef, 0xff, 0xff], part_at);
    let own = piece(TWO_RETURNS, AT);
    let points = find(&own, Some(&[back]), &Around::default()).unwrap();
    assert!(points.loops);
    assert!(!points_of(TWO_RETURNS).unwrap().loops);
    // jmp to another function; ret.
    for first in [&[0xe9, 0x00, 0x10, 0x00, 0x00][..], &[0xc3]] {
        assert_eq!(points_of(first).unwrap().exits, Err(NoExits::AtEntry));
    }
}

#[test]
fn indirect_jumps() {
    // nop; jmp [rip + 0x100]: through a slot, to a function.
    assert_eq!(exits_at(&[0x90, 0xff, 0x25, 0x00, 0x01, 0x00, 0x00]), [1]);
    // jmp rax with the stack as at the entry: anything.
    let found = points_of(&[0x31, 0xc0, 0xff, 0xe0]).unwrap();
    assert_eq!(found.exits, Err(NoExits::Jump(2)));
    assert_eq!(
        found.exits.unwrap_err().to_string(),
        "its exits cannot be found: an indirect jump at +0x2 may be a tail call"
    );
    // The same with a register pushed: no function is left so.
    assert_eq!(exits_at(&[0x53, 0xff, 0xe0, 0x5b, 0xc3]), [4]);
    // cmp edi, 5; ja end; lea rdx, [rip]; movsxd rax, [rdx+rdi*4]; add rax, rdx; jmp rax; ret.
    let table = [
        0x83, 0xff, 0x05, 0x77, 0x10, 0x48, 0x8d, 0x15, 0x00, 0x01, 0x00, 0x00, 0x48, 0x63, 0x04,
        0xba, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3,
    ];
    assert_eq!(exits_at(&table), [21]);
}

// Check that a jump is one through a table of distances only if it goes to the sum of a distance
// and where that counts from, in each of the forms that compilers make; and that one elsewhere is
// no such jump because something was looked up in a table of the same form before it.
#[test]
fn tables_of_distances_are_tied_to_the_jump() {
    // cmp esi, 5; ja end; lea rdx, [rip]; what is given; end: ret.
    let found = |rest: &[u8]| {
        let mut code = vec![0x83, 0xfe, 0x05, 0x77, 7 + rest.len() as u8];
        code.extend([0x48, 0x8d, 0x15, 0x00, 0x01, 0x00, 0x00]);
        code.extend(rest);
        code.push(0xc3);
        points_of(&code).unwrap().exits.map(|exits| at(&exits))
    };
    // movsxd rax, [rdx+rsi*4]
    let look_up = [0x48, 0x63, 0x04, 0xb2];
    let (add, jump) = ([0x48, 0x01, 0xd0], [0xff, 0xe0]);
    let to_cases: [(&str, &[&[u8]]); 5] = [
        ("add rax, rdx; jmp rax", &[&add, &jump]),
        ("add rdx, rax; jmp rdx", &[&[0x48, 0x01, 0xc2, 0xff, 0xe2]]),
        ("add rax, rdx; notrack jmp rax", &[&add, &[0x3e], &jump]),
        (
            "lea rcx, [rax+rdx]; jmp rcx",
            &[&[0x48, 0x8d, 0x0c, 0x10, 0xff, 0xe1]],
        ),
        (
            "add rax, rdx; mov ecx, [rdi]; jmp rax",
            &[&add, &[0x8b, 0x0f], &jump],
        ),
    ];
    for (what, rest) in to_cases {
        let rest = [&look_up[..], &rest.concat()].concat();
        assert_eq!(found(&rest), Ok(vec![12 + rest.len() as u64]), "{what}");
    }
    let elsewhere: [(&str, &[u8]); 10] = [
        ("jmp [rdi]", &[0xff, 0x27]),
        ("jmp [rdi+rax*8]", &[0xff, 0x24, 0xc7]),
        ("jmp rcx", &[0xff, 0xe1]),
        ("jmp rax", &jump),
        ("mov rax, [rdi]; jmp rax", &[0x48, 0x8b, 0x07, 0xff, 0xe0]),
        ("add rax, 8; jmp rax", &[0x48, 0x83, 0xc0, 0x08, 0xff, 0xe0]),
        ("add rdx, rcx; jmp rdx", &[0x48, 0x01, 0xca, 0xff, 0xe2]),
        (
            "xor eax, eax; add rax, rdx; jmp rax",
            &[0x31, 0xc0, 0x48, 0x01, 0xd0, 0xff, 0xe0],
        ),
        (
            "add rax, rdx; mov al, 1; jmp rax",
            &[0x48, 0x01, 0xd0, 0xb0, 0x01, 0xff, 0xe0],
        ),
        (
            "add rax, rdx; call; jmp rax",
            &[0x48, 0x01, 0xd0, 0xe8, 0, 0, 0, 0, 0xff, 0xe0],
        ),
    ];
    for (what, rest) in elsewhere {
        let jump_bytes = if rest.ends_with(&[0x24, 0xc7]) { 3 } else { 2 };
        let rest = [&look_up[..], rest].concat();
        let jump_at = 12 + rest.len() as u64 - jump_bytes;
        assert_eq!(found(&rest), Err(NoExits::Jump(jump_at)), "{what}");
    }
}

// Check that a table of addresses is one of the function's own cases only if all of them are: one
// of functions is looked up by the same instructions.
#[test]
fn tables_of_functions_are_none_of_cases() {
    let table_at = ModuleAddress::new(0x4000);
    // cmp edi, 1; ja end; jmp [rdi*8 + 0x4000]; end: ret. The same with the table's address in rdx.
    let absolute = [
        0x83, 0xff, 0x01, 0x77, 0x07, 0xff, 0x24, 0xfd, 0x00, 0x40, 0x00, 0x00, 0xc3,
    ];
    let by_register = [
        0x83, 0xff, 0x01, 0x77, 0x0a, 0x48, 0x8d, 0x15, 0xf4, 0x2f, 0x00, 0x00, 0xff, 0x24, 0xfa,
        0xc3,
    ];
    for code in [&absolute[..], &by_register] {
        let jump = code.len() as u64 - 4 - u64::from(code.len() == 13) * 4;
        let with = |entries: &[u64]| {
            let bytes: Vec<u8> = entries.iter().flat_map(|at| at.to_le_bytes()).collect();
            let around = Around {
                data: vec![piece(&bytes, table_at)],
                ..Around::default()
            };
            let points = find(&piece(code, AT), Some(&[]), &around).unwrap();
            points.exits.map(|exits| at(&exits))
        };
        let end = code.len() as u64 - 1;
        assert_eq!(with(&[0x1000, 0x1000 + end]), Ok(vec![end]));
        for entries in [&[0x1000, 0x2000][..], &[0, 0], &[0x1000]] {
            assert_eq!(with(entries), Err(NoExits::Jump(jump)), "{entries:x?}");
        }
    }
}

#[test]
fn what_the_kernel_cannot_probe_is_refused() {
    let entry = |code: &[u8]| points_of(code).unwrap_err();
    // nop [rax+rax] of five bytes; mov with a cs prefix; lock inc; int3.
    assert!(matches!(
        entry(&[0x0f, 0x1f, 0x44, 0x00, 0x00, 0xc3]),
        NoProbe::Entry(_)
    ));
    assert!(matches!(
        entry(&[0x2e, 0x8b, 0x07, 0xc3]),
        NoProbe::Entry(_)
    ));
    assert!(matches!(
        entry(&[0xf0, 0xff, 0x07, 0xc3]),
        NoProbe::Entry(_)
    ));
    assert!(matches!(entry(&[0xcc, 0xc3]), NoProbe::Entry(_)));
    assert_eq!(entry(&[]), NoProbe::NoCode(0));
    // An instruction that is cut off, and bytes that are none.
    assert_eq!(entry(&[0x55, 0x48, 0x8b]), NoProbe::NoCode(1));
    assert_eq!(entry(&[0x55, 0x06, 0xc3]), NoProbe::NoCode(1));
    assert_eq!(
        entry(&vec![0x90; MAX_FUNCTION_BYTES + 1]),
        NoProbe::TooLong(MAX_FUNCTION_BYTES + 1)
    );
}

#[test]
fn padding_behind_the_end_is_none_of_it() {
    assert_eq!(exits_at(&[0x55, 0x5d, 0xc3, 0x00, 0x00, 0x00]), [2]);
    assert_eq!(exits_at(&[0x55, 0x5d, 0xc3, 0xcc, 0xcc, 0x90]), [2]);
    // Without an end before them zeroes are code.
    assert_eq!(points_of(&[0x55, 0x00]), Err(NoProbe::NoCode(1)));
}

// Check that exits are not told of a function whose last instruction goes on, padded or not, nor
// where that is so of code of it that lies apart; and that jumps, returns, traps and calls end it.
#[test]
fn functions_that_run_on_into_the_next() {
    // cmp rcx, rdx; jb 0x2000; as glibc's functions that check a size begin.
    let checked = [0x48, 0x39, 0xd1, 0x0f, 0x82, 0xf7, 0x0f, 0x00, 0x00];
    let exits = |rest: &[u8]| {
        let code = [&checked, rest].concat();
        points_of(&code).unwrap().exits.map(|exits| at(&exits))
    };
    // Nothing; nop; nop of nine bytes; add eax, 1 and nop.
    for rest in [
        &[][..],
        &[0x90],
        &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        &[0x83, 0xc0, 0x01, 0x90],
    ] {
        assert_eq!(exits(rest), Err(NoExits::RunsOn), "{rest:x?}");
    }
    assert_eq!(
        exits(&[]).unwrap_err().to_string(),
        "its exits cannot be found: it runs on into the next function"
    );
    // call; call and nop; call [rip] and int3; ud2; int3; hlt; jmp to the begin of the jb.
    for end in [
        &[0xe8, 0, 0, 0, 0][..],
        &[0xe8, 0, 0, 0, 0, 0x66, 0x90],
        &[0xff, 0x15, 0, 0, 0, 0, 0xcc],
        &[0x0f, 0x0b],
        &[0xcc],
        &[0xf4],
        &[0xeb, 0xf8],
    ] {
        assert_eq!(exits(end), Ok(vec![3]), "{end:x?}");
    }
    assert_eq!(exits(&[0xc3, 0x0f, 0x1f, 0x00]), Ok(vec![3, 9]));
    // Code that lies apart.
    let own = piece(TWO_RETURNS, AT);
    for (part, expected) in [
        (&[0x31, 0xc0][..], Err(NoExits::RunsOn)),
        (&[0xe8, 0, 0, 0, 0, 0x90], Ok(vec![6, 8])),
    ] {
        let part = piece(part, ModuleAddress::new(0x2000));
        let points = find(&own, Some(&[part]), &Around::default()).unwrap();
        assert_eq!(points.exits.map(|exits| at(&exits)), expected);
    }
}

#[test]
fn a_function_with_too_many_exits_is_counted() {
    let mut code = Vec::new();
    for _ in 0..=MAX_EXITS {
        // je +1; ret.
        code.extend([0x74, 0x01, 0xc3]);
    }
    code.push(0xc3);
    assert_eq!(points_of(&code).unwrap().exits, Err(NoExits::TooMany(66)));
}

#[test]
fn code_that_is_jumped_into_is_not_trusted() {
    // mov eax, 0x90909090; jmp into it; ret.
    let code = [0xb8, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfb, 0xc3];
    assert!(matches!(
        points_of(&code).unwrap().exits,
        Err(NoExits::Exit(5, _))
    ));
}

proptest! {
    // Check that whatever the bytes are, points are where instructions begin.
    #[test]
    fn points_are_borders(code in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(points) = points_of(&code) {
            let borders = borders(&code, AT);
            prop_assert!(borders.contains(&points.entry.address));
            for exit in points.exits.iter().flatten() {
                prop_assert!(borders.contains(&exit.address));
            }
        }
        if let Ok(points) = find_go(&piece(&code, AT), &Around::default()) {
            prop_assert!(borders(&code, AT).contains(&points.entry.address));
        }
    }
}
