//! The task cache from outside. Every test of the directory runs twice: with the hash that is used, and with one that
//! puts every key in one bucket.

/// Runs test functions that are generic over the hash with both.
macro_rules! both_hashes {
    ($($name:ident),+ $(,)?) => {
        mod mixed {
            $(#[test] fn $name() { super::$name::<task_cache::Mixed>(); })+
        }
        mod constant {
            $(#[test] fn $name() { super::$name::<task_cache::Constant>(); })+
        }
    };
}

mod calls;
mod exhaustive;
mod explain;
mod life;
mod named;
mod policy;
mod properties;
mod support;
