//! Quotes foreign text for messages, so that it can neither flood nor steer a terminal.

/// Characters of a value that a message repeats.
const SHOWN: usize = 60;

/// Returns `text` in quotes with control characters escaped; a long text is cut and its length given.
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn control_characters_are_escaped_and_long_text_is_cut() {
        assert_eq!(quote("a\n\u{1b}[31m\u{202e}"), r#""a\n\u{1b}[31m\u{202e}""#);
        assert_eq!(quote(&"é".repeat(60)), format!("\"{}\"", "é".repeat(60)));
        assert_eq!(quote(&"x".repeat(61)), format!("\"{}\"... (61 bytes)", "x".repeat(60)));
    }
}
