//! Integration with the process: exit, fork, panics, and support for tests.

pub mod process;
pub mod startup;
pub mod testing;
