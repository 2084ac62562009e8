//! Runs a closure compiled for the vectors this processor has.
//!
//! A closure is compiled into the function that calls it. Here that is a function with AVX2 enabled, so that plain
//! loops in the closure (and in what is inlined into it) use those registers. What is computed does not change.
//!
//! AVX-512 is left out on purpose: a loop that adds a base to each descriptor gains a tenth from it, but where all
//! descriptors get the same base the compiler turns it into scattered stores, seven times slower.

/// Returns what `work` returns.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::run;

// UNSAFETY: a function compiled for AVX2 may only be called where the processor has AVX2.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    #![expect(unsafe_code, reason = "calls one function compiled for AVX2")]

    use std::arch::is_x86_feature_detected;

    /// Returns what `work` returns.
    #[inline(always)]
    pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only requirement of the callee.
            unsafe { avx2(work) }
        } else {
            work()
        }
    }

    #[target_feature(enable = "avx2")]
    fn avx2<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}
