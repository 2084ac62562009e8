//! The resource context: everything about a communicator that the kernel needs, in one block of bytes.
//!
//! Made by the host once per communicator and algorithm, decoded by the kernel once per communicator epoch. The
//! encoding is canonical (header, threads, regions, channels, each table where the one before ends), so decoding and
//! encoding again gives the same bytes, and every byte that can be wrong is refused with its offset.
//! Spec: `docs/wire-format.md` section 2. Nothing here touches the memory that the context talks about.

mod check;
mod entries;

pub use entries::{ChannelEntry, ContextHeader, RegionEntry, TableRef, ThreadEntry};

use zerocopy::{FromBytes, IntoBytes};

use crate::{ABI_MAJOR, ABI_MINOR, CRC32C, ErrorCode};

/// First eight bytes of a resource context.
pub const MAGIC: u64 = u64::from_le_bytes(*b"AICPUCTX");
/// Ranks a context may name.
pub const MAX_RANKS: u32 = 65_536;
/// Bytes of the header, and offset of the first table.
pub const HEADER_BYTES: usize = size_of::<ContextHeader>();

/// Why a context is refused, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextError {
    /// What is wrong.
    pub code: ErrorCode,
    /// Byte offset of the field at fault.
    pub offset: u32,
}

/// A context whose every byte has been checked; the tables borrow the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// Identity and sizes.
    pub header: &'a ContextHeader,
    /// Threads; the first is the main thread.
    pub threads: &'a [ThreadEntry],
    /// Scratch buffers, one per rank in rank order.
    pub regions: &'a [RegionEntry],
    /// Channels, one per peer in rank order.
    pub channels: &'a [ChannelEntry],
}

impl<'a> Context<'a> {
    /// Parses a context. `bytes` must be 8-byte aligned and hold exactly one context.
    ///
    /// # Errors
    /// The first fault found, in this order: magic, version, length, checksums, reserved fields, table positions,
    /// values. Never panics, whatever the bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ContextError> {
        let header = check::header(bytes)?;
        let [threads, regions, channels] = check::tables(header, bytes)?;
        let context = Self {
            header,
            threads: table(threads, header.threads)?,
            regions: table(regions, header.regions)?,
            channels: table(channels, header.channels)?,
        };
        check::values(&context)?;
        Ok(context)
    }

    /// Returns the bytes a context with these tables takes.
    #[must_use]
    pub const fn encoded_len(threads: usize, regions: usize, channels: usize) -> usize {
        HEADER_BYTES
            + threads * size_of::<ThreadEntry>()
            + regions * size_of::<RegionEntry>()
            + channels * size_of::<ChannelEntry>()
    }

    /// Writes this context to `into`, filling in magic, version, lengths, table positions and checksums.
    /// Returns the bytes written.
    ///
    /// # Errors
    /// `CONTEXT_LENGTH` when `into` is too small.
    pub fn encode(&self, into: &mut [u8]) -> Result<usize, ContextError> {
        let len = Self::encoded_len(self.threads.len(), self.regions.len(), self.channels.len());
        let short = ContextError { code: ErrorCode::CONTEXT_LENGTH, offset: 0 };
        let total_len = u32::try_from(len).map_err(|_| short)?;
        let into = into.get_mut(..len).ok_or(short)?;
        let mut header = ContextHeader {
            magic: MAGIC,
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            total_len,
            header_crc: 0,
            ..*self.header
        };
        let (head, body) = into.split_at_mut_checked(HEADER_BYTES).ok_or(short)?;
        let mut offset = 0;
        for (place, bytes, stride) in [
            (&mut header.threads, self.threads.as_bytes(), size_of::<ThreadEntry>()),
            (&mut header.regions, self.regions.as_bytes(), size_of::<RegionEntry>()),
            (&mut header.channels, self.channels.as_bytes(), size_of::<ChannelEntry>()),
        ] {
            *place = TableRef::new(HEADER_BYTES + offset, bytes.len() / stride, stride);
            let end = offset + bytes.len();
            body.get_mut(offset..end).ok_or(short)?.copy_from_slice(bytes);
            offset = end;
        }
        header.body_crc = CRC32C.checksum(body);
        header.header_crc = CRC32C.checksum(header.as_bytes());
        head.copy_from_slice(header.as_bytes());
        Ok(len)
    }
}

fn table<T: FromBytes + zerocopy::Immutable + zerocopy::KnownLayout>(
    bytes: &[u8],
    place: TableRef,
) -> Result<&[T], ContextError> {
    <[T]>::ref_from_bytes(bytes)
        .map_err(|_| ContextError { code: ErrorCode::CONTEXT_TABLE, offset: place.offset })
}
