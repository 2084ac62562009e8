//! `aicpu-ts diagnose`: what the dumps of a failed run show, without the run.

use comfy_table::{Table, presets};
use host_launcher::Result;
use host_launcher::diagnosis::offline::{self, Findings};

use crate::args::DiagnoseArgs;
use crate::output::Output;

pub(crate) fn diagnose(args: &DiagnoseArgs, output: &mut Output) -> Result<()> {
    let findings = offline::diagnose(&args.dumps)?;
    if output.is_json() {
        output.line(&serde_json::to_value(&findings).unwrap_or_default());
    } else {
        output.text(&text(&findings));
    }
    Ok(())
}

fn text(findings: &Findings) -> String {
    let mut text = match &findings.root {
        Some(report) => format!("E{:04} {}  {report}\n", report.code, report.name),
        None => "nothing failed: every rank is done with all it launched\n".to_owned(),
    };
    if !findings.missing.is_empty() {
        let missing: Vec<_> = findings.missing.iter().map(u32::to_string).collect();
        text.push_str(&format!("  no dump  of rank {}\n", missing.join(", ")));
    }
    let mut ranks = Table::new();
    ranks.load_preset(presets::NOTHING);
    ranks.set_header(["rank", "launched", "completed", "", "in flight"]);
    for rank in &findings.ranks {
        let completed = rank.completed.map_or("-".to_owned(), |sequence| format!("#{sequence}"));
        ranks.add_row([
            rank.rank.to_string(),
            format!("#{}", rank.launched),
            completed,
            if rank.behind { "behind".to_owned() } else { String::new() },
            rank.in_flight.join("; "),
        ]);
    }
    let mut events = Table::new();
    events.load_preset(presets::NOTHING);
    for line in &findings.recorder {
        events.add_row([
            format!("rank {}", line.rank),
            format!("{} µs", line.time_ns / 1000),
            format!("#{}", line.sequence),
            line.event.to_owned(),
            line.about.clone(),
        ]);
    }
    text.push_str(&format!("\n{ranks}\n\n{events}\n"));
    text
}
