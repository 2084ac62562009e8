//! The checks behind [`Context::parse`]: each returns the byte at fault.

use core::mem::offset_of;

use zerocopy::{FromBytes, IntoBytes};

use super::entries::{ChannelEntry, ContextHeader, RegionEntry, TableRef, ThreadEntry};
use super::{Context, ContextError, HEADER_BYTES, MAGIC, MAX_RANKS};
use crate::npu::{MAX_CHANNELS, MAX_NOTIFIES, MAX_QUEUES, Protocol, TRANSFER_GRANULE};
use crate::{ABI_MAJOR, ABI_MINOR, CRC32C, DESCRIPTOR_BYTES, DataType, ErrorCode, ReduceOp};

/// Notifies of one channel: ACK, DATA, FIN.
const CHANNEL_NOTIFIES: u32 = 3;

fn ensure(condition: bool, code: ErrorCode, offset: usize) -> Result<(), ContextError> {
    // CAST: offsets are below the context's length, which is a u32.
    if condition {
        Ok(())
    } else {
        Err(ContextError { code, offset: u32::try_from(offset).unwrap_or(u32::MAX) })
    }
}

/// Checks everything that can be said about the header and the checksums.
pub(super) fn header(bytes: &[u8]) -> Result<&ContextHeader, ContextError> {
    let (head, body) = bytes
        .split_at_checked(HEADER_BYTES)
        .ok_or(ContextError { code: ErrorCode::CONTEXT_LENGTH, offset: 0 })?;
    let header = ContextHeader::ref_from_bytes(head)
        .map_err(|_| ContextError { code: ErrorCode::CONTEXT_ADDRESS, offset: 0 })?;
    ensure(header.magic == MAGIC, ErrorCode::CONTEXT_MAGIC, 0)?;
    ensure(header.abi_major == ABI_MAJOR, ErrorCode::CONTEXT_VERSION, offset_of!(ContextHeader, abi_major))?;
    ensure(header.abi_minor == ABI_MINOR, ErrorCode::CONTEXT_VERSION, offset_of!(ContextHeader, abi_minor))?;
    let len_ok = usize::try_from(header.total_len) == Ok(bytes.len());
    ensure(len_ok, ErrorCode::CONTEXT_LENGTH, offset_of!(ContextHeader, total_len))?;
    let crc = CRC32C.checksum(ContextHeader { header_crc: 0, ..*header }.as_bytes());
    ensure(header.header_crc == crc, ErrorCode::CONTEXT_CHECKSUM, offset_of!(ContextHeader, header_crc))?;
    let crc = CRC32C.checksum(body);
    ensure(header.body_crc == crc, ErrorCode::CONTEXT_CHECKSUM, offset_of!(ContextHeader, body_crc))?;
    ensure(header.reserved == 0, ErrorCode::CONTEXT_RESERVED, offset_of!(ContextHeader, reserved))?;
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
    field(header.sdma_max_len >= TRANSFER_GRANULE, offset_of!(ContextHeader, sdma_max_len))?;
    field(types_ok(header.sdma_reduce_types), offset_of!(ContextHeader, sdma_reduce_types))?;
    field(ops_ok(header.sdma_reduce_ops), offset_of!(ContextHeader, sdma_reduce_ops))?;
    field(name_ok(&header.name), offset_of!(ContextHeader, name))?;
    let all = |mask: u32, of: fn(&ChannelEntry) -> u32| {
        context.channels.iter().all(|channel| mask & !of(channel) == 0)
    };
    let types = header.link_reduce_types;
    let types = types_ok(types) && all(types, |channel| channel.reduce_types);
    field(types, offset_of!(ContextHeader, link_reduce_types))?;
    let ops = header.link_reduce_ops;
    let ops = ops_ok(ops) && all(ops, |channel| channel.reduce_ops);
    field(ops, offset_of!(ContextHeader, link_reduce_ops))?;
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    field(!context.threads.is_empty(), offset_of!(ContextHeader, threads))?;
    field(count(context.regions.len()) == header.ranks, offset_of!(ContextHeader, regions))?;
    field(count(context.channels.len()) == header.ranks - 1, offset_of!(ContextHeader, channels))?;
    let mut claims = DeviceClaims::default();
    threads(context, &mut claims)?;
    regions(context)?;
    channels(context, &mut claims)?;
    rings_apart(context)
}

/// Returns the words of a bit per number.
const fn words(numbers: u64) -> usize {
    (numbers / 64) as usize
}

