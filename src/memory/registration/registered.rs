//! The blocks that are registered, and by what.

use crate::memory::block::BlockId;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The handles of the registrations of each block, by arena and block.
type Blocks = BTreeMap<(u32, BlockId), Vec<u64>>;
static BLOCKS: Mutex<Blocks> = Mutex::new(Blocks::new());
/// The number of registered blocks, for a check without the lock.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn has_any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

/// Adds a registration of a block.
pub(super) fn add(arena: u32, block: BlockId, handle: u64) {
    let mut blocks = BLOCKS.lock();
    blocks.entry((arena, block)).or_default().push(handle);
    COUNT.store(blocks.len(), Ordering::Release);
}

/// Removes a registration of a block. Returns whether it was there.
pub(super) fn remove(arena: u32, block: BlockId, handle: u64) -> bool {
    let mut blocks = BLOCKS.lock();
    let Some(handles) = blocks.get_mut(&(arena, block)) else { return false };
    let before = handles.len();
    handles.retain(|other| *other != handle);
    let removed = handles.len() < before;
    if handles.is_empty() {
        blocks.remove(&(arena, block));
    }
    COUNT.store(blocks.len(), Ordering::Release);
    removed
}

/// Returns whether a block is registered.
pub fn is_registered(arena: u32, block: BlockId) -> bool {
    has_any() && BLOCKS.lock().contains_key(&(arena, block))
}

/// Returns the number of registrations of a block.
pub fn count(arena: u32, block: BlockId) -> usize {
    BLOCKS.lock().get(&(arena, block)).map_or(0, Vec::len)
}

/// Returns the handles of the registrations in an arena.
pub fn in_arena(arena: u32) -> Vec<u64> {
    if !has_any() {
        return Vec::new();
    }
    BLOCKS.lock().range((arena, 0)..=(arena, BlockId::MAX)).flat_map(|(_, handles)| handles.clone()).collect()
}

/// Returns whether a block of an arena is registered.
pub fn has_registrations(arena: u32) -> bool {
    !in_arena(arena).is_empty()
}
