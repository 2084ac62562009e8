//! The data plane that the loaded kernel calls: the functions of `hcomm.h`, which write down what they are asked for.

// UNSAFETY: C functions that the loader finds by their names.
#![expect(unsafe_code, reason = "the public names of the data plane")]

use core::cell::RefCell;
use core::ffi::{CStr, c_char};
use std::sync::mpsc::{Receiver, Sender};

/// What the functions know and write, for the launches of one test: they run on its thread.
#[derive(Default)]
pub(crate) struct Plane {
    /// Handles of the threads, in their order.
    pub(crate) threads: Vec<u64>,
    /// Handles of the channels, with the peers.
    pub(crate) channels: Vec<(u64, u32)>,
    /// Handle of the host's thread.
    pub(crate) host: u64,
    /// One line for each call.
    pub(crate) lines: Vec<String>,
    /// The call with this index returns this code.
    pub(crate) fail: Option<(usize, i32)>,
    /// Where the first acquire says that it is inside, and what it waits for then.
    pub(crate) hold: Option<(Sender<()>, Receiver<()>)>,
    /// How often the communicator is still in use; -1 for ever.
    pub(crate) busy: i64,
}

thread_local! {
    static PLANE: RefCell<Plane> = RefCell::default();
}

/// Does something with the plane of this thread.
pub(crate) fn with<R>(action: impl FnOnce(&mut Plane) -> R) -> R {
    PLANE.with_borrow_mut(action)
}

impl Plane {
    pub(crate) fn thread(&self, handle: u64) -> String {
        match self.threads.iter().position(|known| *known == handle) {
            Some(index) => index.to_string(),
            None if handle == self.host => "host".to_owned(),
            None => format!("unknown thread {handle:#x}"),
        }
    }

    pub(crate) fn peer(&self, handle: u64) -> String {
        let known = self.channels.iter().find(|(known, _)| *known == handle);
        known.map_or_else(|| format!("unknown channel {handle:#x}"), |(_, peer)| peer.to_string())
    }

    pub(crate) fn note(&mut self, line: String) -> i32 {
        let index = self.lines.len();
        self.lines.push(line);
        self.fail.filter(|(at, _)| *at == index).map_or(0, |(_, code)| code)
    }
}

fn task(line: impl FnOnce(&Plane) -> String) -> i32 {
    with(|plane| {
        let line = line(plane);
        plane.note(line)
    })
}

pub(crate) fn text(tag: *const c_char) -> String {
    // SAFETY: the kernel passes strings.
    unsafe { CStr::from_ptr(tag) }.to_string_lossy().into_owned()
}

macro_rules! calls {
    ($(fn $name:ident($plane:ident, $($argument:ident: $kind:ty),*) => $line:expr;)+) => {
        $(
            // SAFETY: no other symbol of the process has this name.
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $kind),*) -> i32 {
                task(|$plane| $line)
            }
        )+
    };
}

calls! {
    fn HcommLocalCopyOnThread(p, thread: u64, dst: u64, src: u64, len: u64)
        => format!("copy {} {dst:#x} {src:#x} {len}", p.thread(thread));
    fn HcommLocalReduceOnThread(p, thread: u64, dst: u64, src: u64, count: u64, dtype: u32, op: u32)
        => format!("reduce {} {dst:#x} {src:#x} {count} {dtype} {op}", p.thread(thread));
    fn HcommThreadNotifyRecordOnThread(p, thread: u64, waiter: u64, index: u32)
        => format!("record {} {} {index}", p.thread(thread), p.thread(waiter));
    fn HcommThreadNotifyWaitOnThread(p, thread: u64, index: u32, timeout: u32)
        => format!("wait {} {index} {timeout}", p.thread(thread));
    fn HcommWriteOnThread(p, thread: u64, channel: u64, dst: u64, src: u64, len: u64)
        => format!("write {} {} {dst:#x} {src:#x} {len} -", p.thread(thread), p.peer(channel));
    fn HcommWriteWithNotifyOnThread(p, thread: u64, channel: u64, dst: u64, src: u64, len: u64, notify: u32)
        => format!("write {} {} {dst:#x} {src:#x} {len} {notify}", p.thread(thread), p.peer(channel));
    fn HcommWriteReduceOnThread(p, thread: u64, channel: u64, dst: u64, src: u64, count: u64, dtype: u32, op: u32)
        => format!(
            "write-reduce {} {} {dst:#x} {src:#x} {count} {dtype} {op} -", p.thread(thread), p.peer(channel)
        );
    fn HcommWriteReduceWithNotifyOnThread(
        p, thread: u64, channel: u64, dst: u64, src: u64, count: u64, dtype: u32, op: u32, notify: u32
    ) => format!(
        "write-reduce {} {} {dst:#x} {src:#x} {count} {dtype} {op} {notify}", p.thread(thread), p.peer(channel)
    );
    fn HcommReadOnThread(p, thread: u64, channel: u64, dst: u64, src: u64, len: u64)
        => format!("read {} {} {dst:#x} {src:#x} {len}", p.thread(thread), p.peer(channel));
    fn HcommReadReduceOnThread(p, thread: u64, channel: u64, dst: u64, src: u64, count: u64, dtype: u32, op: u32)
        => format!("read-reduce {} {} {dst:#x} {src:#x} {count} {dtype} {op}", p.thread(thread), p.peer(channel));
    fn HcommChannelNotifyRecordOnThread(p, thread: u64, channel: u64, index: u32)
        => format!("channel-record {} {} {index}", p.thread(thread), p.peer(channel));
    fn HcommChannelNotifyWaitOnThread(p, thread: u64, channel: u64, index: u32, timeout: u32)
        => format!("channel-wait {} {} {index} {timeout}", p.thread(thread), p.peer(channel));
    fn HcommBatchModeStart(_p, tag: *const c_char) => format!("batch-start {:?}", text(tag));
    fn HcommBatchModeEnd(_p, tag: *const c_char) => format!("batch-end {:?}", text(tag));
    fn HcommReleaseComm(_p, comm: *const c_char) => format!("release {:?}", text(comm));
}

/// `HcommAcquireComm`: 20 ("again") while the communicator is in use.
// SAFETY: no other symbol of the process has this name.
#[unsafe(no_mangle)]
extern "C" fn HcommAcquireComm(comm: *const c_char) -> i32 {
    with(|plane| {
        if let Some((inside, wait)) = plane.hold.take() {
            inside.send(()).expect("the test listens");
            wait.recv().expect("the test sends");
        }
        if plane.busy != 0 {
            plane.busy -= 1;
            return 20;
        }
        plane.note(format!("acquire {:?}", text(comm)))
    })
}
