//! `aicpu-ts env`: requested against effective settings, with the reason for each difference.

use comfy_table::{Table, presets};
use host_launcher::Result;
use host_launcher::settings::Settings;
use serde_json::json;

use crate::output::Output;

pub(crate) fn env(output: &mut Output) -> Result<()> {
    let settings = Settings::from_env(std::env::vars_os())?;
    if output.is_json() {
        for row in settings.report() {
            output.line(&json!({
                "name": row.name, "requested": row.requested, "effective": row.effective,
                "source": row.origin.to_string(), "reason": row.reason,
            }));
        }
    } else {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["setting", "requested", "effective", "source", "reason"]);
        for row in settings.report() {
            let text = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
            table.add_row([
                row.name,
                text(row.requested),
                row.effective,
                row.origin.to_string(),
                text(row.reason),
            ]);
        }
        output.text(&format!("{table}\n"));
    }
    for warning in settings.warnings() {
        eprintln!("{warning}");
    }
    Ok(())
}
