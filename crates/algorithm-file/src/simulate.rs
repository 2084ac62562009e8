//! Carries an algorithm out symbolically, on all ranks at once.
//!
//! Each turn lets every thread block do one step, if what it waits for is there; a send never waits. The order in which
//! steps are done is one that every run could have: who is refused here as blocked would hang, and what two steps do
//! in no order (`clocks`) would depend on the run. Each chunk holds a [`Value`], so that the first step that goes wrong
//! is known.

use std::collections::{HashMap, VecDeque};

use wire::ErrorCode;
use wire::launch::OpKind;

use crate::clocks::{Cell, Clock, Clocks};
use crate::fault::StepId;
use crate::values::{Term, Value, Values};
use crate::{Algorithm, Buffer, Fault, Kind, Place, Step};

/// What happened, and what it came to.
#[derive(Clone, Debug)]
pub(crate) struct Execution {
    /// Steps in an order that keeps all dependencies.
    pub(crate) steps: Vec<Done>,
    /// Messages in the order of their sends.
    pub(crate) messages: Vec<Message>,
    pub(crate) values: Values,
    /// What each rank's output holds, by chunk.
    pub(crate) outputs: Vec<Vec<Value>>,
}

/// A step that has been done.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) id: StepId,
    /// Message that it received, sent.
    pub(crate) received: Option<usize>,
    pub(crate) sent: Option<usize>,
    /// Part that each of its chunks is.
    pub(crate) parts: Vec<u16>,
}

/// Chunks that go from one rank to another.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) chunks: u32,
}

/// A message on its way.
struct Flying {
    number: usize,
    values: Vec<Value>,
    clock: Clock,
    sender: StepId,
}

/// Carries out `algorithm` in place or out of place.
///
/// # Errors
/// `ALGORITHM_DEADLOCK`, `ALGORITHM_UNMATCHED`, `ALGORITHM_RACE`, `ALGORITHM_RESULT` at the first step at fault.
pub(crate) fn simulate(algorithm: &Algorithm, in_place: bool) -> Result<Execution, Fault> {
    let mut simulation = Simulation::new(algorithm, in_place);
    let ids: Vec<(usize, usize)> = (0..algorithm.gpus.len())
        .flat_map(|gpu| (0..algorithm.gpus[gpu].blocks.len()).map(move |block| (gpu, block)))
        .collect();
    loop {
        let (mut moved, mut waiting) = (false, Vec::new());
        for &(gpu, block) in &ids {
            let id = StepId { gpu, block, step: simulation.next[gpu][block] };
            if id.step == algorithm.gpus[gpu].blocks[block].steps.len() {
                continue;
            }
            match simulation.blocked(id) {
                Some(wait) => waiting.push((id, wait)),
                None => {
                    simulation.step(id)?;
                    moved = true;
                }
            }
        }
        if !moved {
            simulation.check_done(&waiting)?;
            simulation.check_result()?;
            return Ok(simulation.execution);
        }
    }
}

/// What a step waits for.
enum Wait {
    Message { from: u32, channel: u32 },
    Step(StepId),
}

struct Simulation<'a> {
    algorithm: &'a Algorithm,
    in_place: bool,
    /// Next step of every thread block.
    next: Vec<Vec<usize>>,
    memory: HashMap<Cell, Value>,
    /// By sender, receiver, channel.
    flying: HashMap<(u32, u32, u32), VecDeque<Flying>>,
    clocks: Clocks,
    execution: Execution,
}

impl<'a> Simulation<'a> {
    fn new(algorithm: &'a Algorithm, in_place: bool) -> Self {
        let (mut values, mut memory) = (Values::default(), HashMap::new());
        for rank in 0..algorithm.ranks() {
            for chunk in 0..algorithm.extents()[0] {
                let place = algorithm.resolve(rank, Place { buffer: Buffer::Input, chunk }, in_place);
                memory.insert(Cell { rank, place }, values.input(rank, chunk));
            }
        }
        let next = algorithm.gpus.iter().map(|gpu| vec![0; gpu.blocks.len()]).collect();
        let execution = Execution { steps: Vec::new(), messages: Vec::new(), values, outputs: Vec::new() };
        let clocks = Clocks::new(algorithm);
        Self { algorithm, in_place, next, memory, flying: HashMap::new(), clocks, execution }
    }

    fn what(&self, id: StepId) -> Step {
        self.algorithm.gpus[id.gpu].blocks[id.block].steps[id.step]
    }

    fn fault(&self, id: StepId, code: ErrorCode, message: impl core::fmt::Display) -> Fault {
        id.fault(self.algorithm, code, message)
    }

