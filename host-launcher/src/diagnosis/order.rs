//! Operations that have not begun because they come behind others: of communicators that are called in different orders
//! on different NPUs, or of one that is stuck for a reason of its own.

use wire::ErrorCode;

use super::Report;
use super::snapshot::Snapshot;
use super::survey::Part;
use super::verdict::Case;
use crate::stream::{Behind, Named, circle};

impl Case<'_> {
    /// Explains that communicators wait for each other, if they do: each operation is behind the next.
    pub(super) fn ordered(&self) -> Option<Report> {
        let circle = circle(self.behind())?;
        // Of this communicator, the operation that waits; another one's circle is in its way otherwise.
        let own = circle.iter().find_map(|link| self.own(link)).or_else(|| self.first_behind());
        let (rank, link) = own?;
        // What is only slow has not come to where it would wait for ever.
        if (self.moves)(rank, Part::Device) == Some(true) {
            return None;
        }
        let links: Vec<_> = circle.iter().take(6).map(sentence).collect();
        let more = if circle.len() > links.len() { ", …" } else { "" };
        let cause = format!("communicators are called in different orders: {}{more}.", links.join(", "));
        let base = self.report(ErrorCode::COMM_ORDER, rank, link.waits.sequence);
        let report = Report { cause, peer_state: "not begun".to_owned(), ..base };
        Some(self.seen_by(self.waits.victim_of(rank), report))
    }

    /// Explains that an operation has not begun on a rank because one of another communicator is not done there.
    pub(super) fn held(&self) -> Option<Report> {
        let (rank, link) = self.first_behind()?;
        let cause =
            format!("rank {rank} has not begun the operation: {}, which is not done.", sentence(link));
        let remedy = format!("look at communicator {:?} first", link.first.comm);
        let base = self.report(ErrorCode::PEER_NOT_STARTED, rank, link.waits.sequence);
        let report = Report { cause, remedy, peer_state: "not begun".to_owned(), ..base };
        Some(self.seen_by(self.waits.victim_of(rank), report))
    }

    fn behind(&self) -> &[Behind] {
        self.waits.ranks.first().map_or(&[], |snapshot| &snapshot.host.behind)
    }

    /// The rank of this communicator whose operation a link says to wait.
    fn own<'b>(&self, link: &'b Behind) -> Option<(u32, &'b Behind)> {
        let is_own = |snapshot: &&Snapshot| {
            snapshot.host.npu == link.npu && snapshot.host.instance == link.waits.instance
        };
        let snapshot = self.waits.ranks.iter().find(is_own)?;
        Some((snapshot.host.rank, link))
    }

    /// The first operation of this communicator that waits for one of another.
    fn first_behind(&self) -> Option<(u32, &Behind)> {
        let others = self.behind().iter().filter(|link| link.first.instance != link.waits.instance);
        others.filter_map(|link| self.own(link)).min_by_key(|(_, link)| link.waits.sequence)
    }
}

fn sentence(link: &Behind) -> String {
    format!("on NPU {} {} is behind {}", link.npu, name(&link.waits), name(&link.first))
}

fn name(operation: &Named) -> String {
    format!("{:?} #{}", operation.comm, operation.sequence)
}
