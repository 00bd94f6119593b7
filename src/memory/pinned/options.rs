//! What can be chosen for pinned memory, by the names of torch's options.

use crate::error::Result;

/// See the module's comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Memory is pages of the process that are registered with the driver, not the driver's own.
    pub pinned_use_cuda_host_register: bool,
    /// How many threads touch such pages before they are registered.
    pub pinned_num_register_threads: u32,
    /// A thread looks whether freed memory is still used, so that requests need not.
    pub pinned_use_background_threads: bool,
    /// MiB that are pinned at the first request, to be cut up; they never go back.
    pub pinned_reserve_segment_size_mb: u64,
    /// Blocks above so many MiB go back to the driver when they are freed; 0 for no such limit.
    pub pinned_max_cached_size_mb: u64,
}

/// What was chosen.
pub fn get() -> Result<Options> {
    Ok(Options {
        pinned_use_cuda_host_register: false,
        pinned_num_register_threads: 1,
        pinned_use_background_threads: false,
        pinned_reserve_segment_size_mb: 0,
        pinned_max_cached_size_mb: 0,
    })
}
