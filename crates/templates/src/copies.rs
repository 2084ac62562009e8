//! Copies between the user's buffers and the work area, shared among the threads.

use core::num::NonZero;

use task_graph::{RegionKind, TaskSink, ThreadId};
use wire::launch::{OpKind, Staging};

use crate::group::first_part;
use crate::skeleton::{Emitted, Emitter};
use crate::slices::Slices;
use crate::tables::Half;
use crate::tasks::own;

impl<S: TaskSink> Emitter<'_, S> {
    /// Copies user data into the work area, shared among the threads.
    pub(crate) fn pre_copy(&mut self) -> Emitted {
        let shape = self.plan.shape();
        let root = shape.rank == shape.root;
        match shape.op {
            OpKind::AllReduce | OpKind::Reduce => self.whole_to_work(),
            OpKind::Broadcast if root => self.whole_to_work(),
            OpKind::AllGather | OpKind::AllGatherV | OpKind::Gather => {
                let slices = self.slices(self.plan.ranks());
                let work = own(self.layout.work, slices.get(self.position(shape.rank)));
                let input = own(RegionKind::Input, self.share());
                if shape.staging == Staging::Direct {
                    self.copy_unless_in_place(ThreadId::MAIN, work, input)
                } else {
                    self.copy(ThreadId::MAIN, work, input)
                }
            }
            OpKind::ReduceScatter | OpKind::ReduceScatterV => self.blocks(Half::Send),
            OpKind::Scatter if root => self.blocks(Half::Send),
            _ => Ok(()),
        }
    }

    /// Copies the result out of the work area, shared among the threads; nothing to do where it is the output.
    pub(crate) fn post_copy(&mut self) -> Emitted {
        let shape = self.plan.shape();
        if shape.staging == Staging::Direct {
            return Ok(());
        }
        let root = shape.rank == shape.root;
        let first = self.chunk.first * self.element;
        match shape.op {
            // In place, the root has had the result all along.
            OpKind::Broadcast if root && shape.in_place => Ok(()),
            OpKind::AllReduce | OpKind::Broadcast => {
                self.shared_copy((RegionKind::Output, first), (self.layout.work, 0))
            }
            OpKind::Reduce if root => self.shared_copy((RegionKind::Output, first), (self.layout.work, 0)),
            OpKind::AllGather | OpKind::AllGatherV => self.blocks(Half::Receive),
            OpKind::Gather if root => self.blocks(Half::Receive),
            OpKind::ReduceScatter | OpKind::ReduceScatterV | OpKind::Scatter => {
                let slices = self.slices(self.plan.ranks());
                let work = own(self.layout.work, slices.get(self.position(shape.rank)));
                self.copy(ThreadId::MAIN, own(RegionKind::Output, self.share()), work)
            }
            _ => Ok(()),
        }
    }

    /// Copies the elements at hand from the input to the start of the work area.
    fn whole_to_work(&mut self) -> Emitted {
        let first = self.chunk.first * self.element;
        let base = if self.plan.shape().staging == Staging::Direct { first } else { 0 };
        self.shared_copy((self.layout.work, base), (RegionKind::Input, first))
    }

    /// Copies every rank's block from the input to the work area, or from there to the output.
    fn blocks(&mut self, half: Half) -> Emitted {
        let (slices, group) = (self.slices(self.plan.ranks()), self.group());
        for member in 0..self.plan.shape().ranks {
            let rank = group.rank(member);
            let work = own(self.layout.work, slices.get(self.position(rank)));
            let (thread, block) = (self.copier(rank), self.block(half, rank));
            match half {
                Half::Send => self.copy(thread, work, own(RegionKind::Input, block))?,
                Half::Receive => self.copy(thread, own(RegionKind::Output, block), work)?,
            }
        }
        Ok(())
    }

    /// Copies the chunk's elements, shared among the threads by whole slices.
    fn shared_copy(&mut self, dst: (RegionKind, u64), src: (RegionKind, u64)) -> Emitted {
        self.copy_slices(dst, src, (0, self.plan.cuts()), 0)
    }

    /// Copies slices of the chunk's elements, first and number, shared among the threads from `thread` on.
    pub(crate) fn copy_slices(
        &mut self,
        dst: (RegionKind, u64),
        src: (RegionKind, u64),
        (first, count): (u32, NonZero<u32>),
        thread: u16,
    ) -> Emitted {
        let slices = Slices::cut(0, self.chunk.count, self.plan.cuts(), self.element);
        let threads = NonZero::new(self.plan.threads().saturating_sub(thread)).unwrap_or(NonZero::<u16>::MIN);
        let direct = dst.0 == RegionKind::Output && src.0 == RegionKind::Input;
        let mut done = 0;
        for number in 0..threads.get() {
            let until = first_part(u32::from(number) + 1, count, threads.into());
            if until > done {
                let (offset, len) = slices.range(first + done, until - done);
                let (to, from) = (own(dst.0, (dst.1 + offset, len)), own(src.0, (src.1 + offset, len)));
                if direct {
                    self.copy_unless_in_place(ThreadId(thread + number), to, from)?;
                } else {
                    self.copy(ThreadId(thread + number), to, from)?;
                }
            }
            done = until;
        }
        Ok(())
    }

    /// The thread that copies block `block`: all threads share.
    fn copier(&self, block: u32) -> ThreadId {
        ThreadId(u16::try_from(block % NonZero::<u32>::from(self.plan.thread_count())).unwrap_or(0))
    }
}
