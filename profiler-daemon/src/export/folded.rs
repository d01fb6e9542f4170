//! Folded stacks: a line per stack, functions from the outermost on separated by `;`, a space, the
//! value. What `flamegraph.pl`, inferno and speedscope read. A text is never larger than
//! [`MAX_TEXT_BYTES`], however deep the stacks and long the names are.

use std::{
    cmp::{Ordering, Reverse},
    collections::HashMap,
    io::{self, Write},
};

use super::human;
use crate::report::{StackTree, StackValue, calltree::CUT};

/// Largest text, bytes. Of more, the smallest functions are cut, and their values stand under
/// `(cut)`: each line repeats all callers, so a few thousand deep stacks with long names would else
/// take gigabytes.
pub const MAX_TEXT_BYTES: usize = 32 << 20;

/// Writes the stacks that have any of the value, in the order of their text. Stacks that read alike
/// are one line.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(stacks: &StackTree, value: StackValue, out: &mut impl Write) -> io::Result<()> {
    write_within(stacks, value, MAX_TEXT_BYTES, out)
}

fn write_within(
    stacks: &StackTree,
    value: StackValue,
    most_bytes: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let names = names_of(stacks);
    let source = FoldedSource::new(stacks, value, &names);
    let whole = source.steps(source.by_size.len());
    if whole.text_bytes() <= most_bytes {
        return whole.write(out);
    }
    // With the first `fits` nodes the text is small enough, with `too_many` it is not.
    let (mut fits, mut too_many) = (0, source.by_size.len());
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        if source.steps(middle).text_bytes() <= most_bytes {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    source.steps(fits).write(out)
}

fn names_of(stacks: &StackTree) -> Vec<String> {
    let functions = stacks.functions.iter();
    functions.map(|function| step(&function.name)).collect()
}

/// The stacks, and which of their nodes matter most.
struct FoldedSource<'s> {
    stacks: &'s StackTree,
    value: StackValue,
    names: &'s [String],
    /// The nodes with any of the value in or below them, most first; callers before what they call.
    by_size: Vec<usize>,
}

impl<'s> FoldedSource<'s> {
    fn new(stacks: &'s StackTree, value: StackValue, names: &'s [String]) -> Self {
        let mut totals: Vec<u64> = stacks
            .nodes
            .iter()
            .map(|node| value.of(&node.own))
            .collect();
        for index in (1..totals.len()).rev() {
            totals[stacks.nodes[index].parent as usize] += totals[index];
        }
        let mut by_size: Vec<usize> = (1..totals.len()).filter(|node| totals[*node] > 0).collect();
        by_size.sort_unstable_by_key(|node| (Reverse(totals[*node]), *node));
        Self {
            stacks,
            value,
            names,
            by_size,
        }
    }

    /// The text's tree with the first so many nodes; the others are in `(cut)` below the last
    /// function that stays.
    fn steps(&self, kept: usize) -> FoldedTree<'s> {
        let mut is_kept: Vec<Option<bool>> = vec![None; self.stacks.nodes.len()];
        for (rank, node) in self.by_size.iter().enumerate() {
            is_kept[*node] = Some(rank < kept);
        }
        let mut steps = FoldedTree::new();
        let mut numbers = vec![ROOT; self.stacks.nodes.len()];
        for (index, node) in self.stacks.nodes.iter().enumerate().skip(1) {
            let parent = node.parent as usize;
            numbers[index] = match is_kept[index] {
                None => continue,
                Some(true) => steps.child(numbers[parent], &self.names[node.function as usize]),
                Some(false) if is_kept[parent] == Some(false) => numbers[parent],
                Some(false) => steps.child(numbers[parent], CUT),
            };
            steps.nodes[numbers[index]].amount += self.value.of(&node.own);
        }
        steps
    }
}

/// The tree of a text: what reads alike is one node.
struct FoldedTree<'s> {
    nodes: Vec<FoldedStep<'s>>,
    by_name: HashMap<(usize, &'s str), usize>,
}

struct FoldedStep<'s> {
    name: &'s str,
    /// Of its line, without the amount.
    path_bytes: usize,
    amount: u64,
    below: Vec<usize>,
}

const ROOT: usize = 0;

