//! Tests of the table of frames: numbers, room, and what leaves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn frame(offset: u64) -> Frame {
    Frame {
        module: ModuleId(5),
        offset: ModuleOffset::new(offset),
    }
}

// Check that a frame keeps its number, that a copy is not changed by later ones, and that number 0
// is reserved.
#[test]
fn numbers_are_stable() {
    let mut table = FrameTable::new(10_000);
    for offset in 0..5000 {
        assert_eq!(table.intern(frame(offset)).0 as u64, offset + 1);
    }
    let copy = table.list();
    let late = table.intern(frame(9_999));
    assert_eq!(table.get(late), frame(9_999));
    assert_eq!(copy.get(late), Frame::default());
    assert_eq!(copy.get(FrameId(4097)), frame(4096));
    assert_eq!(table.intern(frame(0)), FrameId(1));
    assert_eq!(table.get(FrameId::UNKNOWN), Frame::default());
}

// Check that a full table answers "unknown" for new frames only, and counts each.
#[test]
fn full_table_counts() {
    let mut table = FrameTable::new(2);
    let known = table.intern(frame(1));
    assert_eq!(table.intern(frame(2)), FrameId::UNKNOWN);
    assert_eq!(table.intern(frame(1)), known);
    let full = RefusedCounts {
        full: 1,
        over_share: 0,
    };
    assert_eq!(table.refused(), full);
}

fn process(number: u64) -> Owner {
    Owner::Process {
        number,
        user: Some(7),
    }
}

// Check that frames leave that nothing names, that their numbers and their memory are used again,
// and that a copy made before goes on to mean what it meant.
#[test]
fn what_nothing_names_leaves() {
    let mut table = FrameTable::new(40_000);
    for offset in 0..20_000 {
        table.intern(frame(offset));
    }
    let before = table.list();
    let kept = [FrameId(1), FrameId(9_000)];
    let gone = table.sweep(|marks| kept.iter().for_each(|id| marks.keep(*id)));
    assert_eq!((gone, table.len()), (19_998, 3));
    assert_eq!(
        table.list.chunks.len(),
        9_000 / CHUNK + 1,
        "the end is gone"
    );
    assert!(Arc::ptr_eq(&table.list.chunks[1], &table.vacant));
    assert!(table.held.capacity() < 5_000);
    assert_eq!(table.get(FrameId(2)), Frame::default());
    assert_eq!(table.intern(frame(50_000)), FrameId(2), "the lowest first");
    assert_eq!(
        table.intern(frame(8_999)),
        FrameId(9_000),
        "it kept its number"
    );
    assert_eq!(before.get(FrameId(2)), frame(1));
    assert!(!before.same_numbers(&table.list()));
    let list = table.list();
    assert!(list.is_whole());
    let mut both = list.clone();
    let adopted = both.adopt(before.get(FrameId(2)));
    assert!(!list.holds(adopted) && both.get(adopted) == frame(1));
}

// Check that one process cannot have more than a third of the table, however many frames it
// invents, that others find room meanwhile, of its user too, and that what it was refused has it
// ask for a sweep, which gives it all back.
#[test]
fn one_process_leaves_room_for_others() {
    let mut table = FrameTable::new(1 << 16);
    for offset in 0..1 << 17 {
        table.intern_for(process(1), frame(offset));
    }
    assert_eq!(table.refused().full, 0);
    assert!(table.len() <= (1 << 16) / 3 + 2 && table.wants_sweep());
    assert_eq!(
        table.refused().over_share + table.len() as u64,
        (1 << 17) + 1
    );
    let other = Owner::Process {
        number: 2,
        user: Some(8),
    };
    let of_other = table.intern_for(other, frame(1 << 20));
    assert_ne!(of_other, FrameId::UNKNOWN);
    assert_ne!(
        table.intern_for(process(3), frame(1 << 21)),
        FrameId::UNKNOWN
    );
    table.sweep(|marks| marks.keep(of_other));
    assert_eq!(table.len(), 2);
    assert!(!table.wants_sweep());
    assert_ne!(
        table.intern_for(process(1), frame(1 << 21)),
        FrameId::UNKNOWN
    );
}

