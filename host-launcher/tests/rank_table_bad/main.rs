//! Every bad rank table and topology file is refused with its code and place; none blocks or panics.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Instant;

use core::time::Duration;

use host_launcher::error::quote_path;
use host_launcher::rank_table::{RankTable, Source};
use host_launcher::{Error, Result};
use rustix::fs::{CWD, FileType, Mode};
use wire::ErrorCode;

mod cases;

fn bad(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .join("tests/bad")
        .join(file)
        .with_added_extension("json")
}

/// Reads `table` with `topology` if it is of the version that takes one.
fn read(table: &Path, topology: &Path) -> Result<RankTable> {
    let bytes = fs::read(table).unwrap();
    let takes_none = bytes.windows(15).any(|window| window.starts_with(b"\"version\": \"1."));
    RankTable::read(table, (!takes_none).then_some(topology))
}

#[track_caller]
fn assert_refused(result: Result<RankTable>, code: ErrorCode, place: &str) {
    let error = result.expect_err(place);
    assert_eq!((error.code(), error.place().unwrap()), (code, place), "{error}");
}

#[test]
fn every_bad_rank_table_is_refused_at_its_place() {
    for &(file, code, place) in cases::RANK_TABLES {
        let path = bad(&format!("rank-table/{file}"));
        let start = Instant::now();
        assert_refused(
            read(&path, &bad("topology/00-good")),
            code,
            &format!("{}:{place}", quote_path(&path)),
        );
        assert!(start.elapsed() < Duration::from_secs(1), "{file}");
    }
}

#[test]
fn every_bad_topology_file_is_refused_at_its_place() {
    for &(file, code, place) in cases::TOPOLOGIES {
        let (table, path) = (bad("rank-table/00-good"), bad(&format!("topology/{file}")));
        // That two ranks are not joined is said of the ranks.
        let named = if code == ErrorCode::TOPOLOGY_DISCONNECTED { &table } else { &path };
        assert_refused(read(&table, &path), code, &format!("{}:{place}", quote_path(named)));
    }
}

#[test]
fn variants_without_harm_are_accepted() {
    for file in cases::ACCEPTED {
        let (table, topology) = match file.split_once('/').unwrap().0 {
            "topology" => (bad("rank-table/00-good"), bad(file)),
            _ => (bad(file), bad("topology/00-good")),
        };
        assert_eq!(read(&table, &topology).unwrap().ranks().len(), 2, "{file}");
    }
}

#[test]
fn every_file_has_a_case_and_every_entry_a_file_or_a_test() {
    let mut files = BTreeSet::new();
    for folder in ["rank-table", "topology"] {
        for entry in fs::read_dir(bad(folder).with_extension("")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            files.insert(format!("{folder}/{}", name.strip_suffix(".json").unwrap()));
        }
    }
    let tables = cases::RANK_TABLES.iter().map(|(file, ..)| format!("rank-table/{file}"));
    let topologies = cases::TOPOLOGIES.iter().map(|(file, ..)| format!("topology/{file}"));
    let accepted = cases::ACCEPTED.iter().map(|&file| file.to_owned());
    let known: BTreeSet<_> = tables.chain(topologies).chain(accepted).collect();
    assert_eq!(files, known);

    // Entries without a file: the tests below, and 75 (replaced while reading) beside the reader.
    let mut entries = BTreeSet::from([11, 12, 70, 71, 72, 73, 74, 75, 76]);
    for file in &files {
        let digits: String =
            file.split_once('/').unwrap().1.chars().take_while(char::is_ascii_digit).collect();
        entries.extend(digits.parse::<u32>().ok().filter(|&entry| entry > 0));
    }
    assert_eq!(entries, (1..=76).collect());
}

#[test]
fn a_depth_of_100_000_is_refused() {
    let text = "[".repeat(100_000) + &"]".repeat(100_000);
    let error = RankTable::parse(Source { bytes: text.as_bytes(), name: "deep" }, None).unwrap_err();
    assert_eq!((error.code(), error.place().unwrap()), (ErrorCode::RANK_TABLE_DEPTH, "deep:1:513"));
}

#[test]
fn topology_files_go_with_version_2_only() {
    let (v1, v2, topology) =
        (bad("rank-table/a3-server-count-wrong"), bad("rank-table/00-good"), bad("topology/00-good"));
    for (table, topology, message) in [
        (&v1, Some(&*topology), "a 1.x table takes no topology file"),
        (&v2, None, "a 2.0 table needs a topology file"),
    ] {
        let error = RankTable::read(table, topology).unwrap_err();
        assert_eq!((error.code(), error.message()), (ErrorCode::TOPOLOGY_FILE, message));
    }
}

/// Reads `path` in a thread of its own, so that a read that blocks fails the test instead of stopping it.
fn read_alone(path: &Path) -> Error {
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || sender.send(RankTable::read(&path, None)));
    receiver.recv_timeout(Duration::from_secs(1)).expect("the read blocks").unwrap_err()
}

#[track_caller]
fn assert_file_refused(path: &Path, code: ErrorCode, message: &str) {
    let error = read_alone(path);
    assert_eq!((error.code(), error.message()), (code, message));
    assert_eq!(error.place(), Some(&*quote_path(path)));
}

#[test]
fn directories_pipes_and_devices_are_refused_without_blocking() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let kind = ErrorCode::RANK_TABLE_FILE_KIND;
    assert_file_refused(folder.path(), kind, "expected a regular file, found a directory");
    assert_file_refused(&pipe, kind, "expected a regular file, found a pipe, socket or device");
    assert_file_refused(
        Path::new("/dev/zero"),
        kind,
        "expected a regular file, found a pipe, socket or device",
    );
}

#[test]
fn a_file_of_1_gib_is_refused_unread() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let message = "it has at least 1073741824 bytes; at most 67108864 are read";
    assert_file_refused(&path, ErrorCode::RANK_TABLE_SIZE, message);
}

#[test]
fn missing_files_and_dangling_links_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    symlink(folder.path().join("nothing"), &link).unwrap();
    assert_file_refused(&link, ErrorCode::RANK_TABLE_READ, "No such file or directory (os error 2)");
}

#[test]
fn a_file_without_permission_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    fs::write(&path, "{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let error = std::thread::spawn({
        let path = path.clone();
        move || {
            if rustix::process::geteuid().is_root() {
                // Permissions do not bind root; this thread stops being it.
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            }
            RankTable::read(&path, None).unwrap_err()
        }
    });
    let error = error.join().unwrap();
    assert_eq!(error.code(), ErrorCode::RANK_TABLE_READ);
    assert_eq!(error.message(), "Permission denied (os error 13)");
}

#[test]
fn a_path_with_newline_and_escape_codes_is_quoted() {
    let path = Path::new(std::ffi::OsStr::from_bytes(b"/no\n\x1b[31m\xffsuch"));
    let error = RankTable::read(path, None).unwrap_err();
    assert_eq!(error.place(), Some(r#""/no\n\u{1b}[31m\xFFsuch""#));
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
}
