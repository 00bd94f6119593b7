//! Groups: what a thread asks of communicators between a start and its end is given to the engines as one.
//!
//! One thread can so bring the parts of several ranks, and a rank can send and receive at once. The group is the thread's
//! own; groups within groups are part of the outermost.

use super::{Communicator, team::Asked};
use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{cell::RefCell, sync::Arc};

/// Takes the handle of a part of a split, 0 where there is none for the rank.
pub type Deliver = Box<dyn FnOnce(u64)>;

/// What is asked of a communicator.
pub struct Item {
    /// The communicator.
    pub communicator: Arc<Communicator>,
    /// What.
    pub asked: Asked,
    /// Who takes the part, if this is a split.
    pub deliver: Option<Deliver>,
}

#[derive(Default)]
struct Group {
    depth: u32,
    items: Vec<Item>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group.
pub fn start() {
    GROUP.with_borrow_mut(|group| group.depth += 1);
}

/// Ends a group; what was asked in it is done now, unless it is part of another.
pub fn end() -> Result<()> {
    let items = GROUP.with_borrow_mut(|group| {
        group.depth = group
            .depth
            .checked_sub(1)
            .ok_or_else(|| Error::new(Status::INVALID_VALUE, "a group ends that was not started in this thread"))?;
        Ok::<_, Error>(if group.depth == 0 { std::mem::take(&mut group.items) } else { Vec::new() })
    })?;
    super::carry_out(items)
}

/// Ends a group without what was asked in it. One that is part of another leaves that as it is, with what was asked so far.
pub fn cancel() {
    GROUP.with_borrow_mut(|group| {
        group.depth = group.depth.saturating_sub(1);
        if group.depth == 0 {
            group.items.clear();
        }
    });
}

/// Whether the thread is in a group.
pub fn is_open() -> bool {
    GROUP.with_borrow(|group| group.depth > 0)
}

/// Does what is asked, or keeps it for the end of the group.
pub fn submit(item: Item) -> Result<()> {
    if is_open() {
        GROUP.with_borrow_mut(|group| group.items.push(item));
        return Ok(());
    }
    super::carry_out(vec![item])
}
