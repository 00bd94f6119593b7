//! Random numbers, bit for bit equal to PyTorch's.
//!
//! A [`generator`] has a seed and an offset. A fill advances the offset as PyTorch's launch would; the launch's
//! [`geometry`] determines which element gets which number. [`layout`] orders the elements of a non-contiguous tensor
//! as PyTorch's iterator visits them. A [`distribution`] provides a kernel and its arguments, and [`fill`] launches it.
//! [`permutation`] implements `randperm`. [`seed`] holds the default generators of the devices.
//!
//! The kernels are in kernels/; the host device runs the CPU kernels of `driver::host::cpu_kernels` instead.

pub mod distribution;
pub mod fill;
pub mod generator;
pub mod geometry;
pub mod integers;
pub mod layout;
pub mod permutation;
pub mod seed;