    /// Returns what a step still waits for.
    fn blocked(&self, id: StepId) -> Option<Wait> {
        let step = self.what(id);
        if let Some((block, after)) = step.after.filter(|&(block, after)| self.next[id.gpu][block] <= after) {
            return Some(Wait::Step(StepId { gpu: id.gpu, block, step: after }));
        }
        let thread = &self.algorithm.gpus[id.gpu].blocks[id.block];
        let from = thread.receive.filter(|_| step.kind.receives())?;
        let queue = self.flying.get(&(from, rank(id), thread.channel));
        queue.is_none_or(VecDeque::is_empty).then_some(Wait::Message { from, channel: thread.channel })
    }

    /// Does a step that is not blocked.
    fn step(&mut self, id: StepId) -> Result<(), Fault> {
        let step = self.what(id);
        let thread = &self.algorithm.gpus[id.gpu].blocks[id.block];
        let channel = thread.channel;
        self.clocks.start(id, step.after);
        let mut received = None;
        let mut values = Vec::new();
        if let (true, Some(from)) = (step.kind.receives(), thread.receive) {
            let queue = self.flying.get_mut(&(from, rank(id), channel));
            if let Some(message) = queue.and_then(VecDeque::pop_front) {
                self.clocks.join(id, &message.clock);
                if message.values.len() != step.count as usize {
                    let sent = message.values.len();
                    let message =
                        format!("receives {} chunks, of {sent} that {} sends", step.count, message.sender);
                    return Err(self.fault(id, ErrorCode::ALGORITHM_UNMATCHED, message));
                }
                received = Some(message.number);
                values = message.values;
            }
        }
        if step.kind.reads() {
            for unit in 0..step.count {
                let read = self.read(id, step.src, unit)?;
                match values.get_mut(unit as usize) {
                    Some(value) => *value = self.reduced(id, read, *value)?,
                    None => values.push(read),
                }
            }
        }
        if step.kind.writes() {
            for unit in 0..step.count {
                // In place, a copy may be one onto itself.
                if step.kind == Kind::Copy && self.cell(id, step.src, unit) == self.cell(id, step.dst, unit) {
                    continue;
                }
                let mut value = values[unit as usize];
                if step.kind == Kind::Reduce {
                    let accumulator = self.read(id, step.dst, unit)?;
                    value = self.reduced(id, accumulator, value)?;
                }
                self.write(id, step.dst, unit, value)?;
            }
        }
        let parts = values.iter().map(|&value| self.part(value)).collect();
        let mut sent = None;
        if let (true, Some(to)) = (step.kind.sends(), thread.send) {
            sent = Some(self.execution.messages.len());
            self.execution.messages.push(Message { from: rank(id), to, chunks: step.count });
            let clock = self.clocks.of(id);
            let number = self.execution.messages.len() - 1;
            let message = Flying { number, values, clock, sender: id };
            self.flying.entry((rank(id), to, channel)).or_default().push_back(message);
        }
        self.clocks.finish(id, step.awaited);
        self.next[id.gpu][id.block] += 1;
        self.execution.steps.push(Done { id, received, sent, parts });
        Ok(())
    }

    /// Part of the whole, or of a block, that a value is.
    fn part(&self, value: Value) -> u16 {
        let part = self.execution.values.chunk(value) % self.algorithm.parts();
        u16::try_from(part).expect("parts were checked to be numbered by 16 bits")
    }

    fn cell(&self, id: StepId, place: Place, unit: u32) -> Cell {
        let place = Place { chunk: place.chunk + unit, ..place };
        Cell { rank: rank(id), place: self.algorithm.resolve(rank(id), place, self.in_place) }
    }

    fn read(&mut self, id: StepId, place: Place, unit: u32) -> Result<Value, Fault> {
        let cell = self.cell(id, place, unit);
        let Some(&value) = self.memory.get(&cell) else {
            let message = format!("reads {}, which nothing was written to", cell.place);
            return Err(self.fault(id, ErrorCode::ALGORITHM_RESULT, message));
        };
        match self.clocks.read(id, cell) {
            None => Ok(value),
            Some(other) => {
                let message = format!("reads {}, which {other} writes, in no order", cell.place);
                Err(self.fault(id, ErrorCode::ALGORITHM_RACE, message))
            }
        }
    }

    fn write(&mut self, id: StepId, place: Place, unit: u32, value: Value) -> Result<(), Fault> {
        let cell = self.cell(id, place, unit);
        if let Some(other) = self.clocks.write(id, cell) {
            let message = format!("writes {}, which {other} uses, in no order", cell.place);
            return Err(self.fault(id, ErrorCode::ALGORITHM_RACE, message));
        }
        self.memory.insert(cell, value);
        Ok(())
    }

