//! Standard output that may be closed, and failures in both forms.

use std::io::{ErrorKind, Write, stdout};

use host_launcher::Error;
use serde_json::{Value, json};

/// Where results go.
#[derive(Debug)]
pub(crate) struct Output {
    json: bool,
    /// What is known besides the failure: name, value, text.
    notes: Vec<(&'static str, Value, String)>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, notes: Vec::new() }
    }

    /// Returns whether results are JSON lines.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints text. A reader that has gone away is no failure: the process ends quietly.
    pub(crate) fn text(&mut self, text: &str) {
        let mut out = stdout().lock();
        let result = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        if let Err(error) = result {
            let quiet = error.kind() == ErrorKind::BrokenPipe;
            if !quiet {
                eprintln!("aicpu-ts: standard output: {error}");
            }
            std::process::exit(i32::from(!quiet));
        }
    }

    /// Prints one JSON object on a line of its own.
    pub(crate) fn line(&mut self, value: &Value) {
        self.text(&format!("{value}\n"));
    }

    /// Adds something to the failure that is reported last: a field of its JSON object, a line below its block.
    pub(crate) fn note(&mut self, name: &'static str, value: Value, text: &str) {
        self.notes.push((name, value, text.to_owned()));
    }

    /// Reports a failure: the block on standard error, and with --json the same facts as a line on standard output.
    pub(crate) fn failure(&mut self, error: &Error) {
        if self.json {
            let mut fields = match error.diagnosis() {
                Some(report) => serde_json::to_value(report).unwrap_or_default(),
                None => json!({
                    "code": error.code().0,
                    "name": error.code().name(),
                    "at": error.place(),
                    "culprit_rank": null,
                    "step": null,
                    "task": null,
                    "peer": null,
                    "cause": error.message(),
                    "remedy": error.advice(),
                    "effect": error.code().info().map(|info| info.effect.sentence()),
                }),
            };
            for (name, value, _) in &self.notes {
                fields[*name] = value.clone();
            }
            self.line(&fields);
        }
        eprintln!("{error}");
        for (name, _, text) in &self.notes {
            eprintln!("  {name:<8} {text}");
        }
    }
}
