//! A cluster, an operation on it that will fail, and what must hold afterwards.

use core::time::Duration;
use std::time::Instant;

use aicpu_tests::bench::{Bench, Case};
use host_launcher::Error;
use host_launcher::cluster::Cluster;
use host_launcher::communicator::{Config, Operation};
use host_launcher::diagnosis::Report;
use wire::launch::{Algorithm, OpKind, Staging};
use wire::{DataType, ErrorCode, ReduceOp};

/// Deadline of operations that fail at it.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(200);
/// Deadline of operations that fail long before it.
pub(crate) const FAR: Duration = Duration::from_secs(20);
/// How much later than its deadline a failure may be reported on a busy machine.
const SLACK: Duration = Duration::from_secs(1);
/// Bytes of the buffers.
const BUFFER: u64 = 64 << 10;

/// An all-reduce of 1000 fp32 by `algorithm`.
pub(crate) fn case(algorithm: Algorithm) -> Case {
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
pub(crate) struct Scene<'c> {
    cluster: &'c Cluster,
    bench: Bench<'c>,
    timeout: Duration,
}

impl<'c> Scene<'c> {
    pub(crate) fn new(cluster: &'c Cluster) -> Self {
        Self::with_deadline(cluster, TIMEOUT)
    }

    pub(crate) fn with_deadline(cluster: &'c Cluster, timeout: Duration) -> Self {
        let config = Config {
            name: "test".to_owned(),
            timeout,
            timeout_source: "the test".to_owned(),
            ..Config::default()
        };
        Self { cluster, bench: Bench::new(cluster, config, BUFFER).unwrap(), timeout }
    }

    /// The buffers and the communicator.
    pub(crate) fn bench(&mut self) -> &mut Bench<'c> {
        &mut self.bench
    }

    /// Waits for what has been launched, which must fail in time: at its deadline, or long before one that is far.
    pub(crate) fn failure(&mut self) -> Failure {
        let start = Instant::now();
        let error = self.bench.communicator().synchronize().expect_err("a fault was put in");
        let elapsed = start.elapsed();
        let most = if self.timeout == FAR { FAR / 2 } else { self.timeout + SLACK };
        assert!(elapsed < most, "{elapsed:?}: {error}");
        Failure { error, elapsed }
    }

    /// Asserts that the communicator is of no use any more, that everything is given back, and that a new one works.
    pub(crate) fn recovers(mut self) {
        let (cluster, case) = (self.cluster, case(Algorithm::Nhr));
        assert!(self.bench.communicator().is_poisoned());
        let refused = self.bench.launch_on(0, &case).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::COMM_POISONED, "{refused}");
        self.bench.abandon().unwrap();
        let config = Config { timeout: Duration::from_secs(20), ..Config::default() };
        let mut bench = Bench::new(cluster, config, BUFFER).unwrap();
        for seed in 0..3 {
            bench.run(&Case { seed, ..case.clone() }).unwrap();
        }
        bench.finish().unwrap();
    }
}

/// How an operation failed.
pub(crate) struct Failure {
    error: Error,
    pub(crate) elapsed: Duration,
}

impl Failure {
    /// Asserts what must be known: the code, the rank to look at, the rank where it showed, and the peer there.
    pub(crate) fn assert(&self, code: ErrorCode, culprit: u32, rank: u32, peer: Option<u32>) -> &Report {
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
    pub(crate) fn error(&self) -> &Error {
        &self.error
    }
}

/// Creates what `algorithm` needs by running it once.
pub(crate) fn warm(comm: &mut Bench<'_>, algorithm: Algorithm) {
    comm.run(&case(algorithm)).unwrap();
}
