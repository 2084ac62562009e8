//! The environment, a variable a line: settings, or a refusal that names the variable and has a code.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use host_launcher::settings::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let variables = data.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        Some((OsString::from_vec(line[..at].to_vec()), OsString::from_vec(line[at + 1..].to_vec())))
    });
    match Settings::from_env(variables) {
        Ok(settings) => {
            for row in settings.report() {
                assert!(!row.effective.is_empty(), "{} has a value", row.name);
            }
        }
        Err(error) => {
            assert!(error.code().info().is_some() && !error.message().is_empty());
            assert!(error.place().is_some_and(|place| place.contains("environment variable")));
        }
    }
});
