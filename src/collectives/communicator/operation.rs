//! The operations of communicators, in one form for all engines.

use crate::{
    collectives::devices::ReduceOp,
    driver::Span,
    error::{Error, Result, invalid},
    runtime::tensor::ElementType,
    status::Status,
    stream::Stream,
};
use std::fmt;

/// The kind of an operation, with the parameters on which all ranks must agree. Roots and peers are ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::missing_docs_in_private_items)]
pub enum Kind {
    /// `count` elements of each rank, reduced to all ranks.
    AllReduce { op: ReduceOp },
    /// `count` elements of each rank, reduced to the root.
    Reduce { op: ReduceOp, root: u32 },
    /// `count` elements of the root to all ranks.
    Broadcast { root: u32 },
    /// `count` elements of each rank, concatenated in all ranks.
    AllGather,
    /// `count` elements for each rank, reduced.
    ReduceScatter { op: ReduceOp },
    /// `count` elements from each rank to each rank.
    AllToAll,
    /// `count` elements to one rank.
    Send { peer: u32 },
    /// `count` elements from one rank.
    Receive { peer: u32 },
}

impl Kind {
    /// Returns whether it is point-to-point.
    pub fn is_point_to_point(self) -> bool {
        matches!(self, Kind::Send { .. } | Kind::Receive { .. })
    }

    /// Returns whether the reduction is undefined for an element type in every engine. An engine may support less.
    fn is_undefined_for(self, element: ElementType) -> bool {
        match self {
            Kind::AllReduce { op } | Kind::Reduce { op, .. } | Kind::ReduceScatter { op } => {
                !op.is_defined_for(element)
            }
            _ => false,
        }
    }

    /// Returns its root or peer.
    fn root_or_peer(self) -> Option<u32> {
        match self {
            Kind::Reduce { root, .. } | Kind::Broadcast { root } => Some(root),
            Kind::Send { peer } | Kind::Receive { peer } => Some(peer),
            _ => None,
        }
    }
}

/// One rank's call of an operation.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    /// The kind.
    pub kind: Kind,
    /// The number of elements; see [`Kind`].
    pub count: u64,
    /// The element type.
    pub element: ElementType,
    /// The memory that the rank reads.
    pub from: Span,
    /// The memory that the rank writes; the same as `from` if the operation is in place.
    pub to: Span,
    /// The rank's stream.
    pub stream: Stream,
}

impl Operation {
    /// Returns whether the calls of two ranks match.
    pub fn agrees(&self, other: &Operation) -> bool {
        (self.kind, self.count, self.element) == (other.kind, other.count, other.element)
    }

    /// Returns the bytes of `count` elements.
    pub fn bytes(&self) -> u64 {
        self.count * self.element.bytes()
    }

    /// Returns how many times `count` elements a rank of a communicator of `size` ranks reads and writes.
    fn buffer_counts(&self, size: u64, is_root: bool) -> (u64, u64) {
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

    /// Checks what one rank can check alone, and sets the lengths of the spans. A pointer that the operation does not
    /// use becomes an empty span.
    pub fn check(mut self, rank: u32, size: u32) -> Result<Operation> {
        if let Some(root_or_peer) = self.kind.root_or_peer()
            && root_or_peer >= size
        {
            return Err(invalid(format!("there is no rank {root_or_peer} among {size}")));
        }
        if self.kind.is_undefined_for(self.element) {
            return Err(Error::new(Status::NOT_SUPPORTED, format!("{} has no such reduction", self.element)));
        }
        let all = self.count.checked_mul(u64::from(size)).and_then(|count| count.checked_mul(self.element.bytes()));
        if all.is_none_or(|bytes| bytes >= 1 << 62) {
            return Err(invalid(format!("{} elements are more than there are addresses", self.count)));
        }
        let (reads, writes) = self.buffer_counts(size.into(), self.kind.root_or_peer() == Some(rank));
        self.from = self.checked(self.from, reads, "the memory that is read")?;
        self.to = self.checked(self.to, writes, "the memory that is written")?;
        if self.overlaps(rank) {
            return Err(invalid(
                "the memory that is read and the memory that is written overlap; use separate memory, or the same for an \
                 operation in place",
            ));
        }
        Ok(self)
    }

    /// Returns whether memory is read and written in another way than that of the operation in place.
    fn overlaps(&self, rank: u32) -> bool {
        let (from, to) = (self.from.address(), self.to.address());
        let own_part = u64::from(rank) * self.bytes();
        let is_in_place = match self.kind {
            Kind::AllGather => from == to + own_part,
            Kind::ReduceScatter { .. } => to == from + own_part,
            _ => from == to,
        };
        let end = |span: Span| span.address() + span.bytes() as u64;
        let is_shared = from < end(self.to) && to < end(self.from);
        is_shared && self.from.bytes() > 0 && self.to.bytes() > 0 && !is_in_place
    }

    fn checked(&self, span: Span, buffer_counts: u64, what: &str) -> Result<Span> {
        if buffer_counts == 0 || self.count == 0 {
            return Ok(span.with_length(0));
        }
        if span.address() == 0 {
            return Err(Error::new(Status::NULL_POINTER, format!("{what} is NULL")));
        }
        if !span.address().is_multiple_of(self.element.bytes()) {
            return Err(invalid(format!("{what}, at {:#x}, is not aligned to its {}", span.address(), self.element)));
        }
        let bytes = self.bytes() * buffer_counts;
        if span.address().checked_add(bytes).is_none() {
            return Err(invalid(format!("{what}, {bytes} bytes at {:#x}, ends beyond all addresses", span.address())));
        }
        Ok(span.with_length(bytes as usize))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::AllReduce { op } => write!(formatter, "all_reduce ({})", op.name()),
            Kind::Reduce { op, root } => write!(formatter, "reduce ({}) to rank {root}", op.name()),
            Kind::Broadcast { root } => write!(formatter, "broadcast from rank {root}"),
            Kind::AllGather => formatter.write_str("all_gather"),
            Kind::ReduceScatter { op } => write!(formatter, "reduce_scatter ({})", op.name()),
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
    fn bools_have_no_average_and_complex_numbers_no_order() {
        let all = |op| Kind::AllReduce { op };
        for element in [ElementType::Bool, ElementType::F16, ElementType::Complex64] {
            let has = |op: ReduceOp| {
                let one = all(op).is_undefined_for(element);
                assert_eq!(one, Kind::Reduce { op, root: 1 }.is_undefined_for(element));
                assert_eq!(one, Kind::ReduceScatter { op }.is_undefined_for(element));
                !one
            };
            assert!(has(ReduceOp::Sum) && has(ReduceOp::Product));
            assert_eq!(has(ReduceOp::Average), element != ElementType::Bool);
            assert_eq!(has(ReduceOp::Minimum), element != ElementType::Complex64);
            assert_eq!(has(ReduceOp::Maximum), element != ElementType::Complex64);
        }
        assert!(!Kind::AllGather.is_undefined_for(ElementType::Bool));
    }
}
