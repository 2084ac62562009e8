//! One expansion, repeated, for a profiler: `expansion <algorithm> <ranks> <times>`. Prints the number of descriptors.

use aicpu_benches::{Tables, expand, graph};
use core::hint::black_box;
use wire::launch::Algorithm;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [algorithm, ranks, times] = &args[..] else { panic!("expansion <algorithm> <ranks> <times>") };
    let named = Algorithm::ALL.iter().find(|known| known.name() == algorithm);
    let (algorithm, ranks) = (*named.expect("an algorithm"), ranks.parse().expect("a number of ranks"));
    let tables = Tables::new(algorithm, ranks);
    let plan = tables.plan(algorithm);
    let mut graph = graph();
    for _ in 0..times.parse().expect("a number of times") {
        expand(black_box(&plan), &tables, &mut graph).expect("fits");
    }
    println!("{}", graph.len());
}
