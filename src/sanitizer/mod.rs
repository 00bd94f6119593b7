//! The stream sanitizer detects data races: two unordered accesses to the same bytes, at least one of them a write.
//!
//! It observes events in the order in which calls are made, and never reads the checked memory. [`state::State`] is the whole
//! model: accesses, order, allocations and frees, and graphs. Findings are [`Report`]s, which [`findings::Findings`]
//! collects.
//!
//! **Order.** Work runs on tracks: each stream is a track, each branch of a graph, and the CPU. An operation has an
//! epoch on its track, and each track has a clock, which stores for every other track the epoch up to which it has
//! waited (`order`). An access comes after another if its track has waited for it, or if the CPU had waited for it
//! before the call was made: work that the CPU knows to be complete precedes all work that is submitted later. All
//! threads are one CPU here. So a thread that waits may inform another thread by any means, at the price that the
//! actions of two threads which merely happen in sequence count as ordered.
//!
//! **Bytes.** A map of ranges stores, for each byte, the last write and the reads since then (`ranges`). That
//! suffices: an access that comes after those comes after all earlier ones, and the first race on each byte is found
//! (tests/search.rs compares it with a search of all pairs). Accesses that the CPU knows to be complete are removed.
//!
//! **Memory.** Allocations and frees (`blocks`) establish no order by themselves. A stream that was neither recorded
//! for a block nor waited for may still access it when the next owner does. That is found like any race, and the
//! report advises to record the stream.
//!
//! **Observation.** Order is observed in the driver calls ([`crate::driver::observer`], `driver_observer`), so that
//! none is missed, whatever component establishes it. Accesses are reported by the library's calls (`library_observer`), which
//! know what they read and write, and blocks by the allocators. `session` is the process-wide sanitizer, and `log`
//! implements its environment variables.

mod access_names;
pub mod blocks;
mod call;
mod driver_observer;
pub mod findings;
pub mod json;
mod library_observer;
mod log;
mod order;
mod ranges;
mod recording;
pub mod report;
mod session;
mod state;
#[cfg(test)]
mod tests;

pub use call::Stream;
pub use library_observer::{operation_of_cpu, wait_stream};
pub use log::{enable, mode_from_environment};
pub use order::Moment;
pub use report::{Conflict, Report};
pub use session::{Callback, Mode, clear, counts, mode, reports, set_callback, set_mode};

pub use crate::observe::{Kind, Operand, is_on, operands};
