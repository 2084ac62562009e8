//! `aicpu-ts explain --cache`: how launches fare at the task cache, one after the other, and why.
//!
//! The kernel's own rules are asked ([`cache_key`]): the key of each launch on rank 0, and the reasons of a bypass.
//! What would be recorded is recorded, so that the next launch meets it. No device is started.

use std::collections::HashMap;

use aicpu_kernel::Sizes;
use aicpu_kernel::cache_key::{self, Surroundings};
use clap::Parser;
use host_launcher::communicator::Operation;
use host_launcher::select::{Choice, Question, Selector, operation};
use host_launcher::settings::Settings;
use host_launcher::topology::Topology;
use host_launcher::{Error, Result};
use serde_json::{Value, json};
use task_cache::{Directory, Explanation, Reasons, defaults};
use templates::{Plan, PlanError, Shape};
use wire::context::{ChannelEntry, ContextHeader};
use wire::launch::{Algorithm, Buffer, Launch, Staging};
use wire::{DeviceAddr, ErrorCode};

use crate::args::{CachePolicy, ExplainArgs, ThenArgs};
use crate::output::Output;
use crate::run::question;

/// A cache that has seen some launches.
struct Observer<'a> {
    selector: Selector<'a>,
    /// As many entries as a kernel's.
    directory: Box<Directory<(), { defaults::GRAPHS }>>,
    sizes: Sizes,
    header: ContextHeader,
    channels: Vec<ChannelEntry>,
    policy: CachePolicy,
    /// Scratch that each algorithm and staging has got so far, bytes: it grows, and is kept.
    scratch: HashMap<(Algorithm, Staging), u64>,
}

pub(super) fn explain(
    args: &ExplainArgs,
    topology: &Topology,
    settings: &Settings,
    output: &mut Output,
) -> Result<()> {
    let mut launches = vec![args.operation.clone()];
    for words in args.then.split(|word| word == "--then") {
        if words.is_empty() && args.then.is_empty() {
            continue;
        }
        let before = launches.last().unwrap_or(&args.operation);
        let then = ThenArgs::try_parse_from(words).map_err(|error| {
            Error::new(ErrorCode::ARGUMENT_VALUE, format!("--then {}: {error}", words.join(" ")))
        })?;
        let next = then.after(before);
        launches.push(next);
    }
    let mut observer = Observer::new(args.policy, topology, settings)?;
    let mut values = Vec::new();
    for (number, launch) in (1..).zip(&launches) {
        let question = question(launch, topology)?;
        let (operation, explanation) = observer.launch(&question)?;
        if output.is_json() {
            values.push(value(&operation, &explanation));
        } else {
            output.text(&text(number, &operation, &explanation));
        }
    }
    if output.is_json() {
        output.line(&json!({ "policy": args.policy.name(), "launches": values }));
    }
    Ok(())
}

impl<'a> Observer<'a> {
    fn new(policy: CachePolicy, topology: &'a Topology, settings: &Settings) -> Result<Self> {
        let mut directory = Box::new(Directory::new());
        directory.set_limits(defaults::limits(u32::MAX.into(), defaults::GRAPHS));
        let header = ContextHeader {
            instance: [1, 1],
            epoch: 1,
            ranks: topology.ranks(),
            topology_digest: topology.digest(),
            ..ContextHeader::default()
        };
        let channel = |channel: host_launcher::topology::Channel| ChannelEntry {
            peer: channel.peer,
            protocol: channel.protocol as u8,
            ..ChannelEntry::default()
        };
        Ok(Self {
            selector: Selector::new(topology, host_launcher::select::profile::Profile::default(), settings)?,
            directory,
            sizes: Sizes::new(),
            header,
            channels: topology.channels(0).map(channel).collect(),
            policy,
            scratch: HashMap::new(),
        })
    }