impl<'s> FoldedTree<'s> {
    fn new() -> Self {
        let root = FoldedStep {
            name: "",
            path_bytes: 0,
            amount: 0,
            below: Vec::new(),
        };
        Self {
            nodes: vec![root],
            by_name: HashMap::new(),
        }
    }

    fn child(&mut self, parent: usize, name: &'s str) -> usize {
        let nodes = &mut self.nodes;
        *self.by_name.entry((parent, name)).or_insert_with(|| {
            let number = nodes.len();
            let separator = usize::from(parent != ROOT);
            nodes[parent].below.push(number);
            nodes.push(FoldedStep {
                name,
                path_bytes: nodes[parent].path_bytes + separator + name.len(),
                amount: 0,
                below: Vec::new(),
            });
            number
        })
    }

    fn text_bytes(&self) -> usize {
        let lines = self.nodes.iter().filter(|node| node.amount > 0);
        lines
            .map(|node| node.path_bytes + " \n".len() + node.amount.ilog10() as usize + 1)
            .sum()
    }

    /// Writes the lines as if all had been sorted, with one of them in memory.
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut path = String::new();
        // What is left to write, and how much of the path is before it.
        let mut todo: Vec<(usize, LineEnd<'_>)> = Vec::new();
        let push_below = |todo: &mut Vec<_>, node: usize, path: &str| {
            let begin = todo.len();
            for below in &self.nodes[node].below {
                todo.extend(self.parts(*below).map(|part| (path.len(), part)));
            }
            todo[begin..].sort_unstable_by(|(_, a), (_, b)| b.order(a));
        };
        push_below(&mut todo, ROOT, &path);
        while let Some((before, part)) = todo.pop() {
            path.truncate(before);
            path.push_str(part.name);
            path.push_str(&part.end);
            match part.below {
                None => writeln!(out, "{path}")?,
                Some(node) => push_below(&mut todo, node, &path),
            }
        }
        Ok(())
    }

    /// The node's own line, and the lines below it: other lines can belong between them.
    fn parts(&self, number: usize) -> impl Iterator<Item = LineEnd<'_>> {
        let node = &self.nodes[number];
        let part = |end: String, below| LineEnd {
            name: node.name,
            end,
            below,
        };
        let own = (node.amount > 0).then(|| part(format!(" {}", node.amount), None));
        let below = (!node.below.is_empty()).then(|| part(";".to_owned(), Some(number)));
        own.into_iter().chain(below)
    }
}

/// The end of a line, or what all lines below a node have after the path.
struct LineEnd<'s> {
    name: &'s str,
    end: String,
    below: Option<usize>,
}

impl LineEnd<'_> {
    /// That of the lines. No name has a `;`, so none is the begin of another.
    fn order(&self, other: &Self) -> Ordering {
        let bytes = self.name.bytes().chain(self.end.bytes());
        bytes.cmp(other.name.bytes().chain(other.end.bytes()))
    }
}

