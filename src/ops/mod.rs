//! Independent operations on memory and streams: copies, random numbers, kernels from source, Fourier transforms, handles
//! of CUDA's libraries, green contexts, profiler ranges, and telemetry.

pub mod blas;
pub mod copy;
pub mod fft;
pub mod green_context;
pub mod jit;
pub mod nvtx;
pub mod random;
pub mod solver;
pub mod telemetry;
