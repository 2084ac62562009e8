//! The command line.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use host_launcher::faults::Fault;
use host_launcher::traffic::Traffic;
use wire::launch::{Algorithm, CacheMode, OpKind, Staging};
use wire::{DataType, ReduceOp};

/// Collectives through an open AICPU_TS runtime, on software NPUs.
#[derive(Debug, Parser)]
#[command(name = "aicpu-ts", version, about, disable_help_subcommand = false, args_override_self = false)]
pub(crate) struct Cli {
    /// Print one JSON object a line instead of tables
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// What to do
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The sub-commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a collective on all ranks, check every byte, count what it took
    Run(RunArgs),
    /// Prove the task graphs of an operation right, for every schedule, without running them
    Verify(VerifyArgs),
    /// Show every candidate for an operation with its modelled time, and why one is chosen; with --cache, why launches
    /// hit or miss
    Explain(ExplainArgs),
    /// Simulate whole lives of a cluster under virtual time, with faults
    Sim(SimArgs),
    /// Print the faults that run and sim can put in
    Faults,
    /// Print how the ranks are connected
    Topo(WorldArgs),
    /// Explain the dumps of a failed run
    Diagnose(DiagnoseArgs),
    /// Print the settings in force, where each comes from and why it differs from what was asked
    Env,
    /// Look at kernels
    #[command(subcommand)]
    Image(ImageCommand),
}

/// What can be done with kernels.
#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Print what a kernel file is (image or shared object), what it needs, and what a loader would refuse
    Inspect {
        /// The file
        file: PathBuf,
    },
}

/// Which ranks there are.
#[derive(Args, Clone, Debug)]
#[command(group(ArgGroup::new("world").required(true).args(["rank_table", "ranks"])))]
pub(crate) struct WorldArgs {
    /// Rank table file (flat, 1.0, 1.2 or 2.0)
    #[arg(long, value_name = "FILE")]
    pub(crate) rank_table: Option<PathBuf>,
    /// Topology file of a 2.0 rank table
    #[arg(long, value_name = "FILE", requires = "rank_table", conflicts_with = "ranks")]
    pub(crate) topology: Option<PathBuf>,
    /// Number of ranks, without a rank table
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536), allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// Devices per server, with --ranks
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=65), conflicts_with = "rank_table", allow_negative_numbers = true)]
    pub(crate) devices_per_server: u32,
}

/// Machine that algorithms are chosen for unless another is named.
pub(crate) const DEFAULT_PROFILE: &str = "software-npu";

/// What to carry out.
#[derive(Args, Clone, Debug)]
pub(crate) struct OperationArgs {
    /// Operation
    #[arg(value_parser = parse_op)]
    pub(crate) op: Traffic,
    #[command(flatten)]
    pub(crate) world: WorldArgs,
    /// Size of one rank's share: all-reduce, reduce and broadcast the whole, others one rank's block, v operations the
    /// largest block there may be. Suffixes K, M, G (powers of 1024)
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = parse_size, conflicts_with = "count")]
    pub(crate) bytes: u64,
    /// The same in elements
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Root of a broadcast, reduce, scatter or gather
    #[arg(long, value_name = "RANK", default_value_t = 0)]
    pub(crate) root: u32,
    /// Data type
    #[arg(long, default_value = "fp32", value_parser = parse_dtype)]
    pub(crate) dtype: DataType,
    /// Reduction
    #[arg(long = "op", value_name = "OP", id = "reduce", default_value = "sum", value_parser = parse_reduce)]
    pub(crate) reduce: ReduceOp,
    /// Algorithm; default: by HCCL_ALGO, or the least modelled time
    #[arg(long, value_parser = parse_algorithm)]
    pub(crate) algo: Option<Algorithm>,
    /// Algorithms of a composition's levels from the innermost on, as in `mesh,nhr`; - for its own choice
    #[arg(
        long,
        value_name = "ALGO,ALGO",
        value_delimiter = ',',
        num_args = 1,
        allow_hyphen_values = true,
        value_parser = parse_level
    )]
    pub(crate) levels: Vec<Level>,
    /// Algorithm from a file, MSCCL XML
    #[arg(long, value_name = "FILE", conflicts_with_all = ["algo", "staging", "levels"])]
    pub(crate) algo_file: Option<PathBuf>,
    /// Algorithm from a file that is a candidate as the built-in ones are: chosen if its modelled time is the least
    #[arg(long, value_name = "FILE", conflicts_with = "algo_file")]
    pub(crate) offer_file: Option<PathBuf>,
    /// Work in a scratch buffer or directly in the users' buffers; default: the least modelled time
    #[arg(long, value_parser = parse_staging)]
    pub(crate) staging: Option<Staging>,
    /// Use the same memory for input and output
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Seed of the payload, and of the counts and places of v operations; decimal or 0x-hexadecimal
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = parse_seed)]
    pub(crate) seed: u64,
}

