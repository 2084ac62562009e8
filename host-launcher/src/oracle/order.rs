//! The order in which each algorithm reduces, written down from the table at the head of the `templates` crate.

use templates::Tables;
use wire::launch::{Algorithm, OpKind};

use crate::communicator::Operation;

/// How one element is reduced.
#[derive(Clone, Debug)]
pub(super) struct Order {
    /// Merges (into, from) over values indexed by rank.
    pub(super) merges: Vec<(u32, u32)>,
    /// The rank where the result ends up.
    pub(super) owner: u32,
}

/// Returns the orders of the parts that a chunk of an all-reduce or reduce is cut into.
pub(super) fn of_whole(operation: &Operation, ranks: u32, groups: &Tables<'_>) -> Vec<Order> {
    let Operation { op, algorithm, root, .. } = *operation;
    match algorithm {
        Algorithm::TwoLevel | Algorithm::ThreeLevel | Algorithm::Pipeline => {
            let levels = levels(operation, ranks, groups);
            let holders = levels.iter().map(|&(size, algorithm)| holders(algorithm, size));
            // The holders of the innermost level have the largest slices.
            let digits = holders.fold(vec![Vec::new()], |digits: Vec<Vec<u32>>, holders| {
                let longer = |digits: Vec<u32>| {
                    (0..holders).map(move |digit| digits.iter().copied().chain([digit]).collect())
                };
                digits.into_iter().flat_map(longer).collect()
            });
            digits.iter().map(|digits| levelled(&levels, digits, ranks)).collect()
        }
        Algorithm::Ahc => unequal(operation, ranks, groups),
        Algorithm::MultiRing => {
            let ring = |stride| (0..ranks).map(move |owner| ring(owner, stride, ranks));
            strides(ranks).into_iter().flat_map(ring).collect()
        }
        Algorithm::MeshChunk => (0..ranks).flat_map(|owner| rotating(owner, ranks)).collect(),
        // All of it goes to one rank.
        Algorithm::Tree => vec![flat(algorithm, op, root, ranks)],
        Algorithm::Ring if op == OpKind::Reduce => vec![flat(algorithm, op, root, ranks)],
        Algorithm::Nhr if op == OpKind::AllReduce => {
            // The slices lie in the order of their owners' low bits in reverse, as many as divide the ranks.
            let mut owners = vec![0];
            let mut divisor = 1;
            while (ranks / divisor).is_multiple_of(2) {
                owners = owners.iter().flat_map(|&owner| [owner, owner + divisor]).collect();
                divisor *= 2;
            }
            let above = |owner: u32| (owner..ranks).step_by(divisor as usize);
            owners.into_iter().flat_map(above).map(|owner| flat(algorithm, op, owner, ranks)).collect()
        }
        _ => (0..holders(algorithm, ranks))
            .map(|slice| flat(algorithm, op, (slice + root) % ranks, ranks))
            .collect(),
    }
}

/// Returns the orders of the parts that a chunk of a rank's block is cut into.
pub(super) fn of_block(operation: &Operation, owner: u32, ranks: u32, groups: &Tables<'_>) -> Vec<Order> {
    match operation.algorithm {
        Algorithm::TwoLevel | Algorithm::ThreeLevel | Algorithm::Pipeline => {
            let levels = levels(operation, ranks, groups);
            let mut rest = owner;
            let digits = levels.iter().map(|&(size, _)| {
                let digit = rest % size;
                rest /= size;
                digit
            });
            vec![levelled(&levels, &digits.collect::<Vec<_>>(), ranks)]
        }
        Algorithm::MultiRing => strides(ranks).into_iter().map(|stride| ring(owner, stride, ranks)).collect(),
        Algorithm::MeshChunk => rotating(owner, ranks),
        algorithm => vec![flat(algorithm, operation.op, owner, ranks)],
    }
}

/// How many ranks hold a slice each.
fn holders(algorithm: Algorithm, ranks: u32) -> u32 {
    if algorithm == Algorithm::HalvingDoubling { 1 << ranks.ilog2() } else { ranks }
}

