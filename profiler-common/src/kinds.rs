//! The kinds of time that are divided among stacks, and what of them a stack holds
//! (docs/semantics.md section 4).
//!
//! Exact totals exist per thread and kind; a stack holds *marks*, or exact waits. Both are additive
//! over time, threads and stacks. The product of the two is made once, for a report (`division`).

/// Nanoseconds of waiting by class: blocked, runnable.
pub type WaitNs = [u64; WAITS];
/// The classes of waiting.
pub const WAITS: usize = 2;
/// Index of [`WaitNs`]: blocked.
pub const BLOCKED: usize = 0;
/// Index of [`WaitNs`]: runnable.
pub const RUNNABLE: usize = 1;

/// What a timer tick found. The values are indexes.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tick {
    /// User mode, of a thread whose system calls are traced.
    User = 0,
    /// Kernel mode outside any system call: a page fault, an interrupt, the way into or out of a
    /// call.
    Fault = 1,
    /// The inside of a system call. Divides its kernel functions only: the call's running time has
    /// marks of its own.
    Call = 2,
    /// As [`Tick::User`], of a thread whose system calls are not traced.
    UntracedUser = 3,
    /// As [`Tick::Fault`], of such a thread.
    UntracedFault = 4,
    /// As [`Tick::Call`], of such a thread: a mark of its untraced time.
    UntracedCall = 5,
    /// A kernel thread.
    Kernel = 6,
}

/// How many kinds of ticks there are.
pub const TICKS: usize = 7;

impl Tick {
    /// All, in the order of their values.
    pub const ALL: [Self; TICKS] = [
        Self::User,
        Self::Fault,
        Self::Call,
        Self::UntracedUser,
        Self::UntracedFault,
        Self::UntracedCall,
        Self::Kernel,
    ];
}

/// A kind of time that is divided by marks. The values are indexes into [`KindNs`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Running outside calls, where calls are traced. Marks: [`Tick::User`] and [`Tick::Fault`].
    User = 0,
    /// Running where calls are not traced. Marks: the three ticks of such threads.
    Untraced = 1,
    /// Kernel threads' running. Marks: [`Tick::Kernel`].
    Kernel = 2,
    /// Running inside system calls. Marks: [`Primary::marks`].
    Call = 3,
    /// Waits inside a call whose switch-out was not walked, blocked. Marks: [`Primary::marks`].
    CallBlocked = 4,
    /// The same, runnable.
    CallRunnable = 5,
    /// Waits outside any call, shorter than a second, blocked. Marks: [`Primary::weighted`].
    OutsideBlocked = 6,
    /// The same, runnable.
    OutsideRunnable = 7,
}

/// How many kinds there are.
pub const KINDS: usize = 8;

/// Nanoseconds by [`Kind`]: exact totals. Waits that a stack has exactly are in none of them.
pub type KindNs = [u64; KINDS];

impl Kind {
    /// All, in the order of their values.
    pub const ALL: [Self; KINDS] = [
        Self::User,
        Self::Untraced,
        Self::Kernel,
        Self::Call,
        Self::CallBlocked,
        Self::CallRunnable,
        Self::OutsideBlocked,
        Self::OutsideRunnable,
    ];
}

/// Index of [`Primary::marks`]: running inside a call.
pub const MARK_CALL: usize = 0;
/// Index of [`Primary::marks`]: an unwalked wait inside a call, in its blocked part.
pub const MARK_BLOCKED: usize = 1;
/// Index of [`Primary::marks`]: the same, in its runnable part.
pub const MARK_RUNNABLE: usize = 2;
/// Kinds of marks at gaps.
pub const MARKS: usize = 3;

