//! Groups: what a thread asks of communicators between a start and its end is given to the engines as one.
//!
//! One thread can so bring the parts of several ranks, and a rank can send and receive at once. The group is the thread's
//! own; groups within groups are part of the outermost. A call that is refused in a group refuses the group: without its part
//! the others would be waited for in vain.

use super::{Communicator, in_process_group::Asked, sticky_error::Trouble};
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
    /// How many items there were when each of the groups that are open began, the outermost first.
    starts: Vec<usize>,
    items: Vec<Item>,
    /// Why nothing of it is done: the first call in it that was refused.
    refusal: Option<Trouble>,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// Begins a group.
pub fn start() {
    GROUP.with_borrow_mut(|group| group.starts.push(group.items.len()));
}

/// Ends a group; what was asked in it is done now, unless it is part of another. If a call in it was refused, or in one that
/// it is part of, nothing is done, and each end says why.
pub fn end() -> Result<()> {
    let (items, refusal) = GROUP.with_borrow_mut(|group| {
        if group.starts.pop().is_none() {
            return Err(Error::new(Status::INVALID_VALUE, "a group ends that was not started in this thread"));
        }
        Ok(match group.starts.is_empty() {
            true => (std::mem::take(&mut group.items), group.refusal.take()),
            false => (Vec::new(), group.refusal.clone()),
        })
    })?;
    match refusal {
        Some(refusal) => Err(refusal.error().context("a call in the group was refused, and with it the group")),
        None => super::carry_out(items),
    }
}

/// Ends a group without what was asked in it. One that is part of another leaves that as it was before.
pub fn cancel() {
    let dropped = GROUP.with_borrow_mut(|group| {
        let start = group.starts.pop().unwrap_or(group.items.len());
        group.items.split_off(start)
    });
    // Not in the closure: communicators may end with their last mention.
    drop(dropped);
}

/// Makes a call that asks something of a communicator. If it is refused in a group, so is the group.
pub fn ask(call: impl FnOnce() -> Result<()>) -> Result<()> {
    call().inspect_err(|error| {
        GROUP.with_borrow_mut(|group| {
            if !group.starts.is_empty() {
                group.refusal.get_or_insert_with(|| error.into());
            }
        });
    })
}

/// Whether the thread is in a group.
pub fn is_open() -> bool {
    GROUP.with_borrow(|group| !group.starts.is_empty())
}

/// Does what is asked, or keeps it for the end of the group.
pub fn submit(item: Item) -> Result<()> {
    if is_open() {
        GROUP.with_borrow_mut(|group| group.items.push(item));
        return Ok(());
    }
    super::carry_out(vec![item])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_refuses_every_group_around_it_and_no_other() {
        let refused = || ask(|| Err(Error::new(Status::NULL_POINTER, "it is NULL").with_driver_code(7)));
        start();
        start();
        assert_eq!(refused().unwrap_err().message(), "it is NULL");
        assert!(ask(|| Err(Error::new(Status::INVALID_VALUE, "a later one"))).is_err());
        for _ in 0..2 {
            let error = end().unwrap_err();
            assert_eq!((error.status(), error.driver_code()), (Status::NULL_POINTER, 7));
            assert!(error.message().ends_with("the group: it is NULL"), "{error}");
        }
        assert_eq!(end().unwrap_err().message(), "a group ends that was not started in this thread");
        // Nor is a group refused for what was refused before it began.
        assert!(refused().is_err());
        start();
        assert!(end().is_ok() && !is_open());
    }
}
