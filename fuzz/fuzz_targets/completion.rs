//! The kernel's ends of the rings against a device that writes anything: heads that cannot be are refused, no slot is
//! written that is not free, and what was not submitted completes nothing.
#![no_main]

use core::sync::atomic::Ordering;

use aicpu_fuzz::Bytes;
use device_model::fabric::{Fabric, FabricConfig};
use device_model::platform::ModelPlatform;
use libfuzzer_sys::fuzz_target;
use ring::{Completions, SubmissionRing};
use wire::npu::{COMPLETIONS, CQ_DEPTH, HEADS, HEAP};
use wire::{Cqe, Descriptor, DeviceAddr};

const QUEUE: u16 = 3;

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let fabric = Fabric::create(&FabricConfig::new(1, 1 << 19)).expect("memory");
    let mut platform = ModelPlatform::new(&fabric, 0);
    let window = fabric.window(0);
    let depth = 1 << bytes.below(4);
    let start = u64::from(u32::MAX) - bytes.below(8);
    let at = DeviceAddr(window.base().0 + HEAP);
    let mut ring = SubmissionRing::starting_at(QUEUE, at, depth, start);
    let mut completions = Completions::new();
    let mut expected = Vec::new();
    while !bytes.is_empty() {
        match bytes.below(6) {
            // The device: heads and completions as it likes.
            0 => window.word(HEADS + 8 * u64::from(QUEUE)).store(bytes.word(), Ordering::Release),
            1 => {
                let head = (ring.tail() - bytes.below(u64::from(depth) + 2)) & 0xffff_ffff;
                window.word(HEADS + 8 * u64::from(QUEUE)).store(head, Ordering::Release);
            }
            2 => {
                let words = [0; 4].map(|_| bytes.word());
                let slot = bytes.below(CQ_DEPTH);
                for (word, at) in words.into_iter().zip(0..) {
                    let place = COMPLETIONS + slot * size_of::<Cqe>() as u64 + 8 * at;
                    window.word(place).store(word, Ordering::Release);
                }
            }
            // The kernel.
            3 => {
                let (before, head) = (ring.tail(), ring.head());
                let written = ring.fill(&mut platform, bytes.below(20) as u32, |slots| {
                    slots.fill(Descriptor { lanes: [7; 8] });
                    slots.len()
                });
                if let Ok(written) = written {
                    assert_eq!(ring.tail(), before + u64::from(written));
                    assert!(ring.tail() - ring.head() <= u64::from(depth), "more than the ring holds");
                } else {
                    assert_eq!((ring.tail(), ring.head()), (before, head), "what is refused is not used");
                }
                let announced = ring.announce(&mut platform).expect("its own window");
                assert!(u64::from(announced.entries) <= u64::from(depth));
            }
            4 => {
                let task = bytes.below(8);
                if completions.expect(task).is_ok() {
                    expected.push(task);
                }
            }
            _ => {
                let before = completions.outstanding();
                let seen = completions.poll(&mut platform).expect("its own window");
                let gone = before - completions.outstanding();
                let named = seen.is_some_and(|cqe| cqe.code.is_ok() && expected.contains(&cqe.task));
                assert_eq!(gone > 0, named, "only what was submitted completes");
                expected.retain(|task| !(named && seen.is_some_and(|cqe| cqe.task == *task)));
                assert_eq!(expected.len(), completions.outstanding());
            }
        }
    }
    // Nothing beyond the ring was written.
    let mut behind = [0; 64];
    window.read(HEAP + 64 * u64::from(depth), &mut behind);
    assert_eq!(behind, [0; 64]);
});
