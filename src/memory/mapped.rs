//! What is mapped at an address of an arena.

use crate::driver::{Physical, Segment};

/// A mapping: one handle, mapped whole, or one allocation of the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Its bytes.
    pub bytes: u64,
    /// What is behind it.
    pub backing: Backing,
}

impl Backing {
    /// Whether the memory came with its address, and goes with it.
    pub fn is_whole(self) -> bool {
        matches!(self, Backing::Segment(_) | Backing::Lent)
    }
}

/// What is behind a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backing {
    /// A handle, which is mapped here and nowhere else.
    Handle(Physical),
    /// A handle that has another address already; this one goes as soon as the device is done with it.
    Moved,
    /// Nothing, for now: the pool sleeps.
    Asleep,
    /// Memory that the driver allocated with its address, where it cannot do otherwise.
    Segment(Segment),
    /// Memory that an allocator of the program's gave with its address.
    Lent,
}
