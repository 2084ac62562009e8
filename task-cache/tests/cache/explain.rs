//! Why did it miss?

use task_cache::{Alias, Directory, Explanation, Facts, Field, Form, Key, KeyHash, Reason, Reasons};
use wire::launch::Algorithm;

use crate::support::{FACTS, directory, nothing, record};

both_hashes!(
    a_miss_names_the_nearest_and_what_differs,
    ties_go_to_the_most_recently_used,
    other_outcomes_are_told_apart,
    every_field_has_a_name_and_prints,
);

fn a_miss_names_the_nearest_and_what_differs<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let far = Facts { rank: 1, ranks: 2, form: Form::Exact(64), ..FACTS };
    let near = Facts { alias: Alias::InPlace, form: Form::Exact(2048), ..FACTS };
    for facts in [far, near] {
        record(&mut directory, &Key::new(&facts), 1, 1, &mut nothing).expect("there is room");
    }
    let wanted = Key::new(&Facts { form: Form::Exact(1024), ..FACTS });
    let Explanation::Misses(found) = directory.explain(&wanted, Reasons::NONE) else {
        panic!("a miss");
    };
    assert_eq!(found.stored, Key::new(&near));
    assert_eq!(found.differences().map(|one| one.field).collect::<Vec<_>>(), [Field::Alias, Field::Count]);
    assert_eq!(
        Explanation::Misses(found).to_string(),
        "miss: the nearest recording differs in aliasing: recorded in place, now disjoint; count or class: recorded \
         2048, now 1024"
    );
    assert_eq!((directory.stats().hits, directory.stats().misses), (0, 0));
}

fn ties_go_to_the_most_recently_used<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let of_count = |count| Key::new(&Facts { form: Form::Exact(count), ..FACTS });
    for count in 0..3 {
        record(&mut directory, &of_count(count), 1, 1, &mut nothing).expect("there is room");
    }
    let nearest = |directory: &Directory<u32, 8, H>| match directory.explain(&of_count(9), Reasons::NONE) {
        Explanation::Misses(near) => near.stored,
        other => panic!("{other}"),
    };
    assert_eq!(nearest(&directory), of_count(2));
    directory.lookup(&of_count(1));
    assert_eq!(nearest(&directory), of_count(1));
}

fn other_outcomes_are_told_apart<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let key = Key::new(&FACTS);
    let told = |directory: &Directory<u32, 8, H>| directory.explain(&key, Reasons::NONE).to_string();
    assert_eq!(told(&directory), "miss: nothing is recorded");
    let id = directory.begin(&key, 1, &mut nothing).expect("there is room");
    assert_eq!(told(&directory), "miss: this operation is being recorded");
    directory.verify(id).expect("it is being built");
    directory.publish(id, 1).expect("it is verified");
    assert_eq!(told(&directory), "hit");
    let reasons = Reasons::NONE.with(Reason::InPlace, true).with(Reason::Empty, false);
    assert_eq!(
        directory.explain(&key, reasons).to_string(),
        "bypassed: input and output are the same memory"
    );
}

fn every_field_has_a_name_and_prints<H: KeyHash>() {
    let mut directory = directory::<8, H>();
    let stored = Facts { instance: [0x12, 0x34], algorithm: Algorithm::Nhr, topology: 0xbeef, ..FACTS };
    record(&mut directory, &Key::new(&stored), 1, 1, &mut nothing).expect("there is room");
    let text = directory.explain(&Key::new(&FACTS), Reasons::NONE).to_string();
    assert!(
        text.contains("communicator instance: recorded 00000000000000120000000000000034, now "),
        "{text}"
    );
    assert!(text.contains("algorithm: recorded nhr, now ring"), "{text}");
    assert!(text.contains("topology digest: recorded 0xbeef, now 0x5bd1e995"), "{text}");
    let values: Vec<String> = Field::ALL
        .iter()
        .map(|field| format!("{}={}", field.name(), Key::new(&FACTS).value(*field)))
        .collect();
    assert_eq!(
        values.join(" "),
        "communicator instance=000000000000000a0000000000000001 epoch=1 operation=all-reduce data type=fp32 \
         reduction=sum algorithm=ring staging=scratch aliasing=disjoint form=exact count count or class=1048576 rank=3 \
         ranks=8 root=0 levels=0 chunk bound=0 piece bound=0 scratch bytes=209715200 topology digest=0x5bd1e995 \
         context=0x4000 threads=8 determinism=on ABI version=1 feature bits=0x3"
    );
}
