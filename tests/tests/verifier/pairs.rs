use crate::shapes::{expand, proof, shapes};
use host_launcher::prove;
use templates::Shape;
use wire::npu::Protocol;
#[test]
fn pairs() {
    let mut bad = 0;
    for ranks in 2..=6 {
        for (protocol, inline_reduce) in
            [(Protocol::Roce, false), (Protocol::Ub, true), (Protocol::Ub, false)]
        {
            for threads in [1, 3, 100] {
                for shape in shapes(ranks, 1000) {
                    let shape = Shape { inline_reduce, threads: threads.min(shape.threads), ..shape };
                    if templates::Plan::new(&shape).is_err() {
                        continue;
                    }
                    let (_, operation) = expand(&shape);
                    let machine = prove::machine(&shape, &protocol);
                    if let Err(e) = proof(&machine, &operation) {
                        bad += 1;
                        println!("{protocol:?} {shape:?}\n{e}");
                    }
                }
            }
        }
    }
    println!("{bad}");
}
