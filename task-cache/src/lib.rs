//! Which recorded task graph serves a launch.
#![no_std]
