//! Settings: what the environment and the command line ask for, what is in force, and why the two may differ.
//!
//! Each setting keeps the text that was asked for, the value in force, where it came from, and the reason when the
//! two differ. Values out of range are refused, never clamped; an argument outranks a variable, and the report says so.
//! Variables of the field that do nothing here are listed with the reason, misspelt ones draw a [`Warning`].
//!
//! Names, ranges and defaults follow the public documentation of `HCCL`'s environment variables for the 950 series,
//! whose rule it also takes that an unsupported value is an error and not a silent fallback.

mod algo;
mod dfs;
mod setting;
mod unused;
mod values;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use core::time::Duration;

use wire::ErrorCode;

pub use algo::{Algo, AlgoName, AlgoOp, Levels};
pub use setting::{Origin, Row, Setting};
pub use unused::{Unused, Warning};
pub use values::{Determinism, ExpansionMode};

use crate::communicator::Compare;
use crate::error::{Error, Result, quote_path};
use crate::rank_table::{DEVICE_ID_MAX, RANKS_MAX, RankTable};
use setting::refusal;
use values::Fault;

/// Names of the settings that are acted on.
const NAMES: [&str; 11] = [
    "HCCL_ALGO",
    "HCCL_BUFFSIZE",
    "HCCL_CONNECT_TIMEOUT",
    "HCCL_DETERMINISTIC",
    "HCCL_DFS_CONFIG",
    "HCCL_EXEC_TIMEOUT",
    "HCCL_OP_EXPANSION_MODE",
    "RANK_TABLE_FILE",
    "RANK_ID",
    "RANK_SIZE",
    "DEVICE_ID",
];

