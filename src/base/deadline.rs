//! Polling with a deadline, for conditions that have no blocking call or that may never become true.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Polls that follow each other without a sleep, since most conditions become true soon.
const UNPAUSED_POLLS: u32 = 200;
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The time limit of a wait, with the state of its backoff.
pub struct Deadline {
    start: Instant,
    limit: Duration,
    polls: u32,
}

impl Deadline {
    /// Creates a deadline `limit` from now.
    pub fn new(limit: Duration) -> Deadline {
        Deadline { start: Instant::now(), limit, polls: 0 }
    }

    /// Returns the end of the wait; `None` if no `Instant` can represent it.
    pub fn end(&self) -> Option<Instant> {
        self.start.checked_add(self.limit)
    }

    /// Returns the time that remains.
    pub fn remaining(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// Returns the same deadline with its backoff reset, for the next wait within the same limit.
    pub fn with_reset_backoff(&self) -> Deadline {
        Deadline { start: self.start, limit: self.limit, polls: 0 }
    }

    /// Returns whether the deadline has passed.
    pub fn is_expired(&self) -> bool {
        self.start.elapsed() >= self.limit
    }

    /// Pauses before the next poll: only yields at first, then sleeps longer and longer.
    pub fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        if self.polls <= UNPAUSED_POLLS {
            std::thread::yield_now();
            return;
        }
        let pause = Duration::from_micros(20).saturating_mul(self.polls - UNPAUSED_POLLS).min(MAX_PAUSE);
        std::thread::sleep(pause.min(self.limit.saturating_sub(self.start.elapsed())));
    }

    /// Returns the error of a wait that timed out; `what` is the first part of the message.
    #[cold]
    pub fn error(&self, what: impl fmt::Display) -> Error {
        Error::new(Status::TIMED_OUT, format!("{what} for {:.3} s, which is the limit", self.limit.as_secs_f64()))
    }

    /// Polls `poll` until it returns a value; `what` is the first part of the message of a timeout.
    pub fn until<T, D: fmt::Display>(
        mut self,
        what: impl FnOnce() -> D,
        mut poll: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            if let Some(found) = poll()? {
                return Ok(found);
            }
            if self.is_expired() {
                return Err(self.error(what()));
            }
            self.pause();
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
}
