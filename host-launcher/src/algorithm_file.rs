//! Algorithm files: reads them from disk, with errors that say file, line and column.

use std::path::Path;

use algorithm_file::AlgorithmFile;
use wire::ErrorCode;

use crate::error::{Error, Result, quote_path};
use crate::rank_table::file;

/// Reads an algorithm from MSCCL XML, and carries it out symbolically.
///
/// # Errors
/// `ALGORITHM_READ` for a path that is no regular file that can be read; `ALGORITHM_*` with file, line and column, and
/// the first step at fault where one is, for what is malformed, incomplete or wrong.
pub fn read(path: &Path) -> Result<AlgorithmFile> {
    let unreadable = |message: &str| Error::new(ErrorCode::ALGORITHM_READ, message).at(quote_path(path));
    let bytes = file::read(path).map_err(|error| unreadable(error.message()))?;
    let text = core::str::from_utf8(&bytes).map_err(|error| unreadable(&error.to_string()))?;
    AlgorithmFile::parse(text).map_err(|fault| {
        let (line, column) = fault.at.unwrap_or((1, 1));
        Error::new(fault.code, fault.message).at(format!("{}:{line}:{column}", path.display()))
    })
}
