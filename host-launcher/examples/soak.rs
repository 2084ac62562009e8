//! Lives one long simulated life and prints what it came to as JSON: `soak SEED MINUTES`. `cargo xtask soak` judges it.

use core::time::Duration;
use std::process::ExitCode;

use host_launcher::sim::soak;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let (Some(Ok(seed)), Some(Ok(minutes)), None) = (numbers.next(), numbers.next(), numbers.next()) else {
        eprintln!("usage: soak SEED MINUTES");
        return ExitCode::from(2);
    };
    match soak(seed, Duration::from_secs(60 * minutes)) {
        Ok(endurance) => {
            println!("{}", serde_json::to_string(&endurance).expect("numbers become JSON"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
