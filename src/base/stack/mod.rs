//! Call stacks of C and C++ callers: taken in nanoseconds, told in words when somebody asks.
//!
//! [`capture`] walks up the calling thread's stack, by rules that the compilers leave beside their code (`rules`) and that
//! every thread remembers for each return address it has met (`walk`). A stack that is met again has the number that it
//! had before, which the thread remembers, too. What a return address means is found out at reading, from the files
//! of the program (`symbols`).

mod images;
mod rules;
mod symbols;
mod table;
mod walk;

pub use symbols::Frame;
pub use table::{StackId, frames};
pub use walk::{capture, thread_id};
