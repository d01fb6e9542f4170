//! Tests of the table of modules: numbers, bounds, and what leaves.

use proptest::prelude::*;

use super::*;
use crate::processes::shares::Owner;

fn file(inode: u64) -> ModuleIdentity {
    ModuleIdentity::File(FileIdentity {
        device: 1,
        inode,
        size_bytes: 10,
        modified_unix_ns: 5,
    })
}

// Check that the fixed modules have their fixed numbers and that unseen numbers read as unknown.
#[test]
fn fixed_numbers() {
    let table = ModuleTable::new();
    assert_eq!(&*table.get(ModuleId::UNKNOWN).name, "[unknown]");
    assert_eq!(&*table.get(ModuleId::KERNEL).name, "[kernel]");
    assert_eq!(&*table.get(ModuleId::JIT).name, "[jit]");
    assert_eq!(&*table.get(ModuleId(77)).name, "[unknown]");
}

// Check that a copy does not see what is added later, and that one identity keeps one number.
#[test]
fn copies_are_snapshots() {
    let mut table = ModuleTable::new();
    let before = table.clone();
    let id = table.intern(file(1), || Module::named("/bin/a", ModuleKind::User));
    assert_eq!(id, ModuleId(3));
    assert_eq!(table.intern(file(1), || unreachable!("known already")), id);
    assert_eq!(&*before.get(id).name, "[unknown]");
    assert_eq!(table.get(id).basename(), "a");
    assert_eq!(before.len() + 1, table.len());
}

// Check that a table full of text refuses the next module, counts it, and cuts overlong names at a
// character.
#[test]
fn full_table_counts() {
    let mut table = ModuleTable::new();
    let long = format!("x{}", "é".repeat(MAX_NAME_BYTES));
    for inode in 0.. {
        let id = table.intern(file(inode), || Module::named(&long, ModuleKind::User));
        if id == ModuleId::UNKNOWN {
            break;
        }
        assert!(table.get(id).name.len() <= MAX_NAME_BYTES);
    }
    assert_eq!(table.refused().full, 1);
    assert!(table.len() <= 3 + MAX_MODULE_TEXT_BYTES / (MAX_NAME_BYTES - 1));
}

// Check that modules known by overlong names only are told apart, and that what they are told apart
// by is bounded and counted.
#[test]
fn overlong_identities() {
    let mut table = ModuleTable::new();
    let long = |number: u64| format!("/{number:08}{}", "é".repeat(2000));
    let add = |table: &mut ModuleTable, number| {
        let name: Box<str> = long(number).into();
        table.intern(ModuleIdentity::Named(name.clone()), || {
            Module::named(&name, ModuleKind::User)
        })
    };
    let [first, second, again] = [1, 2, 1].map(|number| add(&mut table, number));
    assert!(first != second && first == again);
    let name = ModuleIdentity::Named(long(2).into());
    assert_eq!(table.find(&name), Some(second));
    let mut number = 3;
    while add(&mut table, number) != ModuleId::UNKNOWN {
        number += 1;
    }
    assert!(table.text_bytes() <= MAX_MODULE_TEXT_BYTES && table.refused().total() == 1);
    let mut hold = |bytes| table.hold(&mut None, Owner::System, bytes);
    assert!(hold(100) && !hold(MAX_MODULE_TEXT_BYTES));
}

// Check that a build ID is written as two lower-case digits a byte.
#[test]
fn hex() {
    let mut module = Module::named("/", ModuleKind::User);
    assert_eq!(module.basename(), "/");
    module.build_id = Some(vec![0x0a, 0xff].into());
    assert_eq!(module.build_id_hex().as_deref(), Some("0aff"));
}

fn version(inode: u64, modified_unix_ns: i128) -> ModuleIdentity {
    ModuleIdentity::File(FileIdentity {
        device: 1,
        inode,
        size_bytes: 10,
        modified_unix_ns,
    })
}

const ATTACKER: Owner = Owner::Process {
    number: 1,
    user: Some(7),
};

// Check that one file cannot fill the table however often it changes, that its versions leave when
// nothing names them, and that their numbers do not come back.
#[test]
fn versions_of_one_file() {
    let mut table = ModuleTable::new();
    let name = || Module::named("/tmp/file", ModuleKind::User);
    let mut given = Vec::new();
    for change in 0..70_000 {
        let id = table.intern_for(ATTACKER, version(5, change), name);
        if id != ModuleId::UNKNOWN {
            given.push(id);
        }
        if table.wants_sweep() {
            assert!(given.len() <= MAX_FILE_VERSIONS as usize + 1);
            let kept = given.last().copied();
            let gone = table.sweep(|marks| kept.into_iter().for_each(|id| marks.keep(id)));
            assert_eq!(gone.len(), given.len() - 1);
            assert!(gone.iter().all(|id| !table.holds(*id)));
            given = kept.into_iter().collect();
        }
        assert!(table.len() <= 3 + MAX_FILE_VERSIONS as usize);
    }
    assert!(table.refused().over_share > 0 && table.refused().full == 0);
    let later = table.intern_for(ATTACKER, version(6, 0), name);
    assert!(table.holds(later) && given.iter().all(|id| table.holds(*id)));
}

