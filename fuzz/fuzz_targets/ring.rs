//! The device against a kernel that rings and submits anything: no panic, and no byte changes that is in no region it may
//! write; heads never pass what was announced.
#![no_main]

use core::sync::atomic::Ordering;

use aicpu_fuzz::Bytes;
use device_model::driver::{Link, Npu};
use device_model::engine::{Budget, Engine};
use device_model::fabric::{Fabric, FabricConfig};
use libfuzzer_sys::fuzz_target;
use wire::npu::{self, Access, Protocol, QueueKind};
use wire::{Descriptor, DeviceAddr, Operand};
use zerocopy::{FromZeros, IntoBytes};

const WINDOW: u64 = 1 << 19;
const REGION: usize = 256;
const DEPTH: u32 = 8;

/// Regions by NPU: one that may be read and written, one that may be read, and memory that is not registered.
struct Regions {
    operands: Vec<Operand>,
    guard: DeviceAddr,
}

fn regions(npu: &Npu) -> Regions {
    let register = |access| {
        let addr = npu.alloc(REGION as u64, 64).expect("room");
        Operand { addr, token: npu.register(addr, REGION as u64, access).expect("room").token }
    };
    let operands = [Access::all(), Access::READ | Access::PEER_READ].map(register).to_vec();
    Regions { operands, guard: npu.alloc(REGION as u64, 64).expect("room") }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = Bytes(data);
    let fabric = Fabric::create(&FabricConfig::new(2, WINDOW)).expect("memory");
    let npus = [0, 1].map(|npu| Npu::new(&fabric, npu));
    let mut engines = [0, 1].map(|npu| Engine::new(&fabric, npu));
    let known = npus.each_ref().map(regions);
    let npu = &npus[0];
    let thread = npu.create_queue(QueueKind::Thread, DEPTH, 0).expect("a queue");
    let links = [Protocol::Hccs, Protocol::Roce, Protocol::Ub];
    let channels =
        links.map(|protocol| npu.connect(Link { peer_npu: 1, protocol, depth: DEPTH }).expect("a link"));
    let mut rings = vec![(thread.0, npu.ring(thread).expect("a ring"))];
    rings.extend(
        channels.iter().filter_map(|channel| channel.queue.zip(channel.ring)).map(|(q, at)| (q.0, at)),
    );
    let read_only = known.each_ref().map(|regions| regions.operands[1].addr);
    while !bytes.is_empty() {
        let (queue, base) = bytes.one_of(&rings);
        match bytes.below(8) {
            // An entry as it comes, or with operands that exist.
            0..=3 => {
                let mut entry = Descriptor::new_zeroed();
                let taken = bytes.take(size_of::<Descriptor>());
                entry.as_mut_bytes()[..taken.len()].copy_from_slice(taken);
                let fix = bytes.byte();
                for (bit, lane, owner) in
                    [(0, 2, usize::from(fix >> 4 & 1)), (1, 3, usize::from(fix >> 5 & 1))]
                {
                    let region = known[owner].operands[usize::from(fix >> (2 + bit) & 1)];
                    if fix >> bit & 1 == 1 {
                        entry.lanes[lane] = region.addr.0 + (entry.lanes[lane] & 0x1ff);
                        let shift = 32 * bit;
                        entry.lanes[5] &= !(0xffff_ffff << shift);
                        entry.lanes[5] |= u64::from(region.token) << shift;
                    }
                }
                if fix & 0x40 != 0 {
                    entry.lanes[4] &= 0x1ff;
                }
                let slot = bytes.below(u64::from(DEPTH));
                npu.write(DeviceAddr(base.0 + 64 * slot), entry.as_bytes()).expect("in the window");
            }
            4 => bell(npu, queue, bytes.below(2 * u64::from(DEPTH))),
            5 => bell(npu, queue, bytes.word()),
            6 => npu.window().word(npu::CQ_HEAD).store(bytes.word(), Ordering::Release),
            _ => {
                let budget = Budget { descriptors: 1 + bytes.below(64), ..Budget::UNLIMITED };
                for engine in &mut engines {
                    engine.drain(budget);
                }
            }
        }
    }
    for engine in &mut engines {
        engine.drain(Budget { descriptors: 1000, ..Budget::UNLIMITED });
    }
    for (npu, (regions, read_only)) in npus.iter().zip(known.iter().zip(read_only)) {
        for at in [regions.guard, read_only] {
            let mut found = [0; REGION];
            npu.read(at, &mut found).expect("in the window");
            assert_eq!(found, [device_model::driver::POISON; REGION], "nobody may write there");
        }
    }
});

fn bell(npu: &Npu, queue: u16, tail: u64) {
    npu.window().word(npu::DOORBELLS + 8 * u64::from(queue)).store(tail, Ordering::Release);
}
