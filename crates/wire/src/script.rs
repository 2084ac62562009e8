//! Scripts: the tasks of one rank of an algorithm that was loaded as data.
//!
//! Made by the host out of an algorithm that it has checked as a whole, once per communicator; read by the kernel when
//! an operation asks for algorithm `file`. A script knows no sizes: where a task works is a place, what it moves is a
//! part, and both become bytes when the count is known. Spec: `docs/wire-format.md` section 7.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::launch::OpKind;
use crate::{ABI_MAJOR, ABI_MINOR, ErrorCode, digest};

/// First eight bytes of a script.
pub const MAGIC: u64 = u64::from_le_bytes(*b"AICPUSCR");
/// Entries of one script: no graph has more descriptors.
pub const MAX_ENTRIES: usize = 16_384;
/// Notifies of a main and a sub thread with which they start and join each other: as many per sub thread.
pub const JOIN_NOTIFIES: u16 = 2;

/// Head of a script, 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptHeader {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_MAJOR`].
    pub abi_major: u16,
    /// [`ABI_MINOR`].
    pub abi_minor: u16,
    /// Bytes of the script.
    pub total_len: u32,
    /// Digest of all bytes, this field as 0.
    pub digest: u64,
    /// Number of entries.
    pub count: u32,
    /// Parts that the whole (all-reduce) or every block (all others) is cut into.
    pub parts: u32,
    /// Slots of the scratch buffer, one part each, the same at all ranks.
    pub slots: u32,
    /// This rank.
    pub rank: u16,
    /// Number of ranks.
    pub ranks: u16,
    /// Threads.
    pub threads: u16,
    /// Notifies of the main thread besides the start notifies.
    pub main_notifies: u16,
    /// Notifies of each sub thread.
    pub sub_notifies: u16,
    /// [`OpKind`] number.
    pub op: u8,
    /// 1 where input and output are the same memory, else 0.
    pub in_place: u8,
    /// Zero.
    pub reserved: [u64; 2],
}
const _: () = assert!(size_of::<ScriptHeader>() == 64);

/// One task, 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ScriptEntry {
    /// What to do: a number of [`Action`].
    pub action: u8,
    /// Thread that does it.
    pub thread: u8,
    /// [`Memory`] number of the source in the low half, of the destination in the high half.
    pub memory: u8,
    /// Zero.
    pub reserved: u8,
    /// Peer, or the thread that is told.
    pub other: u16,
    /// Part that is moved.
    pub part: u16,
    /// Block or slot of the source; the notify that is set or waited for.
    pub src: u16,
    /// Block or slot of the destination.
    pub dst: u16,
    /// Step of the algorithm, for messages.
    pub step: u16,
    /// Zero.
    pub reserved1: u16,
}
const _: () = assert!(size_of::<ScriptEntry>() == 16);

/// Which buffer a place is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Memory {
    /// The user's input, by blocks.
    Input = 0,
    /// The user's output, by blocks.
    Output = 1,
    /// The scratch buffer, by slots.
    Scratch = 2,
}

/// A block of a user's buffer, of which a part is meant, or a slot of the scratch buffer, which holds one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Which buffer.
    pub memory: Memory,
    /// Block or slot.
    pub index: u16,
}

/// What an entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// 1: copies a part.
    Copy {
        /// Where to.
        dst: Place,
        /// Where from.
        src: Place,
        /// What.
        part: u16,
    },
    /// 2: reduces a part into another.
    Reduce {
        /// Where to.
        dst: Place,
        /// Where from.
        src: Place,
        /// What.
        part: u16,
    },
    /// 3, or 4 for the last of a message, which is announced: writes a part to a slot of a peer.
    Write {
        /// The peer.
        peer: u16,
        /// Its slot.
        slot: u16,
        /// Where from.
        src: Place,
        /// What.
        part: u16,
        /// Whether the peer is told that its data has landed.
        last: bool,
    },
    /// 5, 6: tells a peer that its slots are free, or that its data has been received.
    Tell {
        /// The peer.
        peer: u16,
        /// Which of the two.
        what: Told,
    },
    /// 7, 8, 9: waits until a peer has told that slots are free, that its data has landed, or that it has received.
    Await {
        /// The peer.
        peer: u16,
        /// Which of the three.
        what: Told,
    },
    /// 10: sets a notify of another thread of this rank.
    Signal {
        /// The thread.
        thread: u16,
        /// Its notify.
        notify: u16,
    },
    /// 11: waits for a notify of the thread that has the entry.
    Wait {
        /// The notify.
        notify: u16,
    },
}

