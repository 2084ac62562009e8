//! The five calls: Lookup, Start, End, Execute, Clear, with the field's meaning.
//!
//! For templates written against that interface. A recording is named by a tag instead of facts, and its buffers are
//! an array of addresses and one of sizes. What is recorded and how it is executed is the caller's. Tags are found by
//! a digest but compared in full; sizes and their number must be those of the recording.

use heapless::Vec;
use wire::{DeviceAddr, ErrorCode};

use crate::defaults;
use crate::directory::Directory;
use crate::hash::{Chosen, KeyHash};
use crate::key::Key;

/// Longest tag, bytes.
pub const MAX_TAG: usize = 255;

/// Whose tag: equal tags of two communicators, or of two lives of one, are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// Instance, never used twice.
    pub instance: [u64; 2],
    /// Epoch.
    pub epoch: u32,
}

/// A call that was refused before anything was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallError {
    /// What is wrong.
    pub code: ErrorCode,
    /// The number of the buffer at fault, or the number there may be; 0 where that says nothing.
    pub detail: u64,
}

impl From<ErrorCode> for CallError {
    fn from(code: ErrorCode) -> Self {
        Self { code, detail: 0 }
    }
}

/// What a slot's recording was started with.
#[derive(Clone, Debug)]
struct Started<const ARGS: usize> {
    tag: Vec<u8, MAX_TAG>,
    sizes: Vec<u64, ARGS>,
}

/// Recordings by tag: at most `SLOTS`, each of at most `ARGS` buffers.
#[derive(Clone, Debug)]
pub struct Calls<P, const SLOTS: usize, const ARGS: usize = { defaults::ARGUMENTS }, H = Chosen> {
    directory: Directory<P, SLOTS, H>,
    started: [Started<ARGS>; SLOTS],
}

impl<P: Copy, const SLOTS: usize, const ARGS: usize, H: KeyHash> Default for Calls<P, SLOTS, ARGS, H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy, const SLOTS: usize, const ARGS: usize, H: KeyHash> Calls<P, SLOTS, ARGS, H> {
    /// Returns an empty cache that may hold nothing: set limits by [`directory_mut`](Self::directory_mut).
    #[must_use]
    pub const fn new() -> Self {
        let started = [const { Started { tag: Vec::new(), sizes: Vec::new() } }; SLOTS];
        Self { directory: Directory::new(), started }
    }

    /// Returns the directory: limits, counters.
    #[must_use]
    pub const fn directory(&self) -> &Directory<P, SLOTS, H> {
        &self.directory
    }

    /// Returns the directory, to set limits and to clear whole communicators.
    pub const fn directory_mut(&mut self) -> &mut Directory<P, SLOTS, H> {
        &mut self.directory
    }

    /// Lookup: whether there is a finished recording of this tag.
    ///
    /// # Errors
    /// `CACHE_TAG` for a tag that is too long.
    pub fn lookup(&mut self, of: &Communicator, tag: &[u8]) -> Result<bool, CallError> {
        let key = key::<H>(of, tag)?;
        // Another tag's recording with the same digest is not even looked up.
        Ok(!self.is_another(&key, tag) && self.directory.lookup(&key).is_some())
    }

    /// Start: a recording of this tag begins, with buffers of these sizes.
    ///
    /// # Errors
    /// `CACHE_TAG`, `CACHE_ARGUMENTS` when there are not as many addresses as sizes, `CACHE_BUFFERS` when there are
    /// too many, `LAUNCH_BUFFER` when one wraps the address space, `CACHE_COLLISION`, the code of a refusal
    /// (`CACHE_BUSY` when the tag is being recorded already). The operation then runs without being recorded.
    pub fn start(
        &mut self,
        of: &Communicator,
        tag: &[u8],
        addrs: &[DeviceAddr],
        sizes: &[u64],
        release: &mut impl FnMut(P),
    ) -> Result<(), CallError> {
        let key = key::<H>(of, tag)?;
        check_buffers(addrs, sizes)?;
        let too_many = CallError { code: ErrorCode::CACHE_BUFFERS, detail: ARGS as u64 };
        let sizes = Vec::from_slice(sizes).map_err(|_| too_many)?;
        if self.is_another(&key, tag) {
            return Err(ErrorCode::CACHE_COLLISION.into());
        }
        let tag = Vec::from_slice(tag).map_err(|_| ErrorCode::CACHE_TAG)?;
        let id = self.directory.begin(&key, 0, release).map_err(ErrorCode::from)?;
        if let Some(place) = self.started.get_mut(id.index()) {
            *place = Started { tag, sizes };
        }
        Ok(())
    }

