//! Collectives.

pub mod local;

/// How elements are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReduceOp {
    Sum,
    Product,
    Minimum,
    Maximum,
    Average,
}