/// What one stack holds: marks by kind, and the waits that are exactly its own. All of it is
/// additive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "user", derive(serde::Serialize, serde::Deserialize))]
pub struct Primary {
    /// Ticks by what they found ([`Tick`]); one that was walked for several of which only some are
    /// stands for them.
    pub ticks: [u64; TICKS],
    /// Marks at drawn gaps ([`MARK_CALL`], [`MARK_BLOCKED`], [`MARK_RUNNABLE`]).
    pub marks: [u64; MARKS],
    /// Waits that are exactly this stack's, nanoseconds.
    pub exact: WaitNs,
    /// Waits outside calls that were walked with chance 1/k: k times their length, nanoseconds.
    pub weighted: WaitNs,
    /// Sums of the squares of these weights, in square milliseconds, each rounded by chance;
    /// saturating.
    pub squares_ms2: WaitNs,
    /// What marks that stand for several add to the variance of their sum, beyond 1 each, by kind:
    /// where a walk stood for k and m marks had fallen by then, m² k (k - 1); saturating.
    pub excess: [u64; MARKS],
    /// What ticks that stand for several add to the variance of their sum, beyond 1 each, all kinds
    /// together: k (k - 1) for one that stands for k; saturating.
    pub tick_excess: u64,
    /// Walks of this stack, ticks included.
    pub walks: u64,
}

impl Primary {
    /// Timer ticks of every kind: samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.ticks
            .iter()
            .fold(0, |sum, ticks| sum.saturating_add(*ticks))
    }

    /// Adds `other` to every number.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        add_each(&mut self.ticks, &other.ticks);
        add_each(&mut self.marks, &other.marks);
        add_each(&mut self.exact, &other.exact);
        add_each(&mut self.weighted, &other.weighted);
        add_each(&mut self.squares_ms2, &other.squares_ms2);
        add_each(&mut self.excess, &other.excess);
        self.tick_excess = self.tick_excess.saturating_add(other.tick_excess);
        self.walks = self.walks.saturating_add(other.walks);
    }

    /// Takes `other` away as far as it is there; what is not stays in `other`.
    pub fn take(&mut self, other: &mut Self) {
        for (from, wanted) in self.numbers_mut().into_iter().zip(other.numbers_mut()) {
            let part = (*from).min(*wanted);
            *from -= part;
            *wanted -= part;
        }
    }

    /// All numbers, in the order of the fields.
    #[must_use]
    pub fn numbers(&self) -> [u64; NUMBERS] {
        let mut all = [0; NUMBERS];
        let parts: [&[u64]; 8] = [
            &self.ticks,
            &self.marks,
            &self.exact,
            &self.weighted,
            &self.squares_ms2,
            &self.excess,
            core::slice::from_ref(&self.tick_excess),
            core::slice::from_ref(&self.walks),
        ];
        for (to, from) in all.iter_mut().zip(parts.into_iter().flatten()) {
            *to = *from;
        }
        all
    }

    /// The same, to be changed.
    pub fn numbers_mut(&mut self) -> [&mut u64; NUMBERS] {
        let [t0, t1, t2, t3, t4, t5, t6] = &mut self.ticks;
        let [m0, m1, m2] = &mut self.marks;
        let [e0, e1] = &mut self.exact;
        let [w0, w1] = &mut self.weighted;
        let [s0, s1] = &mut self.squares_ms2;
        let [x0, x1, x2] = &mut self.excess;
        [
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            m0,
            m1,
            m2,
            e0,
            e1,
            w0,
            w1,
            s0,
            s1,
            x0,
            x1,
            x2,
            &mut self.tick_excess,
            &mut self.walks,
        ]
    }
}

#[inline]
fn add_each<const N: usize>(to: &mut [u64; N], from: &[u64; N]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = to.saturating_add(*from);
    }
}

/// How many numbers a [`Primary`] has.
pub const NUMBERS: usize = TICKS + 2 * MARKS + 3 * WAITS + 2;

/// What `marks` that have fallen since the last walk add to [`Primary::excess`] where the walk
/// stands for `1 << shift`.
#[must_use]
#[inline(always)]
pub const fn excess(marks: u64, shift: u32) -> u64 {
    let weight = marks << shift;
    if shift == 0 {
        0
    } else if weight > u32::MAX as u64 {
        u64::MAX
    } else {
        weight * (weight - marks)
    }
}