/// What to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    /// Machine that algorithms are chosen for: a built-in profile or a file; the software NPUs' own by default
    #[arg(long, value_name = "PROFILE", default_value = DEFAULT_PROFILE)]
    pub(crate) profile: String,
    /// What runs the kernels: a thread of this process, or the aarch64 image under QEMU
    #[arg(long, value_enum, default_value_t = AicpuKind::Thread)]
    pub(crate) aicpu: AicpuKind,
    /// The image, with --aicpu qemu or qemu-per-npu
    #[arg(
        long,
        value_name = "FILE",
        env = "AICPU_IMAGE_ELF",
        default_value = "target/image/aicpu-kernel.elf"
    )]
    pub(crate) image: PathBuf,
    /// Print what the kernels log on standard error; kernels in a thread log nothing
    #[arg(long)]
    pub(crate) log: bool,
    /// Repetitions
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// Pairs of buffers that take turns, so that every step has other addresses than the one before
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) rotate_buffers: u32,
    /// Counts that take turns, as a serving load has them: the operation's own and those below it
    #[arg(
        long,
        value_name = "K",
        default_value_t = 1,
        conflicts_with_all = ["capture", "fault"],
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) sizes: u64,
    /// Communicators over the same ranks whose operations are under way at the same time, each with buffers of its own
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "fault",
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    pub(crate) comms: Option<u32>,
    /// Streams that the communicators take turns on: what is on one stream is carried out one after the other. Without
    /// --comms there are as many communicators as streams
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "fault",
        value_parser = clap::value_parser!(u32).range(1..=16)
    )]
    pub(crate) streams: Option<u32>,
    /// Replay recorded graphs: on, off, or only what the field's own cache would; default: on, unless
    /// HCCL_OP_EXPANSION_MODE is AICPU_CacheDisable
    #[arg(long, value_name = "MODE", value_parser = parse_cache)]
    pub(crate) cache: Option<CacheMode>,
    /// Capture the operation N times over as one program, which each step replays by one launch
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "in_place",
        value_parser = clap::value_parser!(u32).range(1..=128)
    )]
    pub(crate) capture: Option<u32>,
    /// How long an operation may take, milliseconds; default: HCCL_EXEC_TIMEOUT, with --fault 2000
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,
    /// Write a dump of every rank to this folder when the operation fails, for `aicpu-ts diagnose`
    #[arg(long, value_name = "DIR")]
    pub(crate) dump: Option<PathBuf>,
    /// Put in this fault, repeatable: as `kill:rank=2@step=1`; see `aicpu-ts faults`. Without a
    /// rank, the seed chooses one
    #[arg(long, value_name = "FAULT", value_parser = Fault::parse)]
    pub(crate) fault: Vec<Fault>,
}

/// What to explain.
#[derive(Args, Clone, Debug)]
pub(crate) struct DiagnoseArgs {
    /// Dumps of the ranks of one communicator, or folders of such
    #[arg(value_name = "DUMP", required = true)]
    pub(crate) dumps: Vec<PathBuf>,
}

/// What to prove.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    /// Every algorithm and staging that carries the operation out
    #[arg(long, conflicts_with_all = ["algo", "staging", "algo_file", "offer_file"])]
    pub(crate) all_algos: bool,
    /// Most elements of a chunk; default: as many as scratch holds
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) chunk: u64,
}