    fn reduced(&mut self, id: StepId, into: Value, value: Value) -> Result<Value, Fault> {
        let result = if self.algorithm.op.reduces() {
            self.execution.values.reduced(into, value)
        } else {
            Err(format!("reduces, which no {} does", self.algorithm.op))
        };
        result.map_err(|message| self.fault(id, ErrorCode::ALGORITHM_RESULT, message))
    }

    /// Checks that nobody waits any more, and that everything sent was received.
    fn check_done(&self, waiting: &[(StepId, Wait)]) -> Result<(), Fault> {
        let blocks = |id: &StepId| &self.algorithm.gpus[id.gpu].blocks;
        // Who waits for something that nobody is going to do comes before those who wait for each other.
        let hopeless = |(_, wait): &&(StepId, Wait)| match wait {
            Wait::Step(_) => false,
            Wait::Message { from, channel } => !waiting.iter().any(|(other, _)| {
                let thread = &blocks(other)[other.block];
                rank(*other) == *from
                    && thread.channel == *channel
                    && thread.steps[other.step..].iter().any(|step| step.kind.sends())
            }),
        };
        if let Some((id, wait)) = waiting.iter().find(hopeless).or(waiting.first()) {
            let message = match wait {
                Wait::Step(step) => format!("waits for {step}, which waits itself"),
                Wait::Message { from, channel } => {
                    format!("waits for gpu {from} to send over channel {channel}, which it never does")
                }
            };
            return Err(self.fault(*id, ErrorCode::ALGORITHM_DEADLOCK, message));
        }
        let left = self.flying.iter().filter_map(|(key, queue)| Some((queue.front()?, key)));
        match left.min_by_key(|(message, _)| message.number) {
            None => Ok(()),
            Some((message, (_, to, channel))) => {
                let text = format!("gpu {to} never receives this over channel {channel}");
                Err(self.fault(message.sender, ErrorCode::ALGORITHM_UNMATCHED, text))
            }
        }
    }

    /// Checks every chunk of every output, and notes what it holds.
    fn check_result(&mut self) -> Result<(), Fault> {
        let mut first: Option<(usize, Fault)> = None;
        for (rank, gpu) in (0..).zip(&self.algorithm.gpus) {
            let mut output = Vec::new();
            for chunk in 0..self.algorithm.extents()[1] {
                let named = Place { buffer: Buffer::Output, chunk };
                let place = self.algorithm.resolve(rank, named, self.in_place);
                let cell = Cell { rank, place };
                let value = self.memory.get(&cell).copied();
                let wanted = self.wanted(rank, chunk);
                if let Some(value) = value.filter(|&value| self.is(value, wanted)) {
                    output.push(value);
                    continue;
                }
                let holds = value.map_or("nothing".to_owned(), |value| self.execution.values.describe(value));
                let message = format!("leaves {holds} in {named} of gpu {rank}: expected {}", text(wanted));
                let code = ErrorCode::ALGORITHM_RESULT;
                let writer = self.clocks.writer(cell);
                let at = writer.and_then(|id| self.execution.steps.iter().position(|done| done.id == id));
                let fault = match writer {
                    Some(id) => self.fault(id, code, message),
                    None => {
                        Fault::new(code, gpu.at, format!("gpu {rank}: no step writes {place}: it {message}"))
                    }
                };
                let order = at.unwrap_or(usize::MAX);
                if first.as_ref().is_none_or(|(earlier, _)| order < *earlier) {
                    first = Some((order, fault));
                }
            }
            self.execution.outputs.push(output);
        }
        first.map_or(Ok(()), |(_, fault)| Err(fault))
    }

    /// Returns what an output must hold: a chunk, of one rank's input or of all reduced.
    fn wanted(&self, rank: u32, chunk: u32) -> (u32, Option<u32>) {
        let parts = self.algorithm.parts();
        match self.algorithm.op {
            OpKind::ReduceScatter => (rank * parts + chunk, None),
            OpKind::AllGather => (chunk % parts, Some(chunk / parts)),
            OpKind::AllToAll => (rank * parts + chunk % parts, Some(chunk / parts)),
            _ => (chunk, None),
        }
    }

    fn is(&self, value: Value, (chunk, from): (u32, Option<u32>)) -> bool {
        let values = &self.execution.values;
        match from {
            Some(rank) => values.term(value) == Term::Input { rank, chunk },
            None => {
                let all = u128::MAX >> (128 - self.algorithm.ranks());
                values.chunk(value) == chunk && values.ranks(value) == all
            }
        }
    }
}

fn text((chunk, from): (u32, Option<u32>)) -> String {
    match from {
        Some(rank) => format!("chunk {chunk} of gpu {rank}"),
        None => format!("chunk {chunk} of all gpus"),
    }
}

fn rank(id: StepId) -> u32 {
    u32::try_from(id.gpu).expect("ranks were checked")
}
