//! What ranks do together: one description for every engine.

use crate::{
    collectives::devices::ReduceOp,
    driver::Span,
    error::{Error, Result},
    runtime::tensor::ElementType,
    status::Status,
    stream::Stream,
};
use std::fmt;

/// What is done, with what all ranks must agree on. Roots and peers are ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    /// `count` elements of each rank, reduced for all.
    AllReduce { op: ReduceOp },
    /// The same for one.
    Reduce { op: ReduceOp, root: u32 },
    /// `count` elements of one rank for all.
    Broadcast { root: u32 },
    /// `count` elements of each rank, behind each other, for all.
    AllGather,
    /// `count` elements for each rank, reduced.
    ReduceScatter { op: ReduceOp },
    /// `count` elements from each rank to each.
    AllToAll,
    /// `count` elements to one rank.
    Send { peer: u32 },
    /// `count` elements from one rank.
    Receive { peer: u32 },
}

impl Kind {
    /// Whether two ranks do it and not all.
    pub fn is_between_two(self) -> bool {
        matches!(self, Kind::Send { .. } | Kind::Receive { .. })
    }

    /// Whether it reduces elements that have no such reduction, whatever engine there is. Some cannot do more.
    fn means_nothing_for(self, element: ElementType) -> bool {
        match self {
            Kind::AllReduce { op } | Kind::Reduce { op, .. } | Kind::ReduceScatter { op } => match op {
                ReduceOp::Average => element == ElementType::Bool,
                ReduceOp::Minimum | ReduceOp::Maximum => element.is_complex(),
                ReduceOp::Sum | ReduceOp::Product => false,
            },
            _ => false,
        }
    }

    /// The rank that it names.
    fn named(self) -> Option<u32> {
        match self {
            Kind::Reduce { root, .. } | Kind::Broadcast { root } => Some(root),
            Kind::Send { peer } | Kind::Receive { peer } => Some(peer),
            _ => None,
        }
    }
}

/// One rank's part in something that ranks do together.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// What.
    pub kind: Kind,
    /// How many elements; see [`Kind`].
    pub count: u64,
    /// Their type.
    pub element: ElementType,
    /// What the rank gives.
    pub from: Span,
    /// What it gets; the same as `from` where that is done in place.
    pub to: Span,
    /// The rank's stream for it.
    pub stream: Stream,
}

impl Operation {
    /// Whether two ranks mean the same.
    pub fn agrees(&self, other: &Operation) -> bool {
        (self.kind, self.count, self.element) == (other.kind, other.count, other.element)
    }

    /// The bytes of `count` elements.
    pub fn bytes(&self) -> u64 {
        self.count * self.element.bytes()
    }

    /// How many times `count` elements are given and got by a rank of a communicator of `size`.
    fn shares(&self, size: u64, is_root: bool) -> (u64, u64) {
        match self.kind {
            Kind::AllReduce { .. } => (1, 1),
            Kind::Reduce { .. } => (1, is_root.into()),
            Kind::Broadcast { .. } => (is_root.into(), 1),
            Kind::AllGather => (1, size),
            Kind::ReduceScatter { .. } => (size, 1),
            Kind::AllToAll => (size, size),
            Kind::Send { .. } => (1, 0),
            Kind::Receive { .. } => (0, 1),
        }
    }

    /// Checks what one rank can check, and gives the spans their lengths. A pointer that the operation does not look at
    /// becomes nothing.
    pub fn check(mut self, rank: u32, size: u32) -> Result<Operation> {
        if let Some(named) = self.kind.named()
            && named >= size
        {
            return Err(invalid(format!("there is no rank {named} among {size}")));
        }
        if self.kind.means_nothing_for(self.element) {
            return Err(Error::new(Status::NOT_SUPPORTED, format!("{} has no such reduction", self.element)));
        }
        let all = self.count.checked_mul(u64::from(size)).and_then(|count| count.checked_mul(self.element.bytes()));
        if all.is_none_or(|bytes| bytes >= 1 << 62) {
            return Err(invalid(format!("{} elements are more than there are addresses", self.count)));
        }
        let (given, got) = self.shares(size.into(), self.kind.named() == Some(rank));
        self.from = self.checked(self.from, given, "the memory that is read")?;
        self.to = self.checked(self.to, got, "the memory that is written")?;
        Ok(self)
    }

    fn checked(&self, span: Span, shares: u64, what: &str) -> Result<Span> {
        if shares == 0 || self.count == 0 {
            return Ok(span.with_length(0));
        }
        if span.address() == 0 {
            return Err(Error::new(Status::NULL_POINTER, format!("{what} is NULL")));
        }
        if !span.address().is_multiple_of(self.element.bytes()) {
            return Err(invalid(format!("{what}, at {:#x}, is not aligned to its {}", span.address(), self.element)));
        }
        Ok(span.with_length((self.bytes() * shares) as usize))
    }
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

fn name(op: ReduceOp) -> &'static str {
    match op {
        ReduceOp::Sum => "sum",
        ReduceOp::Product => "product",
        ReduceOp::Minimum => "minimum",
        ReduceOp::Maximum => "maximum",
        ReduceOp::Average => "average",
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::AllReduce { op } => write!(formatter, "all_reduce ({})", name(op)),
            Kind::Reduce { op, root } => write!(formatter, "reduce ({}) to rank {root}", name(op)),
            Kind::Broadcast { root } => write!(formatter, "broadcast from rank {root}"),
            Kind::AllGather => formatter.write_str("all_gather"),
            Kind::ReduceScatter { op } => write!(formatter, "reduce_scatter ({})", name(op)),
            Kind::AllToAll => formatter.write_str("all_to_all"),
            Kind::Send { peer } => write!(formatter, "send to rank {peer}"),
            Kind::Receive { peer } => write!(formatter, "recv from rank {peer}"),
        }?;
        write!(formatter, " of {} {}", self.count, self.element)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truths_have_no_average_and_complex_numbers_no_order() {
        let all = |op| Kind::AllReduce { op };
        for element in [ElementType::Bool, ElementType::F16, ElementType::Complex64] {
            let has = |op: ReduceOp| {
                let one = all(op).means_nothing_for(element);
                assert_eq!(one, Kind::Reduce { op, root: 1 }.means_nothing_for(element));
                assert_eq!(one, Kind::ReduceScatter { op }.means_nothing_for(element));
                !one
            };
            assert!(has(ReduceOp::Sum) && has(ReduceOp::Product));
            assert_eq!(has(ReduceOp::Average), element != ElementType::Bool);
            assert_eq!(has(ReduceOp::Minimum), element != ElementType::Complex64);
            assert_eq!(has(ReduceOp::Maximum), element != ElementType::Complex64);
        }
        assert!(!Kind::AllGather.means_nothing_for(ElementType::Bool));
    }
}
