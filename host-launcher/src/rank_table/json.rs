//! JSON values that remember where they stand, so that every refusal names path, line and column.
//!
//! The text is parsed by `jsonc-parser` in its strict setting: it keeps the place of every value and recognises
//! comments and trailing commas, which published samples carry, instead of only stumbling over them.

use std::collections::HashSet;

use core::ops::RangeInclusive;

use jsonc_parser::ast::Value;
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::ParseErrorKind;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use wire::ErrorCode;

use crate::error::{Error, Result};
use crate::quote::quote;

/// Strict JSON.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// A parsed text without duplicate keys.
pub(super) struct Document<'a> {
    name: &'a str,
    text: &'a str,
    root: Value<'a>,
}

/// One value of a document.
#[derive(Clone, Copy)]
pub(super) struct Node<'d> {
    document: &'d Document<'d>,
    value: &'d Value<'d>,
}

impl<'a> Document<'a> {
    /// Parses `bytes`; `name` stands before line and column in messages.
    ///
    /// # Errors
    /// `RANK_TABLE_ENCODING`, `_SYNTAX`, `_EXTENDED_JSON`, `_DEPTH`, `_DUPLICATE_KEY`.
    pub(super) fn parse(bytes: &'a [u8], name: &'a str) -> Result<Self> {
        let text = decode(bytes, name)?;
        let parsed = parse_to_ast(text, &CollectOptions::default(), &STRICT)
            .map_err(|error| syntax_error(name, text, error.kind(), error.range()))?;
        let Some(root) = parsed.value else {
            return Err(Error::new(ErrorCode::RANK_TABLE_SYNTAX, "the file is empty").at(place(name, bytes)));
        };
        let document = Self { name, text, root };
        document.refuse_duplicate_keys(&document.root)?;
        Ok(document)
    }

    /// Returns the outermost value.
    pub(super) fn root(&self) -> Node<'_> {
        Node { document: self, value: &self.root }
    }

    /// Looks through all of `value`; recursion is bounded by the parser's depth limit.
    fn refuse_duplicate_keys(&self, value: &Value<'_>) -> Result<()> {
        match value {
            Value::Object(object) => {
                let mut seen = HashSet::new();
                for property in &object.properties {
                    let key = property.name.as_str();
                    if !seen.insert(key) {
                        let message = format!("the key {} stands twice in this object", quote(key));
                        return Err(self.error(
                            property.start(),
                            ErrorCode::RANK_TABLE_DUPLICATE_KEY,
                            message,
                        ));
                    }
                    self.refuse_duplicate_keys(&property.value)?;
                }
            }
            Value::Array(array) => {
                for element in &array.elements {
                    self.refuse_duplicate_keys(element)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn error(&self, offset: usize, code: ErrorCode, message: impl Into<String>) -> Error {
        let place = place(self.name, &self.text.as_bytes()[..offset]);
        Error::new(code, message).at(format!("{place} {}", path_to(&self.root, offset)))
    }
}

impl<'d> Node<'d> {
    /// Makes an error that points here.
    pub(super) fn error(self, code: ErrorCode, message: impl Into<String>) -> Error {
        self.document.error(self.value.start(), code, message)
    }

    /// Returns the value of `key`, if there is one.
    pub(super) fn get(self, key: &str) -> Result<Option<Self>> {
        let Value::Object(object) = self.value else { return Err(self.wrong_type("an object")) };
        Ok(object.get(key).map(|property| Self { document: self.document, value: &property.value }))
    }

    /// Returns the value of `key`.
    pub(super) fn require(self, key: &str) -> Result<Self> {
        self.get(key)?.ok_or_else(|| {
            self.error(ErrorCode::RANK_TABLE_MISSING, format!("the key {key:?} is missing here"))
        })
    }

    /// Returns the value of `key`, or of its older name `alias`.
    pub(super) fn require_either(self, key: &str, alias: &str) -> Result<Self> {
        match self.get(alias)? {
            Some(node) if self.get(key)?.is_none() => Ok(node),
            _ => self.require(key),
        }
    }

    /// Returns the elements of a list.
    pub(super) fn items(self) -> Result<impl ExactSizeIterator<Item = Self>> {
        let Value::Array(array) = self.value else { return Err(self.wrong_type("a list")) };
        Ok(array.elements.iter().map(move |value| Self { document: self.document, value }))
    }

    /// Returns the elements of a list of at most `max`.
    pub(super) fn items_up_to(self, max: usize) -> Result<impl ExactSizeIterator<Item = Self>> {
        let items = self.items()?;
        if items.len() > max {
            let message = format!("a list of {}; at most {max} are allowed", items.len());
            return Err(self.error(ErrorCode::RANK_TABLE_LIMIT, message));
        }
        Ok(items)
    }

    /// Returns the text of a string.
    pub(super) fn string(self) -> Result<&'d str> {
        let Value::StringLit(literal) = self.value else { return Err(self.wrong_type("a string")) };
        Ok(&literal.value)
    }

    /// Returns the text of a string of 1 to `max` characters.
    pub(super) fn name(self, max: usize) -> Result<&'d str> {
        let text = self.string()?;
        let len = text.chars().count();
        if !(1..=max).contains(&len) {
            let message = format!("a name of {len} characters; 1 to {max} are allowed");
            return Err(self.error(ErrorCode::RANK_TABLE_NAME, message));
        }
        Ok(text)
    }

    /// Returns an integer, written as a number or, as the 1.x forms do, as a string of digits.
    pub(super) fn integer(self, range: RangeInclusive<u32>) -> Result<u32> {
        let text = match self.value {
            Value::NumberLit(literal) => literal.value,
            Value::StringLit(literal) => &*literal.value,
            _ => return Err(self.wrong_type("an integer")),
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong_type("an integer"));
        }
        text.parse().ok().filter(|value| range.contains(value)).ok_or_else(|| {
            let message = format!("{} is outside {} to {}", quote(text), range.start(), range.end());
            self.error(ErrorCode::RANK_TABLE_RANGE, message)
        })
    }

    fn wrong_type(self, expected: &str) -> Error {
        let found = match self.value {
            Value::StringLit(literal) => format!("the string {}", quote(&literal.value)),
            Value::NumberLit(literal) => format!("the number {}", quote(literal.value)),
            Value::BooleanLit(literal) => literal.value.to_string(),
            Value::Object(_) => "an object".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::NullKeyword(_) => "null".to_owned(),
        };
        self.error(ErrorCode::RANK_TABLE_TYPE, format!("expected {expected}, found {found}"))
    }
}