/// All settings, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `HCCL_ALGO`: algorithms by operation and level; `None` leaves the choice to the launcher.
    pub algo: Setting<Option<Algo>>,
    /// `HCCL_BUFFSIZE`: size of the communicator's scratch buffer, in bytes; the variable counts MiB.
    pub buffer_bytes: Setting<u64>,
    /// `HCCL_CONNECT_TIMEOUT`: how long to wait for the other ranks when a communicator is created.
    pub connect_timeout: Setting<Duration>,
    /// `HCCL_DETERMINISTIC`: which order reductions have.
    pub determinism: Setting<Determinism>,
    /// `HCCL_DFS_CONFIG`: when the launches of all ranks are compared before success is reported.
    pub compare: Setting<Compare>,
    /// `HCCL_EXEC_TIMEOUT`: deadline of one operation.
    pub exec_timeout: Setting<Duration>,
    /// `HCCL_OP_EXPANSION_MODE`: who expands operations.
    pub expansion_mode: Setting<ExpansionMode>,
    /// `RANK_TABLE_FILE`: path of the rank table.
    pub rank_table_file: Setting<Option<PathBuf>>,
    /// `RANK_ID`: the rank this process is.
    pub rank_id: Setting<Option<u32>>,
    /// `RANK_SIZE`: the number of ranks.
    pub rank_size: Setting<Option<u32>>,
    /// `DEVICE_ID`: the device this process drives.
    pub device_id: Setting<Option<u32>>,
    unused: Vec<Unused>,
    warnings: Vec<Warning>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            algo: Setting::new("HCCL_ALGO", None),
            buffer_bytes: Setting::new("HCCL_BUFFSIZE", 200 << 20),
            connect_timeout: Setting::new("HCCL_CONNECT_TIMEOUT", Duration::from_secs(120)),
            determinism: Setting::new("HCCL_DETERMINISTIC", Determinism::Fixed),
            compare: Setting::new("HCCL_DFS_CONFIG", Compare::default()),
            exec_timeout: Setting::new("HCCL_EXEC_TIMEOUT", Duration::from_secs(1836)),
            expansion_mode: Setting::new("HCCL_OP_EXPANSION_MODE", ExpansionMode::AicpuTs),
            rank_table_file: Setting::new("RANK_TABLE_FILE", None),
            rank_id: Setting::new("RANK_ID", None),
            rank_size: Setting::new("RANK_SIZE", None),
            device_id: Setting::new("DEVICE_ID", None),
            unused: Vec::new(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the settings among `variables`, as [`std::env::vars_os`] gives them; others are passed over.
    ///
    /// # Errors
    /// `ENV_VALUE`, `ENV_ALGO`, `ENV_UNSUPPORTED` or `ENV_ENCODING` with the value quoted and what was expected.
    pub fn from_env(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<Self> {
        let mut settings = Self::default();
        for (name, text) in variables {
            let Some(name) = name.to_str() else {
                settings.warnings.extend(Warning::of(&name.to_string_lossy()));
                continue;
            };
            if settings.set(name, &text, Origin::Environment)? {
                continue;
            }
            match Unused::parse(name, &text)? {
                Some(unused) => settings.unused.push(unused),
                None => settings.warnings.extend(Warning::of(name)),
            }
        }
        settings.unused.sort_by(|a, b| a.name.cmp(&b.name));
        let (exec, connect) = (*settings.exec_timeout.value(), *settings.connect_timeout.value());
        if exec < connect {
            settings.warnings.push(Warning::ExecBelowConnect { exec, connect });
        }
        settings.warnings.sort();
        Ok(settings)
    }

    /// Takes a value from the command line, which outranks the environment; `flag` is how messages call it.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    ///
    /// # Panics
    /// If no setting is called `name`.
    pub fn argument(&mut self, name: &str, flag: &'static str, text: &OsStr) -> Result<()> {
        let known = self.set(name, text, Origin::Argument(flag))?;
        assert!(known, "no setting is called {name}");
        Ok(())
    }

    /// Checks `RANK_SIZE`, `RANK_ID` and `DEVICE_ID` against the rank table.
    ///
    /// # Errors
    /// `ENV_RANKS`, naming both numbers.
    pub fn check_ranks(&self, table: &RankTable) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorCode::ENV_RANKS, message));
        let ranks = table.ranks().len();
        if let &Some(size) = self.rank_size.value()
            && usize::try_from(size) != Ok(ranks)
        {
            return refuse(format!("RANK_SIZE is {size}, but the rank table has {ranks} ranks"));
        }
        let &Some(id) = self.rank_id.value() else { return Ok(()) };
        let Some(rank) = table.ranks().get(id as usize) else {
            return refuse(format!("RANK_ID is {id}, but the rank table has ranks 0 to {}", ranks - 1));
        };
        match *self.device_id.value() {
            Some(device) if device != rank.device_id() => refuse(format!(
                "DEVICE_ID is {device}, but the rank table puts rank {id} on device {}",
                rank.device_id()
            )),
            _ => Ok(()),
        }
    }

    /// Returns a row for each setting.
    #[must_use]
    pub fn report(&self) -> Vec<Row> {
        fn or_dash<T>(value: &Option<T>, show: impl Fn(&T) -> String) -> String {
            value.as_ref().map_or_else(|| "-".to_owned(), show)
        }
        let number = |value: &Option<u32>| or_dash(value, u32::to_string);
        let seconds = |value: &Duration| format!("{} s", value.as_secs());
        vec![
            self.algo
                .row(|algo| algo.as_ref().map_or_else(|| "chosen per operation".to_owned(), Algo::to_string)),
            self.buffer_bytes.row(|bytes| format!("{} MiB", bytes >> 20)),
            self.connect_timeout.row(seconds),
            self.determinism.row(Determinism::to_string),
            self.compare.row(|compare| dfs::show(*compare)),
            self.exec_timeout.row(seconds),
            self.expansion_mode.row(ExpansionMode::to_string),
            self.rank_table_file.row(|path| or_dash(path, |path| quote_path(path))),
            self.rank_id.row(number),
            self.rank_size.row(number),
            self.device_id.row(number),
        ]
    }

    /// Returns the variables of the field that were set and do nothing here.
    #[must_use]
    pub fn unused(&self) -> &[Unused] {
        &self.unused
    }

    /// Returns what is allowed and rarely meant: variables that look like settings and are none, and a deadline that
    /// passes before ranks have to be there.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Sets what is called `name`; returns whether there is such a setting.
    fn set(&mut self, name: &str, text: &OsStr, origin: Origin) -> Result<bool> {
        match name {
            "HCCL_ALGO" => self.algo.assign(text, origin, |text| Ok((Some(algo::parse(text)?), None)))?,
            "HCCL_BUFFSIZE" => self.buffer_bytes.assign(text, origin, values::buffer_bytes)?,
            "HCCL_CONNECT_TIMEOUT" => self.connect_timeout.assign(text, origin, values::connect_timeout)?,
            "HCCL_DETERMINISTIC" => self.determinism.assign(text, origin, values::determinism)?,
            "HCCL_DFS_CONFIG" => self.compare.assign(text, origin, dfs::parse)?,
            "HCCL_EXEC_TIMEOUT" => self.exec_timeout.assign(text, origin, values::exec_timeout)?,
            "HCCL_OP_EXPANSION_MODE" => self.expansion_mode.assign(text, origin, values::expansion_mode)?,
            "RANK_TABLE_FILE" => self.set_rank_table_file(text, origin)?,
            "RANK_ID" => self.rank_id.assign(text, origin, |text| values::number(text, 0..=RANKS_MAX - 1))?,
            "RANK_SIZE" => self.rank_size.assign(text, origin, |text| values::number(text, 1..=RANKS_MAX))?,
            "DEVICE_ID" => {
                self.device_id.assign(text, origin, |text| values::number(text, 0..=DEVICE_ID_MAX))?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A path need not be UTF-8.
    fn set_rank_table_file(&mut self, text: &OsStr, origin: Origin) -> Result<()> {
        if text.is_empty() {
            return Err(refusal("RANK_TABLE_FILE", "", origin, Fault::expected("the path of a file")));
        }
        let shown = text.to_string_lossy().into_owned();
        self.rank_table_file.replace(shown, Some(PathBuf::from(text)), origin, None);
        Ok(())
    }
}