// Check that a process that maps ever more files with long names has a third of the table at most,
// of its places and of its text, while others find room.
#[test]
fn one_process_leaves_room_for_others() {
    for name in ["/f", &"x".repeat(1000)] {
        let mut table = ModuleTable::new();
        let mut inode = 0;
        while table.refused().total() == 0 {
            inode += 1;
            table.intern_for(ATTACKER, version(inode, 0), || {
                Module::named(name, ModuleKind::User)
            });
        }
        assert_eq!(table.refused().full, 0);
        assert!(table.len() <= MAX_MODULES / 3 + 4);
        assert!(table.text_bytes() <= MAX_MODULE_TEXT_BYTES / 3 + 1000);
        let other = Owner::Process {
            number: 2,
            user: Some(8),
        };
        let id = table.intern_for(other, version(0, 1), || {
            Module::named("/bin/other", ModuleKind::User)
        });
        assert_eq!(&*table.get(id).name, "/bin/other");
        table.sweep(|marks| marks.keep(id));
        assert_eq!(table.len(), 4);
        assert_eq!(table.text_bytes(), {
            let mut only = ModuleTable::new();
            only.intern(version(0, 1), || {
                Module::named("/bin/other", ModuleKind::User)
            });
            only.text_bytes()
        });
    }
}

// Check that who maps a module pays for it once who brought it is gone, another process of the same
// user first, so that the latter's user finds room again; that nothing moves while who brought it
// has it; and that who has no room keeps nobody from having some.
#[test]
fn who_has_a_module_pays_for_it() {
    let of = |number, user| Owner::Process {
        number,
        user: Some(user),
    };
    let name = || Module::named("/lib/shared", ModuleKind::User);
    let mut table = ModuleTable::new();
    let mut ids = Vec::new();
    while table.refused().total() == 0 {
        let inode = ids.len() as u64;
        ids.push(table.intern_for(ATTACKER, version(inode, 0), name));
    }
    assert_eq!(ids.pop(), Some(ModuleId::UNKNOWN));
    let room = |table: &mut ModuleTable, owner| {
        let mut taken = 0;
        while taken < 1000 && table.intern_for(owner, version(taken, 1), name) != ModuleId::UNKNOWN
        {
            taken += 1;
        }
        taken
    };
    for (holders, more) in [
        (vec![of(9, 8), ATTACKER], 0),
        (vec![of(9, 8), of(2, 7)], 1000),
        (vec![of(9, 8)], 1000),
    ] {
        let kept = ids.clone();
        table.sweep(|marks| {
            for owner in holders {
                kept.iter().for_each(|id| marks.keep_for(*id, owner));
            }
        });
        assert_eq!(table.len(), kept.len() + 3);
        assert_eq!(room(&mut table, ATTACKER), more);
    }
    table.sweep(|marks| ids.iter().for_each(|id| marks.keep_for(*id, of(10, 8))));
    assert_eq!(table.len(), ids.len() + 3);
    assert!(room(&mut table, of(10, 8)) <= 1);
    table.sweep(|_| {});
    assert_eq!(
        (table.len(), table.text_bytes()),
        (3, ModuleTable::new().text_bytes())
    );
}

proptest! {
    // Check that, whatever comes and goes, no module that is still named is lost or takes another's
    // number, that what left is [unknown], and that views stay as they were.
    #[test]
    fn no_named_module_is_lost(
        acts in prop::collection::vec((0..40u64, any::<u8>(), prop::bool::weighted(0.1)), 1..200),
    ) {
        let mut table = ModuleTable::new();
        let mut named: Vec<(u64, ModuleId)> = Vec::new();
        let mut gone: Vec<ModuleId> = Vec::new();
        let mut views: Vec<(ModuleTable, Vec<(u64, ModuleId)>)> = Vec::new();
        for (inode, keep, sweep) in acts {
            if sweep {
                views.push((table.view(), named.clone()));
                let (stay, go): (Vec<_>, Vec<_>) = named
                    .into_iter()
                    .partition(|(inode, _)| keep >> (inode % 8) & 1 == 1);
                let left = table.sweep(|marks| stay.iter().for_each(|(_, id)| marks.keep(*id)));
                prop_assert_eq!(left.len(), go.len());
                prop_assert!(go.iter().all(|(_, id)| left.contains(id)));
                gone.extend(left);
                named = stay;
            } else {
                let id = table.intern_for(ATTACKER, version(inode, 0), || {
                    Module::named(&inode.to_string(), ModuleKind::User)
                });
                match named.iter().find(|(known, _)| *known == inode) {
                    Some((_, known)) => prop_assert_eq!(id, *known),
                    None => named.push((inode, id)),
                }
                prop_assert!(!gone.contains(&id));
            }
            for (inode, id) in &named {
                let name = inode.to_string();
                prop_assert_eq!(&*table.get(*id).name, name.as_str());
            }
            prop_assert!(gone.iter().all(|id| &*table.get(*id).name == "[unknown]"));
            prop_assert_eq!(table.len(), named.len() + 3);
        }
        for (view, named) in views {
            prop_assert!(view.is_whole() && view.len() == named.len() + 3);
            for (inode, id) in named {
                let name = inode.to_string();
                prop_assert_eq!(&*view.share(id).name, name.as_str());
            }
        }
    }
}
