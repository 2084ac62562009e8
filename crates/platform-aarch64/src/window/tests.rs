extern crate std;

use core::ptr::NonNull;
use std::boxed::Box;
use std::vec::Vec;

use hal::SharedMemory;
use wire::{DeviceAddr, ErrorCode, npu};

use super::Window;

const BASE: u64 = 0x12_0000_0000;

/// Leaks a window at [`BASE`] with a heap of `pages` pages.
pub(crate) fn window(pages: usize) -> Window {
    let pages = pages + usize::try_from(npu::HEAP).unwrap() / 4096;
    #[repr(C, align(4096))]
    #[derive(Clone)]
    struct Page([u8; 4096]);
    let memory: &'static mut [Page] =
        Box::leak(Vec::from_iter((0..pages).map(|_| Page([0; 4096]))).into_boxed_slice());
    let base = NonNull::from(&mut *memory).cast::<u8>();
    // SAFETY: the memory is leaked, so it lives for ever, and its only reference ends here.
    unsafe { Window::new(base, pages * 4096, DeviceAddr(BASE)) }.expect("aligned to a page")
}

fn at(offset: u64) -> DeviceAddr {
    DeviceAddr(BASE + offset)
}

#[test]
fn bytes_come_back_whatever_their_alignment() {
    let mut window = window(1);
    for offset in 0..17 {
        for len in 0..40_u8 {
            let written: Vec<u8> = (0..len).map(|i| i.wrapping_mul(7) ^ 0x5a).collect();
            window.write(at(offset), &written).unwrap();
            let mut read = Vec::from_iter((0..len).map(|_| 0xee));
            window.read(at(offset), &mut read).unwrap();
            assert_eq!(read, written, "{len} bytes at {offset}");
        }
    }
    window.store(at(64), 0x0807_0605_0403_0201).unwrap();
    let mut bytes = [0; 3];
    window.read(at(66), &mut bytes).unwrap();
    assert_eq!((bytes, window.load(at(64))), ([3, 4, 5], Ok(0x0807_0605_0403_0201)));
}

#[test]
fn nothing_outside_the_window_is_touched() {
    let mut window = window(2);
    let outside = Err(ErrorCode::CONTEXT_ADDRESS);
    let end = npu::HEAP + 8192;
    assert_eq!(window.load(at(end - 8)), Ok(0));
    assert_eq!(window.write(at(end - 1), &[1]), Ok(()));
    for address in [DeviceAddr(0), DeviceAddr(BASE - 8), at(end), at(end - 7), at(u64::MAX - BASE), at(1)] {
        assert_eq!(window.load(address), Err(ErrorCode::CONTEXT_ADDRESS), "{address:?}");
        assert_eq!(window.store(address, 1), outside, "{address:?}");
    }
    assert_eq!(window.read(at(end - 1), &mut [0; 2]), outside);
    assert_eq!(window.write(at(end - 2), &[0; 3]), outside);
    assert_eq!(window.read(DeviceAddr(BASE - 1), &mut [0; 2]), outside);
}

#[test]
fn entries_come_from_the_heap_only() {
    let mut window = window(1);
    let (heap, end) = (npu::HEAP, npu::HEAP + 4096);
    let outside =
        [(heap - 64, 1), (heap - 64, 2), (heap + 32, 1), (end, 1), (end - 64, 2), (heap, usize::MAX), (0, 1)];
    for (offset, count) in outside {
        // SAFETY: this test is the only party.
        let refused = unsafe { window.entries(at(offset), count) }.map(|entries| entries.len());
        assert_eq!(refused, Err(ErrorCode::CONTEXT_ADDRESS), "{count} at {offset:#x}");
    }
    window.write(at(heap + 128 + 63), &[9]).unwrap();
    // SAFETY: this test is the only party.
    let entries = unsafe { window.entries(at(heap + 64), 2) }.unwrap();
    assert_eq!((entries.len(), zerocopy::IntoBytes::as_bytes(&entries[1])[63]), (2, 9));
}

#[test]
fn tables_end_where_the_heap_begins() {
    let window = window(1);
    assert!(window.table_word(npu::HEAP - 8).is_ok());
    assert!(window.table_bytes(npu::HEAP - 3, 3).is_ok());
    for offset in [npu::HEAP, npu::HEAP - 4, 4, u64::MAX] {
        assert_eq!(window.table_word(offset).map(|_| ()), Err(ErrorCode::CONTEXT_ADDRESS), "{offset:#x}");
    }
    assert!(window.table_bytes(npu::HEAP - 3, 4).is_err());
}