fn syntax_error(name: &str, text: &str, kind: &ParseErrorKind, range: Range) -> Error {
    let at = place(name, &text.as_bytes()[..range.start]);
    let error = |code, message: &str| Error::new(code, message).at(at);
    let remove = format!("remove {}", quote(range.text(text)));
    match kind {
        ParseErrorKind::CommentsNotAllowed | ParseErrorKind::UnterminatedCommentBlock => {
            error(ErrorCode::RANK_TABLE_EXTENDED_JSON, "a comment, which JSON does not allow").remedy(remove)
        }
        ParseErrorKind::TrailingCommasNotAllowed => {
            error(ErrorCode::RANK_TABLE_EXTENDED_JSON, "a comma after the last element").remedy(remove)
        }
        ParseErrorKind::NestingDepthExceeded => {
            error(ErrorCode::RANK_TABLE_DEPTH, "objects and lists are nested too deeply")
        }
        ParseErrorKind::UnterminatedObject | ParseErrorKind::UnterminatedArray => {
            error(ErrorCode::RANK_TABLE_SYNTAX, "the file ends inside the object or list that starts here")
        }
        other => error(ErrorCode::RANK_TABLE_SYNTAX, &format!("not JSON: {other}")),
    }
}

/// Returns the text of UTF-8 bytes without byte order mark and NUL.
fn decode<'a>(bytes: &'a [u8], name: &str) -> Result<&'a str> {
    let refuse = |offset: usize, message: &str| {
        Err(Error::new(ErrorCode::RANK_TABLE_ENCODING, message).at(place(name, &bytes[..offset])))
    };
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return refuse(0, "the file starts with a UTF-16 byte order mark");
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return refuse(0, "the file starts with a UTF-8 byte order mark");
    }
    if let Some(offset) = bytes.iter().position(|&byte| byte == 0) {
        return refuse(offset, "a NUL byte (UTF-16, or not a text file)");
    }
    core::str::from_utf8(bytes).or_else(|error| {
        refuse(error.valid_up_to(), &format!("byte {:#04x} is not UTF-8", bytes[error.valid_up_to()]))
    })
}

/// Returns `name:line:column` of what follows `before`; lines and columns count from 1, columns in characters.
fn place(name: &str, before: &[u8]) -> String {
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    format!("{name}:{line}:{column}")
}

/// Returns the JSON path of the innermost value or key that starts at `offset`, as `$.server_list[0].device`.
fn path_to(root: &Value<'_>, offset: usize) -> String {
    let inside = |item: &dyn Ranged| (item.start()..item.end()).contains(&offset);
    let mut path = "$".to_owned();
    let mut value = root;
    loop {
        let next = match value {
            Value::Object(object) => {
                object.properties.iter().find(|property| inside(*property)).map(|property| {
                    let key = property.name.as_str();
                    let plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    (
                        if plain && key.len() <= 40 {
                            format!(".{key}")
                        } else {
                            format!("[{}]", quote(key))
                        },
                        &property.value,
                    )
                })
            }
            Value::Array(array) => array
                .elements
                .iter()
                .enumerate()
                .find(|(_, element)| inside(*element))
                .map(|(index, element)| (format!("[{index}]"), element)),
            _ => None,
        };
        let Some((step, inner)) = next else { return path };
        path.push_str(&step);
        value = inner;
    }
}