/// The order among all ranks, for the slice of rank `owner`.
fn flat(algorithm: Algorithm, op: OpKind, owner: u32, ranks: u32) -> Order {
    let ahead = |distance: u32| (owner + distance) % ranks;
    let behind = |distance: u32| (owner + ranks - distance) % ranks;
    // The binary tree over the distance from the owner.
    let tree = |at: &dyn Fn(u32) -> u32| {
        let mut list = Vec::new();
        let mut step = 1;
        while step < ranks {
            let merging = (0..ranks - step).step_by(2 * step as usize);
            list.extend(merging.map(|distance| (at(distance), at(distance + step))));
            step *= 2;
        }
        list
    };
    let at_owner = |merges| Order { merges, owner };
    match algorithm {
        Algorithm::MeshOneShot | Algorithm::MeshTwoShot | Algorithm::Pairwise | Algorithm::Star => {
            Order { merges: (1..ranks).map(|rank| (0, rank)).collect(), owner: 0 }
        }
        Algorithm::Strict => {
            let mut merges = Vec::new();
            let mut remaining = ranks;
            while remaining > 1 {
                let lower = (0..).map(|power| 1 << power).take_while(|&half| half < remaining).last();
                let lower = lower.expect("1 is below 2");
                merges.extend((lower..remaining).map(|rank| (rank - lower, rank)));
                remaining = lower;
            }
            Order { merges, owner: 0 }
        }
        // From the farthest to the root, hand to hand.
        Algorithm::Ring if op == OpKind::Reduce => {
            at_owner((1..ranks).rev().map(|distance| (ahead(distance - 1), ahead(distance))).collect())
        }
        Algorithm::Ring => ring(owner, 1, ranks),
        Algorithm::HalvingDoubling => {
            let core = holders(algorithm, ranks);
            let mut merges: Vec<(u32, u32)> = (core..ranks).map(|rank| (rank - core, rank)).collect();
            let mut distance = core / 2;
            while distance > 0 {
                // All ranks that agree with the owner from this bit on take the other half's contribution.
                let keep = (0..core).filter(|rank| (rank ^ owner) < distance);
                merges.extend(keep.map(|rank| (rank, rank ^ distance)));
                distance /= 2;
            }
            at_owner(merges)
        }
        Algorithm::Nhr | Algorithm::Tree => at_owner(tree(&ahead)),
        Algorithm::Nb => at_owner(tree(&behind)),
        _ => unreachable!("{algorithm} reduces nothing"),
    }
}

/// Once around a ring whose members are `stride` ranks apart, ending at the owner.
fn ring(owner: u32, stride: u32, ranks: u32) -> Order {
    let around = |hop: u32| (owner + stride * (1 + hop)) % ranks;
    Order { merges: (1..ranks).map(|hop| (around(hop), around(hop - 1))).collect(), owner }
}

/// The strides of the rings of a multi-ring: up to half the ranks, without a common divisor, eight at most.
fn strides(ranks: u32) -> Vec<u32> {
    let common = |stride: u32| {
        (2..=stride).any(|divisor| stride.is_multiple_of(divisor) && ranks.is_multiple_of(divisor))
    };
    (1..=(ranks / 2).max(1)).filter(|&stride| !common(stride)).take(8).collect()
}

/// The parts of a slice of a mesh chunk: part c comes first from rank `owner + 1 + c`, then from those before.
fn rotating(owner: u32, ranks: u32) -> Vec<Order> {
    let others: Vec<u32> = (1..ranks).map(|distance| (owner + distance) % ranks).collect();
    let part = |part: usize| {
        let first = others[..=part].iter().rev().chain(others[part + 1..].iter().rev());
        Order { merges: first.map(|&rank| (owner, rank)).collect(), owner }
    };
    match others.len() {
        0 => vec![Order { merges: Vec::new(), owner }],
        parts => (0..parts).map(part).collect(),
    }
}

/// The order among some ranks, for the slice of the `owner`-th: a mesh begins with the owner and goes around.
fn among(algorithm: Algorithm, owner: u32, members: &[u32]) -> Vec<(u32, u32)> {
    let count = u32::try_from(members.len()).expect("few");
    let merges = match algorithm {
        Algorithm::MeshTwoShot | Algorithm::MeshOneShot => {
            (1..count).map(|distance| (owner, (owner + distance) % count)).collect()
        }
        _ => flat(algorithm, OpKind::AllReduce, owner, count).merges,
    };
    merges.into_iter().map(|(into, from)| (members[into as usize], members[from as usize])).collect()
}

