//! The life of an entry: every wrong order, every point at which a recording can fail, pins and drains.

use task_cache::{Directory, Key, KeyHash, Limits, Mixed, Refusal, SlotId, State, Tally};
use wire::ErrorCode;

use crate::support::{A, B, FACTS, directory, key, nothing, open, record};

both_hashes!(
    a_recording_that_fails_anywhere_leaves_nothing_that_hits,
    a_key_is_recorded_by_one_at_a_time,
    states_are_passed_in_order,
    an_id_names_one_entry_for_ever,
    a_pinned_entry_drains,
    a_pinned_entry_does_not_give_way,
    a_drained_key_can_be_recorded_anew,
    a_refusal_evicts_nothing,
    a_quota_takes_from_its_own,
    what_never_fits_is_refused,
    reserving_is_exact,
    epochs_below_go,
    an_absent_key_is_removed_without_fuss,
);

fn small<H: KeyHash>() -> Directory<u32, 8, H> {
    directory()
}

fn a_recording_that_fails_anywhere_leaves_nothing_that_hits<H: KeyHash>() {
    // 0: before verify; 1: after; and given up by its recorder, cleared with its communicator, by key, or with all.
    for point in 0..2 {
        for way in 0..5 {
            let mut directory = small::<H>();
            let id = directory.begin(&key(A, 1, 1), 3, &mut nothing).expect("there is room");
            assert_eq!(directory.used(), Tally { units: 3, slots: 1 });
            if point == 1 {
                directory.verify(id).expect("it is being built");
            }
            assert_eq!(directory.lookup(&key(A, 1, 1)), None, "not before it is published");
            match way {
                0 => assert!(directory.abandon(id)),
                1 => directory.clear(A, &mut nothing),
                2 => directory.clear_epoch_below(A, 2, &mut nothing),
                3 => assert!(directory.remove(&key(A, 1, 1), &mut nothing)),
                _ => directory.clear_all(&mut nothing),
            }
            assert_eq!(directory.lookup(&key(A, 1, 1)), None);
            assert_eq!(directory.verify(id), Err(ErrorCode::CACHE_STALE));
            assert_eq!(directory.publish(id, 1), Err(ErrorCode::CACHE_STALE), "too late");
            assert!(!directory.abandon(id));
            assert_eq!((directory.used(), directory.state(id)), (Tally::default(), State::Dead));
            record(&mut directory, &key(A, 1, 1), 3, 9, &mut nothing).expect("it can be recorded again");
        }
    }
}

fn a_key_is_recorded_by_one_at_a_time<H: KeyHash>() {
    let mut directory = small::<H>();
    let id = directory.begin(&key(A, 1, 1), 1, &mut nothing).expect("there is room");
    assert_eq!(directory.begin(&key(A, 1, 1), 1, &mut nothing), Err(Refusal::Busy));
    assert_eq!(directory.recording(&key(A, 1, 1)), Some(id));
    directory.verify(id).expect("it is being built");
    assert_eq!(directory.begin(&key(A, 1, 1), 1, &mut nothing), Err(Refusal::Busy));
    directory.publish(id, 4).expect("it is verified");
    assert_eq!(directory.begin(&key(A, 1, 1), 1, &mut nothing), Err(Refusal::Present));
    assert_eq!(directory.recording(&key(A, 1, 1)), None);
    let stats = directory.stats();
    assert_eq!((stats.refused_by(Refusal::Busy), stats.refused_by(Refusal::Present)), (2, 1));
    assert_eq!((stats.refused(), stats.full()), (3, 0));
    assert_eq!(Refusal::Busy.code(), ErrorCode::CACHE_BUSY);
    assert_eq!(Refusal::Present.code(), ErrorCode::CACHE_PRESENT);
}

fn states_are_passed_in_order<H: KeyHash>() {
    const STATE: Result<(), ErrorCode> = Err(ErrorCode::CACHE_STATE);
    let mut directory = small::<H>();
    let id = directory.begin(&key(A, 1, 1), 1, &mut nothing).expect("there is room");
    assert_eq!(directory.publish(id, 1), STATE, "not verified");
    assert_eq!(directory.pin(id).map(drop), STATE, "not live");
    assert_eq!(directory.state(id), State::Building);
    assert_eq!(directory.verify(id), Ok(()));
    assert_eq!(
        (directory.verify(id), directory.pin(id).map(drop), directory.state(id)),
        (STATE, STATE, State::Verified)
    );
    assert_eq!(directory.publish(id, 1), Ok(()));
    assert_eq!(
        (directory.publish(id, 2), directory.verify(id), directory.state(id)),
        (STATE, STATE, State::Live)
    );
    assert_eq!(directory.reserve(id, 1, &mut nothing), STATE);
    assert_eq!(directory.unpin(id, &mut nothing), STATE, "not pinned");
    assert!(!directory.abandon(id), "a published entry is not its recorder's any more");
    assert_eq!(directory.lookup(&key(A, 1, 1)).map(|hit| (hit.id, hit.payload)), Some((id, 1)));
}

