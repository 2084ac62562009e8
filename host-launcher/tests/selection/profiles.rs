//! Profiles: what is built in, what is refused, and the public table that one is calibrated on.

use host_launcher::select::clock;
use host_launcher::select::profile::Profile;
use host_launcher::select::tasks::{How, Step};
use wire::ErrorCode;

#[test]
fn built_in_profiles_are_legal_and_say_where_numbers_come_from() {
    assert_eq!(Profile::names(), ["software-npu", "atlas-a2", "atlas-a3"]);
    for name in Profile::names() {
        let profile = Profile::named(name).unwrap();
        assert_eq!(profile.name, name);
        let text = serde_json::to_string(&profile).unwrap();
        assert_eq!(Profile::parse(&text, "again").unwrap(), profile);
        assert!(!text.contains("TODO"), "{name}");
    }
    assert_eq!(Profile::default().name, "software-npu");
    let a2 = Profile::named("atlas-a2").unwrap();
    assert_eq!(a2.links.hccs.gigabytes_per_second.value, 56.0);
    assert_eq!(a2.local.copy_gigabytes_per_second.value, 750.0);
    assert_eq!(a2.local.reduce_gigabytes_per_second.value, 483.0);
}

#[test]
fn bad_profiles_are_refused() {
    let good = serde_json::to_string(&Profile::default()).unwrap();
    let refused = |text: &str, expected: &str| {
        let error = Profile::parse(text, "mine.json").unwrap_err();
        assert_eq!((error.code(), error.place()), (ErrorCode::PROFILE, Some("mine.json")), "{text}");
        assert!(error.message().contains(expected), "{expected:?} is not in {}", error.message());
    };
    refused("", "EOF");
    refused("[]", "");
    refused("{\"name\": \"x\"}", "missing field");
    refused(&good.replacen("\"about\"", "\"abuot\"", 1), "unknown field `abuot`");
    refused(&good.replacen("\"value\":66.0", "\"value\":0.0", 1), "gigabytes_per_second is 0, outside");
    refused(&good.replacen("\"value\":66.0", "\"value\":-1.0", 1), "outside");
    refused(&good.replacen("\"value\":66.0", "\"value\":\"fast\"", 1), "invalid type");
    refused(&good.replacen("\"source\":\"none: a copy\"", "\"source\":\" \"", 1), "has no source");
    let error = Profile::named("no/such/file.json").unwrap_err();
    assert_eq!(error.code(), ErrorCode::PROFILE);
    assert!(error.advice().contains("software-npu, atlas-a2, atlas-a3"), "{}", error.advice());
}

/// Microseconds per descriptor of the public HiXL table, AICPU expansion, 16 KiB to 2 MiB.
const PUBLISHED: [f64; 8] = [1.02, 0.89, 0.93, 1.04, 1.61, 3.07, 6.15, 12.67];

#[test]
fn the_calibrated_profile_reproduces_its_table_within_fifteen_percent() {
    let costs = Profile::named("atlas-a3").unwrap().costs();
    for (power, published) in (14..).zip(PUBLISHED) {
        let (size, times) = (1_u64 << power, 64_u32);
        let write = Step::Move { peer: 1, link: 0, len: size, reduces: false, how: How::Write };
        let tasks = vec![vec![vec![write; times as usize]], vec![]];
        let total = clock::run(&costs, tasks).unwrap().total();
        let micros = total as f64 / 1e9 / f64::from(times);
        assert!((micros / published - 1.0).abs() < 0.15, "{size} bytes: {micros} µs, published {published}");
    }
}
