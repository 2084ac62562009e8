//! Tests of recording and binding, against hand-computed descriptors.

mod batch;
mod binding;
mod capacity;
mod recording;
mod rig;
