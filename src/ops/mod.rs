//! Independent operations on memory and streams: copies, random numbers, kernels from source, Fourier transforms, handles
//! of CUDA's libraries, green contexts, profiler ranges, and telemetry.

pub mod blas;
pub mod copy;
pub mod copy_tensor;
pub mod fft;
pub mod green_context;
pub mod host_copy;
pub mod jit;
pub mod nvtx;
pub mod precision;
pub mod random;
pub mod solver;
pub mod stream_end;
pub mod strided_copy;
pub mod telemetry;
