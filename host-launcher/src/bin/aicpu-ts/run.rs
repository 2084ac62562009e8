//! `aicpu-ts run`: one operation on all ranks, checked, with the counts that matter.

use core::time::Duration;
use std::sync::Arc;

use ::algorithm_file::AlgorithmFile;
use comfy_table::{Table, presets};
use host_launcher::algorithm_file;
use host_launcher::cluster::{Aicpu, Cluster};
use host_launcher::communicator::{Communicator, Config, Operation};
use host_launcher::faults::{Conduct, Moment};
use host_launcher::image::Image;
use host_launcher::qemu::Options;
use host_launcher::qemu::log::{LogStream, LogTable};
use host_launcher::run::{Run, Setup, Summary, check_memory, memory_for, repeat};
use host_launcher::select::profile::Profile;
use host_launcher::select::{Choice, Question, Selector};
use host_launcher::settings::{ExpansionMode, Settings};
use host_launcher::topology::Topology;
use host_launcher::{Error, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use wire::launch::{Algorithm, CacheMode, OpKind};
use wire::{ErrorCode, ReduceOp};

use crate::args::{AicpuKind, OperationArgs, RunArgs};
use crate::output::Output;
use crate::topo::world;

/// How long an operation with a fault in it may take, unless it is said.
const FAULT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &RunArgs, output: &mut Output) -> Result<()> {
    let settings = Settings::from_env(std::env::vars_os())?;
    for warning in settings.warnings() {
        eprintln!("{warning}");
    }
    let topology = world(&args.operation.world)?;
    let (operation, why) = operation(&args.operation, &args.profile, &topology, &settings)?;
    let buffer_bytes = *settings.buffer_bytes.value();
    let config = config(args, &settings, buffer_bytes);
    let summary = carry_out(args, topology, operation, why, config, output)?;
    if output.is_json() {
        output.line(&serde_json::to_value(&summary).unwrap_or_default());
    } else {
        output.text(&format!("{}\n", table(&summary)));
    }
    Ok(())
}

fn config(args: &RunArgs, settings: &Settings, buffer_bytes: u64) -> Config {
    let (timeout, timeout_source) = match args.timeout {
        Some(millis) => (Duration::from_millis(millis), "--timeout".to_owned()),
        // Nobody who puts a fault in wants to wait half an hour for it.
        None if !args.fault.is_empty() => (FAULT_TIMEOUT, "--fault without --timeout".to_owned()),
        None => {
            (*settings.exec_timeout.value(), format!("HCCL_EXEC_TIMEOUT, {}", settings.exec_timeout.origin()))
        }
    };
    let disabled = *settings.expansion_mode.value() == ExpansionMode::AicpuCacheDisable;
    let cache = args.cache.unwrap_or(if disabled { CacheMode::Off } else { CacheMode::On });
    let dump = args.dump.clone();
    Config {
        name: "run".to_owned(),
        buffer_bytes,
        timeout,
        timeout_source,
        cache,
        compare: *settings.compare.value(),
        dump,
        ..Config::default()
    }
}

/// Turns the arguments into a question.
pub(crate) fn question(args: &OperationArgs, topology: &Topology) -> Result<Question> {
    let size = args.dtype.size_bytes();
    let count = args.count.unwrap_or(args.bytes / size);
    if args.count.is_none() && !args.bytes.is_multiple_of(size) {
        let message = format!("--bytes {} is no multiple of the {size} bytes of {}", args.bytes, args.dtype);
        return Err(Error::new(ErrorCode::ARGUMENT_VALUE, message));
    }
    let op = args.op.op();
    if op.reduces() && !args.dtype.can_reduce() {
        let message = format!("{} cannot be reduced, only moved", args.dtype);
        return Err(Error::new(ErrorCode::LAUNCH_REDUCE, message));
    }
    if args.root > 0 && (!op.is_rooted() || args.root >= topology.ranks()) {
        let message = format!("--root {}: {op} on {} ranks has no such root", args.root, topology.ranks());
        return Err(Error::new(ErrorCode::LAUNCH_ROOT, message));
    }
    let mut levels = [None; 4];
    if args.levels.len() > levels.len() {
        let message =
            format!("--levels names {} levels, there are at most {}", args.levels.len(), levels.len());
        return Err(Error::new(ErrorCode::ARGUMENT_VALUE, message));
    }
    for (level, asked) in levels.iter_mut().zip(&args.levels) {
        *level = asked.0;
    }
    let reduce = if op.reduces() { args.reduce } else { ReduceOp::Sum };
    Ok(Question {
        op,
        count,
        dtype: args.dtype,
        reduce,
        root: args.root,
        in_place: args.in_place,
        algorithm: args.algo_file.as_ref().map(|_| Algorithm::File).or(args.algo),
        levels,
        staging: args.staging,
    })
}

