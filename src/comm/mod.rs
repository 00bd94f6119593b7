//! Collectives: sums, copies and exchanges over several devices.
//!
//! [`shared`] is for processes of one machine, which share memory of their devices.

pub mod local;
pub mod shared;

/// How elements of several ranks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// Their sum.
    Sum,
    /// Their product.
    Product,
    /// The least of them.
    Minimum,
    /// The greatest of them.
    Maximum,
    /// Their sum over their number.
    Average,
}
