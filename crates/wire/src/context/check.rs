//! The checks behind [`Context::parse`]: each returns the byte at fault.

use core::mem::offset_of;

use zerocopy::{FromBytes, IntoBytes};

use super::entries::{ChannelEntry, ContextHeader, RegionEntry, TableRef, ThreadEntry};
use super::{Context, ContextError, HEADER_BYTES, MAGIC, MAX_RANKS};
use crate::npu::{MAX_CHANNELS, MAX_NOTIFIES, MAX_QUEUES, Protocol};
use crate::{ABI_MAJOR, ABI_MINOR, CRC32C, DESCRIPTOR_BYTES, ErrorCode};

/// Notifies of one channel: ACK, DATA, FIN.
const CHANNEL_NOTIFIES: u32 = 3;

fn ensure(condition: bool, code: ErrorCode, offset: usize) -> Result<(), ContextError> {
    // CAST: offsets are below the context's length, which is a u32.
    if condition { Ok(()) } else { Err(ContextError { code, offset: u32::try_from(offset).unwrap_or(u32::MAX) }) }
}

/// Checks everything that can be said about the header and the checksums.
pub(super) fn header(bytes: &[u8]) -> Result<&ContextHeader, ContextError> {
    let (head, body) = bytes
        .split_at_checked(HEADER_BYTES)
        .ok_or(ContextError { code: ErrorCode::CONTEXT_LENGTH, offset: 0 })?;
    let header = ContextHeader::ref_from_bytes(head)
        .map_err(|_| ContextError { code: ErrorCode::CONTEXT_ADDRESS, offset: 0 })?;
    ensure(header.magic == MAGIC, ErrorCode::CONTEXT_MAGIC, 0)?;
    let version_ok = header.abi_major == ABI_MAJOR && header.abi_minor == ABI_MINOR;
    ensure(version_ok, ErrorCode::CONTEXT_VERSION, offset_of!(ContextHeader, abi_major))?;
    let len_ok = usize::try_from(header.total_len) == Ok(bytes.len());
    ensure(len_ok, ErrorCode::CONTEXT_LENGTH, offset_of!(ContextHeader, total_len))?;
    let crc = CRC32C.checksum(ContextHeader { header_crc: 0, ..*header }.as_bytes());
    ensure(header.header_crc == crc, ErrorCode::CONTEXT_CHECKSUM, offset_of!(ContextHeader, header_crc))?;
    let crc = CRC32C.checksum(body);
    ensure(header.body_crc == crc, ErrorCode::CONTEXT_CHECKSUM, offset_of!(ContextHeader, body_crc))?;
    ensure(header.reserved == [0; 2], ErrorCode::CONTEXT_RESERVED, offset_of!(ContextHeader, reserved))?;
    Ok(header)
}

/// Checks that the tables lie one behind the other and fill the body; returns their bytes.
pub(super) fn tables<'a>(header: &ContextHeader, bytes: &'a [u8]) -> Result<[&'a [u8]; 3], ContextError> {
    let mut out: [&[u8]; 3] = [&[]; 3];
    let mut end = HEADER_BYTES;
    for (slot, (table, stride, field)) in out.iter_mut().zip([
        (header.threads, size_of::<ThreadEntry>(), offset_of!(ContextHeader, threads)),
        (header.regions, size_of::<RegionEntry>(), offset_of!(ContextHeader, regions)),
        (header.channels, size_of::<ChannelEntry>(), offset_of!(ContextHeader, channels)),
    ]) {
        let expected = TableRef::new(end, usize::try_from(table.count).unwrap_or(usize::MAX), stride);
        ensure(table.reserved == 0, ErrorCode::CONTEXT_RESERVED, field + offset_of!(TableRef, reserved))?;
        ensure(table == expected, ErrorCode::CONTEXT_TABLE, field)?;
        let len = usize::try_from(table.count).ok().and_then(|count| count.checked_mul(stride));
        let next = len.and_then(|len| end.checked_add(len));
        let range = next.and_then(|next| bytes.get(end..next));
        *slot = range.ok_or(ContextError {
            code: ErrorCode::CONTEXT_TABLE,
            offset: u32::try_from(field + offset_of!(TableRef, count)).unwrap_or(u32::MAX),
        })?;
        end = next.unwrap_or(end);
    }
    ensure(end == bytes.len(), ErrorCode::CONTEXT_LENGTH, end)?;
    Ok(out)
}