/// Reads the algorithm file that is asked for or offered.
pub(crate) fn file(args: &OperationArgs) -> Result<Option<Arc<AlgorithmFile>>> {
    let path = args.algo_file.as_deref().or(args.offer_file.as_deref());
    Ok(path.map(algorithm_file::read).transpose()?.map(Arc::new))
}

/// Turns the arguments into an operation and the reason for its algorithm; `profile` names the machine it is chosen for.
pub(crate) fn operation(
    args: &OperationArgs,
    profile: &str,
    topology: &Topology,
    settings: &Settings,
) -> Result<(Operation, String)> {
    let question = question(args, topology)?;
    let file = file(args)?;
    let choice = match &file {
        Some(file) if args.algo_file.is_some() => Choice::of_file(file),
        _ => Selector::new(topology, Profile::named(profile)?, settings)?
            .offering(file.clone())
            .choose(&question)?,
    };
    let file = file.filter(|_| choice.algorithm == Algorithm::File);
    let Question { op, count, dtype, reduce, root, .. } = question;
    let vector = args.op.vector(args.seed, count, topology.ranks()).map(Arc::new);
    let operation = Operation {
        op,
        count: if vector.is_some() || op == OpKind::Barrier { 0 } else { count },
        root,
        vector,
        file,
        dtype,
        reduce,
        algorithm: choice.algorithm,
        levels: choice.levels,
        staging: choice.staging,
        ..Operation::default()
    };
    Ok((operation, choice.why))
}

fn carry_out(
    args: &RunArgs,
    topology: Topology,
    operation: Operation,
    why: String,
    config: Config,
    output: &mut Output,
) -> Result<Summary> {
    let aicpu = match args.aicpu {
        AicpuKind::Thread => Aicpu::Thread,
        AicpuKind::Qemu | AicpuKind::QemuPerNpu => Aicpu::Qemu {
            image: Image::read(&args.image)?,
            options: Options { per_npu: args.aicpu == AicpuKind::QemuPerNpu, ..Options::default() },
        },
    };
    let texts = match &aicpu {
        Aicpu::Qemu { image, .. } if args.log => LogTable::read(image.bytes())?,
        _ => None,
    };
    let communicators = args.comms.or(args.streams).unwrap_or(1);
    let memory = memory_for(&operation, topology.ranks(), config.buffer_bytes, args.rotate_buffers)
        .and_then(|bytes| bytes.checked_mul(u64::from(communicators)))
        .ok_or_else(|| {
            Error::new(
                ErrorCode::LAUNCH_COUNT,
                format!("{} elements of {}", operation.count, operation.dtype),
            )
        })?;
    check_memory(&operation, topology.ranks(), args.rotate_buffers, communicators)?;
    let cluster = Cluster::start(topology, memory, &aicpu)?;
    let streams: Vec<_> = (0..args.streams.unwrap_or(0)).map(|_| Arc::new(cluster.stream())).collect();
    let comms = (0..communicators).map(|number| {
        let name = if communicators == 1 { config.name.clone() } else { format!("{}-{number}", config.name) };
        Communicator::create(&cluster, Config { name, ..config.clone() })
    });
    let comms = comms.collect::<Result<Vec<_>>>()?;
    let first = &comms[0];
    let setup = Setup {
        chunk: first.chunk_elements(&operation, args.operation.in_place)?,
        seed: args.operation.seed,
        in_place: args.operation.in_place,
        buffers: args.rotate_buffers,
        capture: args.capture.unwrap_or(0),
    };
    let retry = first.retry(&operation, args.operation.in_place)?;
    let mut runs = Vec::new();
    for (number, comm) in (0..).zip(comms) {
        // Data of its own, so that no communicator's bytes pass for another's.
        let setup = Setup { seed: setup.seed.wrapping_add(number), ..setup };
        let mut run = Run::prepare(&cluster, comm, operation.clone(), &setup)?;
        run.vary(args.sizes)?;
        runs.push(run);
    }
    for (run, stream) in runs.iter_mut().zip(streams.iter().cycle()) {
        run.put_on(Arc::clone(stream));
    }
    runs[0].behave(arrange(args, &cluster)?);
    let bar = progress(args.steps);
    let mut logs: Vec<LogStream<'_>> =
        texts.iter().flat_map(|texts| (0..cluster.topology().ranks()).map(|_| texts.stream())).collect();
    let mut print_logs = || bar.suspend(|| print(&cluster, &mut logs));
    let summary = repeat(&mut runs, args.steps, why, |done| {
        print_logs();
        bar.set_position(done);
    });
    print_logs();
    bar.finish_and_clear();
    if summary.is_err() && !args.fault.is_empty() {
        output.note("retry", json!(retry), &retry.to_string());
        let recovery = recover(&cluster, runs, config, operation, &setup);
        let text = match &recovery {
            Ok(()) => "a new communicator has carried the operation out, every byte right".to_owned(),
            Err(error) => format!("a new communicator: {error}"),
        };
        output.note("recovered", recovery.is_ok().into(), &text);
    }
    summary
}

