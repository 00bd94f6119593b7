//! The stacks that were met: each once, under a number.

use super::symbols::{self, Frame};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

/// The number of a call stack; 0 is none.
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
    /// What was read already, by number.
    told: HashMap<u32, Arc<[Frame]>>,
}

static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();

fn table() -> &'static Mutex<Table> {
    TABLE.get_or_init(Mutex::default)
}

/// The number of a stack of return addresses, the innermost first.
#[cold]
pub(super) fn number(addresses: &[u64]) -> StackId {
    let mut table = table().lock();
    if let Some(number) = table.numbers.get(addresses) {
        return StackId(*number);
    }
    let stack: Arc<[u64]> = addresses.into();
    // As many as numbers: what comes after them has no stack.
    let Ok(number) = u32::try_from(table.stacks.len() + 1) else { return StackId::NONE };
    table.stacks.push(stack.clone());
    table.numbers.insert(stack, number);
    StackId(number)
}

/// The functions of a call stack, innermost first; none for the stack 0, and none for a number that no stack has.
pub fn frames(stack: StackId) -> Arc<[Frame]> {
    let addresses = {
        let table = table().lock();
        if let Some(told) = table.told.get(&stack.0) {
            return told.clone();
        }
        let Some(index) = (stack.0 as usize).checked_sub(1) else { return Arc::new([]) };
        let Some(addresses) = table.stacks.get(index) else { return Arc::new([]) };
        addresses.clone()
    };
    // Without the lock: files are read, and others take stacks meanwhile.
    let told = symbols::tell(&addresses);
    table().lock().told.insert(stack.0, told.clone());
    told
}

/// The return addresses of a stack.
#[cfg(test)]
pub(super) fn addresses(stack: StackId) -> Arc<[u64]> {
    let table = table().lock();
    (stack.0 as usize).checked_sub(1).and_then(|index| table.stacks.get(index)).cloned().unwrap_or_else(|| Arc::new([]))
}