/// Numbers of one kind, each of which may be given out once.
struct Claims<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Claims<WORDS> {
    /// Claims `count` numbers from `first` on; false when one of them does not exist or is taken.
    fn claim(&mut self, first: u32, count: u32) -> bool {
        if u64::from(first) + u64::from(count) > WORDS as u64 * 64 {
            return false;
        }
        (first..first + count).all(|number| {
            // CAST: lossless, usize has at least 32 bits on every target of this crate.
            let Some(word) = self.0.get_mut(number as usize / 64) else { return false };
            let bit = 1 << (number % 64);
            let free = *word & bit == 0;
            *word |= bit;
            free
        })
    }
}

impl<const WORDS: usize> Default for Claims<WORDS> {
    fn default() -> Self {
        Self([0; WORDS])
    }
}

/// What the context takes of its own device's tables. With it every check below is linear, however long the
/// tables: a number out of range or taken twice ends the walk.
#[derive(Default)]
struct DeviceClaims {
    queues: Claims<{ words(MAX_QUEUES) }>,
    notifies: Claims<{ words(MAX_NOTIFIES) }>,
    channels: Claims<{ words(MAX_CHANNELS) }>,
}

fn entry_offset(table: TableRef, index: usize, field: usize) -> usize {
    // CAST: lossless, both are u32 and usize has at least 32 bits on every target of this crate.
    table.offset as usize + index * table.stride as usize + field
}

/// A name is UTF-8 and fills the field with NULs, at least one.
fn name_ok(field: &[u8]) -> bool {
    let name = core::ffi::CStr::from_bytes_until_nul(field).map(core::ffi::CStr::to_bytes).unwrap_or(field);
    let padding = field.get(name.len()..).unwrap_or_default();
    !padding.is_empty() && padding.iter().all(|&byte| byte == 0) && core::str::from_utf8(name).is_ok()
}

/// Only types that have reductions may be in a reduction mask.
fn types_ok(types: u32) -> bool {
    let reducible = DataType::ALL.iter().filter(|dtype| dtype.can_reduce());
    types & !reducible.fold(0, |bits, &dtype| bits | 1 << dtype as u32) == 0
}

fn ops_ok(ops: u32) -> bool {
    ops & !ReduceOp::ALL.iter().fold(0, |bits, &op| bits | 1 << op as u32) == 0
}

fn ring_ok(ring: u64, depth: u32) -> bool {
    let bytes = u64::from(depth) * DESCRIPTOR_BYTES as u64;
    ring != 0 && ring.is_multiple_of(DESCRIPTOR_BYTES as u64) && ring.checked_add(bytes).is_some()
}

fn depth_ok(depth: u32) -> bool {
    depth.is_power_of_two() && (4..=65_536).contains(&depth)
}