/// What one rank tells another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The slots of the next message are free.
    Free,
    /// A message has landed.
    Landed,
    /// Everything that has been written was received.
    Received,
}

/// A task of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Thread that carries it out.
    pub thread: u8,
    /// Step of the algorithm.
    pub step: u16,
    /// What to do.
    pub action: Action,
}

impl Memory {
    fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Input),
            1 => Some(Self::Output),
            2 => Some(Self::Scratch),
            _ => None,
        }
    }
}

impl Instruction {
    /// Returns the entry that says this.
    #[must_use]
    pub fn entry(&self) -> ScriptEntry {
        let memory = |src: Memory, dst: Memory| src as u8 | (dst as u8) << 4;
        let moved = |action, dst: Place, src: Place, part| ScriptEntry {
            action,
            memory: memory(src.memory, dst.memory),
            part,
            src: src.index,
            dst: dst.index,
            ..ScriptEntry::new_zeroed()
        };
        let signal = |action, other, src| ScriptEntry { action, other, src, ..ScriptEntry::new_zeroed() };
        let entry = match self.action {
            Action::Copy { dst, src, part } => moved(1, dst, src, part),
            Action::Reduce { dst, src, part } => moved(2, dst, src, part),
            Action::Write { peer, slot, src, part, last } => {
                let dst = Place { memory: Memory::Scratch, index: slot };
                ScriptEntry { other: peer, ..moved(3 + u8::from(last), dst, src, part) }
            }
            Action::Tell { peer, what } => signal(if what == Told::Free { 5 } else { 6 }, peer, 0),
            Action::Await { peer, what } => {
                let number = match what {
                    Told::Free => 7,
                    Told::Landed => 8,
                    Told::Received => 9,
                };
                signal(number, peer, 0)
            }
            Action::Signal { thread, notify } => signal(10, thread, notify),
            Action::Wait { notify } => signal(11, 0, notify),
        };
        ScriptEntry { thread: self.thread, step: self.step, ..entry }
    }
}

impl ScriptEntry {
    /// Returns what this entry says; `None` for one that says nothing. Landing is never told apart from a write.
    #[inline]
    #[must_use]
    pub fn instruction(&self) -> Option<Instruction> {
        let place = |memory: u8, index| Some(Place { memory: Memory::of(memory)?, index });
        let (peer, part) = (self.other, self.part);
        let src = place(self.memory & 15, self.src);
        let dst = place(self.memory >> 4, self.dst);
        let action = match self.action {
            1 => Action::Copy { dst: dst?, src: src?, part },
            2 => Action::Reduce { dst: dst?, src: src?, part },
            3 | 4 => Action::Write { peer, slot: self.dst, src: src?, part, last: self.action == 4 },
            5 => Action::Tell { peer, what: Told::Free },
            6 => Action::Tell { peer, what: Told::Received },
            7 => Action::Await { peer, what: Told::Free },
            8 => Action::Await { peer, what: Told::Landed },
            9 => Action::Await { peer, what: Told::Received },
            10 => Action::Signal { thread: self.other, notify: self.src },
            11 => Action::Wait { notify: self.src },
            _ => return None,
        };
        Some(Instruction { thread: self.thread, step: self.step, action })
    }
}

/// A script that has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    header: &'a ScriptHeader,
    entries: &'a [ScriptEntry],
}

impl<'a> Script<'a> {
    /// Checks a script. `entries` are what follows the header, all of it.
    ///
    /// # Errors
    /// The code, and for `SCRIPT_ENTRY` the number of the first entry at fault: `SCRIPT_FORMAT` for another magic,
    /// version or length, `SCRIPT_DIGEST` for changed bytes, `SCRIPT_ENTRY` for one that says nothing, names a
    /// place, part, peer, thread or notify that there is none of, or has a field set that it does not use.
    pub fn new(header: &'a ScriptHeader, entries: &'a [ScriptEntry]) -> Result<Self, (ErrorCode, u64)> {
        let total = size_of::<ScriptHeader>() + size_of_val(entries);
        let sizes = (u32::try_from(entries.len()), u32::try_from(total));
        let known = header.magic == MAGIC && (header.abi_major, header.abi_minor) == (ABI_MAJOR, ABI_MINOR);
        let op = OpKind::try_from(header.op);
        let fields = header.reserved == [0; 2]
            && header.in_place <= 1
            && header.rank < header.ranks
            && (1..=1 << 16).contains(&header.parts)
            && header.threads > 0
            && header.slots <= 1 << 16;
        let (true, Ok(op), true) = (known && fields, op, sizes == (Ok(header.count), Ok(header.total_len)))
        else {
            return Err((ErrorCode::SCRIPT_FORMAT, 0));
        };
        if header.digest != digest_of(header, entries) {
            return Err((ErrorCode::SCRIPT_DIGEST, 0));
        }
        let blocks = Blocks::of(op, header);
        match entries.iter().position(|entry| !blocks.allow(header, entry)) {
            Some(index) => Err((ErrorCode::SCRIPT_ENTRY, index as u64)),
            None => Ok(Self { header, entries }),
        }
    }

