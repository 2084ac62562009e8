//! One collective again and again, for a profiler: `repeat <operation> <ranks> <bytes> <times>`.

use aicpu_benches::collective::{OPERATIONS, Point};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [op, ranks, bytes, times] = &args[..] else { panic!("four arguments") };
    let named = OPERATIONS.into_iter().find(|known| known.to_string() == *op);
    let point = Point {
        op: named.expect("an operation that is compared"),
        ranks: ranks.parse().expect("a number of ranks"),
        bytes: bytes.parse().expect("a number of bytes"),
    };
    let times: u32 = times.parse().expect("a number of times");
    point.prepared(None, |once| (0..times).for_each(|_| once()));
}