fn threads(context: &Context<'_>, claims: &mut DeviceClaims) -> Result<(), ContextError> {
    for (index, thread) in context.threads.iter().enumerate() {
        let at = |field| entry_offset(context.header.threads, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        let zero = |ok, offset| ensure(ok, ErrorCode::CONTEXT_RESERVED, at(offset));
        zero(thread.reserved == 0, offset_of!(ThreadEntry, reserved))?;
        zero(thread.reserved1 == 0, offset_of!(ThreadEntry, reserved1))?;
        field(depth_ok(thread.depth), offset_of!(ThreadEntry, depth))?;
        field(ring_ok(thread.ring, thread.depth), offset_of!(ThreadEntry, ring))?;
        field(claims.queues.claim(thread.queue.into(), 1), offset_of!(ThreadEntry, queue))?;
        let unshared = claims.notifies.claim(thread.notify_base, thread.notify_count);
        field(unshared, offset_of!(ThreadEntry, notify_base))?;
    }
    Ok(())
}

fn regions(context: &Context<'_>) -> Result<(), ContextError> {
    let mut previous: Option<(u32, u32)> = None;
    for (index, region) in context.regions.iter().enumerate() {
        let at = |field| entry_offset(context.header.regions, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        field(u32::try_from(index) == Ok(region.rank), offset_of!(RegionEntry, rank))?;
        // Servers and super pods are numbered in rank order, and a super pod begins with a server.
        let new_server = previous.is_none_or(|(server, _)| u32::from(region.server) == server + 1);
        let (server, pod) = previous.unwrap_or((0, 0));
        let grown = |number: u16, from: u32, new: bool| {
            u32::from(number) == from || (new && previous.is_some() && u32::from(number) == from + 1)
        };
        field(grown(region.server, server, true), offset_of!(RegionEntry, server))?;
        field(grown(region.pod, pod, new_server), offset_of!(RegionEntry, pod))?;
        previous = Some((u32::from(region.server), u32::from(region.pod)));
        field(region.token != 0, offset_of!(RegionEntry, token))?;
        field(region.len > 0 && region.addr.checked_add(region.len).is_some(), offset_of!(RegionEntry, len))?;
        field(region.addr != 0 && region.addr.is_multiple_of(128), offset_of!(RegionEntry, addr))?;
    }
    Ok(())
}

fn channels(context: &Context<'_>, claims: &mut DeviceClaims) -> Result<(), ContextError> {
    let peers = (0..context.header.ranks).filter(|&rank| rank != context.header.rank);
    for (index, (channel, peer)) in context.channels.iter().zip(peers).enumerate() {
        let at = |field| entry_offset(context.header.channels, index, field);
        let field = |ok, offset| ensure(ok, ErrorCode::CONTEXT_FIELD, at(offset));
        let zero = |ok, offset| ensure(ok, ErrorCode::CONTEXT_RESERVED, at(offset));
        zero(channel.reserved == 0, offset_of!(ChannelEntry, reserved))?;
        zero(channel.reserved1 == 0, offset_of!(ChannelEntry, reserved1))?;
        zero(channel.reserved2 == [0; 2], offset_of!(ChannelEntry, reserved2))?;
        field(channel.peer == peer, offset_of!(ChannelEntry, peer))?;
        field(claims.channels.claim(channel.index.into(), 1), offset_of!(ChannelEntry, index))?;
        let unshared = claims.notifies.claim(channel.local_notify, CHANNEL_NOTIFIES);
        field(unshared, offset_of!(ChannelEntry, local_notify))?;
        // The peer's own context says which of its notifies are taken; here they only have to exist.
        let exist = u64::from(channel.remote_notify) + u64::from(CHANNEL_NOTIFIES) <= MAX_NOTIFIES;
        field(exist, offset_of!(ChannelEntry, remote_notify))?;
        field(types_ok(channel.reduce_types), offset_of!(ChannelEntry, reduce_types))?;
        field(ops_ok(channel.reduce_ops), offset_of!(ChannelEntry, reduce_ops))?;
        field(channel.max_len >= TRANSFER_GRANULE, offset_of!(ChannelEntry, max_len))?;
        let protocol = Protocol::try_from(channel.protocol);
        field(protocol.is_ok(), offset_of!(ChannelEntry, protocol))?;
        if protocol.is_ok_and(Protocol::uses_queue_pair) {
            field(depth_ok(channel.depth), offset_of!(ChannelEntry, depth))?;
            field(ring_ok(channel.ring, channel.depth), offset_of!(ChannelEntry, ring))?;
            field(claims.queues.claim(channel.queue.into(), 1), offset_of!(ChannelEntry, queue))?;
        } else {
            field(channel.ring == 0, offset_of!(ChannelEntry, ring))?;
            field(channel.depth == 0, offset_of!(ChannelEntry, depth))?;
            field(channel.queue == 0, offset_of!(ChannelEntry, queue))?;
        }
    }
    Ok(())
}

/// Checks that rings and this rank's scratch buffer lie apart: all of them are in this device's memory. There are at
/// most [`MAX_QUEUES`] rings, because each has claimed a queue number of its own.
fn rings_apart(context: &Context<'_>) -> Result<(), ContextError> {
    let header = context.header;
    let ring = |ring, depth| (ring, ring + u64::from(depth) * DESCRIPTOR_BYTES as u64);
    let threads = context.threads.iter().enumerate().map(|(index, thread)| {
        let at = entry_offset(header.threads, index, offset_of!(ThreadEntry, ring));
        (ring(thread.ring, thread.depth), at)
    });
    let pairs = context.channels.iter().enumerate().filter(|(_, channel)| channel.depth > 0);
    let pairs = pairs.map(|(index, channel)| {
        let at = entry_offset(header.channels, index, offset_of!(ChannelEntry, ring));
        (ring(channel.ring, channel.depth), at)
    });
    let own = context.regions.iter().filter(|region| region.rank == header.rank);
    let scratch = own.map(|region| (region.addr, region.addr + region.len));
    let all = threads.chain(pairs);
    for (index, ((start, end), at)) in all.clone().enumerate() {
        let earlier = all.clone().take(index).map(|(extent, _)| extent);
        let apart =
            scratch.clone().chain(earlier).all(|(other, other_end)| end <= other || other_end <= start);
        ensure(apart, ErrorCode::CONTEXT_FIELD, at)?;
    }
    Ok(())
}
