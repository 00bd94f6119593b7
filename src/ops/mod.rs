//! Operations on memory and streams that do not depend on each other: copies, random numbers, kernels from source, Fourier
//! transforms, handles of CUDA's libraries, parts of a device, profiler ranges, and readings of a device.

pub mod blas;
pub mod copy;
pub mod fft;
pub mod green_context;
pub mod jit;
pub mod nvtx;
pub mod random;
pub mod solver;
pub mod telemetry;
