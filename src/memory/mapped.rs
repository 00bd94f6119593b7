//! Mappings: the memory behind an arena's addresses.

use crate::driver::{Physical, Segment};

/// A mapping: one complete handle, or one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// The size in bytes.
    pub bytes: u64,
    /// The memory behind the addresses.
    pub backing: Backing,
}

impl Backing {
    /// Returns whether the memory was allocated together with its address.
    pub fn is_segment(self) -> bool {
        matches!(self, Backing::Segment(_) | Backing::External)
    }
}

/// The memory behind a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A handle that is mapped only here.
    Handle(Physical),
    /// A handle that is already mapped elsewhere. This mapping stays until its addresses are needed or the handle is released.
    Moved,
    /// No memory, because the pool is suspended.
    Suspended,
    /// Memory that the driver allocated with its address, if mapping is not supported.
    Segment(Segment),
    /// Memory that an allocator of the program allocated with its address.
    External,
}
