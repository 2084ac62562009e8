//! The platform of a kernel in a simulation: a core whose stores become visible late.
//!
//! Memory, checks and clock are those of [`ModelPlatform`]; between it and the window lies a
//! [store buffer](crate::simulation::store_buffer).

#![expect(unsafe_code, reason = "implements an unsafe trait of hal")]

use core::cell::Cell;

use hal::{Clock, DmaFence, Doorbell, Platform, Rebase, SharedMemory, Trace};
use wire::{BASES, Base, DESCRIPTOR_BYTES, Descriptor, DeviceAddr, ErrorCode, TraceEvent, npu};
use zerocopy::IntoBytes;

use super::ModelPlatform;
use crate::fabric::Fabric;
use crate::simulation::Simulation;

/// Platform of the kernel of one NPU of a simulated fabric.
#[derive(Debug)]
pub struct SimulatedPlatform {
    model: ModelPlatform,
    fabric: Fabric,
    npu: u32,
    /// Entries handed out for writing, as they were and as they are.
    entries: [Vec<Descriptor>; 2],
    /// Where they lie, until they are stored.
    open: Cell<Option<u64>>,
}

impl SimulatedPlatform {
    /// Returns the platform of an NPU's kernel; `None` where the fabric is not simulated.
    ///
    /// # Panics
    /// When the fabric has no such NPU.
    #[must_use]
    pub fn new(fabric: &Fabric, npu: u32) -> Option<Self> {
        let simulation = fabric.simulation()?;
        // What a former kernel had not stored is gone with it.
        simulation.stores(npu).clear();
        let (model, fabric) = (ModelPlatform::new(fabric, npu), fabric.clone());
        Some(Self { model, fabric, npu, entries: [Vec::new(), Vec::new()], open: Cell::new(None) })
    }

    fn simulation(&self) -> &Simulation {
        // PANIC: `new` found it, and a fabric keeps it.
        self.fabric.simulation().expect("a simulated fabric stays one")
    }

    /// Stores the entries that were handed out: whoever wrote them has given them back by now.
    fn close(&self) {
        let Some(first) = self.open.take() else { return };
        let mut stores = self.simulation().stores(self.npu);
        let [before, after] = &self.entries;
        for (offset, (before, after)) in (first..).step_by(DESCRIPTOR_BYTES).zip(before.iter().zip(after)) {
            if before.lanes != after.lanes {
                stores.entry(offset, *after);
            }
        }
    }

    fn word(&mut self, word: DeviceAddr, value: u64, is_release: bool) -> Result<(), ErrorCode> {
        self.close();
        let offset = self.model.word(word)?;
        self.simulation().stores(self.npu).word(offset, value, is_release);
        Ok(())
    }
}

// SAFETY:
// 1. The window is that of a `ModelPlatform`, which upholds it.
// 2. `load` and `read` go to it; stores reach it through `Window`, whose words are atomics, later but in an order that
//    a release store allows.
// 3. `entries` hands out memory of this process alone; it borrows `self` mutably, so two results never live at once.
unsafe impl SharedMemory for SimulatedPlatform {
    fn read(&self, from: DeviceAddr, into: &mut [u8]) -> Result<(), ErrorCode> {
        self.close();
        self.model.read(from, into)?;
        if let Some(offset) = self.model.window.offset(from, into.len() as u64) {
            self.simulation().stores(self.npu).forward(offset, into);
        }
        Ok(())
    }

    fn write(&mut self, to: DeviceAddr, bytes: &[u8]) -> Result<(), ErrorCode> {
        self.close();
        let offset = self.model.window.offset(to, bytes.len() as u64).ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        self.simulation().stores(self.npu).bytes(offset, bytes);
        Ok(())
    }

    fn load(&self, word: DeviceAddr) -> Result<u64, ErrorCode> {
        self.close();
        let mut bytes = self.model.load(word)?.to_ne_bytes();
        if let Some(offset) = self.model.window.offset(word, 8) {
            self.simulation().stores(self.npu).forward(offset, &mut bytes);
        }
        Ok(u64::from_ne_bytes(bytes))
    }

    fn store(&mut self, word: DeviceAddr, value: u64) -> Result<(), ErrorCode> {
        self.word(word, value, true)
    }

    unsafe fn entries(&mut self, first: DeviceAddr, count: usize) -> Result<&mut [Descriptor], ErrorCode> {
        self.close();
        let bytes = (count as u64).checked_mul(DESCRIPTOR_BYTES as u64);
        let offset = bytes.and_then(|bytes| self.model.window.offset(first, bytes));
        let offset = offset.filter(|offset| offset.is_multiple_of(DESCRIPTOR_BYTES as u64));
        let offset = offset.ok_or(ErrorCode::CONTEXT_ADDRESS)?;
        let [before, after] = &mut self.entries;
        before.clear();
        before.resize(count, Descriptor::default());
        self.model.window.read(offset, before.as_mut_bytes());
        self.fabric
            .simulation()
            .ok_or(ErrorCode::CONTEXT_ADDRESS)?
            .stores(self.npu)
            .forward(offset, before.as_mut_bytes());
        after.clone_from(before);
        self.open.set(Some(offset));
        Ok(after)
    }
}

impl Doorbell for SimulatedPlatform {
    fn ring(&mut self, queue: u16, tail: u32) {
        let word = self.model.window.base().checked_add(npu::DOORBELLS + 8 * u64::from(queue));
        if let Some(word) = word.filter(|_| u64::from(queue) < npu::MAX_QUEUES) {
            // A doorbell is a store like any other; what orders it is the fence before it. The tables of a window are
            // always inside it.
            let _ = self.word(word, u64::from(tail), false);
        }
    }
}

impl DmaFence for SimulatedPlatform {
    fn publish(&self) {
        self.close();
        self.simulation().stores(self.npu).fence();
    }

    fn observe(&self) {
        self.model.observe();
    }
}

impl Clock for SimulatedPlatform {
    fn now_ns(&self) -> u64 {
        self.model.now_ns()
    }
}

impl Trace for SimulatedPlatform {
    fn event(&mut self, event: TraceEvent) {
        self.model.event(event);
    }
}

impl Rebase for SimulatedPlatform {
    fn rebase(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
        ModelPlatform::rebase(into, from, numbers, bases);
    }
}

impl Platform for SimulatedPlatform {
    fn window(&self) -> DeviceAddr {
        self.model.window()
    }
}
