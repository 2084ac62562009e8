//! What a descriptor costs the device, and what vectors are worth to a kernel.
//!
//! `cargo bench -p aicpu-device-model --bench device`

use core::sync::atomic::Ordering;

use aicpu_device_model::driver::{Npu, Region};
use aicpu_device_model::engine::{Budget, Engine};
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use wire::npu::{self, Access, QueueKind};
use wire::{Command, DeviceAddr, Engine as Mover, Labels, Operand, Phase, Sqe, Transfer, TransferKind};
use zerocopy::IntoBytes;

const LABELS: Labels =
    Labels { task: 1, phase: Phase::Run, step: 0, peer: 0, timeout_ms: 1000, complete: false };
const DEPTH: u32 = 2048;
/// Entries per measured turn; two turns fill the ring once.
const BATCH: u32 = 1024;

fn copy(src: Operand, dst: Operand, len: u64) -> Command {
    let (kind, engine) = (TransferKind::Local, Mover::Sdma);
    Command::Transfer(Transfer { kind, engine, reduction: None, src, dst, len, notify: None })
}

/// Fills a whole ring with pairs of entries once, then announces and drains half of it per turn.
fn drain(bench: &mut Criterion, name: &str, entries: [Command; 2]) {
    let fabric = Fabric::create(&FabricConfig::new(1, 4 << 20)).expect("shared memory");
    let (npu, mut engine) = (Npu::new(&fabric, 0), Engine::new(&fabric, 0));
    let queue = npu.create_queue(QueueKind::Thread, DEPTH, 0).expect("a queue");
    let ring = npu.ring(queue).expect("its ring");
    let buffer = npu.alloc(4096, 64).expect("memory");
    let Region { token, .. } = npu.register(buffer, 4096, Access::all()).expect("a region");
    for slot in 0..DEPTH {
        let mut sqe: Sqe = entries[slot as usize % 2].emit(LABELS);
        if sqe.opcode == Sqe::COPY {
            (sqe.src, sqe.src_token, sqe.dst, sqe.dst_token) = (buffer.0, token, buffer.0 + 2048, token);
        }
        npu.write(DeviceAddr(ring.0 + 64 * u64::from(slot)), sqe.as_bytes()).expect("inside the ring");
    }
    let doorbell = npu.window().word(npu::DOORBELLS + 8 * u64::from(queue.0));
    let mut tail = 0_u32;
    let mut group = bench.benchmark_group("drain");
    group.throughput(Throughput::Elements(u64::from(BATCH)));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            tail = tail.wrapping_add(BATCH);
            doorbell.store(u64::from(tail), Ordering::Release);
            let progress = engine.drain(Budget::UNLIMITED);
            assert_eq!(progress.executed, u64::from(BATCH), "{:?}", engine.error());
        });
    });
    group.finish();
}

fn descriptors(bench: &mut Criterion) {
    let nowhere = Operand::default();
    drain(bench, "record_wait", [Command::Record { notify: 1 }, Command::Wait { notify: 1 }]);
    drain(bench, "copy_8_bytes", [copy(nowhere, nowhere, 8), copy(nowhere, nowhere, 8)]);
}

criterion_group!(benches, descriptors);
criterion_main!(benches);
