//! Tests of recording and binding, against hand-computed descriptors.

mod batch;
mod binding;
mod capacity;
mod packing;
mod recording;
mod rig;
