//! Whatever lies in shared memory: every launch is answered before its deadline and nothing panics. More cases than
//! the default: `PROPTEST_CASES=20000`.

use hal::SharedMemory;
use proptest::prelude::*;
use wire::DeviceAddr;
use wire::launch::{Buffer, LaunchArgs};
use wire::npu::Protocol;
use zerocopy::{FromBytes, IntoBytes};

use crate::fake::WINDOW;
use crate::rig::{INPUT, OUTPUT, Rig, Setup};

/// Numbers that are often near a border.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..40_u64,
        any::<u64>(),
        (0..64_u32).prop_map(|bit| 1 << bit),
        (0..40_u64).prop_map(|n| u64::MAX - n)
    ]
}

fn buffer() -> impl Strategy<Value = Buffer> {
    let addr = prop_oneof![number(), Just(INPUT), Just(OUTPUT), number().prop_map(|n| INPUT.wrapping_add(n))];
    let peers = prop_oneof![Just(0), Just(WINDOW + 0x4_8000), number()];
    (addr, number(), any::<u32>(), peers).prop_map(|(addr, len, token, peers)| Buffer {
        addr: DeviceAddr(addr),
        len,
        token,
        reserved: 0,
        peers: DeviceAddr(peers),
    })
}

fn setup() -> impl Strategy<Value = Setup> {
    let protocol = prop_oneof![Just(Protocol::Hccs), Just(Protocol::Roce)];
    (1..6_u32, 0..6_u32, 1..5_u16, 2..6_u32, protocol, 1..5000_u64).prop_map(
        |(ranks, rank, threads, depth, protocol, scratch)| Setup {
            threads,
            depth: 1 << depth,
            protocol,
            pair_depth: 4,
            scratch,
            ..Setup::new(rank % ranks, ranks)
        },
    )
}

/// Runs until the launch is answered; the clock ticks with every look at it. The device, where it is to consume,
/// stops after a while: an operation of 2^60 chunks would never end.
fn answer(rig: &mut Rig, setup: &Setup, consume: bool) {
    rig.fake().tick_ns = 1_000_000;
    for turn in 0..20_000 {
        rig.kernel.poll();
        if rig.all_answered() {
            return;
        }
        for thread in 0..if consume && turn < 300 { setup.threads } else { 0 } {
            for sqe in rig.consume(setup, thread) {
                if sqe.opcode == wire::Sqe::POST {
                    rig.consume_pair(setup, sqe.channel, sqe.wqe_tail);
                }
            }
        }
    }
    panic!("no answer");
}

proptest! {
    #[test]
    fn sealed_launches_with_any_values(
        setup in setup(),
        (op, algorithm, dtype, reduce, staging) in (1..4_u8, 1..6_u8, 0..18_u8, 0..5_u8, 0..2_u8),
        (count, chunk, piece) in (number(), number(), number()),
        (input, output) in (buffer(), buffer()),
        start in 0..40_u32,
        consume in any::<bool>(),
    ) {
        let mut rig = Rig::new(&[setup], 16);
        rig.write_peers(&setup, |rank| count.wrapping_mul(u64::from(rank)));
        let args = LaunchArgs {
            op, algorithm, dtype, reduce, staging, count, chunk, piece, input, output,
            start_notify: if start < 20 { setup.start_notify() } else { start },
            ..setup.launch(0)
        };
        rig.post(args);
        answer(&mut rig, &setup, consume);
        rig.post(setup.launch(1));
        answer(&mut rig, &setup, consume);
    }

    #[test]
    fn any_bytes_as_launch_arguments(bytes in prop::collection::vec(any::<u8>(), 256), seal in any::<bool>()) {
        let setup = Setup::new(0, 2);
        let mut rig = Rig::new(&[setup], 8);
        let args = LaunchArgs::read_from_bytes(&bytes).expect("256 bytes");
        rig.post_raw(&if seal { args.sealed() } else { args });
        answer(&mut rig, &setup, true);
        prop_assert_ne!(rig.status().code, 0);
        prop_assert_eq!(rig.run(setup.launch(2)).code, 0);
    }

    #[test]
    fn any_damage_to_a_context(
        setup in setup(),
        damage in prop::collection::vec((0..1200_usize, any::<u8>()), 1..4),
        reseal in any::<bool>(),
    ) {
        let mut rig = Rig::new(&[setup], 16);
        let good = setup.encode();
        let mut bytes = good.clone();
        for (at, value) in damage {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        if reseal {
            // Behind the checksums, the values are all that is left to find it.
            let crc = crc::Crc::<u32>::new(&crc::CRC_32_ISCSI);
            let body = crc.checksum(&bytes[wire::context::HEADER_BYTES..]);
            bytes[20..24].copy_from_slice(&body.to_le_bytes());
            bytes[16..20].fill(0);
            let header = crc.checksum(&bytes[..wire::context::HEADER_BYTES]);
            bytes[16..20].copy_from_slice(&header.to_le_bytes());
        }
        rig.fake().write(DeviceAddr(WINDOW + setup.at()), &bytes).expect("inside the window");
        rig.post(setup.launch(7));
        answer(&mut rig, &setup, false);
        if !reseal && bytes != good {
            prop_assert_ne!(rig.status().code, 0);
        }
    }

    #[test]
    fn any_words_in_the_tables(words in prop::collection::vec((0..0x5000_u64, number()), 1..30)) {
        let setup = Setup { protocol: Protocol::Roce, pair_depth: 4, depth: 8, ..Setup::new(0, 3) };
        let mut rig = Rig::new(&[setup], 16);
        rig.fake().tick_ns = 100_000_000;
        rig.post(setup.launch(9));
        for (place, value) in words {
            // Completions, heads, tails, doorbells: everything but the mailbox.
            rig.fake().write(DeviceAddr(WINDOW + 0x3000 + place / 8 * 8), value.as_bytes()).expect("inside");
            rig.kernel.poll();
        }
        answer(&mut rig, &setup, false);
    }
}