/// A name as one step of a line: nothing in it ends the step or the line, and a number at its end
/// is not taken for an amount, of which a line that compares two has two.
fn step(name: &str) -> String {
    const NO_BREAK_SPACE: char = '\u{a0}';
    let name = human::name(name).replace(';', ":");
    let is_amount = |end: &str| {
        end.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    match name.trim().rsplit_once(' ') {
        Some((begin, end)) if is_amount(end) => format!("{begin}{NO_BREAK_SPACE}{end}"),
        _ if name.trim().is_empty() => "[unnamed]".to_owned(),
        _ => name.trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        report::product::Values,
        report::{
            completeness::Completeness,
            stacks::{StackFunction, StackNode},
        },
        units::UnixNs,
    };

    // Check that separators, line breaks and emptiness in a name cannot make another stack.
    #[test]
    fn steps() {
        for (name, shown) in [
            ("main", "main"),
            ("a;b", "a:b"),
            ("a\nb 7", "a\\u{a}b\u{a0}7"),
            ("worker 3", "worker\u{a0}3"),
            ("v 1.5 2", "v 1.5\u{a0}2"),
            ("", "[unnamed]"),
            (" ", "[unnamed]"),
            ("core::ops [u8; 4]", "core::ops [u8: 4]"),
        ] {
            assert_eq!(step(name), shown);
        }
    }

    /// Stacks of these paths and amounts.
    fn stacks_of(paths: &[(&[&str], u64)]) -> StackTree {
        let mut stacks = StackTree {
            title: "session".to_owned(),
            pid: None,
            exe: None,
            as_of_unix_ns: UnixNs::ZERO,
            from_unix_ns: UnixNs::ZERO,
            duration_ns: 0,
            completeness: Completeness::default(),
            modules: Vec::new(),
            functions: Vec::new(),
            nodes: vec![StackNode {
                parent: 0,
                function: u32::MAX,
                own: Values::default(),
            }],
            cut_nodes: 0,
            shrunk_ns: 0,
        };
        for (path, amount) in paths {
            let mut parent = 0;
            for name in *path {
                let function = u32::try_from(stacks.functions.len()).unwrap();
                stacks.functions.push(StackFunction {
                    name: (*name).to_owned(),
                    module: 0,
                    kind: "user",
                    offset: None,
                    in_module: true,
                    section: None,
                });
                stacks.nodes.push(StackNode {
                    parent,
                    function,
                    own: Values::default(),
                });
                parent = u32::try_from(stacks.nodes.len() - 1).unwrap();
            }
            stacks.nodes[parent as usize].own.samples += amount;
        }
        stacks
    }

    fn text_within(stacks: &StackTree, most_bytes: usize) -> String {
        let mut out = Vec::new();
        write_within(stacks, StackValue::Samples, most_bytes, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sum(text: &str) -> u64 {
        let amounts = text.lines().map(|line| line.rsplit(' ').next().unwrap());
        amounts.map(|amount| amount.parse::<u64>().unwrap()).sum()
    }

    // Check that the lines are in the order of their text, also where names end in what is less
    // than the separator, and that stacks that read alike are one line.
    #[test]
    fn order_of_text() {
        let names = ["a", "a b", "a+1", "a 5", "a(", "az", "b"];
        let mut paths: Vec<Vec<&str>> = Vec::new();
        for first in names {
            paths.push(vec![first]);
            for second in names {
                paths.push(vec![first, second]);
                paths.push(vec![first, second, "z"]);
            }
        }
        let mut expected: Vec<String> = Vec::new();
        let mut given: Vec<(&[&str], u64)> = Vec::new();
        for (path, amount) in paths.iter().zip((1..).step_by(7)) {
            let steps: Vec<String> = path.iter().map(|name| step(name)).collect();
            expected.push(format!("{} {}", steps.join(";"), 2 * amount));
            given.extend([(path.as_slice(), amount), (path.as_slice(), amount)]);
        }
        expected.sort_unstable();
        let stacks = stacks_of(&given);
        let text = text_within(&stacks, MAX_TEXT_BYTES);
        let names = names_of(&stacks);
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(
            FoldedSource::new(&stacks, StackValue::Samples, &names)
                .steps(usize::MAX)
                .text_bytes(),
            text.len()
        );
    }

    // Check that a text never exceeds its bound, keeps its sum, and loses its smallest functions
    // first.
    #[test]
    fn bounded() {
        let deep: Vec<String> = (0..600)
            .map(|depth| format!("{depth}{}", "x".repeat(2_000)))
            .collect();
        let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
        let large: &[&str] = &["main", "larger"];
        let mut stacks = stacks_of(&[(&deep, 1), (large, 1_000)]);
        for node in &mut stacks.nodes[1..600] {
            node.own.samples = 1;
        }
        for most_bytes in [100, 10_000, 1 << 20, MAX_TEXT_BYTES] {
            let text = text_within(&stacks, most_bytes);
            assert!(text.len() <= most_bytes, "{} of {most_bytes}", text.len());
            assert_eq!(sum(&text), 1_600);
            assert!(text.contains("main;larger 1000\n"), "{most_bytes}");
            assert!(text.lines().any(|line| line.contains("(cut) ")));
            assert!(text.lines().is_sorted());
            assert_eq!(text, text_within(&stacks, most_bytes));
        }
        // What fits is not cut.
        let small = stacks_of(&[(large, 7)]);
        assert_eq!(
            text_within(&small, "main;larger 7\n".len()),
            "main;larger 7\n"
        );
        assert_eq!(
            text_within(&small, "main;larger 7\n".len() - 1),
            "main;(cut) 7\n"
        );
    }
}
