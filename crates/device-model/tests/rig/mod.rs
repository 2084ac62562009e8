//! A pair of NPUs with queues that a test fills by hand.
//!
//! The producer here is three lines of its own, on purpose: it shares no code with the crate that produces rings.

#![expect(dead_code, reason = "each test binary uses its own part of the rig")]

use core::sync::atomic::Ordering;

use aicpu_device_model::driver::{Link, Npu, QueueId, Region};
use aicpu_device_model::engine::{Budget, Engine, Progress};
use aicpu_device_model::fabric::{Fabric, FabricConfig};
use wire::npu::{self, Access, Protocol, QueueKind};
use wire::{Command, Cqe, Descriptor, DeviceAddr, ErrorCode, Labels, Operand, Phase, Sqe};
use wire::{Transfer, TransferKind, WorkRequest};
use zerocopy::IntoBytes;

pub(crate) const WINDOW: u64 = 1 << 20;

/// Labels that a test recognises in a completion.
pub(crate) const LABELS: Labels =
    Labels { task: 0x7_0000_0009, phase: Phase::Run, step: 3, peer: 5, timeout_ms: 10, complete: false };

/// A ring filled by hand.
pub(crate) struct Ring {
    pub(crate) queue: QueueId,
    base: DeviceAddr,
    depth: u64,
    tail: u64,
}

impl Ring {
    /// Writes an entry and announces it.
    pub(crate) fn push(&mut self, npu: &Npu, entry: impl Into<Descriptor>) {
        self.write(npu, entry);
        self.ring(npu);
    }

    /// Writes an entry without announcing it.
    pub(crate) fn write(&mut self, npu: &Npu, entry: impl Into<Descriptor>) {
        let slot = self.tail % self.depth;
        npu.write(DeviceAddr(self.base.0 + 64 * slot), entry.into().as_bytes()).unwrap();
        self.tail = self.tail.wrapping_add(1);
    }

    pub(crate) fn ring(&self, npu: &Npu) {
        self.ring_word(npu, self.tail & 0xffff_ffff);
    }

    pub(crate) fn ring_word(&self, npu: &Npu, word: u64) {
        npu.window().word(npu::DOORBELLS + 8 * u64::from(self.queue.0)).store(word, Ordering::Release);
    }

    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    pub(crate) fn tail_low(&self) -> u32 {
        u32::try_from(self.tail & 0xffff_ffff).unwrap()
    }

    /// The head word that the device published.
    pub(crate) fn head(&self, npu: &Npu) -> u64 {
        npu.window().word(npu::HEADS + 8 * u64::from(self.queue.0)).load(Ordering::Acquire)
    }
}

/// One NPU with its engine.
pub(crate) struct Side {
    pub(crate) npu: Npu,
    pub(crate) engine: Engine,
}

/// Creates a thread's queue.
pub(crate) fn thread(npu: &Npu, depth: u32) -> Ring {
    let queue = npu.create_queue(QueueKind::Thread, depth, 0).unwrap();
    let tail = npu.fabric().first_position();
    Ring { queue, base: npu.ring(queue).unwrap(), depth: u64::from(depth), tail }
}

/// Connects to `peer` and returns the channel's index and the queue pair's ring, if it has one.
pub(crate) fn connect(npu: &Npu, peer: u32, protocol: Protocol, depth: u32) -> (u16, Option<Ring>) {
    let channel = npu.connect(Link { peer_npu: peer, protocol, depth }).unwrap();
    let tail = npu.fabric().first_position();
    let pair = channel.queue.zip(channel.ring);
    let ring = pair.map(|(queue, base)| Ring { queue, base, depth: u64::from(depth), tail });
    (channel.index, ring)
}

/// Takes and registers memory that holds `bytes`.
pub(crate) fn buffer(npu: &Npu, bytes: &[u8], access: Access) -> Operand {
    let addr = npu.alloc(bytes.len() as u64, 64).unwrap();
    npu.write(addr, bytes).unwrap();
    let Region { token, .. } = npu.register(addr, bytes.len() as u64, access).unwrap();
    Operand { addr, token }
}

impl Side {
    pub(crate) fn thread(&self, depth: u32) -> Ring {
        thread(&self.npu, depth)
    }

    pub(crate) fn connect(&self, peer: u32, protocol: Protocol, depth: u32) -> (u16, Option<Ring>) {
        connect(&self.npu, peer, protocol, depth)
    }

    pub(crate) fn buffer(&self, bytes: &[u8], access: Access) -> Operand {
        buffer(&self.npu, bytes, access)
    }

    pub(crate) fn bytes(&self, at: Operand, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.npu.read(at.addr, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn drain(&mut self) -> Progress {
        self.engine.drain(Budget::UNLIMITED)
    }

    pub(crate) fn notify(&self, notify: u32) -> u32 {
        self.npu.window().half(npu::NOTIFIES + 4 * u64::from(notify)).load(Ordering::Acquire)
    }

    /// Drains and returns the error that stopped the NPU, checking that host and engine see the same one.
    pub(crate) fn failure(&mut self) -> Cqe {
        self.drain();
        let error = self.engine.error().expect("the NPU has stopped");
        assert_eq!(self.npu.device_error(), Some(error));
        error
    }

    /// Runs one command on a new thread and returns the code it is refused with, or success.
    pub(crate) fn outcome(&mut self, command: &Command) -> ErrorCode {
        let mut ring = self.thread(4);
        ring.push(&self.npu, command.emit(LABELS));
        self.drain();
        self.engine.error().map_or(ErrorCode::OK, |cqe| cqe.code)
    }
}

/// Two NPUs with default addresses.
pub(crate) fn pair() -> [Side; 2] {
    sides(&FabricConfig::new(2, WINDOW))
}

pub(crate) fn sides(config: &FabricConfig) -> [Side; 2] {
    let fabric = Fabric::create(config).unwrap();
    [0, 1].map(|npu| Side { npu: Npu::new(&fabric, npu), engine: Engine::new(&fabric, npu) })
}

pub(crate) const ALL: Access = Access::all();

/// A copy of `len` bytes.
pub(crate) fn copy(src: Operand, dst: Operand, len: u64) -> Transfer {
    transfer(TransferKind::Local, src, dst, len)
}

pub(crate) fn transfer(kind: TransferKind, src: Operand, dst: Operand, len: u64) -> Transfer {
    Transfer { kind, engine: wire::Engine::Sdma, reduction: None, src, dst, len, notify: None }
}

pub(crate) fn sqe(command: Command) -> Sqe {
    command.emit(LABELS)
}

pub(crate) fn wqe(request: WorkRequest) -> wire::Wqe {
    request.emit(LABELS)
}
