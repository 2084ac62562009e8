//! One exchange among 8 NPUs, from the doorbells to the last host notify, without a kernel.
//!
//! `cargo bench -p aicpu-device-model --bench machine`
//!
//! The exchange is the pattern of a butterfly all-reduce, run twice over: 32 entries on each NPU.

use core::sync::atomic::Ordering;

use aicpu_device_model::driver::{Link, Npu, QueueId};
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use aicpu_device_model::machine::{Machine, MachineConfig, Outcome};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use wire::npu::{self, Access, Protocol, QueueKind};
use wire::{Command, DeviceAddr, Engine, Labels, Operand, Phase, Transfer, TransferKind};
use zerocopy::IntoBytes;

const LABELS: Labels =
    Labels { task: 1, phase: Phase::Run, step: 0, peer: 0, timeout_ms: 1000, complete: false };
const NPUS: u32 = 8;
const ROUNDS: u32 = 6;
/// Entries of one exchange on each NPU: 5 a round and 2 records for the host.
const ENTRIES: u32 = 5 * ROUNDS + 2;

/// One NPU: where it sends from, where it receives, and its ring.
struct Member {
    npu: Npu,
    send: Operand,
    receive: Operand,
    queue: u16,
    tail: u32,
}

impl Member {
    fn new(fabric: &Fabric, rank: u32, bytes: u64) -> Self {
        let npu = Npu::new(fabric, rank);
        let [send, receive] = [(), ()].map(|()| {
            let addr = npu.alloc(bytes, 64).expect("memory");
            let token = npu.register(addr, bytes, Access::all()).expect("a region").token;
            Operand { addr, token }
        });
        let queue = npu.create_queue(QueueKind::Thread, ENTRIES, 0).expect("a queue").0;
        Self { npu, send, receive, queue, tail: 0 }
    }

    /// Fills the ring: acknowledge, wait, write with notify, wait, copy.
    fn fill(&self, members: &[Self], bytes: u64) {
        let mut entries = Vec::new();
        for round in 0..ROUNDS {
            let peer_npu = self.npu.index() ^ (1 << (round % 3));
            let link = Link { peer_npu, protocol: Protocol::Hccs, depth: 0 };
            let channel = self.npu.connect(link).expect("a channel").index;
            let (acknowledged, landed) = (2 * round, 2 * round + 1);
            let transfer = |kind, src, dst, notify| {
                let (engine, reduction) = (Engine::Sdma, None);
                Command::Transfer(Transfer { kind, engine, reduction, src, dst, len: bytes, notify })
            };
            let there = members[peer_npu as usize].receive;
            entries.push(Command::RecordPeer { channel, notify: acknowledged });
            entries.push(Command::Wait { notify: acknowledged });
            entries.push(transfer(TransferKind::Write { channel }, self.send, there, Some(landed)));
            entries.push(Command::Wait { notify: landed });
            entries.push(transfer(TransferKind::Local, self.receive, self.send, None));
        }
        entries.extend([Command::RecordHost { notify: 0 }, Command::RecordHost { notify: 1 }]);
        let ring = self.npu.ring(QueueId(self.queue)).expect("a ring");
        for (slot, entry) in (0..).zip(&entries) {
            let at = DeviceAddr(ring.0 + 64 * slot);
            self.npu.write(at, entry.emit(LABELS).as_bytes()).expect("inside the ring");
        }
    }

    fn start(&mut self) {
        self.tail = self.tail.wrapping_add(ENTRIES);
        let doorbell = self.npu.window().word(npu::DOORBELLS + 8 * u64::from(self.queue));
        doorbell.store(u64::from(self.tail), Ordering::Release);
    }
}

fn exchange(bench: &mut Criterion) {
    let mut group = bench.benchmark_group("exchange_8_npus");
    for bytes in [8, 4 << 10, 64 << 10, 1 << 20, 8 << 20] {
        let fabric = Fabric::create(&FabricConfig::new(NPUS, (1 << 20) + 2 * bytes.max(1 << 16)));
        let fabric = fabric.expect("shared memory");
        let mut members: Vec<_> = (0..NPUS).map(|rank| Member::new(&fabric, rank, bytes)).collect();
        members.iter().for_each(|member| member.fill(&members, bytes));
        for helpers in [0, 1] {
            let machine = Machine::new(&fabric, MachineConfig { helpers });
            members.iter_mut().for_each(|member| member.tail = 0);
            restart(&members);
            let mut count = members[0].npu.host_notify_count(1);
            group.throughput(Throughput::Bytes(2 * bytes * u64::from(NPUS * ROUNDS)));
            group.bench_function(BenchmarkId::new(format!("{helpers}_helpers"), bytes), |bencher| {
                bencher.iter(|| {
                    members.iter_mut().for_each(Member::start);
                    count += 1;
                    let done = || members.iter().all(|member| member.npu.host_notify_count(1) == count);
                    assert_eq!(machine.run_until(done, None), Outcome::Done);
                });
            });
        }
    }
    group.finish();
}

/// Sets the words of the rings back: a new machine starts at position 0.
fn restart(members: &[Member]) {
    for member in members {
        let window = member.npu.window();
        window.word(npu::DOORBELLS + 8 * u64::from(member.queue)).store(0, Ordering::Release);
    }
}

criterion_group!(benches, exchange);
criterion_main!(benches);
