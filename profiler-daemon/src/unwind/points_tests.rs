//! Points of functions that were assembled by hand, and of bytes that are none.

use proptest::prelude::*;

use super::*;

const AT: ModuleAddress = ModuleAddress::new(0x1000);

fn exits_at(code: &[u8]) -> Vec<u64> {
    let points = find(code, AT, &[]).unwrap();
    let exits = points.exits.unwrap();
    exits.iter().map(|exit| exit.address - AT).collect()
}

/// push rbp; test edi, edi; je +2; pop rbp; ret; pop rbp; ret.
const TWO_RETURNS: &[u8] = &[0x55, 0x85, 0xff, 0x74, 0x02, 0x5d, 0xc3, 0x5d, 0xc3];

#[test]
fn each_return_is_an_exit() {
    assert_eq!(exits_at(TWO_RETURNS), [6, 8]);
    let points = find(TWO_RETURNS, AT, &[]).unwrap();
    assert_eq!(
        points.entry,
        Point {
            address: AT,
            stepped: false
        }
    );
    assert!(points.exits.unwrap().iter().all(|exit| exit.stepped));
    // rep ret; bnd ret; ret 8: prefixes belong to the instruction.
    assert_eq!(exits_at(&[0x31, 0xc0, 0xf3, 0xc3]), [2]);
    assert_eq!(exits_at(&[0x31, 0xc0, 0xf2, 0xc3]), [2]);
    assert_eq!(exits_at(&[0x31, 0xc0, 0xc2, 0x08, 0x00]), [2]);
}

#[test]
fn the_mark_of_jump_targets_is_stepped_over() {
    let points = find(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3], AT, &[]).unwrap();
    assert_eq!(
        points.entry,
        Point {
            address: AT + 4,
            stepped: false
        }
    );
    let only = find(&[0xf3, 0x0f, 0x1e, 0xfa], AT, &[]).unwrap();
    assert_eq!(
        only.entry,
        Point {
            address: AT,
            stepped: true
        }
    );
}

// Check that functions of Go are entered behind the check of their stack, whose failure begins them
// anew, in each of its forms; at once where there is none; and that they are left at their returns,
// but for those whose goroutine is not where it is looked for, and those that jump to others.
#[test]
fn functions_of_go_are_entered_behind_the_check_of_the_stack() {
    let found = |code: &[u8]| {
        let points = find_go(code, AT).unwrap();
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

#[test]
fn jumps_to_other_functions_are_exits() {
    // test edi, edi; je 0x2000; jmp -4 (to itself); the last is a loop.
    let code = [0x85, 0xff, 0x0f, 0x84, 0xf8, 0x0f, 0x00, 0x00, 0xeb, 0xf6];
    let points = find(&code, AT, &[]).unwrap();
    let exits = points.exits.unwrap();
    assert_eq!(
        exits,
        [Point {
            address: AT + 2,
            stepped: false
        }]
    );
    // The same, to its own code elsewhere.
    let part_at = ModuleAddress::new(0x2000);
    let points = find(&code, AT, std::slice::from_ref(&(part_at..part_at + 0x10))).unwrap();
    assert_eq!(points.exits.unwrap(), []);
    // Code elsewhere that jumps back stays, and leaves where it returns.
    let part = [0xe9, 0xfb, 0xef, 0xff, 0xff, 0xc3];
    let exits = exits_of_part(&part, part_at, &(AT..AT + 10), &[]).unwrap();
    assert_eq!(
        exits.unwrap(),
        [Point {
            address: part_at + 5,
            stepped: true
        }]
    );
}

#[test]
fn indirect_jumps() {
    // jmp [rip + 0x100]: through a slot, to a function.
    assert_eq!(exits_at(&[0xff, 0x25, 0x00, 0x01, 0x00, 0x00]), [0]);
    // jmp rax with the stack as at the entry: anything.
    let found = find(&[0x31, 0xc0, 0xff, 0xe0], AT, &[]).unwrap();
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

#[test]
fn what_the_kernel_cannot_probe_is_refused() {
    let entry = |code: &[u8]| find(code, AT, &[]).unwrap_err();
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
    assert_eq!(find(&[0x55, 0x00], AT, &[]), Err(NoProbe::NoCode(1)));
}

#[test]
fn a_function_with_too_many_exits_is_counted() {
    let mut code = Vec::new();
    for _ in 0..=MAX_EXITS {
        // je +1; ret.
        code.extend([0x74, 0x01, 0xc3]);
    }
    code.push(0xc3);
    assert_eq!(
        find(&code, AT, &[]).unwrap().exits,
        Err(NoExits::TooMany(66))
    );
}

#[test]
fn code_that_is_jumped_into_is_not_trusted() {
    // mov eax, 0x90909090; jmp into it; ret.
    let code = [0xb8, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfb, 0xc3];
    assert!(matches!(
        find(&code, AT, &[]).unwrap().exits,
        Err(NoExits::Exit(5, _))
    ));
}

proptest! {
    // Check that whatever the bytes are, points are where instructions begin.
    #[test]
    fn points_are_borders(code in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(points) = find(&code, AT, &[]) {
            let borders = borders(&code, AT);
            prop_assert!(borders.contains(&points.entry.address));
            for exit in points.exits.iter().flatten() {
                prop_assert!(borders.contains(&exit.address));
            }
        }
        if let Ok(points) = find_go(&code, AT) {
            prop_assert!(borders(&code, AT).contains(&points.entry.address));
        }
    }
}
