//! Tests of recording and binding, against hand-computed descriptors.

mod binding;
mod capacity;
mod recording;
mod rig;
