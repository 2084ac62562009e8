//! The planted defects: what goes wrong in such runtimes, each with the test that must find it.

use super::Defect;

/// All of them.
pub(super) const DEFECTS: &[Defect] = &[
    Defect {
        name: "missing-barrier",
        file: "crates/ring/src/submission.rs",
        right: "        platform.publish();\n        while self.announced < self.tail {",
        wrong: "        while self.announced < self.tail {",
        test: ("aicpu-ring", "rings", "submission::entries_then_fence_then_doorbells_then_software_tail"),
        sample: true,
    },
    Defect {
        name: "ring-full-off-by-one",
        file: "crates/ring/src/submission.rs",
        right: "u64::from(self.depth).saturating_sub(used)",
        wrong: "(u64::from(self.depth) + 1).saturating_sub(used)",
        test: ("aicpu-ring", "rings", "submission::entries_fill_up_to_the_depth_and_wrap"),
        sample: true,
    },
    Defect {
        name: "ring-index-without-modulo",
        file: "crates/ring/src/submission.rs",
        right: "u32::low(self.tail) & (self.depth - 1);\n        let count = most.min(free).min(self.depth - index);",
        wrong: "u32::low(self.tail);\n        let count = most.min(free);",
        test: ("aicpu-ring", "rings", "model::every_interleaving_of_eight_steps_around_the_wrap"),
        sample: true,
    },
    Defect {
        name: "wrapped-counter-compared-with-less",
        file: "crates/ring/src/counter.rs",
        right: "(position <= limit).then_some(position)",
        wrong: "(position <= limit && low >= T::low(last)).then_some(position)",
        test: ("aicpu-ring", "lib", "counter::tests::widening_is_right_for_every_value_of_small_widths"),
        sample: true,
    },
    Defect {
        name: "duplicate-completion-accepted",
        file: "crates/ring/src/completion.rs",
        right: "=> self.expected.retain(|&task| task != cqe.task),",
        wrong: "=> {}",
        test: ("aicpu-ring", "rings", "completion::what_was_expected_completes_once"),
        sample: true,
    },
    Defect {
        name: "no-generation-in-key",
        file: "task-cache/src/key.rs",
        right: "place: pair(facts.epoch, facts.rank),",
        wrong: "place: pair(0, facts.rank),",
        test: ("task-cache", "cache", "named::mixed::each_field_alone_misses"),
        sample: true,
    },
    Defect {
        name: "no-instance-in-key",
        file: "task-cache/src/key.rs",
        right: "instance: facts.instance,",
        wrong: "instance: [0; 2],",
        test: ("task-cache", "cache", "named::mixed::a_new_life_under_the_same_name_misses"),
        sample: true,
    },
    Defect {
        name: "hash-only-compare",
        file: "task-cache/src/directory.rs",
        right: "is_some_and(|slot| slot.key == *key)",
        wrong: "is_some()",
        test: ("task-cache", "cache", "named::constant::each_field_alone_misses"),
        sample: true,
    },
    Defect {
        name: "publish-before-verify",
        file: "task-cache/src/directory.rs",
        right: "if slot.state != State::Verified {",
        wrong: "if !slot.is_recording() {",
        test: ("task-cache", "cache", "life::mixed::states_are_passed_in_order"),
        sample: true,
    },
    Defect {
        name: "start-byte-only-bounds",
        file: "crates/task-graph/src/bind.rs",
        right: "if extent.wrapping_add(offset).wrapping_add(len) > bound.len {",
        wrong: "if offset > bound.len {",
        test: ("aicpu-task-graph", "lib", "tests::binding::a_region_that_is_not_bound_or_too_short_is_named"),
        sample: true,
    },
    Defect {
        name: "remote-address-based-as-local",
        file: "aicpu-kernel/src/bindings.rs",
        right: "(Some(peer), RegionKind::Scratch) => scratch(peer),",
        wrong: "(Some(_), RegionKind::Scratch) => scratch(self.rank),",
        test: ("aicpu-kernel", "kernel", "descriptors::every_descriptor_of_a_ring_all_reduce_of_two_ranks"),
        sample: false,
    },
    // The types let nobody patch a kept graph. This is what would be seen if it were patched all the same: what one
    // launch added is still there when the next adds its own.
    Defect {
        name: "in-place-patch",
        file: "crates/task-graph/src/packed.rs",
        right: "*vector = Base(vector_of(&interned, bindings, base, unit, &wqe_tail)?);",
        wrong: "let added = vector_of(&interned, bindings, base, unit, &wqe_tail)?;\n            \
                for (lane, more) in vector.0.iter_mut().zip(added) {\n                \
                *lane = lane.wrapping_add(more);\n            }",
        test: ("aicpu-tests", "replay", "steps::t25_a_thousand_equal_steps_are_expanded_once"),
        sample: false,
    },
    Defect {
        name: "timeout-in-the-template",
        file: "crates/task-graph/src/record.rs",
        right: "timeout_ms: 0,",
        wrong: "timeout_ms: 30_000,",
        test: ("aicpu-kernel", "kernel", "descriptors::every_descriptor_of_a_ring_all_reduce_of_two_ranks"),
        sample: false,
    },
    Defect {
        name: "no-exit-handshake",
        file: "crates/templates/src/mesh.rs",
        right: "            self.record(thread, peer, ChannelNotify::Fin)?;
        }
        for (index, peer) in self.peers() {
            self.wait(self.plan.thread_of(index), peer, ChannelNotify::Fin)?;
        }",
        wrong: "        }",
        test: ("aicpu-tests", "verifier", "grid::links_that_reduce"),
        sample: false,
    },
    Defect {
        name: "reduce-sources-swapped",
        file: "crates/templates/src/mesh.rs",
        right: "return (1..ranks).try_for_each(",
        wrong: "return (1..ranks).rev().try_for_each(",
        test: ("aicpu-tests", "templates", "grid::inline_reduction_and_all_threads"),
        sample: false,
    },
    Defect {
        name: "bf16-truncated",
        file: "crates/device-model/src/reduce/half_precision.rs",
        right: "Self((bits.wrapping_add(0x7FFF + odd) >> 16) as u16)",
        wrong: "Self((bits.wrapping_add(odd - odd) >> 16) as u16)",
        test: ("aicpu-device-model", "reduce", "pinned_results"),
        sample: true,
    },
    Defect {
        name: "nan-lost-in-max",
        file: "crates/device-model/src/reduce/element.rs",
        right: "if self.is_nan() | other.is_nan() { $nan } else { larger }",
        wrong: "larger",
        test: ("aicpu-device-model", "reduce", "special_floats_agree_with_the_oracle"),
        sample: true,
    },
    Defect {
        name: "count-times-size-wraps",
        file: "crates/templates/src/plan.rs",
        right: "let total = shape
            .count
            .checked_mul(shape.dtype.size_bytes())",
        wrong: "let total = Some(shape.count.wrapping_mul(shape.dtype.size_bytes()))",
        test: ("aicpu-tests", "templates", "plans::shapes_without_a_plan"),
        sample: false,
    },
    Defect {
        name: "tail-of-an-uneven-count-dropped",
        file: "crates/templates/src/slices.rs",
        right: "let last = count * element - unit * u64::from(parts.get() - 1);",
        wrong: "let last = unit;",
        test: ("aicpu-tests", "templates", "grid::inline_reduction_and_all_threads"),
        sample: false,
    },
    Defect {
        name: "four-gib-encoded-as-zero",
        file: "crates/wire/src/sqe.rs",
        right: "                sqe.len,\n                pair(sqe.src_token, sqe.dst_token),",
        wrong: "                sqe.len & 0xffff_ffff,\n                pair(sqe.src_token, sqe.dst_token),",
        test: ("aicpu-wire", "wire", "descriptors::entries_keep_every_bit_on_their_way_into_a_ring"),
        sample: true,
    },
    Defect {
        name: "zero-count-hangs",
        file: "aicpu-kernel/src/job.rs",
        right: "self.chunks.unwrap_or(0).max(1)",
        wrong: "self.chunks.unwrap_or(0)",
        test: ("aicpu-kernel", "kernel", "descriptors::nothing_to_move_is_a_wait_and_a_record"),
        sample: false,
    },
    Defect {
        name: "notify-leaked-on-abort",
        file: "host-launcher/src/resources.rs",
        right: "            npu.free_notifies(range.start).map_err(driver)?;",
        wrong: "            if npu.first_set(range.clone()).is_none() {
                npu.free_notifies(range.start).map_err(driver)?;
            }",
        test: ("aicpu-tests", "failures", "cycles::failed_communicators_leave_nothing_behind"),
        sample: false,
    },
    Defect {
        name: "lease-not-checked",
        file: "host-launcher/src/owner.rs",
        right: "others().find(|(_, window)| is_alive(window.owner()))",
        wrong: "others().find(|(_, window)| is_alive(window.owner()) && false)",
        test: ("host-launcher", "leftovers", "what_a_killed_process_had_is_found_named_and_taken_back"),
        sample: false,
    },
    Defect {
        name: "deregister-ignores-tasks-in-flight",
        file: "crates/device-model/src/driver/tables.rs",
        right: "        self.window().word(at + offset_of!(RegionSlot, token) as u64).store(0, Ordering::Release);\n",
        wrong: "",
        test: ("aicpu-tests", "failures", "causes::a_region_that_is_not_registered_any_more"),
        sample: false,
    },
    Defect {
        name: "victim-named-as-culprit",
        file: "host-launcher/src/diagnosis/verdict.rs",
        right: "culprit_rank: Some(rank),",
        wrong: "culprit_rank: self.waits.all().first().map(|(victim, _)| *victim),",
        test: ("aicpu-tests", "failures", "causes::a_peer_that_never_starts"),
        sample: false,
    },
    Defect {
        name: "panic-on-an-unknown-number",
        file: "crates/wire/src/dtype.rs",
        right: "_ => Err(ErrorCode::$error)",
        wrong: "_ => unreachable!()",
        test: ("aicpu-wire", "wire", "launch::each_fault_has_its_code"),
        sample: true,
    },
];
