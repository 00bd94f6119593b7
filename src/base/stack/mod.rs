//! Call stacks of C and C++ callers: captured in nanoseconds, symbolized when they are read.
//!
//! [`capture`] walks up the calling thread's stack with the compilers' unwinding rules (`rules`), which each thread
//! caches by return address (`walk`). A stack that was captured before keeps its number (`table`), which the thread
//! caches as well. Return addresses are symbolized only when a stack is read, from the files of the program
//! (`symbols`). What is shown of a stack begins with the program's own functions (`fold`).

mod fold;
mod images;
mod rules;
mod symbols;
mod table;
mod walk;

pub use fold::{Line, describe_place, fold, is_library};
pub use symbols::Frame;
pub use table::{StackId, frames};
pub use walk::{capture, thread_id};