fn an_id_names_one_entry_for_ever<H: KeyHash>() {
    let mut directory = small::<H>();
    let mut old: Vec<SlotId> = Vec::new();
    for round in 0..20 {
        let id = record(&mut directory, &key(A, 1, round), 1, 1, &mut nothing).expect("there is room");
        assert_eq!(id.index(), 0, "the slot is used again");
        for stale in &old {
            assert_ne!(*stale, id);
            assert_eq!(directory.pin(*stale), Err(ErrorCode::CACHE_STALE));
            assert_eq!(directory.unpin(*stale, &mut nothing), Err(ErrorCode::CACHE_STALE));
            assert_eq!(directory.state(*stale), State::Dead);
        }
        assert!(directory.remove(&key(A, 1, round), &mut |_| ()));
        old.push(id);
    }
}

fn a_pinned_entry_drains<H: KeyHash>() {
    let mut directory = small::<H>();
    let id = record(&mut directory, &key(A, 1, 1), 5, 77, &mut nothing).expect("there is room");
    assert_eq!((directory.pin(id), directory.pin(id)), (Ok(77), Ok(77)), "twice");
    assert!(directory.again(id, &key(A, 1, 1)) && !directory.again(id, &key(A, 1, 2)), "another key's");
    directory.clear(A, &mut nothing);
    assert!(!directory.again(id, &key(A, 1, 1)));
    assert_eq!((directory.state(id), directory.lookup(&key(A, 1, 1))), (State::Draining, None));
    assert_eq!(directory.pin(id), Err(ErrorCode::CACHE_STATE), "no new readers");
    assert_eq!(directory.used(), Tally { units: 5, slots: 1 }, "not reclaimed yet");
    directory.clear_all(&mut nothing);
    directory.unpin(id, &mut nothing).expect("one is left");
    let mut released = Vec::new();
    directory.unpin(id, &mut |payload| released.push(payload)).expect("the last");
    assert_eq!((released, directory.used(), directory.state(id)), (vec![77], Tally::default(), State::Dead));
    assert_eq!(directory.unpin(id, &mut nothing), Err(ErrorCode::CACHE_STALE));
}

fn a_pinned_entry_does_not_give_way<H: KeyHash>() {
    let mut directory = small::<H>();
    directory.set_limits(open(3));
    let oldest = record(&mut directory, &key(A, 1, 1), 1, 1, &mut nothing).expect("there is room");
    record(&mut directory, &key(A, 1, 2), 1, 2, &mut nothing).expect("there is room");
    directory.pin(oldest).expect("it is live");
    let mut released = Vec::new();
    record(&mut directory, &key(A, 1, 3), 2, 3, &mut |payload| released.push(payload)).expect("2 gives way");
    assert_eq!(released, [2]);
    assert_eq!(directory.begin(&key(A, 1, 4), 3, &mut nothing), Err(Refusal::Full));
    directory.unpin(oldest, &mut nothing).expect("it is pinned");
    directory.begin(&key(A, 1, 4), 3, &mut |payload| released.push(payload)).expect("now it gives way");
    assert_eq!(released, [2, 1, 3]);
}

fn a_drained_key_can_be_recorded_anew<H: KeyHash>() {
    let mut directory = small::<H>();
    let old = record(&mut directory, &key(A, 1, 1), 1, 1, &mut nothing).expect("there is room");
    directory.pin(old).expect("it is live");
    assert!(directory.remove(&key(A, 1, 1), &mut nothing));
    record(&mut directory, &key(A, 1, 1), 1, 2, &mut nothing).expect("the old one does not count as present");
    assert_eq!(directory.used().slots, 2);
    let mut released = Vec::new();
    directory.unpin(old, &mut |payload| released.push(payload)).expect("the last");
    assert_eq!(directory.lookup(&key(A, 1, 1)).map(|hit| hit.payload), Some(2));
    assert_eq!(released, [1]);
}

fn a_refusal_evicts_nothing<H: KeyHash>() {
    let mut directory = small::<H>();
    directory.set_limits(open(10));
    record(&mut directory, &key(A, 1, 1), 4, 1, &mut nothing).expect("there is room");
    let held = directory.begin(&key(B, 1, 1), 4, &mut nothing).expect("there is room");
    assert_eq!(directory.begin(&key(B, 1, 2), 7, &mut nothing), Err(Refusal::Full), "4 are held: 6 at most");
    assert!(directory.peek(&key(A, 1, 1)).is_some());
    assert!(directory.abandon(held));
    directory.begin(&key(B, 1, 2), 7, &mut |_| ()).expect("7 of 10");
}

