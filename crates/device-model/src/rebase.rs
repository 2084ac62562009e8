//! The rebasing copy, compiled for the vectors this processor has.
//!
//! One 64-byte addition per descriptor where the processor has AVX-512, two of 32 bytes with AVX2, whatever the
//! target allows otherwise. What is computed is always that of [`wire::rebase`].

#[cfg(not(target_arch = "x86_64"))]
use wire::{BASES, Base, Descriptor};

/// Copies descriptors, adding to each the base that its number selects.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn rebase(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
    wire::rebase(into, from, numbers, bases);
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::rebase;

// UNSAFETY: functions compiled for AVX may only be called where the processor has it, and its loads and stores take
// pointers.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    #![expect(unsafe_code, reason = "calls functions compiled for AVX, and its loads and stores")]

    use core::arch::x86_64::{_mm512_add_epi64, _mm512_load_si512, _mm512_store_si512};
    use std::arch::is_x86_feature_detected;

    use wire::{BASES, Base, Descriptor};

    /// Copies descriptors, adding to each the base that its number selects.
    #[inline]
    pub(crate) fn rebase(
        into: &mut [Descriptor],
        from: &[Descriptor],
        numbers: &[u16],
        bases: &[Base; BASES],
    ) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, the only requirement of the callee.
            unsafe { avx512(into, from, numbers, bases) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only requirement of the callee.
            unsafe { avx2(into, from, numbers, bases) }
        } else {
            wire::rebase(into, from, numbers, bases);
        }
    }

    #[target_feature(enable = "avx2")]
    fn avx2(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
        wire::rebase(into, from, numbers, bases);
    }

    /// Written out, because the compiler spreads the lanes of several descriptors over one register where their
    /// bases may be equal, and then stores them one by one.
    #[target_feature(enable = "avx512f")]
    fn avx512(into: &mut [Descriptor], from: &[Descriptor], numbers: &[u16], bases: &[Base; BASES]) {
        for ((to, from), number) in into.iter_mut().zip(from).zip(numbers) {
            let base = &bases[usize::from(*number) & (BASES - 1)];
            // SAFETY: a reference to 64 aligned bytes.
            let image = unsafe { _mm512_load_si512(core::ptr::from_ref(from).cast()) };
            // SAFETY: a reference to 64 aligned bytes.
            let base = unsafe { _mm512_load_si512(core::ptr::from_ref(base).cast()) };
            let sum = _mm512_add_epi64(image, base);
            // SAFETY: an exclusive reference to 64 aligned bytes, any value of which is a descriptor.
            unsafe { _mm512_store_si512(core::ptr::from_mut(to).cast(), sum) };
        }
    }

    #[cfg(test)]
    mod tests {
        use super::{avx2, avx512, rebase};
        use std::arch::is_x86_feature_detected;
        use wire::{BASES, Base, Descriptor};

        #[test]
        fn every_instruction_set_computes_the_same() {
            let mixed = |seed: u64, lane: u64| (seed * 8 + lane).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let lanes = |seed| core::array::from_fn(|lane| mixed(seed, lane as u64));
            let bases: [Base; BASES] = core::array::from_fn(|number| Base(lanes(number as u64 + 7000)));
            for len in [0, 1, 2, 3, 4, 5, 31, 32, 33, 100] {
                let from: Vec<Descriptor> = (0..len).map(|seed| Descriptor { lanes: lanes(seed) }).collect();
                // Runs of one number, neighbours, and numbers beyond the table.
                let numbers: Vec<u16> = (0..len).map(|at| (at / 3 * 37 % 700) as u16).collect();
                let run = |copy: &dyn Fn(&mut [Descriptor])| {
                    let mut into = vec![Descriptor::default(); from.len() + 1];
                    copy(&mut into);
                    into
                };
                let expected = run(&|into| wire::rebase(into, &from, &numbers, &bases));
                assert_eq!(run(&|into| rebase(into, &from, &numbers, &bases)), expected);
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2.
                    assert_eq!(run(&|into| unsafe { avx2(into, &from, &numbers, &bases) }), expected);
                }
                if is_x86_feature_detected!("avx512f") {
                    // SAFETY: the processor has AVX-512 F.
                    assert_eq!(run(&|into| unsafe { avx512(into, &from, &numbers, &bases) }), expected);
                }
            }
        }
    }
}
