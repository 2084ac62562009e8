//! Reads a small regular file without ever blocking or trusting its size.

use core::fmt::Display;
use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use wire::ErrorCode;

use crate::error::{Error, Result, quote_path};

/// Largest file read, in bytes.
const SIZE_MAX: u64 = 64 << 20;

/// Reads the whole of a regular file of at most 64 MiB.
///
/// # Errors
/// `RANK_TABLE_READ` (missing, dangling link, permission), `RANK_TABLE_FILE_KIND` (directory, pipe, device),
/// `RANK_TABLE_SIZE`, `RANK_TABLE_CHANGED`.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let (file, before) = open(path)?;
    read_open(path, file, &before)
}

/// Opens without blocking (a FIFO would wait for its writer) and refuses what is no regular file.
fn open(path: &Path) -> Result<(File, Metadata)> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file =
        File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| unreadable(path, error))?);
    let metadata = file.metadata().map_err(|error| unreadable(path, error))?;
    if metadata.is_file() {
        Ok((file, metadata))
    } else {
        let kind = if metadata.is_dir() { "a directory" } else { "a pipe, socket or device" };
        Err(Error::new(ErrorCode::RANK_TABLE_FILE_KIND, format!("expected a regular file, found {kind}"))
            .at(quote_path(path)))
    }
}

/// Reads `file` and checks that it is still the one described by `before`.
///
/// A file renamed over the path does not matter: the open one is read to its end. One that is written in place does.
fn read_open(path: &Path, file: File, before: &Metadata) -> Result<Vec<u8>> {
    if before.len() > SIZE_MAX {
        return Err(too_large(path, before.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(before.len()).unwrap_or(0));
    let mut limited = file.take(SIZE_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(|error| unreadable(path, error))?;
    if bytes.len() as u64 > SIZE_MAX {
        return Err(too_large(path, bytes.len() as u64));
    }
    let after = limited.into_inner().metadata().map_err(|error| unreadable(path, error))?;
    let same_time = before.modified().ok() == after.modified().ok();
    if same_time && before.len() == after.len() {
        Ok(bytes)
    } else {
        let message = format!("it had {} bytes when opened and {} after reading", before.len(), after.len());
        Err(Error::new(ErrorCode::RANK_TABLE_CHANGED, message).at(quote_path(path)))
    }
}

fn unreadable(path: &Path, error: impl Display) -> Error {
    Error::new(ErrorCode::RANK_TABLE_READ, error.to_string()).at(quote_path(path))
}

fn too_large(path: &Path, len: u64) -> Error {
    let message = format!("it has at least {len} bytes; at most {SIZE_MAX} are read");
    Error::new(ErrorCode::RANK_TABLE_SIZE, message).at(quote_path(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use wire::ErrorCode;

    use super::{open, read_open};

    #[test]
    fn a_file_renamed_over_the_path_while_reading_does_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("table"), folder.path().join("other"));
        fs::write(&path, "old").unwrap();
        fs::write(&other, "newer").unwrap();
        let (file, before) = open(&path).unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(read_open(&path, file, &before).unwrap(), b"old");
    }

    #[test]
    fn a_file_written_while_reading_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        fs::write(&path, "old").unwrap();
        let (file, before) = open(&path).unwrap();
        fs::write(&path, "longer than before").unwrap();
        let error = read_open(&path, file, &before).unwrap_err();
        assert_eq!(error.code(), ErrorCode::RANK_TABLE_CHANGED);
        assert_eq!(error.message(), "it had 3 bytes when opened and 18 after reading");
    }
}
