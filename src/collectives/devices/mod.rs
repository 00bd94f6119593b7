//! Collectives over the devices of this process: `torch.cuda.comm`, and the in-process engine of communicators.
//!
//! A process that has all devices needs no protocol between them. One device's stream waits by events for the current
//! streams of all participants ([`stream_group`]), one launch there reads every source and writes every destination
//! over the links between the devices, and the other streams wait for it. The launch's arguments contain its work, as a
//! table of [`chunks`]: hundreds of tensors need no more launches than a few, and nothing is allocated, copied or
//! flattened before. From a certain size on ([`tuning`]) all devices share the work, so that no link carries a message
//! twice ([`large`]). If devices have no peer access ([`reach`](crate::memory::reach)), the driver's copies transfer
//! the data.
//!
//! [`local`] implements the collectives over ranks; [`broadcast`], [`reduce`] and [`exchange`] implement torch's
//! functions over tensors of any shape, with [`strided_copies`] for any strides and [`host_copy`](crate::ops::host_copy) for memory of the CPU;
//! [`outputs`] allocates output tensors.
//!
//! [`processes`](crate::collectives::processes) is for the processes of one machine.

pub mod broadcast;
pub mod chunks;
pub mod exchange;
pub mod large;
pub mod local;
pub mod outputs;
pub mod reduce;
pub mod stream_group;
pub mod strided_copies;
pub mod tuning;

use crate::runtime::tensor::ElementType;

/// A reduction operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// The sum; "or" for bools.
    Sum,
    /// The product; "and" for bools.
    Product,
    /// The minimum; the number, if the other operand is NaN.
    Minimum,
    /// The maximum; the number, if the other operand is NaN.
    Maximum,
    /// The sum divided by the number of operands; for integers, rounded towards 0.
    Average,
}

impl ReduceOp {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Product => "product",
            ReduceOp::Minimum => "minimum",
            ReduceOp::Maximum => "maximum",
            ReduceOp::Average => "average",
        }
    }

    /// Returns whether it means anything for an element type: bools have no average, and complex numbers no order.
    pub fn is_defined_for(self, element: ElementType) -> bool {
        match self {
            ReduceOp::Sum | ReduceOp::Product => true,
            ReduceOp::Average => element != ElementType::Bool,
            ReduceOp::Minimum | ReduceOp::Maximum => !element.is_complex(),
        }
    }
}
