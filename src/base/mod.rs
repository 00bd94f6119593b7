//! What every layer uses: units, checked handles, clocks, stacks, deadlines, and descriptors sent over Unix sockets.

#[allow(unsafe_code)]
pub mod clock;
pub mod deadline;
pub mod embedded;
pub mod handle;
#[allow(unsafe_code)]
pub mod stack;
pub mod units;
pub mod unix_socket;
