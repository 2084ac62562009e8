//! From an algorithm that has been carried out symbolically to scripts, one per rank.
//!
//! The steps are taken in the order of the simulation, so that every task has what it waits for before it. A message
//! lands in slots of the receiver's scratch buffer, which the receiver has said to be free, and is received as soon as
//! it has landed: no send waits for more than the receipt of the message before it between the two ranks. Hence no
//! order of steps that a file may have can block, however many sends are ahead of their receives.
//!
//! The notifies of a channel are binary, and a queue pair runs what it has been given in one order: there is one set of
//! either per pair of ranks. All thread blocks that use a pair therefore share one thread at each end; what a thread
//! block orders is kept by what its steps read and write.

use std::collections::{BTreeSet, HashMap, VecDeque};

use wire::ErrorCode;
use wire::script::{Action, MAX_ENTRIES, Memory, Place, ScriptEntry, ScriptHeader, Told};

use crate::program::{Position, Program};
use crate::simulate::{Done, Execution};
use crate::{Algorithm, Buffer, Fault, Kind};

/// Threads of a rank at most: what has more peers shares them.
const MAX_LANES: usize = 64;
/// Notifies of one rank at most: as many as a kernel follows when it checks what it has expanded.
const MAX_NOTIFIES: u64 = 1024;

/// The script of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankScript {
    /// Head, sealed.
    pub header: ScriptHeader,
    /// What follows it.
    pub entries: Vec<ScriptEntry>,
}

/// Makes the scripts of all ranks.
///
/// # Errors
/// `ALGORITHM_LIMIT` when a rank would need more entries, notifies or slots than there are.
pub(crate) fn lower(
    algorithm: &Algorithm,
    execution: &Execution,
    in_place: bool,
) -> Result<Vec<RankScript>, Fault> {
    let mut lowering = Lowering::new(algorithm, execution, in_place);
    lowering.begin();
    execution.steps.iter().for_each(|done| lowering.step(done));
    lowering.end();
    lowering.scripts()
}

/// A direction of a pair of ranks: sender, receiver.
type Link = (u32, u32);

/// Where the messages of a link stand.
#[derive(Debug, Default)]
struct Traffic {
    /// Chunks of the messages that are still to be sent.
    ahead: VecDeque<u32>,
    /// Slots that the next message lands in.
    next: Vec<u16>,
    /// Slots that are free.
    pool: VecDeque<u16>,
    /// Places of messages that may still be read from.
    unread: Vec<Place>,
}

struct Lowering<'a> {
    algorithm: &'a Algorithm,
    in_place: bool,
    programs: Vec<Program>,
    /// The lane of every rank for each of its peers.
    lanes: Vec<HashMap<u32, usize>>,
    links: HashMap<Link, Traffic>,
    /// Slots that each message has landed in.
    landed: HashMap<usize, Vec<u16>>,
    /// Slots taken of every rank.
    slots: Vec<u32>,
    /// Slots that chunks of scratch have, and chunks of users' buffers while they hold another part than their own.
    homes: HashMap<(u32, crate::Place), u16>,
}

impl<'a> Lowering<'a> {
    fn new(algorithm: &'a Algorithm, execution: &Execution, in_place: bool) -> Self {
        let ranks = algorithm.gpus.len();
        let mut links: HashMap<Link, Traffic> = HashMap::new();
        for message in &execution.messages {
            links.entry((message.from, message.to)).or_default().ahead.push_back(message.chunks);
        }
        let order: BTreeSet<Link> = links.keys().copied().collect();
        let mut lanes: Vec<HashMap<u32, usize>> = vec![HashMap::new(); ranks];
        for (rank, peer) in order.into_iter().flat_map(|(from, to)| [(from, to), (to, from)]) {
            let known = &mut lanes[rank as usize];
            let next = 1 + known.len() % (MAX_LANES - 1);
            known.entry(peer).or_insert(next);
        }
        let programs = lanes.iter().map(|known| Program::new((known.len() + 1).min(MAX_LANES))).collect();
        let slots = vec![0; ranks];
        let (landed, homes) = (HashMap::new(), HashMap::new());
        Self { algorithm, in_place, programs, lanes, links, landed, slots, homes }
    }

    /// The lane at `rank` that deals with `peer`.
    fn lane(&self, rank: u32, peer: u32) -> usize {
        self.lanes[rank as usize].get(&peer).copied().unwrap_or(0)
    }

    fn program(&mut self, rank: u32) -> &mut Program {
        &mut self.programs[rank as usize]
    }

