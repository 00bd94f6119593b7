//! What connects the library to its process: exit, fork, panics, and what tests ask for.

pub mod process;
pub mod testing;