/// What to explain.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) operation: OperationArgs,
    /// Machines to model: built-in profiles or files; default: the one run chooses for, and a product
    #[arg(long, value_name = "PROFILE", conflicts_with = "cache")]
    pub(crate) profile: Vec<String>,
    /// Explain how launches fare at the task cache, one after the other
    #[arg(long, conflicts_with_all = ["algo_file", "offer_file"])]
    pub(crate) cache: bool,
    /// Who decides what is recorded
    #[arg(long, value_enum, default_value_t = CachePolicy::Ours, requires = "cache")]
    pub(crate) policy: CachePolicy,
    /// The next launch: what differs from the one before, as options of an operation. Everything behind belongs to it, up
    /// to the next --then
    #[arg(long, value_name = "OPTIONS", num_args = 1.., allow_hyphen_values = true, requires = "cache")]
    pub(crate) then: Vec<String>,
}

/// Who decides what the cache records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CachePolicy {
    /// This runtime: whatever is one chunk
    Ours,
    /// What the field's own cache records
    Hccl,
}

impl CachePolicy {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Hccl => "hccl",
        }
    }

    pub(crate) const fn mode(self) -> CacheMode {
        match self {
            Self::Ours => CacheMode::On,
            Self::Hccl => CacheMode::Hccl,
        }
    }
}

/// What of a launch differs from the one before.
#[derive(Clone, Debug, Parser)]
#[command(name = "--then", no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
pub(crate) struct ThenArgs {
    #[arg(value_parser = parse_op)]
    op: Option<Traffic>,
    #[arg(long, value_parser = parse_size, conflicts_with = "count")]
    bytes: Option<u64>,
    #[arg(long)]
    count: Option<u64>,
    #[arg(long)]
    root: Option<u32>,
    #[arg(long, value_parser = parse_dtype)]
    dtype: Option<DataType>,
    #[arg(long = "op", id = "reduce", value_parser = parse_reduce)]
    reduce: Option<ReduceOp>,
    #[arg(long, value_parser = parse_algorithm)]
    algo: Option<Algorithm>,
    #[arg(long, value_delimiter = ',', num_args = 1, value_parser = parse_level)]
    levels: Vec<Level>,
    #[arg(long, value_parser = parse_staging)]
    staging: Option<Staging>,
    /// Turns in-place on; out of place is what --out-of-place says
    #[arg(long, conflicts_with = "out_of_place")]
    in_place: bool,
    #[arg(long)]
    out_of_place: bool,
}

impl ThenArgs {
    /// Returns the launch that follows `before`.
    pub(crate) fn after(self, before: &OperationArgs) -> OperationArgs {
        let mut next = before.clone();
        next.op = self.op.unwrap_or(next.op);
        if self.bytes.is_some() || self.count.is_some() {
            (next.bytes, next.count) = (self.bytes.unwrap_or(next.bytes), self.count);
        }
        next.root = self.root.unwrap_or(next.root);
        next.dtype = self.dtype.unwrap_or(next.dtype);
        next.reduce = self.reduce.unwrap_or(next.reduce);
        next.algo = self.algo.or(next.algo);
        next.staging = self.staging.or(next.staging);
        next.in_place = (next.in_place || self.in_place) && !self.out_of_place;
        if !self.levels.is_empty() {
            next.levels = self.levels;
        }
        next
    }
}

/// The algorithm of a level, `None` for a composition's own choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(pub(crate) Option<Algorithm>);

/// A mesh is a mesh, with or without its full name.
fn parse_level(text: &str) -> Result<Level, String> {
    match text {
        "-" => Ok(Level(None)),
        "mesh" => Ok(Level(Some(Algorithm::MeshTwoShot))),
        _ => parse_algorithm(text).map(|algorithm| Level(Some(algorithm))),
    }
}

