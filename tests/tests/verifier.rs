//! The graph verifier: everything the templates emit is proved, and what is wrong is refused.

#[path = "verifier/grid.rs"]
mod grid;
#[path = "verifier/shapes.rs"]
mod shapes;
