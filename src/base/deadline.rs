//! Polling with a deadline, for conditions that have no blocking call or that may never become true.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Polls that follow each other at once, since most conditions become true soon, and on a busy machine a thread that yields
/// waits for others.
const SPINNING_POLLS: u32 = 50;
/// Polls that follow each other without a sleep.
const UNPAUSED_POLLS: u32 = 200;
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The interval at which a wait that blocks polls the condition of [`Deadline::unless`].
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// The time limit of a wait, and optionally a condition that ends it early.
#[derive(Clone, Copy)]
pub struct Deadline<'a> {
    start: Instant,
    limit: Duration,
    stop: Option<&'a dyn Fn() -> bool>,
}

impl<'a> Deadline<'a> {
    /// Creates a deadline `limit` from now.
    pub fn new(limit: Duration) -> Deadline<'a> {
        Deadline { start: Instant::now(), limit, stop: None }
    }

    /// Creates a deadline `limit` from now; `None` never expires.
    pub fn optional(limit: Option<Duration>) -> Deadline<'a> {
        Deadline::new(limit.unwrap_or(Duration::MAX))
    }

    /// Adds a condition that ends waits early, as if the deadline had passed.
    pub fn unless(self, stop: &'a dyn Fn() -> bool) -> Deadline<'a> {
        Deadline { stop: Some(stop), ..self }
    }

    /// Returns the limit; `None` if the deadline never expires.
    pub fn limit(&self) -> Option<Duration> {
        (self.limit != Duration::MAX).then_some(self.limit)
    }

    /// Returns the end of the wait; `None` if no `Instant` can represent it.
    pub fn end(&self) -> Option<Instant> {
        self.start.checked_add(self.limit)
    }

    /// Returns the time since the deadline was created.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the time that remains.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// Returns how long a call may block before the caller must check [`is_expired`](Deadline::is_expired).
    pub fn blocking_interval(&self) -> Duration {
        if self.stop.is_some() { self.remaining().min(STOP_INTERVAL) } else { self.remaining() }
    }

    /// Returns whether the deadline has passed or the condition holds.
    pub fn is_expired(&self) -> bool {
        self.stop.is_some_and(|stop| stop()) || self.start.elapsed() >= self.limit
    }

    /// Returns the error of a wait that timed out; `what` is the first part of the message.
    #[cold]
    pub fn error(&self, what: impl fmt::Display) -> Error {
        Error::new(Status::TIMED_OUT, format!("{what} for {:.3} s, which is the limit", self.limit.as_secs_f64()))
    }

    /// Polls `poll` until it returns a value; `what` is the first part of the message of a timeout. Spins between the
    /// first polls, then yields, then sleeps longer and longer.
    pub fn until<T, D: fmt::Display>(
        &self,
        what: impl FnOnce() -> D,
        mut poll: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut polls = 0_u32;
        loop {
            if let Some(found) = poll()? {
                return Ok(found);
            }
            if self.is_expired() {
                return Err(self.error(what()));
            }
            polls = polls.saturating_add(1);
            if polls <= SPINNING_POLLS {
                std::hint::spin_loop();
            } else if polls <= UNPAUSED_POLLS {
                std::thread::yield_now();
            } else {
                let pause = Duration::from_micros(20).saturating_mul(polls - UNPAUSED_POLLS).min(MAX_PAUSE);
                std::thread::sleep(pause.min(self.remaining()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_ends_with_a_value_or_a_timeout() {
        let mut polls = 0;
        let found = Deadline::new(Duration::from_secs(5)).until(
            || "waited",
            || {
                polls += 1;
                Ok((polls == 300).then_some(polls))
            },
        );
        assert_eq!(found.unwrap(), 300);
        let start = Instant::now();
        let error = Deadline::new(Duration::from_millis(20)).until(|| "it waited", || Ok(None::<()>)).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert_eq!(error.message(), "it waited for 0.020 s, which is the limit");
        assert!(start.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn a_condition_ends_a_wait_without_a_limit() {
        let start = Instant::now();
        let stop = || start.elapsed() >= Duration::from_millis(20);
        let deadline = Deadline::optional(None).unless(&stop);
        assert_eq!((deadline.limit(), deadline.end()), (None, None));
        assert_eq!(deadline.blocking_interval(), STOP_INTERVAL);
        assert!(!deadline.is_expired());
        assert_eq!(deadline.until(|| "it waited", || Ok(None::<()>)).unwrap_err().status(), Status::TIMED_OUT);
        assert!(deadline.is_expired());
        assert!(Deadline::optional(None).blocking_interval() > Duration::from_secs(1 << 40));
    }
}
