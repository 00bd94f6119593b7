//! Utilities for every layer: byte units, checked handles, clocks, call stacks, deadlines, embedded texts, the log,
//! retries, messages with file descriptors over Unix sockets, and background threads.

#[allow(unsafe_code)]
pub mod cancellation;
#[allow(unsafe_code)]
pub mod clock;
pub mod deadline;
pub mod embedded;
pub mod handle;
pub mod log;
pub mod retry;
#[allow(unsafe_code)]
pub mod stack;
pub mod units;
pub mod unix_socket;
pub mod worker;
