//! The page through which the processes that share a device ask each other for memory.
//!
//! Each process has a slot of counters. Amounts are in MiB. A process asks another one by adding to `WANTED` and then to
//! `REQUESTS`; the other one copies `REQUESTS` to `ACCEPTED` when it begins to answer, and to `ANSWERED` when it is done.

use crate::{
    driver::{
        shared_page::{self, SharedPage},
        slot_file::{self, SlotFile},
        user,
    },
    error::{Error, Result},
    status::Status,
};
use std::{
    fmt::Write,
    io,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The most processes that share a device.
pub const SLOTS: usize = 64;
/// Counters of a slot: a cache line.
const STRIDE: usize = 16;

/// The serial number of the last request to the process.
const REQUESTS: usize = 0;
/// The serial number of the last request that the process has answered.
const ANSWERED: usize = 1;
/// What others want.
const WANTED: usize = 2;
/// What the process holds.
const HELD: usize = 3;
/// What it is not asked for.
const FLOOR: usize = 4;
/// When the process last needed more memory, in units of 16 ms.
const GREW: usize = 5;
/// The serial number of the last request that the process has begun to answer.
const ACCEPTED: usize = 6;

/// How long a wait lasts before it checks whether the other process still lives.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// This process's place in the page of a device.
pub struct Page {
    slots: SlotFile,
    page: SharedPage,
}

/// What a process has published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its slot.
    pub slot: usize,
    /// The bytes that it holds.
    pub held: u64,
    /// The bytes that it is not asked for.
    pub floor: u64,
    grew: u32,
}

fn to_mib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX)
}

fn from_mib(mib: u32) -> u64 {
    u64::from(mib) << 20
}

/// Returns the time in units of 16 ms, which is compared between processes of one machine.
fn now() -> u32 {
    (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() / 16) as u32
}

impl Page {
    /// Joins the processes of this user that share a device, or a part of them with a name.
    pub fn join(uuid: [u8; 16], name: &str) -> Result<Page> {
        let mut file = format!("plinth-share-{}-", user::effective());
        uuid.iter().for_each(|byte| {
            // Writing to a string cannot fail.
            let _ = write!(file, "{byte:02x}");
        });
        if !name.is_empty() {
            file += "-";
            file += name;
        }
        let path = slot_file::path_of(&file);
        let joined = || -> io::Result<Page> {
            let slots = SlotFile::join(path.clone(), SLOTS as u64)?;
            let page = SharedPage::map(slots.file(), SLOTS * STRIDE).inspect_err(|_| slots.leave())?;
            Ok(Page { slots, page })
        };
        let joined = joined().map_err(|error| {
            let what = format!("sharing the memory of a device: {} cannot be used: {error}", path.display());
            Error::new(Status::SYSTEM, what)
        })?;
        // An earlier owner of the slot may have left requests, which nobody waits for any more.
        joined.own(WANTED).store(0, Ordering::Release);
        for counter in [ACCEPTED, ANSWERED] {
            joined.own(counter).store(joined.own(REQUESTS).load(Ordering::Acquire), Ordering::Release);
        }
        joined.note_growth();
        Ok(joined)
    }

    fn counter(&self, slot: usize, which: usize) -> &AtomicU32 {
        &self.page.counters()[slot * STRIDE + which]
    }

    fn own(&self, which: usize) -> &AtomicU32 {
        self.counter(self.slots.slot() as usize, which)
    }

    /// Returns whether this is the process that joined, and not a child that it forked.
    pub fn is_own(&self) -> bool {
        self.slots.is_own()
    }

    /// Leaves the processes.
    pub fn leave(&self) {
        self.publish(0, 0);
        self.slots.leave();
    }

    /// Publishes what this process holds and is not asked for.
    pub fn publish(&self, held: u64, floor: u64) {
        self.own(HELD).store(to_mib(held), Ordering::Release);
        self.own(FLOOR).store(to_mib(floor), Ordering::Release);
    }

    /// Publishes that this process needed more memory now.
    pub fn note_growth(&self) {
        self.own(GREW).store(now(), Ordering::Release);
    }

    /// Returns what the other processes have published, those that needed no more memory for the longest time first.
    pub fn others(&self) -> Vec<Published> {
        let own = self.slots.slot() as usize;
        let taken = (0..SLOTS).filter(|slot| *slot != own && self.slots.is_taken(*slot as u64));
        let read = |slot, which| self.counter(slot, which).load(Ordering::Acquire);
        let mut found: Vec<Published> = taken
            .map(|slot| Published {
                slot,
                held: from_mib(read(slot, HELD)),
                floor: from_mib(read(slot, FLOOR)),
                grew: read(slot, GREW),
            })
            .collect();
        let present = now();
        found.sort_by_cached_key(|other| u64::from(u32::MAX - present.wrapping_sub(other.grew)));
        found
    }

    /// Asks another process for memory, and waits until it has answered or ended: for at most `limit` until it begins to
    /// answer, then for at most `answer_limit`, both from now. Returns whether it has answered.
    pub fn ask(&self, slot: usize, bytes: u64, limit: Duration, answer_limit: Duration) -> bool {
        self.counter(slot, WANTED).fetch_max(to_mib(bytes), Ordering::AcqRel);
        let serial = self.counter(slot, REQUESTS).fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        shared_page::wake(self.counter(slot, REQUESTS));
        let (start, answered) = (Instant::now(), self.counter(slot, ANSWERED));
        let includes = |seen: u32| seen.wrapping_sub(serial) as i32 >= 0;
        loop {
            let seen = answered.load(Ordering::Acquire);
            if includes(seen) {
                return true;
            }
            let is_accepted = includes(self.counter(slot, ACCEPTED).load(Ordering::Acquire));
            let limit = if is_accepted { answer_limit } else { limit };
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() || !self.slots.is_taken(slot as u64) {
                return false;
            }
            shared_page::wait(answered, seen, left.min(CHECK_INTERVAL));
        }
    }

    /// Waits for a request to this process for at most `limit`.
    pub fn await_request(&self, limit: Duration) {
        let seen = self.own(ANSWERED).load(Ordering::Acquire);
        if self.own(REQUESTS).load(Ordering::Acquire) == seen {
            shared_page::wait(self.own(REQUESTS), seen, limit);
        }
    }

    /// Ends the waits of [`await_request`](Self::await_request).
    pub fn wake_own(&self) {
        self.own(REQUESTS).fetch_add(1, Ordering::AcqRel);
        shared_page::wake(self.own(REQUESTS));
    }

    /// Calls `give` with the bytes that others want, if there are requests, and answers these.
    pub fn answer(&self, give: impl FnOnce(u64)) {
        let requests = self.own(REQUESTS).load(Ordering::Acquire);
        if requests == self.own(ANSWERED).load(Ordering::Acquire) {
            return;
        }
        self.own(ACCEPTED).store(requests, Ordering::Release);
        let wanted = from_mib(self.own(WANTED).swap(0, Ordering::AcqRel));
        if wanted > 0 {
            give(wanted);
        }
        self.own(ANSWERED).store(requests, Ordering::Release);
        shared_page::wake(self.own(ANSWERED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up() {
        assert_eq!((to_mib(0), to_mib(1), to_mib(1 << 20), to_mib(u64::MAX)), (0, 1, 1, u32::MAX));
        assert_eq!(from_mib(to_mib(5 << 30)), 5 << 30);
    }
}
