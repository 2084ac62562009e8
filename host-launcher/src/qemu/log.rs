//! Decodes the text log of a kernel image.
//!
//! The image logs indices instead of text; the text is in the image file. [`LogTable`] is read from that file once,
//! [`LogStream`] decodes the bytes that one core has written.

use core::fmt;

use defmt_decoder::{DecodeError, Locations, StreamDecoder, Table};
use wire::ErrorCode;

use crate::error::{Error, Result};

/// The texts of an image.
pub struct LogTable {
    table: Table,
    locations: Locations,
}

/// Not the texts: there are many.
impl fmt::Debug for LogTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTable").field("texts", &self.table.indices().count()).finish_non_exhaustive()
    }
}

impl LogTable {
    /// Reads the texts of an image file; `None` when it logs nothing.
    ///
    /// # Errors
    /// `IMAGE_READ` when the texts are damaged or of a format this build cannot decode.
    pub fn read(image: &[u8]) -> Result<Option<Self>> {
        let refused =
            |error| Error::new(ErrorCode::IMAGE_READ, format!("its log texts cannot be read: {error}"));
        let Some(table) = Table::parse(image).map_err(refused)? else { return Ok(None) };
        let locations = table.get_locations(image).map_err(refused)?;
        Ok(Some(Self { table, locations }))
    }

    /// Returns a decoder for the bytes of one core.
    #[must_use]
    pub fn stream(&self) -> LogStream<'_> {
        LogStream { table: self, decoder: self.table.new_stream_decoder() }
    }
}

/// The log of one core.
pub struct LogStream<'table> {
    table: &'table LogTable,
    decoder: Box<dyn StreamDecoder + Send + Sync + 'table>,
}

impl fmt::Debug for LogStream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStream").finish_non_exhaustive()
    }
}

impl LogStream<'_> {
    /// Takes the next bytes of the log and returns the lines they complete: time in microseconds, level, text and
    /// place. Damaged frames become a line that says so.
    pub fn decode(&mut self, bytes: &[u8]) -> Vec<String> {
        self.decoder.received(bytes);
        let mut lines = Vec::new();
        loop {
            match self.decoder.decode() {
                Ok(frame) => {
                    let place = self.table.locations.get(&frame.index());
                    let place =
                        place.map_or_else(String::new, |at| format!(" ({}:{})", at.file.display(), at.line));
                    lines.push(format!("{}{place}", frame.display(false)));
                }
                Err(DecodeError::UnexpectedEof) => return lines,
                Err(DecodeError::Malformed) => {
                    lines.push("a damaged frame of the log was skipped".to_owned())
                }
            }
        }
    }
}
