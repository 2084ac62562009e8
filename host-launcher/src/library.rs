//! Kernels that are shared objects: a program for each NPU that loads one as a runtime would, and serves the NPU's
//! mailbox with it.
//!
//! The program is the C driver of the tests (`tests/driver`), for this host or under QEMU's emulation of user programs;
//! it also is the data plane, over the rings of the software NPU. Started and ended here; all else is in the fabric.

use std::ffi::OsString;
use std::path::PathBuf;

use device_model::fabric::Fabric;
use wire::ErrorCode;

use crate::error::{Error, Result};
use crate::qemu::process::{Emulator, path};

/// What is loaded by what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The driver, behind the emulator where there is one, with the arguments of that.
    pub command: Vec<OsString>,
    /// The shared object.
    pub kernel: PathBuf,
    /// Its entry point.
    pub entry: String,
    /// Directory in which the driver of NPU `n` writes down its calls, as `npu-n.log`.
    pub log: Option<PathBuf>,
}

/// A running program.
#[derive(Debug)]
pub struct Library {
    process: Emulator,
    npu: u32,
}

impl Library {
    /// Starts the programs of all NPUs of a fabric.
    ///
    /// # Errors
    /// `EMULATOR_START` when one does not start.
    pub(crate) fn start(fabric: &Fabric, options: &Options) -> Result<Vec<Self>> {
        (0..fabric.npus()).map(|npu| Self::start_one(fabric, npu, options)).collect()
    }

    fn start_one(fabric: &Fabric, npu: u32, options: &Options) -> Result<Self> {
        let Some((program, before)) = options.command.split_first() else {
            return Err(Error::new(ErrorCode::EMULATOR_START, "no driver is named"));
        };
        let mut arguments = before.to_vec();
        arguments.push(options.kernel.clone().into());
        let window_bytes = fabric.window(npu).bytes();
        let numbers = [npu.to_string(), fabric.npus().to_string(), window_bytes.to_string()];
        arguments.extend([options.entry.clone(), path(fabric.file())].map(OsString::from));
        arguments.extend(numbers.map(OsString::from));
        arguments.extend((0..fabric.npus()).map(|npu| format!("{:#x}", fabric.window(npu).base().0).into()));
        if let Some(dir) = &options.log {
            arguments.extend(["--log".into(), dir.join(format!("npu-{npu}.log")).into()]);
        }
        Ok(Self { process: Emulator::start(program, arguments)?, npu })
    }

    /// Checks that the program runs.
    ///
    /// # Errors
    /// `EMULATOR_EXIT` with its last words when it has ended.
    pub fn check(&self) -> Result<()> {
        match self.process.ended() {
            None => Ok(()),
            Some(ended) => {
                let (npu, console) = (self.npu, self.process.console());
                let message = format!("the driver of NPU {npu}: {ended}; it printed {console:?}");
                Err(Error::new(ErrorCode::EMULATOR_EXIT, message))
            }
        }
    }
}
