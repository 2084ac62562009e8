//! The emulator as a child process: started, watched, and never left behind.
//!
//! A thread of its own starts the child and reads its output until it ends. The kernel ends the child when that
//! thread ends, however this process dies; dropping [`Emulator`] ends it in the ordinary way.

// UNSAFETY: asking to be ended with the parent must happen in the child, between fork and exec.
#![expect(unsafe_code, reason = "pre_exec has no safe form")]

use core::fmt;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use wire::ErrorCode;
use wire::boot::{EXIT_FAULT, EXIT_PANIC, EXIT_REFUSED};

use crate::error::{Error, Result};

/// Most console output that is kept; the emulator may print more.
const CONSOLE_BYTES: usize = 64 << 10;

/// How an emulator ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code: its own, or the image's through semihosting.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self {
            Self::Signal(signal) => return write!(f, "the emulator was ended by signal {signal}"),
            Self::Code(code) => *code,
        };
        let meaning = match u8::try_from(code) {
            Ok(0) => "it was told to stop",
            Ok(1) => "it refuses its command line or memory",
            Ok(EXIT_REFUSED) => "the image refuses the boot block",
            Ok(EXIT_FAULT) => "the image met a processor exception",
            Ok(EXIT_PANIC) => "the image met a defect of its own",
            _ => "unknown",
        };
        write!(f, "the emulator ended with code {code} ({meaning})")
    }
}

#[derive(Debug, Default)]
struct Shared {
    console: Mutex<Vec<u8>>,
    ended: Mutex<Option<Ended>>,
}

/// A running emulator.
#[derive(Debug)]
pub(crate) struct Emulator {
    child: Arc<Mutex<Child>>,
    shared: Arc<Shared>,
    input: PipeWriter,
    watcher: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts `program` with these arguments.
    pub(crate) fn start(program: &OsStr, arguments: Vec<OsString>) -> Result<Self> {
        let failed = |error: io::Error| {
            let message = format!("{program:?}: {error}");
            Error::new(ErrorCode::EMULATOR_START, message)
        };
        let (command, output, input) = command(program, arguments).map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let (started, start) = mpsc::channel();
        let watched = Arc::clone(&shared);
        let watch = move || watch(command, output, &watched, &started);
        let watcher = thread::Builder::new().name("emulator".into()).spawn(watch).map_err(failed)?;
        let child =
            start.recv().map_err(|_| failed(io::Error::other("its watcher ended")))?.map_err(failed)?;
        Ok(Self { child, shared, input, watcher: Some(watcher) })
    }

    /// Sends a byte to its input. Never waits: an input that is full of bytes, or closed, needs no other one.
    pub(crate) fn ring(&self) {
        let _ = (&self.input).write(&[0]);
    }

    /// Returns the number of its process.
    pub(crate) fn id(&self) -> u32 {
        lock(&self.child).id()
    }

    /// Returns how it ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        *lock(&self.shared.ended)
    }

    /// Returns what it printed so far.
    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&lock(&self.shared.console)).into_owned()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // Fails only for a child that has ended already.
        let _ = lock(&self.child).kill();
        if let Some(watcher) = self.watcher.take() {
            let _ = watcher.join();
        }
    }
}

/// Returns a path under which the child can open a file of this process, also one without a name.
pub(crate) fn path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn command(program: &OsStr, arguments: Vec<OsString>) -> io::Result<(Command, PipeReader, PipeWriter)> {
    let (output, into_output) = io::pipe()?;
    let (from_input, input) = io::pipe()?;
    rustix::io::ioctl_fionbio(&input, true)?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(from_input).stdout(into_output.try_clone()?).stderr(into_output);
    let parent = std::process::id();
    let follow_parent = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before that.
        let is_orphan = getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(parent);
        if is_orphan { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
    };
    // SAFETY: the closure makes two system calls and neither allocates nor takes a lock.
    unsafe { command.pre_exec(follow_parent) };
    Ok((command, output, input))
}

type Started = io::Result<Arc<Mutex<Child>>>;

/// Starts the child, hands it out, and reads its output until it ends.
fn watch(mut command: Command, mut output: PipeReader, shared: &Shared, started: &mpsc::Sender<Started>) {
    let child = match command.spawn() {
        Ok(child) => Arc::new(Mutex::new(child)),
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    // The command holds the pipe's other end; with it the output would never end.
    drop(command);
    let _ = started.send(Ok(Arc::clone(&child)));
    let mut chunk = [0; 4096];
    while let Ok(count) = output.read(&mut chunk)
        && count > 0
    {
        let mut console = lock(&shared.console);
        let room = CONSOLE_BYTES.saturating_sub(console.len()).min(count);
        console.extend_from_slice(&chunk[..room]);
    }
    let status = lock(&child).wait();
    *lock(&shared.ended) = Some(status.map_or(Ended::Code(-1), ended));
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Code(code),
        (None, signal) => Ended::Signal(signal.unwrap_or(0)),
    }
}

/// Locks, also after a panic elsewhere: none of these values can be left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
