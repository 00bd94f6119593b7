//! The table of captured stacks: it stores each distinct stack once and numbers it.

use super::symbols::{self, Frame};
use once_cell::sync::Lazy;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// The number of a call stack; 0 means no stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct StackId(pub u32);

impl StackId {
    /// No stack.
    pub const NONE: StackId = StackId(0);
}

#[derive(Default)]
struct Table {
    numbers: HashMap<Arc<[u64]>, u32>,
    stacks: Vec<Arc<[u64]>>,
    /// The frames of each stack that was symbolized before, by number.
    symbolized: HashMap<u32, Arc<[Frame]>>,
}

static TABLE: Lazy<Mutex<Table>> = Lazy::new(Mutex::default);

/// Returns the number of a stack of return addresses, innermost first. Adds the stack if it is new.
#[cold]
pub(super) fn number(addresses: &[u64]) -> StackId {
    let mut table = TABLE.lock();
    if let Some(number) = table.numbers.get(addresses) {
        return StackId(*number);
    }
    let stack: Arc<[u64]> = addresses.into();
    // When the numbers are used up, further stacks are not recorded.
    let Ok(number) = u32::try_from(table.stacks.len() + 1) else { return StackId::NONE };
    table.stacks.push(stack.clone());
    table.numbers.insert(stack, number);
    StackId(number)
}

/// Returns the functions of a call stack, innermost first; none for stack 0 or an unknown number.
pub fn frames(stack: StackId) -> Arc<[Frame]> {
    let addresses = {
        let table = TABLE.lock();
        if let Some(frames) = table.symbolized.get(&stack.0) {
            return frames.clone();
        }
        let Some(index) = (stack.0 as usize).checked_sub(1) else { return Arc::new([]) };
        let Some(addresses) = table.stacks.get(index) else { return Arc::new([]) };
        addresses.clone()
    };
    // The lock is released, because this reads files and other threads capture stacks meanwhile.
    let frames = symbols::symbolize(&addresses);
    TABLE.lock().symbolized.insert(stack.0, frames.clone());
    frames
}

/// Returns the return addresses of a stack.
#[cfg(test)]
pub(super) fn addresses(stack: StackId) -> Arc<[u64]> {
    let table = TABLE.lock();
    (stack.0 as usize).checked_sub(1).and_then(|index| table.stacks.get(index)).cloned().unwrap_or_else(|| Arc::new([]))
}
