//! Set-up, build, run and check tasks of aicpu-ts: `cargo xtask <task>`.
//!
//! Every check the project has is one of these commands, the same on a desk and in CI. What is missing on a machine
//! is installed by [`setup`], and only there, but for a reader of profiles that [`coverage`] alone needs; every other task
//! says which piece it lacks.

mod bench;
mod campaign;
mod ci;
mod command;
mod coverage;
mod demo;
mod firmware;
mod fuzz;
mod image;
mod layers;
mod mpi;
mod qemu;
mod sanitize;
mod setup;
mod shared_object;
mod size;
mod soak;
mod test;
mod toolchain;
mod workspace;
mod zoo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the aicpu-ts workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what is missing: the aarch64 target and QEMU
    Setup,
    /// Build the aarch64 kernel image
    Image {
        /// Build the shared objects instead, for the AICPU and for this host
        #[arg(long)]
        so: bool,
    },
    /// Boot the image alone under QEMU and report its exit code
    Qemu,
    /// Report sections, stack bound and panic paths of the image
    Size(size::Options),
    /// Set up, then run every test, the ones under QEMU included
    Test(test::Options),
    /// Run every check: format, lints, docs, layers, tests
    Ci,
    /// Set up, build, and run an 8-rank all-reduce on the aarch64 image
    Demo,
    /// Run benchmarks by name
    Bench(bench::Options),
    /// Simulate lives of clusters by the thousand, with faults, and check what must be zero
    Campaign(campaign::Options),
    /// Measure which lines of the core crates tests run
    Coverage,
    /// Fuzz everything that reads bytes of another party
    Fuzz(fuzz::Options),
    /// Run tests of unsafe code and simulated lives under AddressSanitizer
    Sanitize,
    /// Live one long simulated life, and check that nothing leaks, grows or slows down
    Soak(soak::Options),
    /// Plant known defects, one at a time, and check that a test finds each
    Zoo(zoo::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Setup => setup::run(),
        Task::Image { so: true } => shared_object::build().map(|dir| println!("{}", dir.display())),
        Task::Image { so: false } => image::build().map(|image| println!("{}", image.display())),
        Task::Qemu => qemu::run(),
        Task::Size(options) => size::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Ci => ci::run(),
        Task::Demo => demo::run(),
        Task::Bench(options) => bench::run(&options),
        Task::Campaign(options) => campaign::run(&options),
        Task::Coverage => coverage::run(),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Sanitize => sanitize::run(),
        Task::Soak(options) => soak::run(&options),
        Task::Zoo(options) => zoo::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
