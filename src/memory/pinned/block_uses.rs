//! What is recorded of the uses of pinned blocks. A shard has those of its blocks; [`uses`](super::uses) records and
//! ends them.

use crate::{driver::number_map::NumberMap, memory::arena::StreamUse};

/// The uses of a block.
#[derive(Debug, Default)]
pub struct BlockUses {
    /// The streams whose work uses the block.
    pub streams: Vec<StreamUse>,
    /// The captures whose graphs use the block.
    pub graphs: Vec<u64>,
    /// Whether the block was freed.
    pub freed: bool,
    /// Whether the free is deferred until events of streams have completed.
    pub waits_for_streams: bool,
}

impl BlockUses {
    /// Returns whether the block was freed and nothing uses it any more.
    pub fn is_over(&self) -> bool {
        self.freed && !self.waits_for_streams && self.graphs.is_empty()
    }
}

/// The uses of blocks, by the block's start address.
pub type UsesByBlock = NumberMap<BlockUses>;