/// Sizes and algorithms of the levels from the innermost on.
fn levels(operation: &Operation, ranks: u32, groups: &Tables<'_>) -> Vec<(u32, Algorithm)> {
    // The largest group whose edges every server's edge is one of.
    let fits = |edges: &[u32]| {
        let fits = |size: &u32| ranks.is_multiple_of(*size) && edges.iter().all(|edge| edge % size == 0);
        (1..=ranks).rev().find(fits).expect("1 fits")
    };
    let inside = fits(groups.servers);
    let pod = fits(groups.pods);
    let sizes = match operation.algorithm {
        Algorithm::ThreeLevel => vec![inside, pod / inside, ranks / pod],
        _ => vec![inside, ranks / inside],
    };
    let own = [
        Algorithm::MeshTwoShot,
        if operation.algorithm == Algorithm::Pipeline { Algorithm::Ring } else { Algorithm::Nhr },
        Algorithm::Nhr,
    ];
    let algorithm = |level: usize| operation.levels[level].unwrap_or(own[level]);
    sizes.into_iter().enumerate().map(|(level, size)| (size, algorithm(level))).collect()
}

/// Level by level, each among the ranks that agree with the owner further inside.
fn levelled(levels: &[(u32, Algorithm)], digits: &[u32], ranks: u32) -> Order {
    let (mut merges, mut stride, mut owner) = (Vec::new(), 1, 0);
    for (&(size, algorithm), &digit) in levels.iter().zip(digits) {
        let starts = (0..ranks).filter(|rank| rank % stride == owner && rank / stride % size == 0);
        for start in starts {
            let members: Vec<u32> = (0..size).map(|member| start + member * stride).collect();
            merges.extend(among(algorithm, digit, &members));
        }
        owner += digit * stride;
        stride *= size;
    }
    Order { merges, owner }
}

/// Servers of any size: inside each, then among the ranks that hold the same part.
fn unequal(operation: &Operation, ranks: u32, groups: &Tables<'_>) -> Vec<Order> {
    let firsts: Vec<u32> = if groups.servers.is_empty() { vec![0] } else { groups.servers.to_vec() };
    let ends = firsts.iter().skip(1).copied().chain([ranks]);
    let servers: Vec<Vec<u32>> =
        firsts.iter().zip(ends).map(|(&first, end)| (first..end).collect()).collect();
    let inside = operation.levels[0].unwrap_or(Algorithm::MeshTwoShot);
    let across = operation.levels[1].unwrap_or(Algorithm::Nhr);
    let held: Vec<u32> =
        servers.iter().map(|server| holders(inside, u32::try_from(server.len()).expect("few"))).collect();
    let divides = |parts: &u32| held.iter().all(|holders| parts.is_multiple_of(*holders));
    let largest = servers.iter().map(Vec::len).max().expect("one at least");
    let parts = (1..=1024).find(divides).unwrap_or(u32::try_from(1024.max(largest * largest)).expect("few"));
    // Which place of each server holds a part: place p begins at part p · parts / holders, rounded down.
    let holding = |part: u32| -> Vec<u32> {
        let place = |&holders: &u32| {
            (0..holders).rev().find(|&place| place * parts / holders <= part).expect("0 begins at 0")
        };
        held.iter().map(place).collect()
    };
    let count = holders(across, u32::try_from(servers.len()).expect("few"));
    let mut orders = Vec::new();
    let mut part = 0;
    while part < parts {
        let places = holding(part);
        let run = (part..parts).take_while(|&other| holding(other) == places).count();
        let run = u32::try_from(run).expect("few");
        let owners: Vec<u32> =
            servers.iter().zip(&places).map(|(server, &place)| server[place as usize]).collect();
        for slice in 0..count {
            let mut merges: Vec<_> = servers
                .iter()
                .zip(&places)
                .flat_map(|(server, &place)| among(inside, place, server))
                .collect();
            merges.extend(among(across, slice, &owners));
            let order = Order { merges, owner: owners[slice as usize] };
            orders.extend(vec![order; run as usize]);
        }
        part += run;
    }
    orders
}