    /// End: the recording of this tag is complete, takes `units` and is `payload`.
    ///
    /// # Errors
    /// `CACHE_TAG`, `CACHE_STATE` when no recording of the tag was started, or the code of a refusal for want of
    /// room: there is no recording then, and the payload stays the caller's.
    pub fn end(
        &mut self,
        of: &Communicator,
        tag: &[u8],
        units: u32,
        payload: P,
        release: &mut impl FnMut(P),
    ) -> Result<(), CallError> {
        let key = key::<H>(of, tag)?;
        let id = self.directory.recording(&key).filter(|_| !self.is_another(&key, tag));
        let id = id.ok_or(ErrorCode::CACHE_STATE)?;
        let directory = &mut self.directory;
        let mut finish = || {
            directory.reserve(id, units, release)?;
            directory.verify(id)?;
            directory.publish(id, payload)
        };
        let outcome = finish();
        if outcome.is_err() {
            self.directory.abandon(id);
        }
        Ok(outcome?)
    }

    /// Execute: submits the recording of this tag with these buffers, by `run`.
    ///
    /// # Errors
    /// `CACHE_TAG`, `CACHE_ABSENT` without a finished recording, `CACHE_ARGUMENTS` when the number of buffers and
    /// `CACHE_SIZES` when a size is not the recording's, `LAUNCH_BUFFER` when a buffer wraps the address space: `run`
    /// was not called. Else what `run` returns.
    pub fn execute<R>(
        &self,
        of: &Communicator,
        tag: &[u8],
        addrs: &[DeviceAddr],
        sizes: &[u64],
        run: impl FnOnce(P, &[DeviceAddr], &[u64]) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let key = key::<H>(of, tag)?;
        let hit = self.directory.peek(&key).filter(|_| !self.is_another(&key, tag));
        let hit = hit.ok_or(ErrorCode::CACHE_ABSENT)?;
        check_buffers(addrs, sizes)?;
        let recorded = self.started.get(hit.id.index()).map_or(&[][..], |started| &started.sizes);
        if sizes.len() != recorded.len() {
            return Err(CallError { code: ErrorCode::CACHE_ARGUMENTS, detail: recorded.len() as u64 });
        }
        if let Some(number) = sizes.iter().zip(recorded).position(|(now, then)| now != then) {
            return Err(CallError { code: ErrorCode::CACHE_SIZES, detail: number as u64 });
        }
        run(hit.payload, addrs, sizes)
    }

    /// Clear: forgets this tag, a recording under way included. Succeeds when there is nothing to forget.
    ///
    /// # Errors
    /// `CACHE_TAG` for a tag that is too long.
    pub fn clear(
        &mut self,
        of: &Communicator,
        tag: &[u8],
        release: &mut impl FnMut(P),
    ) -> Result<(), CallError> {
        let key = key::<H>(of, tag)?;
        if !self.is_another(&key, tag) {
            self.directory.remove(&key, release);
        }
        Ok(())
    }

    /// Whether the entry of this key was started by another tag: their digests are equal.
    fn is_another(&self, key: &Key, tag: &[u8]) -> bool {
        let peek = self.directory.peek(key).map(|hit| hit.id);
        let id = peek.or_else(|| self.directory.recording(key));
        id.and_then(|id| self.started.get(id.index())).is_some_and(|started| started.tag != tag)
    }
}

/// The key that stands for a tag.
fn key<H: KeyHash>(of: &Communicator, tag: &[u8]) -> Result<Key, CallError> {
    if tag.len() > MAX_TAG {
        return Err(CallError { code: ErrorCode::CACHE_TAG, detail: MAX_TAG as u64 });
    }
    Ok(Key::of_tag(of.instance, of.epoch, H::digest(tag), tag.len()))
}

/// Refuses arrays of different lengths, and buffers that wrap.
fn check_buffers(addrs: &[DeviceAddr], sizes: &[u64]) -> Result<(), CallError> {
    if addrs.len() != sizes.len() {
        return Err(CallError { code: ErrorCode::CACHE_ARGUMENTS, detail: addrs.len() as u64 });
    }
    let wraps = addrs.iter().zip(sizes).position(|(addr, size)| addr.checked_add(*size).is_none());
    match wraps {
        Some(number) => Err(CallError { code: ErrorCode::LAUNCH_BUFFER, detail: number as u64 }),
        None => Ok(()),
    }
}