/// Arranges the faults that were asked for.
fn arrange(args: &RunArgs, cluster: &Cluster) -> Result<Conduct> {
    let mut conduct = Conduct::default();
    let mut dice = fastrand::Rng::with_seed(args.operation.seed);
    for fault in &args.fault {
        let fault = fault.placed(cluster.topology().ranks(), &mut dice);
        if let Some(Moment::Event(_)) = fault.at {
            let message = format!("--fault {fault}: only a simulation has events to count");
            return Err(Error::new(ErrorCode::ARGUMENT_VALUE, message).remedy("use `sim`, or a phase"));
        }
        if !fault.apply(cluster, &mut conduct) {
            let message = format!("--fault {fault}: there are {} ranks", cluster.topology().ranks());
            return Err(Error::new(ErrorCode::ARGUMENT_VALUE, message));
        }
    }
    Ok(conduct)
}

/// Goes on after a failure as a process would: gives everything back, takes the faults out, and starts anew.
fn recover(
    cluster: &Cluster,
    runs: Vec<Run<'_>>,
    config: Config,
    operation: Operation,
    setup: &Setup,
) -> Result<()> {
    runs.into_iter().try_for_each(Run::abandon)?;
    (0..cluster.topology().ranks()).try_for_each(|rank| cluster.repair(rank))?;
    let timeout = config.timeout.max(Duration::from_secs(20));
    let comm = Communicator::create(cluster, Config { timeout, ..config })?;
    let mut run = Run::prepare(cluster, comm, operation, setup)?;
    run.step()?;
    run.end()?.destroy()
}

/// Prints what the kernels have logged since the last time.
fn print(cluster: &Cluster, logs: &mut [LogStream<'_>]) {
    for (rank, log) in (0..).zip(logs) {
        for line in log.decode(&cluster.take_log(rank)) {
            eprintln!("rank {rank}: {line}");
        }
    }
}

/// A bar on standard error where the work is long enough to need one.
fn progress(steps: u64) -> ProgressBar {
    let target = if steps > 1 { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} steps, {eta} left") {
        bar.set_style(style);
    }
    bar
}

fn table(summary: &Summary) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let unit = match summary.captured {
        0 => "operation".to_owned(),
        times => format!("replay of {times} operations"),
    };
    let per = |what: &str| format!("{what}, per {unit} over all ranks");
    let kinds = &summary.kinds;
    let links = &summary.bytes_per_link;
    let operation = format!(
        "{} {} × {} ({} bytes){} on {} ranks{}",
        summary.op,
        summary.dtype,
        summary.count,
        summary.bytes,
        summary.reduce.map_or(String::new(), |reduce| format!(" {reduce}")),
        summary.ranks,
        if summary.sizes > 1 { format!(", {} sizes in turn", summary.sizes) } else { String::new() }
    );
    let at_once = match (summary.launches, summary.streams) {
        (1, _) => None,
        (communicators, 0) => Some(format!("{communicators} communicators")),
        (communicators, streams) => Some(format!(
            "{communicators} communicators on {streams} stream(s); {} launches of a step waited for their turn",
            summary.held
        )),
    };
    let verified = if summary.verified {
        format!("every byte of every rank, {} of {} steps", summary.repetitions, summary.repetitions)
    } else {
        "no".to_owned()
    };
    for (name, value) in [
        ("operation", operation),
        ("verified", verified),
        ("algorithm", format!("{} ({}): {}", summary.algorithm, summary.staging, summary.why)),
        ("AI CPU", summary.aicpu.to_owned()),
        ("at once", at_once.unwrap_or_default()),
        ("steps", format!("{} in {} chunk(s)", summary.steps, summary.chunks)),
        ("host ops", format!("{} per {unit} and rank: record, launch, wait", summary.host_ops)),
        (
            "descriptors",
            per(&format!(
                "{} = {} copies + {} reductions + {} transfers + {} signals + {} work requests + posts",
                summary.descriptors,
                kinds.copies,
                kinds.reduces,
                kinds.transfers,
                kinds.signals,
                summary.wqes
            )),
        ),
        ("doorbells", per(&summary.doorbells.to_string())),
        (
            "bytes moved",
            per(&format!("local {}, HCCS {}, RoCE {}, UB {}", links.local, links.hccs, links.roce, links.ub)),
        ),
        (
            "measured here",
            format!(
                "{:.1} µs median, {:.1} µs fastest, launch to last done",
                summary.measured_us, summary.measured_min_us
            ),
        ),
        (
            "measured here",
            format!(
                "{} ns expanding (95 % within {}), {} ns replaying ({}), sum over the kernels",
                summary.expand_ns, summary.expand_p95_ns, summary.replay_ns, summary.replay_p95_ns
            ),
        ),
        (
            "cache",
            format!(
                "{} hits, {} misses, {} bypassed, over all ranks and steps",
                summary.cache_hits, summary.cache_misses, summary.cache_bypassed
            ),
        ),
    ] {
        if !value.is_empty() {
            table.add_row([name, &value]);
        }
    }
    table
}