    /// Every receiver allows the first message.
    fn begin(&mut self) {
        let links: BTreeSet<Link> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.allow(link, 0));
    }

    /// Every sender learns that what it sent has been received.
    fn end(&mut self) {
        let links: BTreeSet<Link> = self.links.keys().copied().collect();
        links.into_iter().for_each(|link| self.settle(link, 0));
    }

    /// The receiver of a link tells the sender that slots are free for the next message, if there is one.
    fn allow(&mut self, link: Link, step: u16) {
        let (from, to) = link;
        let traffic = self.links.entry(link).or_default();
        let Some(&chunks) = traffic.ahead.front() else { return };
        let mut slots = Vec::new();
        for _ in 0..chunks {
            let traffic = self.links.entry(link).or_default();
            let program = &mut self.programs[to as usize];
            let free = traffic.pool.iter().position(|&slot| program.uses(scratch(slot)).sending.is_empty());
            let slot = free.and_then(|index| traffic.pool.remove(index));
            slots.push(slot.unwrap_or_else(|| take_slot(&mut self.slots[to as usize])));
        }
        let places: Vec<_> = slots.iter().copied().map(scratch).collect();
        let lane = self.lane(to, from);
        let action = Action::Tell { peer: number(from), what: Told::Free };
        self.program(to).push(lane, step, action, &[], &places);
        self.links.entry(link).or_default().next = slots;
    }

    /// Everything sent over a link has been received: its sources may be written to.
    fn settle(&mut self, link: Link, step: u16) {
        let (from, to) = link;
        if self.links.get(&link).is_none_or(|traffic| traffic.unread.is_empty()) {
            return;
        }
        let (sends, receives) = (self.lane(from, to), self.lane(to, from));
        let tell = Action::Tell { peer: number(from), what: Told::Received };
        self.program(to).push(receives, step, tell, &[], &[]);
        let wait = Action::Await { peer: number(to), what: Told::Received };
        let position = self.program(from).push(sends, step, wait, &[], &[]);
        self.release(link, position);
    }

    /// Notes that nothing sent over a link so far is read after the task at `position`.
    fn release(&mut self, (from, to): Link, position: Position) {
        let unread = core::mem::take(&mut self.links.entry((from, to)).or_default().unread);
        let program = self.program(from);
        for place in unread {
            let sending = &mut program.uses(place).sending;
            if sending.contains(&to) {
                sending.retain(|&peer| peer != to);
                program.read_at(place, position);
            }
        }
    }

    /// Appends a task that writes `dst`, once nothing is sent from there any more.
    fn write(&mut self, rank: u32, lane: usize, step: u16, action: Action, (dst, src): (Place, Place)) {
        for to in self.program(rank).uses(dst).sending.clone() {
            self.settle((rank, to), step);
        }
        self.program(rank).push(lane, step, action, &[src], &[dst]);
    }

    fn step(&mut self, done: &Done) {
        let id = done.id;
        let what = self.algorithm.gpus[id.gpu].blocks[id.block].steps[id.step];
        let rank = u32::try_from(id.gpu).unwrap_or(u32::MAX);
        let step = u16::try_from(id.step).unwrap_or(u16::MAX);
        let thread = &self.algorithm.gpus[id.gpu].blocks[id.block];
        let (send, receive) = (thread.send, thread.receive);
        let slots = done.received.and_then(|message| self.landed.remove(&message)).unwrap_or_default();
        let lane = match receive.filter(|_| what.kind.receives()) {
            Some(from) => self.lane(rank, from),
            None => 0,
        };
        let mut sources = Vec::new();
        for (unit, &part) in (0..).zip(&done.parts) {
            let at = |place: crate::Place| crate::Place { chunk: place.chunk + unit, ..place };
            // The place of what is not used is not looked up: that would take a slot.
            let src = what.kind.reads().then(|| self.place(rank, at(what.src), part));
            let dst = what.kind.writes().then(|| self.place(rank, at(what.dst), part));
            let slot = slots.get(unit as usize).copied().map(scratch);
            let copy = |dst, src| (Action::Copy { dst, src, part }, (dst, src));
            let reduce = |dst, src| (Action::Reduce { dst, src, part }, (dst, src));
            let tasks = match (what.kind, src, dst, slot) {
                (Kind::Copy, Some(src), Some(dst), _) if src != dst => vec![copy(dst, src)],
                (Kind::Reduce, Some(src), Some(dst), _) => vec![reduce(dst, src)],
                (Kind::Receive | Kind::ReceiveCopySend, _, Some(dst), Some(slot)) => vec![copy(dst, slot)],
                (Kind::ReceiveReduceSend, Some(src), _, Some(slot)) => vec![reduce(slot, src)],
                (_, Some(src), Some(dst), Some(slot)) if src == dst => vec![reduce(dst, slot)],
                (_, Some(src), Some(dst), Some(slot)) => vec![reduce(slot, src), copy(dst, slot)],
                _ => Vec::new(),
            };
            for (action, places) in tasks {
                self.write(rank, lane, step, action, places);
            }
            let kept = if what.kind == Kind::ReceiveReduceSend { slot } else { dst };
            sources.extend(kept.or(src).map(|place| (place, part)));
        }
        if let (Some(message), Some(to)) = (done.sent, send) {
            self.send((rank, to), message, &sources, step);
        }
        if let (Some(_), Some(from)) = (done.received, receive) {
            self.links.entry((from, rank)).or_default().pool.extend(slots);
        }
    }

    /// Sends a message, which is received at once into its slots.
    fn send(&mut self, link: Link, message: usize, sources: &[(Place, u16)], step: u16) {
        let (from, to) = link;
        let (sends, receives) = (self.lane(from, to), self.lane(to, from));
        let wait = Action::Await { peer: number(to), what: Told::Free };
        let allowed = self.program(from).push(sends, step, wait, &[], &[]);
        // That the next message may come says that the last one has been received.
        self.release(link, allowed);
        let traffic = self.links.entry(link).or_default();
        traffic.ahead.pop_front();
        let slots = core::mem::take(&mut traffic.next);
        traffic.unread.extend(sources.iter().map(|(place, _)| *place));
        for (index, (&(src, part), &slot)) in sources.iter().zip(&slots).enumerate() {
            let last = index + 1 == sources.len();
            let action = Action::Write { peer: number(to), slot, src, part, last };
            self.program(from).push(sends, step, action, &[src], &[]);
            self.program(from).uses(src).sending.push(to);
        }
        let places: Vec<_> = slots.iter().copied().map(scratch).collect();
        let landed = Action::Await { peer: number(from), what: Told::Landed };
        self.program(to).push(receives, step, landed, &[], &places);
        self.landed.insert(message, slots);
        self.allow(link, step);
    }

    /// Returns where a chunk that holds `part` lies: its own place in a user's buffer, or a slot where it is of scratch or
    /// holds a part whose length may be another than its own.
    fn place(&mut self, rank: u32, named: crate::Place, part: u16) -> Place {
        let place = self.algorithm.resolve(rank, named, self.in_place);
        let parts = self.algorithm.parts();
        let memory = match place.buffer {
            Buffer::Input => Memory::Input,
            Buffer::Output => Memory::Output,
            Buffer::Scratch => Memory::Scratch,
        };
        if memory != Memory::Scratch && place.chunk % parts == u32::from(part) {
            return Place { memory, index: number(place.chunk / parts) };
        }
        let taken = &mut self.slots[rank as usize];
        scratch(*self.homes.entry((rank, place)).or_insert_with(|| take_slot(taken)))
    }

    fn scripts(&self) -> Result<Vec<RankScript>, Fault> {
        let slots = self.slots.iter().copied().max().unwrap_or(0);
        let programs = self.programs.iter().zip(&self.algorithm.gpus);
        (0..)
            .zip(programs)
            .map(|(rank, (program, gpu))| {
                let limit = |what: &str, need: u64, limit: u64| {
                    let message = format!("gpu {rank}: {need} {what}; at most {limit}");
                    Fault::new(ErrorCode::ALGORITHM_LIMIT, gpu.at, message)
                };
                let entries = program.entries();
                let (main_notifies, sub_notifies) = program.notifies();
                let notifies =
                    u64::from(main_notifies) + u64::from(sub_notifies) * u64::from(program.threads() - 1);
                if entries.len() > MAX_ENTRIES {
                    return Err(limit("tasks", entries.len() as u64, MAX_ENTRIES as u64));
                }
                if notifies > MAX_NOTIFIES {
                    return Err(limit("notifies", notifies, MAX_NOTIFIES));
                }
                if slots > 1 << 16 {
                    return Err(limit("scratch chunks", u64::from(slots), 1 << 16));
                }
                let header = ScriptHeader {
                    parts: self.algorithm.parts(),
                    slots,
                    rank,
                    ranks: number(self.algorithm.ranks()),
                    threads: program.threads(),
                    main_notifies,
                    sub_notifies,
                    op: self.algorithm.op as u8,
                    in_place: u8::from(self.in_place),
                    ..ScriptHeader::default()
                };
                let header = header
                    .sealed(&entries)
                    .map_err(|code| Fault::new(code, gpu.at, format!("gpu {rank}")))?;
                Ok(RankScript { header, entries })
            })
            .collect()
    }
}

fn scratch(slot: u16) -> Place {
    Place { memory: Memory::Scratch, index: slot }
}

/// Takes the next slot. One beyond what can be numbered is found out before the scripts are used.
fn take_slot(taken: &mut u32) -> u16 {
    *taken += 1;
    u16::try_from(*taken - 1).unwrap_or(u16::MAX)
}

/// Ranks and blocks, which have been checked to be few.
fn number(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}
