//! The key of a launch: everything its graph depends on, and nothing that a replay may change.

use task_cache::{
    Alias, Determinism, Facts, Form, Key, Mode, Operation, Policy, Product, Protocol, Protocols, Request,
};
use templates::Plan;
use wire::launch::{CacheMode, Launch, OpKind};
use wire::npu;

use crate::context::OwnedContext;

/// Returns the key under which the graph of a launch is kept; `None` when it may not be. `features` are bits that tell
/// graphs apart which differ in what is around the operation.
pub(crate) fn of(launch: &Launch, plan: &Plan, context: &OwnedContext, features: u32) -> Option<Key> {
    let shape = plan.shape();
    let op = operation(launch.op);
    let header = context.header();
    let may = match launch.cache {
        CacheMode::On => true,
        CacheMode::Off => false,
        CacheMode::Hccl => Policy::Hccl.judge(&request(launch, plan, context)).is_empty(),
    };
    // More than one chunk is more than one graph, whatever the policy says.
    if !may || plan.chunks() > 1 {
        return None;
    }
    Some(Key::new(&Facts {
        instance: header.instance,
        epoch: header.epoch,
        op,
        dtype: launch.dtype,
        reduce: launch.reduce,
        algorithm: launch.algorithm,
        staging: launch.staging,
        alias: if shape.in_place { Alias::InPlace } else { Alias::Disjoint },
        form: Form::Exact(launch.count),
        rank: header.rank,
        ranks: header.ranks,
        root: 0,
        chunk: launch.chunk,
        piece: launch.piece,
        scratch_len: shape.scratch_len,
        topology: header.topology_digest,
        // The checksums cover threads, rings, notifies, channels and scratch buffers with their tokens.
        context: u64::from(header.header_crc) << 32 | u64::from(header.body_crc),
        threads: plan.threads(),
        determinism: Determinism::On,
        features,
    }))
}

/// What the field's policy asks of a launch.
fn request(launch: &Launch, plan: &Plan, context: &OwnedContext) -> Request {
    let protocols =
        context.channels().iter().filter_map(|channel| npu::Protocol::try_from(channel.protocol).ok());
    Request {
        op: operation(launch.op),
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

fn operation(op: OpKind) -> Operation {
    match op {
        OpKind::AllReduce => Operation::AllReduce,
        OpKind::AllGather => Operation::AllGather,
        OpKind::ReduceScatter => Operation::ReduceScatter,
    }
}

fn protocol(protocol: npu::Protocol) -> Protocol {
    match protocol {
        npu::Protocol::Hccs => Protocol::Hccs,
        npu::Protocol::Roce => Protocol::Roce,
        npu::Protocol::Ub => Protocol::UbCtp,
    }
}
