//! The key of a launch: everything its graph depends on, and nothing that a replay may change.

use task_cache::{
    Alias, Determinism, Facts, Form, Key, Mode, Policy, Product, Protocol, Protocols, Reason, Reasons,
    Request,
};
use templates::{Plan, SizeClass, Tables};
use wire::context::{ChannelEntry, ContextHeader};
use wire::launch::{Algorithm, CacheMode, Launch, VectorRow};
use wire::{digest, npu};

use crate::sizes::Sizes;

/// What the cache is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The key.
    pub key: Key,
    /// The class, where the graph is the one for all sizes of it.
    pub class: Option<u64>,
}

/// What of a resource context a key depends on.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The context's header; its checksums stand for all of it.
    pub header: &'a ContextHeader,
    /// Its channels.
    pub channels: &'a [ChannelEntry],
    /// Size class of the plan, where it has one.
    pub class: Option<SizeClass>,
}

/// Returns every reason why a launch passes by the cache.
#[must_use]
pub fn judge(launch: &Launch, plan: &Plan, around: &Surroundings<'_>) -> Reasons {
    let reasons = match launch.cache {
        CacheMode::On => Reasons::NONE,
        CacheMode::Off => Reasons::NONE.with(Reason::Disabled, true),
        CacheMode::Hccl => Policy::Hccl.judge(&request(launch, plan, around)),
    };
    // More than one chunk is more than one graph, whatever the policy says.
    reasons.with(Reason::Chunks, plan.chunks() > 1)
}

/// Returns what the cache is asked for to get the graph of a launch; `None` when it may not be asked. `features` are
/// bits that tell graphs apart which differ in what is around the operation. Without `sizes` every count has its own.
#[must_use]
pub fn of(
    launch: &Launch,
    plan: &Plan,
    around: &Surroundings<'_>,
    attached: &Tables<'_>,
    features: u32,
    sizes: Option<&mut Sizes>,
) -> Option<Wanted> {
    let shape = plan.shape();
    let header = around.header;
    if !judge(launch, plan, around).is_empty() {
        return None;
    }
    // The field's cache knows sizes only.
    let class = around.class.filter(|_| launch.cache == CacheMode::On).map(SizeClass::number);
    let shared = sizes.and_then(|sizes| {
        class.filter(|&number| sizes.shares(mixed(launch, features, number), launch.count))
    });
    let key = Key::new(&Facts {
        instance: header.instance,
        epoch: header.epoch,
        op: launch.op,
        dtype: launch.dtype,
        reduce: launch.reduce,
        algorithm: launch.algorithm,
        staging: launch.staging,
        alias: if shape.in_place { Alias::InPlace } else { Alias::Disjoint },
        form: match shared {
            Some(class) => Form::Class(class),
            None => form(launch, attached),
        },
        rank: header.rank,
        ranks: header.ranks,
        root: launch.root,
        levels: launch.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8)),
        chunk: launch.chunk,
        piece: launch.piece,
        scratch_len: shape.scratch_len,
        topology: header.topology_digest,
        // The checksums cover threads, rings, notifies, channels and scratch buffers with their tokens.
        context: u64::from(header.header_crc) << 32 | u64::from(header.body_crc),
        threads: plan.threads(),
        determinism: if launch.algorithm == Algorithm::Strict {
            Determinism::Strict
        } else {
            Determinism::On
        },
        features,
    });
    Some(Wanted { key, class: shared.map(|number| mixed(launch, features, number)) })
}

/// What the lengths of a graph stand for that serves one launch alone.
fn form(launch: &Launch, attached: &Tables<'_>) -> Form {
    match attached.script {
        Some(script) => Form::Script { count: launch.count, digest: script.header().digest },
        None if attached.vector.is_empty() => Form::Exact(launch.count),
        None => Form::Vector(digest_of(attached.vector)),
    }
}

/// Mixes a class with what else tells launches apart.
fn mixed(launch: &Launch, features: u32, class: u64) -> u64 {
    let kinds = [launch.op as u8, launch.dtype as u8, launch.reduce as u8, launch.algorithm as u8];
    let around = u64::from(features) << 33
        | u64::from(launch.staging as u8) << 32
        | u64::from(u32::from_le_bytes(kinds));
    let levels = launch.levels.map(|level| level.map_or(0, |algorithm| algorithm as u8));
    let group = u64::from(launch.root) << 32 | u64::from(u32::from_le_bytes(levels));
    let words = [launch.instance[0], launch.instance[1], around, group, class];
    words.into_iter().fold(u64::from(launch.epoch), digest::with)
}

/// Returns 128 bits that stand for a vector: digests of its words, and of its words with their halves exchanged, so
/// that what hardly stirs the one (a difference in upper bits) stirs all of the other.
fn digest_of(vector: &[VectorRow]) -> [u64; 2] {
    let len = vector.len() as u64;
    let words =
        vector.iter().flat_map(|row| [row.send.first, row.send.count, row.receive.first, row.receive.count]);
    words.fold([len, !len], |[one, other], word| {
        [digest::with(one, word), digest::with(other, word.rotate_left(32))]
    })
}

/// What the field's policy asks of a launch.
fn request(launch: &Launch, plan: &Plan, around: &Surroundings<'_>) -> Request {
    let protocols =
        around.channels.iter().filter_map(|channel| npu::Protocol::try_from(channel.protocol).ok());
    Request {
        op: launch.op,
        dtype: launch.dtype,
        reduce: launch.reduce,
        in_place: plan.shape().in_place,
        mode: Mode::Eager,
        protocols: protocols.map(protocol).fold(Protocols::NONE, Protocols::with),
        // The one product that the field's cache serves; nothing else is modelled.
        product: Product::A5,
        toolkit: [9, 1, 0],
        disabled: false,
        sizes: [launch.input.len, launch.output.len],
        null_address: launch.input.addr.0 == 0 || launch.output.addr.0 == 0,
        chunks: plan.chunks(),
    }
}

fn protocol(protocol: npu::Protocol) -> Protocol {
    match protocol {
        npu::Protocol::Hccs => Protocol::Hccs,
        npu::Protocol::Roce => Protocol::Roce,
        npu::Protocol::Ub => Protocol::UbCtp,
    }
}
