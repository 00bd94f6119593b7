//! Streams that begin to capture while somebody else looks at them.
//!
//! To ask whether a stream's work is done makes a capture in it invalid, whichever thread asks and in whatever mode. What is
//! recorded in it, or waits there for something, becomes a part of the capture or makes it invalid, too. The allocator and
//! the replays have to do with streams of other threads, so they ask first whether such a stream captures, which disturbs
//! nothing, and from the question to the last call [`hold_off`] what would make the answer wrong: a capture that begins,
//! and a stream that becomes part of one since it waits for it.
//!
//! Captures that a program begins by the driver's own calls cannot be held off.

use crate::error::Result;
use parking_lot::{RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Many may look at streams at once; whoever lets a stream capture is alone. Nobody takes it twice.
static LOOKING: RwLock<()> = RwLock::new(());
/// How many captures go on that were begun here.
static GOING_ON: AtomicUsize = AtomicUsize::new(0);

/// Whether a stream may be capturing by a call of this library's.
#[inline]
pub fn any() -> bool {
    GOING_ON.load(Ordering::Relaxed) != 0
}

/// While this lives, a stream that does not capture will not. For a few calls of the driver's that do not wait.
#[must_use = "captures may begin again as soon as it is dropped"]
pub fn hold_off() -> RwLockReadGuard<'static, ()> {
    LOOKING.read()
}

/// Begins a capture by `body`, while nobody looks at its stream.
pub fn begin(body: impl FnOnce() -> Result<()>) -> Result<()> {
    let _alone = LOOKING.write();
    body()?;
    GOING_ON.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Notes that a capture has ended.
pub fn end() {
    GOING_ON.fetch_sub(1, Ordering::Relaxed);
}

/// Lets a stream wait by `body` for what may be a part of a capture, which it joins then, while nobody looks at it.
#[inline]
pub fn join<T>(body: impl FnOnce() -> T) -> T {
    if any() { join_alone(body) } else { body() }
}

#[cold]
fn join_alone<T>(body: impl FnOnce() -> T) -> T {
    let _alone = LOOKING.write();
    body()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::Error, status::Status};
    use std::{sync::atomic::AtomicBool, thread, time::Duration};

    /// Whether `deed`, in a thread of its own, is put off while somebody looks, and done afterwards.
    fn is_put_off(deed: impl FnOnce() + Send) -> bool {
        let done = AtomicBool::new(false);
        let mut early = true;
        thread::scope(|scope| {
            let held = hold_off();
            scope.spawn(|| {
                deed();
                done.store(true, Ordering::Release);
            });
            thread::sleep(Duration::from_millis(50));
            early = done.load(Ordering::Acquire);
            drop(held);
        });
        !early && done.into_inner()
    }

    #[test]
    fn no_stream_comes_into_a_capture_while_somebody_looks() {
        let refused = begin(|| Err(Error::new(Status::INVALID_VALUE, "refused")));
        assert_eq!(refused.unwrap_err().status(), Status::INVALID_VALUE);
        assert!(!any());
        assert!(is_put_off(|| begin(|| Ok(())).unwrap()));
        assert!(any());
        assert!(is_put_off(|| join(|| ())));
        end();
        assert!(!any());
    }
}
