//! T27: every field of the key alone makes a miss; what a replay may change does not.

use wire::launch::{Algorithm, Buffer, CacheOutcome, OpKind, Staging};
use wire::{DataType, DeviceAddr, LaunchArgs, ReduceOp};

use crate::cache_bytes::PAGES;
use crate::rig::{EPOCH, INPUT, OUTPUT, Rig, Setup};

const COUNT: u64 = 1000;

/// A context with more threads than a ring uses, so that the start notify has a choice.
fn setup() -> Setup {
    Setup { threads: 3, ..Setup::new(1, 4) }
}

/// An all-reduce of int32 by ring in scratch, whose buffers are large enough for whatever is changed.
fn base(rig: &mut Rig, setup: &Setup) -> LaunchArgs {
    rig.write_peers(setup, |_| 1 << 20);
    let [input, output] = setup.peer_tables();
    let buffer =
        |addr, token, peers| Buffer { addr: DeviceAddr(addr), len: 1 << 20, token, reserved: 0, peers };
    LaunchArgs { input: buffer(INPUT, 41, input), output: buffer(OUTPUT, 42, output), ..setup.launch(COUNT) }
}

fn outcome(rig: &mut Rig, setup: &Setup, args: LaunchArgs) -> CacheOutcome {
    let status = rig.run(args);
    assert_eq!(status.code, 0, "{args:?}");
    rig.drain(setup);
    CacheOutcome::try_from(status.cache).expect("a number the kernel has")
}

/// Runs the launch, another one, the first again; returns the outcomes of the last two.
fn after(other: Setup, change: impl Fn(LaunchArgs) -> LaunchArgs) -> [CacheOutcome; 2] {
    let setup = setup();
    let setups = [setup, other];
    let mut rig = Rig::with_pages(if other.slot == 0 { &setups[1..] } else { &setups }, 16, PAGES);
    let first = base(&mut rig, &setup);
    assert_eq!(outcome(&mut rig, &setup, first), CacheOutcome::Miss);
    assert_eq!(outcome(&mut rig, &setup, first), CacheOutcome::Hit);
    let args = base(&mut rig, &other);
    let changed = outcome(&mut rig, &other, change(args));
    [changed, outcome(&mut rig, &setup, first)]
}

#[test]
fn t27_each_key_field_of_the_launch_alone_misses() {
    let in_place = |args: LaunchArgs| LaunchArgs { output: args.input, ..args };
    let changes: [(&str, &dyn Fn(LaunchArgs) -> LaunchArgs); 10] = [
        // A count with which slices are empty: another schedule, however sizes are classed.
        ("count", &|args| LaunchArgs { count: 2, ..args }),
        ("data type", &|args| LaunchArgs { dtype: DataType::Fp32 as u8, ..args }),
        ("reduction", &|args| LaunchArgs { reduce: ReduceOp::Max as u8, ..args }),
        ("algorithm", &|args| LaunchArgs { algorithm: Algorithm::Nhr as u8, ..args }),
        ("staging", &|args| LaunchArgs { staging: Staging::Direct as u8, ..args }),
        ("operation", &|args| LaunchArgs { op: OpKind::AllGather as u8, ..args }),
        ("operation", &|args| LaunchArgs { op: OpKind::ReduceScatter as u8, ..args }),
        ("chunk bound", &|args| LaunchArgs { chunk: COUNT, ..args }),
        ("piece bound", &|args| LaunchArgs { piece: 128, ..args }),
        ("aliasing", &in_place),
    ];
    for (name, change) in changes {
        assert_eq!(after(setup(), change), [CacheOutcome::Miss, CacheOutcome::Hit], "{name}");
    }
}

#[test]
fn t27_each_key_field_of_the_context_alone_misses() {
    let other = Setup { slot: 1, ..setup() };
    let contexts = [
        ("instance, first word", Setup { instance: [12, 22], ..other }),
        ("instance, second word", Setup { instance: [11, 23], ..other }),
        // A later one takes the graphs of the earlier one away.
        ("epoch", Setup { epoch: EPOCH - 1, ..other }),
        ("rank", Setup { rank: 2, ..other }),
        ("ranks", Setup { ranks: 5, ..other }),
        ("topology digest", Setup { topology: 1, ..other }),
        ("scratch bytes", Setup { scratch: 1 << 19, ..other }),
        ("threads", Setup { threads: 2, ..other }),
        ("rings", Setup { depth: 1024, ..other }),
        ("place of rings and notifies", other),
    ];
    for (name, context) in contexts {
        assert_eq!(after(context, |args| args), [CacheOutcome::Miss, CacheOutcome::Hit], "{name}");
    }
}

#[test]
fn t27_what_a_replay_may_change_still_hits() {
    let moved = |buffer: Buffer| Buffer { addr: DeviceAddr(buffer.addr.0 + 0x1230), ..buffer };
    let changes: [(&str, &dyn Fn(LaunchArgs) -> LaunchArgs); 9] = [
        ("input address", &|args| LaunchArgs { input: moved(args.input), ..args }),
        ("output address", &|args| LaunchArgs { output: moved(args.output), ..args }),
        ("input token", &|args| LaunchArgs { input: Buffer { token: 77, ..args.input }, ..args }),
        ("output token", &|args| LaunchArgs { output: Buffer { token: 0, ..args.output }, ..args }),
        ("buffer bytes", &|args| LaunchArgs { input: Buffer { len: 4 * COUNT, ..args.input }, ..args }),
        ("timeout", &|args| LaunchArgs { timeout_ms: 1, ..args }),
        ("sequence", &|args| LaunchArgs { sequence: u32::MAX, ..args }),
        ("start notify", &|args| LaunchArgs { start_notify: 1, ..args }),
        ("done notify", &|args| LaunchArgs { done_notify: 6, ..args }),
    ];
    for (name, change) in changes {
        assert_eq!(after(setup(), change), [CacheOutcome::Hit; 2], "{name}");
    }
}

/// A context of the same bytes in another place, written over: what it says decides, not where it lies.
#[test]
fn t27_a_context_that_is_decoded_anew_still_hits() {
    let (first, second) = (setup(), Setup { instance: [7, 7], ..setup() });
    let mut rig = Rig::with_pages(&[first], 16, PAGES);
    let run = |rig: &mut Rig, setup: Setup| {
        let bytes = setup.encode();
        hal::SharedMemory::write(rig.fake(), DeviceAddr(crate::fake::WINDOW + setup.at()), &bytes)
            .expect("inside the window");
        let args = base(rig, &setup);
        outcome(rig, &setup, args)
    };
    let outcomes = [first, second, first, second].map(|setup| run(&mut rig, setup));
    assert_eq!(outcomes, [CacheOutcome::Miss, CacheOutcome::Miss, CacheOutcome::Hit, CacheOutcome::Hit]);
}