fn a_quota_takes_from_its_own<H: KeyHash>() {
    let mut directory = small::<H>();
    directory.set_limits(Limits { units: 10, quota_units: 4, quota_slots: 3, evict: true });
    record(&mut directory, &key(B, 1, 0), 1, 1000, &mut nothing).expect("there is room");
    let mut released = Vec::new();
    for count in 0..8 {
        record(&mut directory, &key(A, 1, count), 1, 1, &mut |payload| released.push(payload))
            .expect("by eviction");
    }
    assert_eq!((released.len(), directory.used_by(A)), (5, Tally { units: 3, slots: 3 }));
    record(&mut directory, &key(A, 1, 9), 4, 1, &mut |payload| released.push(payload))
        .expect("all of its quota");
    assert_eq!((released, directory.used_by(A)), (vec![1; 8], Tally { units: 4, slots: 1 }));
    assert!(directory.peek(&key(B, 1, 0)).is_some(), "the oldest of all, but another's");
}

fn what_never_fits_is_refused<H: KeyHash>() {
    let mut directory = small::<H>();
    directory.set_limits(Limits { units: 10, quota_units: 4, quota_slots: 3, evict: true });
    record(&mut directory, &key(A, 1, 0), 1, 1, &mut nothing).expect("there is room");
    assert_eq!(directory.begin(&key(A, 1, 1), 11, &mut nothing), Err(Refusal::TooLarge));
    assert_eq!(directory.begin(&key(A, 1, 1), 5, &mut nothing), Err(Refusal::OverQuota));
    assert_eq!((directory.stats().full(), directory.stats().evicted), (2, 0));
    directory.set_limits(open(0));
    assert_eq!(directory.begin(&key(A, 1, 1), 1, &mut nothing), Err(Refusal::TooLarge), "no cache at all");
    assert_eq!(Refusal::TooLarge.code(), ErrorCode::CACHE_TOO_LARGE);
    assert_eq!(Refusal::OverQuota.code(), ErrorCode::CACHE_QUOTA);
    assert_eq!(Refusal::Full.code(), ErrorCode::CACHE_FULL);
}

fn reserving_is_exact<H: KeyHash>() {
    let mut directory = small::<H>();
    directory.set_limits(open(10));
    record(&mut directory, &key(A, 1, 0), 4, 40, &mut nothing).expect("there is room");
    let id = directory.begin(&key(A, 1, 1), 0, &mut nothing).expect("there is room");
    directory.reserve(id, 6, &mut nothing).expect("10 of 10");
    directory.reserve(id, 2, &mut nothing).expect("less");
    assert_eq!(directory.used(), Tally { units: 6, slots: 2 });
    assert_eq!(directory.reserve(id, 11, &mut nothing), Err(ErrorCode::CACHE_TOO_LARGE));
    let mut released = Vec::new();
    directory.reserve(id, 7, &mut |payload| released.push(payload)).expect("the other gives way");
    assert_eq!(
        (released, directory.used(), directory.used_by(A)),
        (vec![40], Tally { units: 7, slots: 1 }, directory.used())
    );
    directory.verify(id).expect("it is being built");
    directory.publish(id, 1).expect("it is verified");
    directory.clear_all(&mut |_| ());
    assert_eq!(directory.used(), Tally::default());
}

fn epochs_below_go<H: KeyHash>() {
    let mut directory = small::<H>();
    for (instance, epoch) in [(A, 1), (A, 2), (A, 3), (B, 1)] {
        record(&mut directory, &key(instance, epoch, 0), 1, epoch, &mut nothing).expect("there is room");
    }
    let mut released = Vec::new();
    directory.clear_epoch_below(A, 3, &mut |payload| released.push(payload));
    assert_eq!(released, [1, 2]);
    assert!(directory.peek(&key(A, 3, 0)).is_some() && directory.peek(&key(B, 1, 0)).is_some());
    assert_eq!(directory.stats().cleared, 2);
}

fn an_absent_key_is_removed_without_fuss<H: KeyHash>() {
    let mut directory = small::<H>();
    assert!(!directory.remove(&key(A, 1, 0), &mut nothing));
    assert_eq!(directory.stats().cleared, 0);
}

#[test]
fn hashes_of_like_keys_differ() {
    let mut hashes: Vec<u64> = (0..100_000).map(|count| key(A, 1, count).hash() >> 48).collect();
    hashes.sort_unstable();
    hashes.dedup();
    // 65,536 buckets, 100,000 balls: 65,536 × (1 − e^(−100,000 / 65,536)) = 51,288 are hit by chance, ± 100.
    assert!((50_700..51_900).contains(&hashes.len()), "{}", hashes.len());
    assert_eq!(Mixed::hash(&Key::new(&FACTS)), Key::new(&FACTS).hash());
}
