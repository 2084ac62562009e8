//! Names of recordings for the library's cache: the whole key, as text.

use core::ffi::CStr;

use task_cache::Key;
use zerocopy::IntoBytes;

/// Two digits for each byte of a key and of a timeout, and the zero at the end.
const BYTES: usize = 2 * (size_of::<Key>() + size_of::<u32>()) + 1;

/// A name.
pub(super) struct Tag([u8; BYTES]);

impl Tag {
    /// Names what is recorded under a key with this timeout, which the library may keep in the tasks.
    pub(super) fn new(key: &Key, timeout_ms: u32) -> Self {
        let mut text = [0; BYTES];
        let timeout = timeout_ms.to_le_bytes();
        let bytes = key.as_bytes().iter().chain(&timeout);
        for ([high, low], byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
            (*high, *low) = (digit(byte >> 4), digit(byte & 15));
        }
        Self(text)
    }

    pub(super) fn as_c_str(&self) -> &CStr {
        // The last byte is never written.
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The letter of a number below 16.
const fn digit(value: u8) -> u8 {
    if value < 10 { b'0' + value } else { b'a' - 10 + value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_key_and_the_timeout_in_digits() {
        let key: Key = zerocopy::transmute!([0x0123_4567_89ab_cdef_u64; 12]);
        let expected = [&b"efcdab8967452301"[..]; 12].concat();
        let tag = Tag::new(&key, 0x1234_5678);
        assert_eq!(tag.as_c_str().to_bytes(), [&expected[..], b"78563412"].concat());
    }
}
