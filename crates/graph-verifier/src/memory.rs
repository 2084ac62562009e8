//! What every byte holds and who touched it last: ordered lists of fragments, one list for each memory.

use core::ops::Range;

use crate::clocks::Moment;
use crate::value::Value;

/// A list of reads, as an index into [`Reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadList(u32);

impl ReadList {
    pub(crate) const NONE: Self = Self(0);
}

/// Lists of reads that share their tails.
pub(crate) struct Reads(Vec<(Moment, ReadList)>);

impl Reads {
    pub(crate) fn new() -> Self {
        Self(vec![(Moment::NEVER, ReadList::NONE)])
    }

    /// Returns the list with one more read. An earlier one of the same queue at its head is ordered before it anyway.
    #[inline]
    fn with(&mut self, list: ReadList, moment: Moment) -> ReadList {
        let (head, tail) = self.0[list.0 as usize];
        if head == moment {
            return list;
        }
        let rest = if list != ReadList::NONE && head.queue == moment.queue { tail } else { list };
        self.0.push((moment, rest));
        ReadList(u32::try_from(self.0.len() - 1).unwrap_or(0))
    }

    /// Returns the first read in a list that `wanted` picks.
    #[inline]
    pub(crate) fn find(&self, mut list: ReadList, wanted: impl Fn(Moment) -> bool) -> Option<Moment> {
        while list != ReadList::NONE {
            let (moment, rest) = self.0[list.0 as usize];
            if wanted(moment) {
                return Some(moment);
            }
            list = rest;
        }
        None
    }
}

/// Bytes that hold one value, were written by one task, and read by the same ones since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// One behind its last byte; it begins where the one before ends.
    pub(crate) end: u64,
    /// The byte at `p` holds `value` at input offset `p + shift`.
    pub(crate) shift: i64,
    pub(crate) value: Value,
    /// The operation whose bytes these are.
    pub(crate) operation: u32,
    pub(crate) writer: Moment,
    pub(crate) reads: ReadList,
}

/// One memory.
pub(crate) struct Memory {
    fragments: Vec<Fragment>,
}

impl Memory {
    pub(crate) fn new(len: u64) -> Self {
        let nothing = Fragment {
            end: len,
            shift: 0,
            value: Value::UNDEFINED,
            operation: 0,
            writer: Moment::NEVER,
            reads: ReadList::NONE,
        };
        Self { fragments: if len == 0 { Vec::new() } else { vec![nothing] } }
    }

    /// Cuts fragments so that some begin and end with `bytes`, which are not empty and inside; returns which.
    #[inline]
    pub(crate) fn cut(&mut self, bytes: Range<u64>) -> Range<usize> {
        let list = &mut self.fragments;
        let mut first = list.partition_point(|fragment| fragment.end <= bytes.start);
        if self_start(list, first) < bytes.start {
            let head = Fragment { end: bytes.start, ..list[first] };
            list.insert(first, head);
            first += 1;
        }
        let mut last = first;
        while list[last].end < bytes.end {
            last += 1;
        }
        if list[last].end > bytes.end {
            let head = Fragment { end: bytes.end, ..list[last] };
            list.insert(last, head);
        }
        first..last + 1
    }

    pub(crate) fn start(&self, index: usize) -> u64 {
        self_start(&self.fragments, index)
    }

    pub(crate) fn get(&self, range: Range<usize>) -> &[Fragment] {
        &self.fragments[range]
    }

    /// Notes a read of some fragments.
    #[inline]
    pub(crate) fn note_read(&mut self, range: Range<usize>, reads: &mut Reads, moment: Moment) {
        for fragment in &mut self.fragments[range] {
            fragment.reads = reads.with(fragment.reads, moment);
        }
    }

    /// Puts other fragments, which end where those do, in the place of some.
    #[inline]
    pub(crate) fn replace(&mut self, range: Range<usize>, fresh: &[Fragment]) {
        if range.len() == fresh.len() {
            self.fragments[range].copy_from_slice(fresh);
        } else {
            self.fragments.splice(range, fresh.iter().copied());
        }
    }
}

#[inline]
fn self_start(list: &[Fragment], index: usize) -> u64 {
    if index == 0 { 0 } else { list[index - 1].end }
}
