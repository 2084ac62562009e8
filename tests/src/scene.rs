//! A communicator on which an operation will fail, and what must hold afterwards.

use core::time::Duration;
use std::time::Instant;

use crate::bench::{Bench, Case};
use host_launcher::Error;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Config, Operation};
use host_launcher::diagnosis::Report;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

/// Deadline of operations that fail at it.
pub const TIMEOUT: Duration = Duration::from_millis(200);
/// Deadline of operations that fail long before it.
pub const FAR: Duration = Duration::from_secs(20);
/// How much later than its deadline a failure may be reported on a busy machine.
const SLACK: Duration = Duration::from_secs(3);
/// Bytes of the buffers.
const BUFFER: u64 = 64 << 10;

/// An all-reduce of 1000 fp32 by `algorithm`.
#[must_use]
pub fn case(algorithm: Algorithm) -> Case {
    let operation = Operation {
        op: OpKind::AllReduce,
        count: 1000,
        dtype: DataType::Fp32,
        reduce: ReduceOp::Sum,
        algorithm,
        staging: Staging::Scratch,
        ..Operation::default()
    };
    Case { operation, in_place: false, shift: 0, seed: 7 }
}

/// A communicator on which an operation will fail.
#[derive(Debug)]
pub struct Scene<'c> {
    cluster: &'c Cluster,
    bench: Bench<'c>,
    timeout: Duration,
}

impl<'c> Scene<'c> {
    /// A communicator whose operations fail at [`TIMEOUT`].
    ///
    /// # Panics
    /// As all methods here, when something else goes wrong than the test is about.
    #[must_use]
    pub fn new(cluster: &'c Cluster) -> Self {
        Self::with_deadline(cluster, TIMEOUT)
    }

    /// As [`new`](Self::new), with another deadline.
    ///
    /// # Panics
    /// When the cluster has no room for it.
    #[must_use]
    pub fn with_deadline(cluster: &'c Cluster, timeout: Duration) -> Self {
        Self::with(cluster, Config { timeout, ..Config::default() })
    }

    /// As [`new`](Self::new), with another configuration; name and source of the deadline are the test's.
    ///
    /// # Panics
    /// When the cluster has no room for it.
    #[must_use]
    pub fn with(cluster: &'c Cluster, config: Config) -> Self {
        let timeout = config.timeout;
        let config = Config { name: "test".to_owned(), timeout_source: "the test".to_owned(), ..config };
        let bench = Bench::new(cluster, config, BUFFER).expect("there is room");
        Self { cluster, bench, timeout }
    }

    /// The buffers and the communicator.
    pub fn bench(&mut self) -> &mut Bench<'c> {
        &mut self.bench
    }

    /// Waits for what has been launched, which must fail in time: at its deadline, or long before one that is far.
    ///
    /// # Panics
    /// When it does not.
    pub fn failure(&mut self) -> Failure {
        let start = Instant::now();
        let error = self.bench.communicator().synchronize().expect_err("a fault was put in");
        let elapsed = start.elapsed();
        let most = if self.timeout == FAR { FAR / 2 } else { self.timeout + SLACK };
        assert!(elapsed < most, "{elapsed:?}: {error}");
        Failure { error, elapsed }
    }

    /// Asserts that the communicator is of no use any more, that everything is given back, and that a new one works.
    ///
    /// # Panics
    /// When one of these does not hold.
    pub fn recovers(mut self) {
        let (cluster, case) = (self.cluster, case(Algorithm::Nhr));
        assert!(self.bench.communicator().is_poisoned());
        let refused = self.bench.launch_on(0, &case).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::COMM_POISONED, "{refused}");
        self.bench.abandon().expect("everything is given back");
        let config = Config { timeout: Duration::from_secs(20), ..Config::default() };
        let mut bench = Bench::new(cluster, config, BUFFER).expect("there is room again");
        for seed in 0..3 {
            bench.run(&Case { seed, ..case.clone() }).expect("a new communicator works");
        }
        bench.finish().expect("everything is given back");
    }
}

/// How an operation failed.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    /// How long that took.
    pub elapsed: Duration,
}

impl Failure {
    /// Asserts what must be known: the code, the rank to look at, the rank where it showed, and the peer there.
    ///
    /// # Panics
    /// When something else was reported.
    pub fn assert(&self, code: ErrorCode, culprit: u32, rank: u32, peer: Option<u32>) -> &Report {
        let error = &self.error;
        let report = error.diagnosis().unwrap_or_else(|| panic!("no diagnosis: {error}"));
        assert_eq!(error.code(), code, "{error}");
        assert_eq!((report.code, report.name), (code.0, code.name()));
        assert_eq!((report.culprit_rank, report.rank, report.peer), (Some(culprit), rank, peer), "{error}");
        let text = error.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= 12 && lines.iter().all(|line| line.len() < 240), "{text}");
        assert!(lines[0].starts_with(&format!("{code}  comm \"test\" instance ")), "{text}");
        let who = format!("  who      rank {culprit} (host \"server-");
        assert!(lines[1].starts_with(&who), "culprit first: {text}");
        for name in ["since", "cause", "do", "effect"] {
            assert!(lines.iter().any(|line| line.starts_with(&format!("  {name:<8} "))), "{name}: {text}");
        }
        assert!(text.ends_with(report.effect), "{text}");
        report
    }

    /// The error itself.
    #[must_use]
    pub fn error(&self) -> &Error {
        &self.error
    }
}

/// Creates what `algorithm` needs by running it once.
///
/// # Panics
/// When that fails.
pub fn warm(comm: &mut Bench<'_>, algorithm: Algorithm) {
    comm.run(&case(algorithm)).expect("nothing is wrong yet");
}
