//! Messages that people can read: no number without a name, no name without a sentence and something to do.

use std::collections::BTreeMap;

use wire::ErrorCode;

/// T57, vllm-project/vllm-ascend#3196 ("code 11?") and #8393 (streams shown as storage): for each code one sentence of what
/// happened, which begins with neither "error" nor "failed", and one of what to try first; both in plain words.
#[test]
fn every_code_says_what_happened_and_what_to_try() {
    let mut seen = BTreeMap::new();
    for info in ErrorCode::all() {
        let (summary, remedy) = (info.summary, info.remedy);
        for text in [summary, remedy] {
            assert!((8..=200).contains(&text.len()), "{}: {text:?}", info.code);
            assert!(!text.ends_with('.') && !text.contains(". "), "{}: one sentence: {text:?}", info.code);
            assert!(text.is_ascii() || text.chars().all(|letter| !letter.is_control()), "{}", info.code);
            for vague in
                ["unknown error", "internal error", "storage space", "4294967295", "errno", "see log"]
            {
                assert!(!text.to_lowercase().contains(vague), "{}: {text:?}", info.code);
            }
        }
        let start = summary.split(' ').next().unwrap_or_default().to_lowercase();
        assert!(!["error", "failed", "failure", "invalid"].contains(&&*start), "{}: {summary:?}", info.code);
        if let Some(other) = seen.insert(summary, info.code) {
            panic!("{} and {other} say the same", info.code);
        }
    }
    assert!(seen.len() > 150, "{}", seen.len());
}

/// T57, the mapping: callers of the field's interface and its run books. What is ours names the nearest result and EI
/// family, in the thousands that the specification says.
#[test]
fn every_code_is_mapped_to_the_fields() {
    let mut results: BTreeMap<u8, u32> = BTreeMap::new();
    for info in ErrorCode::all() {
        *results.entry(info.hccl).or_default() += 1;
        let number = info.code.0;
        let families: &[u8] = match number {
            // Arguments and configuration, settings included.
            1201..=1299 => &[3, 4, 14, 17, 7],
            6301..=6399 => &[5],
            6101..=6199 => &[2],
            7001..=7099 => &[7, 11],
            _ => continue,
        };
        assert!(families.contains(&info.ei), "{}: EI{:04}", info.code, info.ei);
    }
    // Each kind of caller's mistake, of resource and of failure has a number of its own there as here.
    for result in [1, 2, 3, 4, 5, 7, 9, 16] {
        assert!(results.contains_key(&result), "nothing maps to {result}: {results:?}");
    }
}