/// What to simulate. The seed chooses what is not given, and chooses it the same whatever is.
#[derive(Args, Clone, Debug)]
pub(crate) struct SimArgs {
    /// The seed, or with --seeds the first, decimal or 0x-hexadecimal
    #[arg(long, value_name = "SEED", default_value = "0", value_parser = parse_seed)]
    pub(crate) seed: u64,
    /// Play so many seeds and print totals
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seeds: Option<u64>,
    /// Number of ranks; default: 2 to 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=128), allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// Operations one after another, at most; default: up to 3
    #[arg(long, value_name = "N")]
    pub(crate) operations: Option<usize>,
    /// Elements per rank, at most; default: up to 512
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// What every operation is; default: the seed's choice
    #[arg(long, value_parser = parse_op_kind)]
    pub(crate) op: Option<OpKind>,
    /// Algorithm of the operations that have it; default: the seed's choice
    #[arg(long, value_parser = parse_algorithm)]
    pub(crate) algo: Option<Algorithm>,
    /// Play the life of this seed, in the order of events of the others
    #[arg(long, value_name = "SEED", value_parser = parse_seed)]
    pub(crate) life: Option<u64>,
    /// Repeat each seed with the faults behind event 1, 2, 3, … of the operation, to its last
    #[arg(long, requires_all = ["seeds", "fault"])]
    pub(crate) each_event: bool,
    /// Faults chosen by the seed, at most, in nine of ten seeds
    #[arg(long, value_name = "MOST", default_value_t = 0, conflicts_with = "fault")]
    pub(crate) faults: u32,
    /// Put in this fault, repeatable: as `kill:rank=2@step=1`; see `aicpu-ts faults`
    #[arg(long, value_name = "FAULT", value_parser = Fault::parse)]
    pub(crate) fault: Vec<Fault>,
    /// How long an operation may take, milliseconds of virtual time
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: u64,
    /// Threads that play seeds
    #[arg(long, value_name = "N", default_value_t = default_jobs())]
    pub(crate) jobs: usize,
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What runs the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AicpuKind {
    /// A thread of this process
    Thread,
    /// The aarch64 image under QEMU, one machine for up to 16 NPUs: fast, and keeps a processor busy
    Qemu,
    /// The same with a machine for each NPU, which sleeps while there is nothing to do
    QemuPerNpu,
}

/// Finds a value by the name users type; the message lists what there is.
fn by_name<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> Result<T, String> {
    let names = || all.iter().map(|value| name(*value)).collect::<Vec<_>>().join(", ");
    all.iter()
        .copied()
        .find(|value| name(*value) == text)
        .ok_or_else(|| format!("expected one of: {}", names()))
}

fn parse_op(text: &str) -> Result<Traffic, String> {
    let names = || Traffic::all().iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    Traffic::named(text).ok_or_else(|| format!("expected one of: {}", names()))
}

fn parse_op_kind(text: &str) -> Result<OpKind, String> {
    by_name(text, OpKind::ALL, OpKind::name)
}

fn parse_dtype(text: &str) -> Result<DataType, String> {
    // The public interface says bfp16; everybody else says bf16.
    by_name(if text == "bf16" { "bfp16" } else { text }, DataType::ALL, DataType::name)
}

fn parse_reduce(text: &str) -> Result<ReduceOp, String> {
    by_name(text, ReduceOp::ALL, ReduceOp::name)
}

fn parse_algorithm(text: &str) -> Result<Algorithm, String> {
    by_name(text, Algorithm::ALL, Algorithm::name)
}

fn parse_cache(text: &str) -> Result<CacheMode, String> {
    by_name(text, CacheMode::ALL, CacheMode::name)
}

fn parse_staging(text: &str) -> Result<Staging, String> {
    by_name(text, Staging::ALL, Staging::name)
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "expected 0 to 2^64 − 1, decimal or 0x-hexadecimal".to_owned())
}

/// Bytes, with an optional suffix K, M or G.
fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || "expected a number of bytes with an optional suffix K, M or G, as 64M".to_owned();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected());
    }
    let number: u64 = digits.parse().map_err(|_| expected())?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::{Cli, parse_seed, parse_size};
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_numbers_with_one_suffix() {
        assert_eq!(parse_size("8"), Ok(8));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("4g"), Ok(4 << 30));
        for bad in ["", "M", "4GiB", "4 G", "-1", "1_000", "3.5", "99999999999G", "٣"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse_seed("0x5eed"), Ok(0x5eed));
        assert_eq!(parse_seed("18446744073709551615"), Ok(u64::MAX));
        assert!(parse_seed("18446744073709551616").is_err());
    }
}
