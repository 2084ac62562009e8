//! The reliability campaign: everything with a size that section "Goals of the specification" of `docs/reliability.md` has,
//! but fuzzing, planted defects and soaks.
//!
//! A leg is one kind of proof; each of its parts is a command, printed where it fails, so that it can be repeated by
//! itself. What must be zero is zero or the campaign fails; what is a share or a count is compared with its goal.

mod lives;
mod sim;
mod tests;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::command;

/// Options of `cargo xtask campaign`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// How large
    #[arg(value_enum, default_value_t = Size::Ci)]
    size: Size,
    /// Only this leg, repeatable
    #[arg(long, value_enum, value_name = "NAME")]
    leg: Vec<Leg>,
    /// Play only so many of a hundred seeds
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=100))]
    percent: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    seed: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// Sizes of a campaign, by the seeds of its lives with faults.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Size {
    /// 20,000 seeds
    Ci,
    /// 500,000 seeds
    Nightly,
    /// 5,000,000 seeds
    Release,
}

/// What a campaign consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Leg {
    /// Simulated lives with and without faults chosen by their seeds, and a kill at each task
    Lives,
    /// Each fault in each operation, in each of its phases
    Cells,
    /// A kill behind every event of eight operations
    Kills,
    /// The same life in many schedules: the same bits
    Schedules,
    /// Mistakes in graphs, which the verifier must not miss
    Mutants,
    /// Graphs of all templates, proved by the verifier
    Graphs,
    /// Small models, tried to their last state
    Models,
    /// Pairs of 16-bit floating-point numbers, reduced
    Pairs,
}

impl Size {
    /// Picks the figure of this size.
    const fn of<T: Copy>(self, [ci, nightly, release]: [T; 3]) -> T {
        match self {
            Self::Ci => ci,
            Self::Nightly => nightly,
            Self::Release => release,
        }
    }
}

impl Options {
    /// Returns that many in a hundred of so many, at least one.
    fn share(&self, seeds: u64) -> u64 {
        (seeds * self.percent / 100).max(1)
    }
}

/// Runs a campaign.
///
/// # Errors
/// When a figure is not what it must be, after all legs have run.
pub(crate) fn run(options: &Options) -> Result<()> {
    command::run(command::cargo("build").args(["--release", "--package", "host-launcher"]))?;
    let chosen = if options.leg.is_empty() { Leg::value_variants() } else { &options.leg };
    let mut faults = Vec::new();
    for leg in chosen {
        let start = Instant::now();
        let found = match leg {
            Leg::Lives => lives::seeds(options),
            Leg::Cells => lives::cells(options),
            Leg::Kills => lives::kills(options),
            Leg::Schedules => lives::schedules(options),
            Leg::Mutants => Ok(tests::mutants(options.size)),
            Leg::Graphs => Ok(tests::graphs(options.size)),
            Leg::Models => Ok(tests::models(options.size)),
            Leg::Pairs => Ok(tests::pairs(options.size)),
        }?;
        let verdict = if found.is_empty() { "passed" } else { "FAILED" };
        println!("== {leg:?}: {verdict} in {:.0} s", start.elapsed().as_secs_f64());
        faults.extend(found);
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}
