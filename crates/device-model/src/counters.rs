//! What an NPU has done so far, in plain numbers.

use wire::Sqe;
use wire::npu::Protocol;

/// Counts since the NPU was made. Nothing here is a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Submission entries executed, by opcode: [`Counters::executed`].
    by_opcode: [u64; 9],
    /// Work-queue entries executed.
    pub work_requests: u64,
    /// Bytes copied or reduced within the NPU.
    pub local_bytes: u64,
    /// Bytes that went through a reduction, local or into a peer.
    pub reduced_bytes: u64,
    /// Bytes written to peers, by protocol: [`Counters::sent`].
    sent: [u64; 3],
    /// Bytes read from peers, by protocol: [`Counters::received`].
    received: [u64; 3],
    /// Times a doorbell was found to announce something.
    pub doorbells: u64,
    /// Notifies of this NPU or a peer set by this NPU, by task or together with data.
    pub records: u64,
    /// Waits that ended.
    pub waits: u64,
}

impl Counters {
    /// Returns how many submission entries with an opcode (a constant of [`Sqe`]) were executed.
    #[must_use]
    pub fn executed(&self, opcode: u8) -> u64 {
        self.by_opcode.get(usize::from(opcode)).copied().unwrap_or(0)
    }

    /// Returns how many submission entries were executed.
    #[must_use]
    pub fn executed_total(&self) -> u64 {
        self.by_opcode.iter().sum()
    }

    /// Returns the bytes this NPU wrote to peers over links of a protocol. What peers wrote here is theirs to count.
    #[must_use]
    pub const fn sent(&self, protocol: Protocol) -> u64 {
        self.sent[index(protocol)]
    }

    /// Returns the bytes this NPU read from peers over links of a protocol.
    #[must_use]
    pub const fn received(&self, protocol: Protocol) -> u64 {
        self.received[index(protocol)]
    }

    #[inline]
    pub(crate) fn count_executed(&mut self, opcode: u8) {
        const { assert!(Sqe::POST == 8) };
        if let Some(count) = self.by_opcode.get_mut(usize::from(opcode)) {
            *count += 1;
        }
    }

    #[inline]
    pub(crate) const fn count_sent(&mut self, protocol: Protocol, bytes: u64) {
        self.sent[index(protocol)] += bytes;
    }

    #[inline]
    pub(crate) const fn count_received(&mut self, protocol: Protocol, bytes: u64) {
        self.received[index(protocol)] += bytes;
    }
}

const fn index(protocol: Protocol) -> usize {
    match protocol {
        Protocol::Hccs => 0,
        Protocol::Roce => 1,
        Protocol::Ub => 2,
    }
}
