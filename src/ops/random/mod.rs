//! Random numbers: PyTorch's, bit for bit.
//!
//! A [`generator`] has a seed and an offset. A fill takes from it as many numbers as PyTorch's launch would, whose
//! [`geometry`] decides which element gets which number; [`layout`] gives elements that do not lie side by side the order in
//! which PyTorch walks through them. A [`distribution`] is a kernel and its arguments, [`fill`] launches it, and
//! [`permutation`] does what is no fill. [`seed`] is what concerns the generator of each device that nobody made.
//!
//! The kernels are in kernels/, and what the host device runs in their place in `driver/host/twins`.

pub mod distribution;
pub mod fill;
pub mod generator;
pub mod geometry;
pub mod integers;
pub mod layout;
pub mod permutation;
pub mod seed;
