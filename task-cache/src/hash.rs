//! Hashes: they only find the bucket, the key is compared in full.

use crate::key::{Key, WORDS};

/// Odd constants without structure: fractional digits of π.
const MIX: [u64; WORDS + 2] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7345,
    0xa409_3822_299f_31d1,
    0x082e_fa98_ec4e_6c89,
    0x4528_21e6_38d0_1377,
    0xbe54_66cf_34e9_0c6d,
    0xc0ac_29b7_c97c_50dd,
    0x3f84_d5b5_b547_0917,
    0x9216_d5d9_8979_fb1b,
    0xd131_0ba6_98df_b5ad,
    0x2ffd_72db_d01a_dfb7,
    0xb8e1_afed_6a26_7e97,
    0xba7c_9045_f12c_7f99,
    0x24a1_9947_b391_6cf7,
];

/// How keys are spread over the index, and tags over keys.
pub trait KeyHash {
    /// Returns the hash of a key; the high half finds the bucket.
    fn hash(key: &Key) -> u64;

    /// Returns the digest of a tag that stands for it in a key. Tags are compared in full too.
    #[must_use]
    fn digest(tag: &[u8]) -> [u64; 2] {
        let [.., a, b] = MIX;
        tag.chunks(8).fold([a, b], |[low, high], part| {
            let word = part.iter().fold(1_u64, |word, byte| word << 8 | u64::from(*byte));
            [fold(low ^ word, a), fold(high.rotate_left(23) ^ word, b)]
        })
    }
}

/// The hash to use: six independent multiplications, then one over their sum.
#[derive(Clone, Copy, Debug)]
pub struct Mixed;

impl KeyHash for Mixed {
    #[inline]
    fn hash(key: &Key) -> u64 {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *key.words();
        let [ma, mb, mc, md, me, mf, mg, mh, mi, mj, mk, ml, m, n] = MIX;
        let lanes = [
            fold(a ^ ma, b ^ mb),
            fold(c ^ mc, d ^ md),
            fold(e ^ me, f ^ mf),
            fold(g ^ mg, h ^ mh),
            fold(i ^ mi, j ^ mj),
            fold(k ^ mk, l ^ ml),
        ];
        fold(lanes.iter().fold(m, |sum, lane| sum ^ lane), n)
    }
}

/// Every key in one bucket: nothing may depend on the hash but speed.
#[derive(Clone, Copy, Debug)]
pub struct Constant;

impl KeyHash for Constant {
    fn hash(_: &Key) -> u64 {
        0
    }
}

/// The hash where nobody asks for one.
#[cfg(not(feature = "constant-hash"))]
pub(crate) type Chosen = Mixed;
/// The hash where nobody asks for one.
#[cfg(feature = "constant-hash")]
pub(crate) type Chosen = Constant;

/// The two halves of the product, combined.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let [one, other]: [u64; 2] = zerocopy::transmute!(u128::from(a) * u128::from(b));
    one ^ other
}

impl Key {
    /// Returns the hash of [`Mixed`].
    #[must_use]
    #[inline]
    pub fn hash(&self) -> u64 {
        Mixed::hash(self)
    }
}
