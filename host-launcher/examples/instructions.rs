//! Prints the instructions the kernel image needs: `instructions IMAGE [--json]`.

use std::path::PathBuf;

use host_launcher::image::Image;
use host_launcher::qemu::Options;
use host_launcher::qemu::instructions::count;
use serde_json::json;

fn main() -> host_launcher::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let image = PathBuf::from(arguments.next().unwrap_or_default());
    let is_json = arguments.next().is_some_and(|argument| argument == "--json");
    for count in count(Image::read(&image)?, &Options::default())? {
        let per_descriptor = count.per_descriptor();
        if is_json {
            let line = json!({
                "name": count.name, "descriptors": count.descriptors, "instructions": count.instructions,
                "instructions_per_descriptor": per_descriptor,
            });
            println!("{line}");
        } else {
            println!(
                "{:<32} {per_descriptor:>8.1} instructions per descriptor ({})",
                count.name, count.descriptors
            );
        }
    }
    Ok(())
}
