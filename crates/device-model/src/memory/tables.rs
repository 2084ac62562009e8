//! The fixed tables at the beginning of every window, as slices: an index that a table has is inside the window.

// UNSAFETY: as in `memory`, of which this is a part.
#![expect(unsafe_code, reason = "makes slices of a checked stretch of the mapping")]

use core::slice;
use core::sync::atomic::{AtomicU32, AtomicU64};

use wire::npu;

use super::Window;

/// A 32-byte entry of a table that the host writes.
pub(crate) type Slot = [AtomicU64; 4];

/// What may be shared with whoever maps the same memory, whatever bytes are there.
///
/// # Safety
/// The type consists of atomics, without padding; any bytes are one, and its alignment divides that of a line, 64.
unsafe trait Shared {}
// SAFETY: an atomic, aligned to 4 bytes.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic, aligned to 8 bytes.
unsafe impl Shared for AtomicU64 {}
// SAFETY: an array consists of its elements, without padding, and is aligned as they are.
unsafe impl Shared for Slot {}

impl Window {
    /// Returns the notifies.
    #[inline]
    pub(crate) fn notifies(&self) -> &[AtomicU32] {
        self.table::<_, { npu::NOTIFIES }, { npu::MAX_NOTIFIES }>()
    }

    /// Returns the entries of the regions.
    #[inline]
    pub(crate) fn regions(&self) -> &[Slot] {
        self.table::<_, { npu::REGIONS }, { npu::MAX_REGIONS }>()
    }

    /// Returns the entries of the channels.
    #[inline]
    pub(crate) fn channels(&self) -> &[Slot] {
        self.table::<_, { npu::CHANNELS }, { npu::MAX_CHANNELS }>()
    }

    /// Returns the entries of the queues.
    #[inline]
    pub(crate) fn queues(&self) -> &[Slot] {
        self.table::<_, { npu::QUEUES }, { npu::MAX_QUEUES }>()
    }

    /// Returns the doorbells.
    #[inline]
    pub(crate) fn doorbells(&self) -> &[AtomicU64] {
        self.table::<_, { npu::DOORBELLS }, { npu::MAX_QUEUES }>()
    }

    /// Returns the heads.
    #[inline]
    pub(crate) fn heads(&self) -> &[AtomicU64] {
        self.table::<_, { npu::HEADS }, { npu::MAX_QUEUES }>()
    }

    /// Returns the notifies that the host waits for.
    #[inline]
    pub(crate) fn host_notifies(&self) -> &[AtomicU64] {
        self.table::<_, { npu::HOST_NOTIFY }, { npu::HOST_NOTIFIES }>()
    }

    /// Returns the table of `COUNT` entries that begins at `AT`.
    // CAST: both are below `HEAP`, checked when this is compiled.
    #[expect(clippy::cast_possible_truncation, reason = "a table lies before the heap")]
    #[inline(always)]
    fn table<T: Shared, const AT: u64, const COUNT: u64>(&self) -> &[T] {
        const {
            assert!(AT.is_multiple_of(64), "a table begins at a line");
            assert!(
                AT < npu::HEAP && COUNT <= (npu::HEAP - AT) / size_of::<T>() as u64,
                "and ends before the heap"
            );
        }
        // SAFETY: a window has more than `HEAP` bytes from `first` on, checked in `new`, and `AT` is less.
        let first = unsafe { self.first.as_ptr().add(AT as usize) }.cast::<T>();
        // SAFETY:
        // 1. The `COUNT` entries end before `HEAP`; all that is part of one mapping, which outlives the borrow of `self`.
        // 2. Window and table begin at lines, which are aligned enough for what is `Shared`; any bytes are some.
        // 3. All of it are atomics: others may change them while shared references exist, from other processes too.
        unsafe { slice::from_raw_parts(first, COUNT as usize) }
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use wire::npu;

    use crate::fabric::{Fabric, FabricConfig};

    /// The first and the last entry of each table are the words at these offsets of the specification.
    #[test]
    fn tables_are_where_the_specification_puts_them() {
        let fabric = Fabric::create(&FabricConfig::new(2, npu::HEAP + 0x1_0000)).unwrap();
        let window = fabric.window(1);
        let words = [
            (window.host_notifies(), 0x2400, 64),
            (window.doorbells(), 0x3000, 512),
            (window.heads(), 0x4000, 512),
        ];
        let mut value = 0;
        for (table, at, count) in words {
            assert_eq!(table.len(), count, "{at:#x}");
            for index in [0, count - 1] {
                value += 1;
                window.word(at + 8 * index as u64).store(value, Ordering::Relaxed);
                assert_eq!(table[index].load(Ordering::Relaxed), value, "{at:#x}");
            }
        }
        let slots = [
            (window.regions(), 0x1_a000, 1024),
            (window.channels(), 0x2_2000, 1024),
            (window.queues(), 0x2_a000, 512),
        ];
        for (table, at, count) in slots {
            assert_eq!(table.len(), count, "{at:#x}");
            for (index, word) in [(0, 0), (0, 3), (count - 1, 0), (count - 1, 3)] {
                value += 1;
                window.word(at + 32 * index as u64 + 8 * word as u64).store(value, Ordering::Relaxed);
                assert_eq!(table[index][word].load(Ordering::Relaxed), value, "{at:#x}");
            }
        }
        let notifies = window.notifies();
        assert_eq!(notifies.len(), 8192);
        for index in [0, 8191] {
            window.half(0x1_2000 + 4 * index as u64).store(7, Ordering::Relaxed);
            assert_eq!(notifies[index].swap(0, Ordering::Relaxed), 7);
        }
    }
}
