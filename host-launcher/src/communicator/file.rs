//! Operations whose algorithm was loaded as data: what they need, and their scripts in device memory.

use algorithm_file::RankScript;
use templates::{Needs, Tables};
use wire::launch::Algorithm;
use wire::script::Script;
use wire::{DeviceAddr, ErrorCode};
use zerocopy::IntoBytes;

use super::{Communicator, Kind, Operation};
use crate::buffer::driver;
use crate::error::{Error, Result};

impl Operation {
    /// Returns what has resources of its own for this operation.
    pub(super) fn kind(&self) -> Kind {
        (self.algorithm, self.levels, self.staging, self.file.as_ref().map(|file| file.digest()))
    }

    /// Checks that a file is for this operation on `ranks` ranks, and that there is one where the algorithm is one.
    pub(crate) fn check_file(&self, ranks: u32) -> Result<()> {
        let Some(file) = &self.file else {
            return match self.algorithm {
                Algorithm::File => Err(mismatch("algorithm file without a file".to_owned())),
                _ => Ok(()),
            };
        };
        let algorithm = file.algorithm();
        if self.algorithm != Algorithm::File {
            return Err(mismatch(format!("a file with algorithm {}", self.algorithm)));
        }
        if (algorithm.op, algorithm.ranks()) != (self.op, ranks) {
            let message = format!(
                "{:?} is {} on {} ranks; asked for is {} on {ranks}",
                algorithm.name,
                algorithm.op,
                algorithm.ranks(),
                self.op
            );
            return Err(mismatch(message));
        }
        Ok(())
    }

    /// Returns what every rank must have.
    pub(crate) fn needs(&self, ranks: u32, groups: &Tables<'_>) -> Needs {
        let needs = self.shape(0, ranks).needs(groups);
        self.file.as_ref().map_or(needs, |file| {
            let algorithm_file::Needs { threads, main_notifies, sub_notifies } = file.needs();
            Needs { threads, main_notifies, sub_notifies, ..needs }
        })
    }

    /// Returns the scratch with which it runs in one chunk, bytes.
    pub(super) fn scratch_bytes(&self, ranks: u32, groups: &Tables<'_>) -> u64 {
        let shape = self.shape(0, ranks);
        let Some(file) = &self.file else { return templates::scratch_bytes(&shape, groups) };
        file.headers().map(|header| templates::script_scratch_bytes(&shape, &header)).max().unwrap_or(0)
    }

    /// Returns the script of a rank; `None` for an operation without a file.
    pub(crate) fn script(&self, rank: u32, in_place: bool) -> Result<Option<Script<'_>>> {
        let Some(file) = &self.file else { return Ok(None) };
        let script = self.scripts(in_place)?.get(rank as usize);
        let script = script.ok_or_else(|| {
            mismatch(format!("{:?} has {} ranks", file.algorithm().name, file.algorithm().ranks()))
        })?;
        Ok(Some(Script::trusted(&script.header, &script.entries)))
    }

    fn scripts(&self, in_place: bool) -> Result<&[RankScript]> {
        let Some(file) = &self.file else { return Ok(&[]) };
        // Without data, buffers stand in no relation.
        let in_place = in_place || (self.count == 0 && !file.works(false));
        file.scripts(in_place).map_err(|fault| Error::new(fault.code, fault.message))
    }
}

impl Communicator<'_> {
    /// Returns where the script of a rank lies, written there the first time.
    pub(super) fn script(&mut self, rank: u32, operation: &Operation, in_place: bool) -> Result<DeviceAddr> {
        self.write_scripts(operation, in_place)?;
        Ok(self.written_script(rank, operation, in_place))
    }

    /// Writes the scripts of all ranks to their devices, once for each file: they stay until the communicator ends.
    pub(super) fn write_scripts(&mut self, operation: &Operation, in_place: bool) -> Result<()> {
        let Some(file) = &operation.file else { return Ok(()) };
        let key = (file.digest(), in_place);
        if self.scripts.contains_key(&key) {
            return Ok(());
        }
        let mut places = Vec::new();
        for (rank, script) in (0..).zip(operation.scripts(in_place)?) {
            let npu = self.cluster.npu(rank);
            let bytes = [script.header.as_bytes(), script.entries.as_bytes()].concat();
            let at = npu.alloc(bytes.len() as u64, 64).map_err(driver)?;
            places.push(at);
            npu.write(at, &bytes).map_err(driver)?;
        }
        self.scripts.insert(key, places);
        Ok(())
    }

    /// Returns where the script of a rank has been written to; 0 for an operation without a file.
    pub(super) fn written_script(&self, rank: u32, operation: &Operation, in_place: bool) -> DeviceAddr {
        let key = operation.file.as_ref().map(|file| (file.digest(), in_place));
        let places = key.and_then(|key| self.scripts.get(&key));
        places.and_then(|places| places.get(rank as usize)).copied().unwrap_or(DeviceAddr(0))
    }
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorCode::ALGORITHM_MISMATCH, message)
}
