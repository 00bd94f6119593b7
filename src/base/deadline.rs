//! Waiting with an end: for what has no call of its own that waits, and for what may never come.

use crate::{
    error::{Error, Result},
    status::Status,
};
use std::{
    fmt,
    time::{Duration, Instant},
};

/// Looks that are taken without a pause between them, since most of what is waited for is nearly there.
const EAGER: u32 = 200;
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A wait, and when it ends at the latest.
pub struct Patience {
    start: Instant,
    limit: Duration,
    looks: u32,
}

impl Patience {
    /// A wait of at most `limit`, from now on.
    pub fn new(limit: Duration) -> Patience {
        Patience { start: Instant::now(), limit, looks: 0 }
    }

    /// When it ends; `None` if that is past all time.
    pub fn end(&self) -> Option<Instant> {
        self.start.checked_add(self.limit)
    }

    /// How long it still lasts.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.start.elapsed())
    }

    /// A wait for the rest of this one.
    pub fn rest(&self) -> Patience {
        Patience { start: self.start, limit: self.limit, looks: 0 }
    }

    /// Whether it is at its end.
    pub fn is_over(&self) -> bool {
        self.start.elapsed() >= self.limit
    }

    /// Pauses before the next look: not at all at first, then longer and longer.
    pub fn pause(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= EAGER {
            std::thread::yield_now();
            return;
        }
        let pause = Duration::from_micros(20).saturating_mul(self.looks - EAGER).min(LONGEST_PAUSE);
        std::thread::sleep(pause.min(self.limit.saturating_sub(self.start.elapsed())));
    }

    /// The error of a wait that ended without what it was for.
    #[cold]
    pub fn error(&self, what: impl fmt::Display) -> Error {
        Error::new(Status::TIMED_OUT, format!("{what} for {:.3} s, which is the limit", self.limit.as_secs_f64()))
    }

    /// Looks until `look` finds something; `what` says who waited for what.
    pub fn until<T, D: fmt::Display>(
        mut self,
        what: impl FnOnce() -> D,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.is_over() {
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
    fn a_wait_ends_with_what_it_is_for_or_with_its_time() {
        let mut looks = 0;
        let found = Patience::new(Duration::from_secs(5)).until(
            || "waited",
            || {
                looks += 1;
                Ok((looks == 300).then_some(looks))
            },
        );
        assert_eq!(found.unwrap(), 300);
        let start = Instant::now();
        let error = Patience::new(Duration::from_millis(20)).until(|| "it waited", || Ok(None::<()>)).unwrap_err();
        assert_eq!(error.status(), Status::TIMED_OUT);
        assert_eq!(error.message(), "it waited for 0.020 s, which is the limit");
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
