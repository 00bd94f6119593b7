//! Fourier transforms by cuFFT, with a plan cache like `torch.backends.cuda.cufft_plan_cache`.
//!
//! [`params`] describes a plan and checks that cuFFT supports it; [`cache`] holds a device's plans in LRU order;
//! [`plan`] leases a plan to one thread at a time.
//!
//! A cuFFT plan has one stream and one work area, so no other thread may use the plan between setting them and
//! executing it. A lease guarantees that. It lasts a few microseconds, so threads with the same transform need not have
//! a plan each. Each lease has its own work area, allocated in the stream, so transforms of one plan may run in several
//! streams at once.

pub mod cache;
pub mod params;
pub mod plan;

pub use cache::{clear, max_size, set_max_size, size};
pub use plan::{acquire, execute, forget, get, release};
