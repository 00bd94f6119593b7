//! Fourier transforms by cuFFT: plans that are kept, as `torch.backends.cuda.cufft_plan_cache` keeps them.
//!
//! [`params`] is what a plan is for, and whether cuFFT can do it; [`cache`] keeps a device's plans, the ones used last
//! first; [`plan`] lets one thread at a time work with a plan.
//!
//! A plan of cuFFT's has one stream and one area to work in, so between setting them and carrying the plan out no other
//! thread may have it. That is what a lease is for. It lasts some microseconds, so that threads with the same transform
//! need not have a plan each; and since the area is the lease's own, of the allocator's memory for the stream,
//! transforms of one plan may run in several streams at once.

pub mod cache;
pub mod params;
pub mod plan;

pub use cache::{clear, max_size, set_max_size, size};
pub use plan::{acquire, execute, forget, get, release};
