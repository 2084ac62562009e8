//! One hit again and again, for a profiler: `hit RANKS PIECES LAUNCHES`.

use aicpu_benches::rank::Rank;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let mut next = |default: u64| numbers.next().unwrap_or(default);
    let (ranks, pieces, launches) = (next(4), next(3), next(1000));
    let spent = Rank::new(u32::try_from(ranks).expect("few"), pieces).time(launches);
    println!("{} ns a launch", spent.as_nanos() / u128::from(launches.max(1)));
}