/// Checks the values of all fields, alone and against each other.
pub(super) fn values(context: &Context<'_>) -> Result<(), ContextError> {
    let header = context.header;
    let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, offset);
    field((1..=MAX_RANKS).contains(&header.ranks), offset_of!(ContextHeader, ranks))?;
    field(header.rank < header.ranks, offset_of!(ContextHeader, rank))?;
    field(header.instance != [0; 2], offset_of!(ContextHeader, instance))?;
    field(header.sdma_max_len > 0, offset_of!(ContextHeader, sdma_max_len))?;
    field(header.sdma_reduce_ops < 16, offset_of!(ContextHeader, sdma_reduce_ops))?;
    let name = core::ffi::CStr::from_bytes_until_nul(&header.name).ok().map(core::ffi::CStr::to_bytes);
    let padded = name.is_some_and(|name| header.name.iter().skip(name.len()).all(|&byte| byte == 0));
    let utf8 = name.is_some_and(|name| core::str::from_utf8(name).is_ok());
    field(padded && utf8, offset_of!(ContextHeader, name))?;
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    field(!context.threads.is_empty(), offset_of!(ContextHeader, threads))?;
    field(count(context.regions.len()) == header.ranks, offset_of!(ContextHeader, regions))?;
    field(count(context.channels.len()) == header.ranks - 1, offset_of!(ContextHeader, channels))?;
    threads(context)?;
    regions(context)?;
    channels(context)?;
    distinct_queues(context)
}

fn entry_offset(table: TableRef, index: usize, field: usize) -> usize {
    // CAST: lossless, both are u32 and usize has at least 32 bits on every target of this crate.
    table.offset as usize + index * table.stride as usize + field
}

fn ring_ok(ring: u64, depth: u32) -> bool {
    let bytes = u64::from(depth) * DESCRIPTOR_BYTES as u64;
    ring != 0 && ring.is_multiple_of(DESCRIPTOR_BYTES as u64) && ring.checked_add(bytes).is_some()
}

fn depth_ok(depth: u32) -> bool {
    depth.is_power_of_two() && (4..=65_536).contains(&depth)
}

fn notifies_ok(base: u32, count: u32) -> bool {
    u64::from(base) + u64::from(count) <= MAX_NOTIFIES
}

