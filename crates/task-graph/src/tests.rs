//! Tests of recording and binding, against hand-computed descriptors.
