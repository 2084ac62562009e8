//! The command `aicpu-ts`: run, explain and prove collectives, explain failures, look at topologies and settings.
//!
//! Exit status: 0 success, 1 failure, 2 wrong usage. Results go to standard output, everything else to standard
//! error, so that output can be piped.

mod args;
mod diagnose;
mod env;
mod explain;
mod image;
mod output;
mod run;
mod sim;
mod topo;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use host_launcher::Error;

use args::{Cli, Command};
use output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut output = Output::new(cli.json);
    let result = match &cli.command {
        Command::Run(args) => run::run(args, &mut output),
        Command::Verify(args) => verify::verify(args, &mut output),
        Command::Explain(args) => explain::explain(args, &mut output),
        Command::Topo(args) => topo::topo(args, &mut output),
        Command::Diagnose(args) => diagnose::diagnose(args, &mut output),
        Command::Sim(args) => sim::sim(args, &mut output),
        Command::Faults => sim::faults(&mut output),
        Command::Env => env::env(&mut output),
        Command::Image(command) => image::image(command, &mut output),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.failure(&error);
            exit_code(&error)
        }
    }
}

/// A value that an option does not allow is wrong usage; everything else is a failure.
fn exit_code(error: &Error) -> ExitCode {
    use wire::ErrorCode;
    match error.code() {
        ErrorCode::ARGUMENT_VALUE | ErrorCode::RANKS_RANGE | ErrorCode::PROFILE => ExitCode::from(2),
        _ => ExitCode::FAILURE,
    }
}