fn threads(context: &Context<'_>) -> Result<(), ContextError> {
    for (index, thread) in context.threads.iter().enumerate() {
        let at = |field| entry_offset(context.header.threads, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        let reserved_zero = thread.reserved == 0 && thread.reserved1 == 0;
        ensure(reserved_zero, ErrorCode::CONTEXT_RESERVED, at(offset_of!(ThreadEntry, reserved)))?;
        field(depth_ok(thread.depth), offset_of!(ThreadEntry, depth))?;
        field(ring_ok(thread.ring, thread.depth), offset_of!(ThreadEntry, ring))?;
        field(u64::from(thread.queue) < MAX_QUEUES, offset_of!(ThreadEntry, queue))?;
        field(notifies_ok(thread.notify_base, thread.notify_count), offset_of!(ThreadEntry, notify_base))?;
        let overlaps = context.threads.iter().take(index).any(|other| {
            thread.notify_base < other.notify_base + other.notify_count
                && other.notify_base < thread.notify_base + thread.notify_count
        });
        field(!overlaps, offset_of!(ThreadEntry, notify_base))?;
    }
    Ok(())
}

fn regions(context: &Context<'_>) -> Result<(), ContextError> {
    for (index, region) in context.regions.iter().enumerate() {
        let at = |field| entry_offset(context.header.regions, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        ensure(region.reserved == 0, ErrorCode::CONTEXT_RESERVED, at(offset_of!(RegionEntry, reserved)))?;
        field(u32::try_from(index) == Ok(region.rank), offset_of!(RegionEntry, rank))?;
        field(region.token != 0, offset_of!(RegionEntry, token))?;
        field(region.len > 0 && region.addr.checked_add(region.len).is_some(), offset_of!(RegionEntry, len))?;
        field(region.addr != 0 && region.addr.is_multiple_of(128), offset_of!(RegionEntry, addr))?;
    }
    Ok(())
}

fn channels(context: &Context<'_>) -> Result<(), ContextError> {
    let peers = (0..context.header.ranks).filter(|&rank| rank != context.header.rank);
    for (index, (channel, peer)) in context.channels.iter().zip(peers).enumerate() {
        let at = |field| entry_offset(context.header.channels, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        let reserved_zero = channel.reserved == 0 && channel.reserved1 == 0 && channel.reserved2 == [0; 2];
        ensure(reserved_zero, ErrorCode::CONTEXT_RESERVED, at(offset_of!(ChannelEntry, reserved)))?;
        field(channel.peer == peer, offset_of!(ChannelEntry, peer))?;
        field(u64::from(channel.index) < MAX_CHANNELS, offset_of!(ChannelEntry, index))?;
        let notifies = [channel.local_notify, channel.remote_notify];
        let in_bank = notifies.iter().all(|&base| notifies_ok(base, CHANNEL_NOTIFIES));
        field(in_bank, offset_of!(ChannelEntry, local_notify))?;
        field(channel.max_len > 0, offset_of!(ChannelEntry, max_len))?;
        field(channel.reduce_ops < 16, offset_of!(ChannelEntry, reduce_ops))?;
        let protocol = Protocol::try_from(channel.protocol);
        field(protocol.is_ok(), offset_of!(ChannelEntry, protocol))?;
        let queue_ok = if protocol.is_ok_and(Protocol::uses_queue_pair) {
            depth_ok(channel.depth) && ring_ok(channel.ring, channel.depth) && u64::from(channel.queue) < MAX_QUEUES
        } else {
            (channel.ring, channel.depth, channel.queue) == (0, 0, 0)
        };
        field(queue_ok, offset_of!(ChannelEntry, ring))?;
    }
    Ok(())
}

/// Checks that no two rings share a queue number or memory.
fn distinct_queues(context: &Context<'_>) -> Result<(), ContextError> {
    let header = context.header;
    let threads = context.threads.iter().enumerate().map(|(index, thread)| {
        let at = entry_offset(header.threads, index, offset_of!(ThreadEntry, queue));
        (thread.queue, thread.ring, thread.depth, at)
    });
    let pairs = context.channels.iter().enumerate().filter(|(_, channel)| channel.depth > 0);
    let pairs = pairs.map(|(index, channel)| {
        let at = entry_offset(header.channels, index, offset_of!(ChannelEntry, queue));
        (channel.queue, channel.ring, channel.depth, at)
    });
    let all = threads.chain(pairs);
    for (index, (queue, ring, depth, at)) in all.clone().enumerate() {
        let end = ring + u64::from(depth) * DESCRIPTOR_BYTES as u64;
        let clash = all.clone().take(index).any(|(other_queue, other_ring, other_depth, _)| {
            let other_end = other_ring + u64::from(other_depth) * DESCRIPTOR_BYTES as u64;
            queue == other_queue || (ring < other_end && other_ring < end)
        });
        ensure(!clash, ErrorCode::CONTEXT_FIELD, at)?;
    }
    Ok(())
}
