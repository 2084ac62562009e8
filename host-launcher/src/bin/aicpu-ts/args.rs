//! The command line.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use host_launcher::faults::Fault;
use host_launcher::traffic::Traffic;
use wire::launch::{Algorithm, CacheMode, Staging};
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

/// What to run.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
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
    /// Algorithm; default: chosen by size and links, or by HCCL_ALGO
    #[arg(long, value_parser = parse_algorithm)]
    pub(crate) algo: Option<Algorithm>,
    /// Algorithms of a composition's levels from the innermost on, as in `ring,nhr`; default: the composition's own
    #[arg(long, value_parser = parse_level, value_delimiter = ',', requires = "algo")]
    pub(crate) levels: Vec<Algorithm>,
    /// Work in a scratch buffer or directly in the users' buffers; default: directly where possible
    #[arg(long, value_parser = parse_staging)]
    pub(crate) staging: Option<Staging>,
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
    /// Replay recorded graphs: on, off, or only what the field's own cache would; default: on, unless
    /// HCCL_OP_EXPANSION_MODE is AICPU_CacheDisable
    #[arg(long, value_name = "MODE", value_parser = parse_cache)]
    pub(crate) cache: Option<CacheMode>,
    /// Use the same memory for input and output
    #[arg(long)]
    pub(crate) in_place: bool,
    /// Capture the operation N times over as one program, which each step replays by one launch
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "in_place",
        value_parser = clap::value_parser!(u32).range(1..=128)
    )]
    pub(crate) capture: Option<u32>,
    /// Seed of the payload, decimal or 0x-hexadecimal
    #[arg(long, value_name = "SEED", default_value = "1", value_parser = parse_seed)]
    pub(crate) seed: u64,
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

/// A mesh is a mesh, with or without its full name.
fn parse_level(text: &str) -> Result<Algorithm, String> {
    if text == "mesh" { Ok(Algorithm::MeshTwoShot) } else { parse_algorithm(text) }
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
