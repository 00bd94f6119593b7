//! The texts of history entries: the tag of the thread and the name of the block.

use crate::runtime::thread::DroppedInCall;
use std::{cell::RefCell, sync::Arc};

/// The texts of a history entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// The tag of the thread.
    pub tag: Option<Arc<str>>,
    /// The name of the block.
    pub name: Option<Arc<str>>,
}

thread_local! {
    static TAG: DroppedInCall<RefCell<Option<Arc<str>>>> = const { DroppedInCall::new(RefCell::new(None)) };
}

/// Returns the calling thread's tag, if it has one.
#[inline]
pub fn current() -> Option<Arc<str>> {
    // At the end of a thread its variables may be gone already.
    TAG.try_with(|tag| tag.borrow().clone()).ok().flatten()
}

/// Sets the calling thread's tag; an empty text removes it.
pub fn set(text: &str) {
    let new = Some(text).filter(|text| !text.is_empty()).map(Arc::from);
    let _ = TAG.try_with(|tag| *tag.borrow_mut() = new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_its_own_tag() {
        set("one");
        std::thread::spawn(|| {
            assert_eq!(current(), None);
            set("two");
        })
        .join()
        .unwrap();
        assert_eq!(current().as_deref(), Some("one"));
        set("");
        assert_eq!(current(), None);
    }
}