    /// Explains how an operation fares, and lets it be recorded where it would be.
    fn launch(&mut self, question: &Question) -> Result<(Operation, Explanation)> {
        let Choice { algorithm, levels, staging, .. } = self.selector.choose(question)?;
        let ranks = self.selector.machine().topology().ranks();
        let candidate = host_launcher::select::Candidate { algorithm, levels, staging };
        let operation = operation(question, ranks, candidate);
        let refused = |error: PlanError| {
            let message = error.code.info().map_or("refused", |info| info.summary);
            Error::new(error.code, format!("{operation}: {message}"))
        };
        let machine = self.selector.machine();
        let attached = machine.tables(&operation, 0, question.in_place).map_err(refused)?;
        let alone = machine.plan(&operation, 0, question.in_place).map_err(refused)?;
        let scratch = self.scratch.entry((algorithm, staging)).or_default();
        *scratch = alone.shape().scratch_len.max(*scratch);
        let shape = Shape { scratch_len: *scratch, ..*alone.shape() };
        let plan = Plan::new(&shape, &attached).map_err(refused)?;
        // Each algorithm, staging and size of scratch has resources of its own, which a context stands for.
        self.header.header_crc = u32::from(algorithm as u8) << 8 | u32::from(staging as u8);
        self.header.body_crc = plan.shape().scratch_len.trailing_zeros();
        let around = Surroundings {
            header: &self.header,
            channels: &self.channels,
            class: plan.size_class(machine.longest_transfer()),
        };
        let (input, output) = operation.buffer_bytes(0, ranks)?;
        let launch = launch(&operation, self.policy, question.in_place, input, output);
        let reasons = cache_key::judge(&launch, &plan, &around);
        let Some(wanted) = cache_key::of(&launch, &plan, &around, &attached, 0, Some(&mut self.sizes)) else {
            return Ok((operation, Explanation::Bypassed(reasons)));
        };
        let explanation = self.directory.explain(&wanted.key, Reasons::NONE);
        if explanation != Explanation::Hits {
            let begun = self.directory.begin(&wanted.key, 1, &mut |()| {});
            let recorded = begun.ok().filter(|id| self.directory.verify(*id).is_ok());
            recorded.map(|id| self.directory.publish(id, ()));
        }
        Ok((operation, explanation))
    }
}

/// The launch of rank 0, as far as the cache looks at it.
fn launch(operation: &Operation, policy: CachePolicy, in_place: bool, input: u64, output: u64) -> Launch {
    let buffer = |addr, len| Buffer { addr: DeviceAddr(addr), len, ..Buffer::default() };
    Launch {
        sequence: 1,
        instance: [1, 1],
        epoch: 1,
        op: operation.op,
        dtype: operation.dtype,
        reduce: operation.reduce,
        algorithm: operation.algorithm,
        staging: operation.staging,
        cache: policy.mode(),
        count: operation.count,
        root: operation.root,
        vector: DeviceAddr(if operation.vector.is_some() { 8 } else { 0 }),
        levels: operation.levels,
        chunk: operation.chunk,
        piece: operation.piece,
        context: (DeviceAddr(8), 0),
        input: buffer(1 << 40, input),
        output: buffer(if in_place { 1 << 40 } else { 1 << 41 }, output),
        start_notify: 0,
        done_notify: 0,
        timeout_ms: 1,
    }
}

fn text(number: u32, operation: &Operation, explanation: &Explanation) -> String {
    let head = format!("launch {number}  {operation}\n");
    let line = |what: String| format!("          {what}\n");
    let lines: String = match explanation {
        Explanation::Hits => line("hit: its graph is replayed".to_owned()),
        Explanation::Nothing => line("miss: nothing is recorded yet; recorded now".to_owned()),
        Explanation::Recording => line("miss: it is being recorded".to_owned()),
        Explanation::Bypassed(reasons) => {
            reasons.iter().map(|reason| line(format!("bypassed: {}", reason.text()))).collect()
        }
        Explanation::Misses(near) => {
            let differences = near.differences().map(|difference| line(format!("  {difference}")));
            line("miss: the nearest recording differs in".to_owned())
                + &differences.collect::<String>()
                + &line("recorded now".to_owned())
        }
    };
    head + &lines
}

fn value(operation: &Operation, explanation: &Explanation) -> Value {
    let outcome = match explanation {
        Explanation::Hits => "hit",
        Explanation::Bypassed(_) => "bypassed",
        Explanation::Nothing | Explanation::Recording | Explanation::Misses(_) => "miss",
    };
    let reasons: Vec<_> = match explanation {
        Explanation::Bypassed(reasons) => reasons.iter().map(|reason| reason.text()).collect(),
        _ => Vec::new(),
    };
    let nearest: Option<Vec<Value>> = match explanation {
        Explanation::Misses(near) => Some(
            near.differences()
                .map(|difference| {
                    json!({
                        "field": difference.field.name(),
                        "recorded": difference.stored.to_string(),
                        "now": difference.wanted.to_string(),
                    })
                })
                .collect(),
        ),
        _ => None,
    };
    json!({
        "operation": operation.to_string(), "outcome": outcome, "reasons": reasons, "nearest_differs_in": nearest,
    })
}