    /// Returns a script that has been checked before and copied to memory that nobody else writes.
    #[must_use]
    pub const fn trusted(header: &'a ScriptHeader, entries: &'a [ScriptEntry]) -> Self {
        Self { header, entries }
    }

    /// Returns the header.
    #[must_use]
    pub const fn header(&self) -> &'a ScriptHeader {
        self.header
    }

    /// Returns the entries.
    #[must_use]
    pub const fn entries(&self) -> &'a [ScriptEntry] {
        self.entries
    }
}

impl ScriptHeader {
    /// Returns this header with magic, version, length, count and digest of a script with these entries.
    ///
    /// # Errors
    /// `SCRIPT_CAPACITY` for more than [`MAX_ENTRIES`].
    pub fn sealed(self, entries: &[ScriptEntry]) -> Result<Self, ErrorCode> {
        const FULL: ErrorCode = ErrorCode::SCRIPT_CAPACITY;
        let total = size_of::<Self>() + size_of_val(entries);
        let header = Self {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            total_len: u32::try_from(total).map_err(|_| FULL)?,
            count: u32::try_from(entries.len()).map_err(|_| FULL)?,
            ..self
        };
        if entries.len() > MAX_ENTRIES {
            return Err(FULL);
        }
        Ok(Self { digest: digest_of(&header, entries), ..header })
    }
}

/// Blocks of each buffer of an operation.
struct Blocks([u16; 2]);

impl Blocks {
    fn of(op: OpKind, header: &ScriptHeader) -> Self {
        let all = header.ranks;
        Self(match op {
            OpKind::AllReduce => [1, 1],
            OpKind::AllGather => [1, all],
            OpKind::ReduceScatter => [all, 1],
            OpKind::AllToAll => [all, all],
            _ => [0, 0],
        })
    }

    fn allow(&self, header: &ScriptHeader, entry: &ScriptEntry) -> bool {
        let Some(said) = entry.instruction() else { return false };
        let Instruction { thread, action, .. } = said;
        let place = |place: Place| match place.memory {
            Memory::Input => place.index < self.0[0],
            Memory::Output => place.index < self.0[1],
            Memory::Scratch => u32::from(place.index) < header.slots,
        };
        let peer = |peer: u16| peer < header.ranks && peer != header.rank;
        let part = |part: u16| u32::from(part) < header.parts;
        let notifies = |thread: u16| if thread == 0 { header.main_notifies } else { header.sub_notifies };
        let may = match action {
            Action::Copy { dst, src, part: moved } | Action::Reduce { dst, src, part: moved } => {
                place(dst) && place(src) && part(moved)
            }
            Action::Write { peer: to, slot, src, part: moved, .. } => {
                peer(to) && u32::from(slot) < header.slots && place(src) && part(moved)
            }
            Action::Tell { peer: other, .. } | Action::Await { peer: other, .. } => peer(other),
            Action::Signal { thread: told, notify } => told < header.threads && notify < notifies(told),
            Action::Wait { notify } => notify < notifies(u16::from(thread)),
        };
        // What an entry does not use is zero: one task has one entry.
        may && u16::from(thread) < header.threads && said.entry() == *entry
    }
}

/// The hash of launch arguments, over all words, not folded: each word enters by a bijection.
fn digest_of(header: &ScriptHeader, entries: &[ScriptEntry]) -> u64 {
    let head: [u64; 8] = zerocopy::transmute!(ScriptHeader { digest: 0, ..*header });
    let start = head.into_iter().fold(digest::START, digest::with);
    entries.iter().fold(start, |hash, entry| {
        let words: [u64; 2] = zerocopy::transmute!(*entry);
        words.into_iter().fold(hash, digest::with)
    })
}