// Check that who brought many frames while others brought some leaves no memory behind, and that
// the numbers that he had are used again before new ones are.
#[test]
fn who_brought_many_leaves_no_holes() {
    let mut table = FrameTable::new(1 << 16);
    let others: Vec<FrameId> = (0..2_000)
        .map(|step| {
            for offset in 0..10 {
                table.intern_for(process(1), frame(1_000_000 + step * 10 + offset));
            }
            table.intern_for(process(2 + step / 10), frame(step))
        })
        .collect();
    let full = table.held_bytes();
    table.sweep(|marks| others.iter().for_each(|id| marks.keep(*id)));
    assert_eq!(table.len(), 2_001);
    let left = table.held_bytes();
    assert!(left * 4 < full, "{left} of {full} bytes are left");
    let numbers = table.list.len;
    for offset in 0..15_000 {
        table.intern_for(process(300), frame(2_000_000 + offset));
    }
    assert!(table.list.len <= numbers + CHUNK, "{numbers} numbers");
}

/// What happens to the table.
#[derive(Clone, Debug)]
enum FrameAct {
    /// A process has a frame.
    Intern(u64, u64),
    /// Only frames whose offset has one of these remainders by 8 are still named.
    Sweep(u8),
    /// Somebody takes a copy.
    Copy,
}

/// The number of each frame by its offset, and who brought it.
type Model = BTreeMap<u64, (FrameId, u64)>;

fn acts() -> impl Strategy<Value = Vec<FrameAct>> {
    let act = prop_oneof![
        60 => (0..4u64, 0..200u64).prop_map(|(process, offset)| FrameAct::Intern(process, offset)),
        3 => any::<u8>().prop_map(FrameAct::Sweep),
        3 => Just(FrameAct::Copy),
    ];
    prop::collection::vec(act, 1..400)
}

proptest! {
    // Check that, whatever comes and goes, no frame that is still named is lost or changes its
    // number, no number means two frames, copies stay as they were, and what each process has is
    // what it has in a simple model.
    #[test]
    fn no_named_frame_is_lost(acts in acts()) {
        let limit = 120;
        let mut table = FrameTable::new(limit);
        let mut model = Model::new();
        let mut copies: Vec<(FrameList, Model)> = Vec::new();
        for act in acts {
            match act {
                FrameAct::Intern(owner, offset) => {
                    let id = table.intern_for(process(owner), frame(offset));
                    let held = model.values().filter(|(_, by)| *by == owner).count();
                    let of_user = model.len();
                    let left = (limit - 1 - model.len()).saturating_sub(1);
                    let fits = |held: usize, part: usize| held == 0 || held < left / part;
                    match model.get(&offset) {
                        Some((known, _)) => prop_assert_eq!(id, *known),
                        None if limit - 1 > model.len() && fits(held, 2) && fits(of_user, 1) => {
                            prop_assert_ne!(id, FrameId::UNKNOWN);
                            model.insert(offset, (id, owner));
                        }
                        None => prop_assert_eq!(id, FrameId::UNKNOWN),
                    }
                }
                FrameAct::Sweep(remainders) => {
                    model.retain(|offset, _| remainders >> (offset % 8) & 1 == 1);
                    table.sweep(|marks| model.values().for_each(|(id, _)| marks.keep(*id)));
                }
                FrameAct::Copy => copies.push((table.list(), model.clone())),
            }
            prop_assert_eq!(table.len(), model.len() + 1);
            let list = table.list();
            let now = (&list, &model);
            for (list, frames) in copies.iter().map(|(list, of)| (list, of)).chain([now]) {
                let mut numbers: Vec<FrameId> = frames.values().map(|(id, _)| *id).collect();
                for (offset, (id, _)) in frames {
                    prop_assert_eq!(list.get(*id), frame(*offset));
                }
                numbers.sort_unstable();
                numbers.dedup();
                prop_assert_eq!(numbers.len(), frames.len());
                prop_assert!(list.is_whole());
            }
        }
    }
}
