//! Group calls (`ncclGroupStart`/`ncclGroupEnd`): the requests of a thread between start and end are submitted to the
//! engines together.
//!
//! With a group, one thread can submit the requests of several ranks, and a rank can send and receive concurrently. A
//! group belongs to its thread; nested groups are part of the outermost group. A request that fails in a group fails
//! the whole group: without that request the other ranks would wait until their deadline.

use super::{
    Communicator,
    execute::{execute, execute_alone},
    in_process_group::Request,
    sticky_error::StickyError,
};
use crate::{
    error::{Error, Result},
    runtime::thread::DroppedInCall,
    status::Status,
};
use std::{cell::RefCell, sync::Arc};

/// Receives the handle of the new communicator of a split or a shrink, or 0 if the rank has none.
pub type Deliver = Box<dyn FnOnce(u64)>;

/// A request to a communicator.
pub struct Item {
    /// The communicator.
    pub communicator: Arc<Communicator>,
    /// The request.
    pub request: Request,
    /// Receives the new communicator, if this is a split or a shrink.
    pub deliver: Option<Deliver>,
}

/// What an open group found when it began.
struct Start {
    /// The number of items.
    items: usize,
    /// Whether a request of an enclosing group had failed.
    failed: bool,
}

#[derive(Default)]
struct Group {
    /// The open groups, the outermost first.
    starts: Vec<Start>,
    items: Vec<Item>,
    /// The first error of a request in the group; if there is one, the group is not executed.
    first_error: Option<StickyError>,
}

thread_local! {
    static GROUP: DroppedInCall<RefCell<Group>> = DroppedInCall::new(RefCell::default());
}

fn with_group<T>(body: impl FnOnce(&mut Group) -> T) -> T {
    GROUP.with(|group| body(&mut group.borrow_mut()))
}

/// Begins a group.
pub fn start() {
    with_group(|group| {
        let start = Start { items: group.items.len(), failed: group.first_error.is_some() };
        group.starts.push(start);
    });
}

/// Ends a group. The outermost end executes the requests. If a request in the group or in an enclosing one failed,
/// nothing is executed, and every end returns that error.
pub fn end() -> Result<()> {
    let (items, first_error) = with_group(|group| {
        if group.starts.pop().is_none() {
            return Err(not_open());
        }
        Ok(match group.starts.is_empty() {
            true => (std::mem::take(&mut group.items), group.first_error.take()),
            false => (Vec::new(), group.first_error.clone()),
        })
    })?;
    match first_error {
        Some(first_error) => Err(first_error.error().context("a call in the group was refused, and with it the group")),
        None => execute(items),
    }
}

/// Cancels a group and discards its requests and their error. An enclosing group remains as it was before.
pub fn cancel() -> Result<()> {
    let discarded = with_group(|group| {
        let Some(start) = group.starts.pop() else { return Err(not_open()) };
        let error = if start.failed { None } else { group.first_error.take() };
        Ok((group.items.split_off(start.items), error))
    });
    // Drop outside of the closure: this may drop the last references to communicators.
    discarded.map(drop)
}

#[cold]
fn not_open() -> Error {
    Error::new(Status::INVALID_VALUE, "a group ends that was not started in this thread")
}

/// Runs a call that submits a request. If it fails inside a group, the group fails.
pub fn run_request(call: impl FnOnce() -> Result<()>) -> Result<()> {
    call().inspect_err(|error| {
        with_group(|group| {
            if !group.starts.is_empty() {
                group.first_error.get_or_insert_with(|| error.into());
            }
        });
    })
}

/// Returns whether the thread is in a group.
fn is_open() -> bool {
    with_group(|group| !group.starts.is_empty())
}

/// Fails with `why` if the thread is in a group.
pub fn check_closed(why: &str) -> Result<()> {
    if is_open() { Err(Error::new(Status::INVALID_VALUE, why)) } else { Ok(()) }
}

/// Executes a request, or defers it to the end of the group.
pub fn submit(item: Item) -> Result<()> {
    if is_open() {
        with_group(|group| group.items.push(item));
        return Ok(());
    }
    execute_alone(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_request_fails_all_enclosing_groups_only() {
        let refused = || run_request(|| Err(Error::new(Status::NULL_POINTER, "it is NULL").with_driver_code(7)));
        start();
        start();
        assert_eq!(refused().unwrap_err().message(), "it is NULL");
        assert!(run_request(|| Err(Error::new(Status::INVALID_VALUE, "a later one"))).is_err());
        for _ in 0..2 {
            let error = end().unwrap_err();
            assert_eq!((error.status(), error.driver_code()), (Status::NULL_POINTER, 7));
            assert!(error.message().ends_with("the group: it is NULL"), "{error}");
        }
        assert_eq!(end().unwrap_err().message(), "a group ends that was not started in this thread");
        // A group is not affected by errors before its start.
        assert!(refused().is_err());
        start();
        assert!(end().is_ok() && !is_open());
    }

    #[test]
    fn a_cancelled_group_takes_its_own_error_with_it() {
        let refused = || run_request(|| Err(Error::new(Status::NULL_POINTER, "it is NULL")));
        assert_eq!(cancel().unwrap_err().status(), Status::INVALID_VALUE);
        start();
        start();
        assert!(refused().is_err() && cancel().is_ok() && is_open());
        assert!(end().is_ok() && !is_open());
        start();
        assert!(refused().is_err());
        start();
        assert!(refused().is_err() && cancel().is_ok());
        assert_eq!(end().unwrap_err().status(), Status::NULL_POINTER);
        start();
        assert!(refused().is_err() && cancel().is_ok());
        start();
        assert!(end().is_ok() && !is_open());
    }
}
