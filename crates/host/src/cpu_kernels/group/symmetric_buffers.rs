//! The symmetric buffers of a group, and waits for what other ranks write into them.

use crate::{
    driver::{
        codes,
        group::{
            ENTRIES, GroupInfo, LANES, MAX_RANKS, REGISTRATION_ROW_BYTES, REGISTRATION_ROWS, Reason, ReportPage,
            offsets, read_place,
        },
        table::Code,
    },
    kernels::Launch,
};
use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The group has failed. The launch ends, and the reason was reported.
pub struct GroupFailed;

/// What a rank says of a call, so that ranks that do not call for the same find out.
pub type Header = [u64; 4];

/// The symmetric buffers of a group, all of which this launch may access.
pub struct SymmetricBuffers<'a> {
    /// The group, with the addresses of the buffers.
    pub group_info: &'a GroupInfo,
}

impl SymmetricBuffers<'_> {
    /// Checks that a launch may access the buffers, and the report.
    pub fn of<'a>(launch: &Launch, group_info: &'a GroupInfo) -> Result<SymmetricBuffers<'a>, Code> {
        let size = group_info.size as usize;
        let staging_end = offsets::STAGING + u64::from(group_info.size) * 2 * u64::from(group_info.slot);
        let ring = u64::from(group_info.size * group_info.lanes * ENTRIES) * u64::from(group_info.entry);
        if size > MAX_RANKS
            || group_info.lanes > LANES
            || group_info.rank >= group_info.size
            || group_info.buffer_bytes < staging_end + ring
        {
            return Err(codes::CUDA_ERROR_INVALID_VALUE);
        }
        for buffer in &group_info.buffers[..size] {
            launch.memory(*buffer, group_info.buffer_bytes, true)?;
        }
        launch.memory(group_info.report, size_of::<ReportPage>() as u64, true)?;
        Ok(SymmetricBuffers { group_info })
    }

    /// Returns a word of a rank's buffer.
    pub fn word32(&self, rank: u32, at: u64) -> &AtomicU32 {
        let address = self.group_info.buffers[rank as usize] + at;
        // SAFETY: the address is in a buffer that `of` found accessible, at a multiple of 4; all ranks use it as an
        // atomic.
        unsafe { AtomicU32::from_ptr(address as *mut u32) }
    }

    /// Returns a number in a rank's buffer.
    pub fn word64(&self, rank: u32, at: u64) -> &AtomicU64 {
        let address = self.group_info.buffers[rank as usize] + at;
        // SAFETY: as above, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(address as *mut u64) }
    }

    /// Returns the page on which this rank reports why the group has failed.
    pub fn report(&self) -> &ReportPage {
        // SAFETY: `of` found the report accessible; all accesses to its fields are atomic.
        unsafe { &*(self.group_info.report as *const ReportPage) }
    }

    /// Returns the slot of a rank in the buffer of another, for even or for odd steps.
    pub fn slot(&self, at: u32, step: u64, from: u32) -> *mut u8 {
        let index = (step & 1) * u64::from(self.group_info.size) + u64::from(from);
        (self.group_info.buffers[at as usize] + offsets::STAGING + index * u64::from(self.group_info.slot)) as *mut u8
    }

    /// Returns the address in this process of a place in the registered memory of a rank.
    pub fn find_place(&self, place: u64, rank: u32) -> Option<u64> {
        let (number, offset) = read_place(place)?;
        let row = offsets::REGISTRATIONS + number % REGISTRATION_ROWS * REGISTRATION_ROW_BYTES;
        let word = |index: u64| self.word64(self.group_info.rank, row + index * 8).load(Ordering::Relaxed);
        (word(0) == number).then(|| word(1 + u64::from(rank)) + offset)
    }

    /// Marks the group as failed. The first call reports its reason and notifies the other ranks. No call returns before the report is
    /// complete: a launch that ends without one counts as a success.
    pub fn fail(&self, word: u32, by: u32, headers: Option<(&Header, &Header)>) {
        let failed = self.word32(self.group_info.rank, offsets::FAILED);
        if failed.load(Ordering::Acquire) != 0 {
            return;
        }
        let reporting = self.word32(self.group_info.rank, offsets::REPORTING);
        if reporting.compare_exchange(0, word, Ordering::AcqRel, Ordering::Acquire).is_err() {
            while failed.load(Ordering::Acquire) == 0 {
                std::thread::yield_now();
            }
            return;
        }
        let report = self.report();
        report.by.store(by, Ordering::Relaxed);
        if let Some((own, other)) = headers {
            for index in 0..4 {
                report.own[index].store(own[index], Ordering::Relaxed);
                report.other[index].store(other[index], Ordering::Relaxed);
            }
        }
        report.word.store(word, Ordering::Release);
        failed.store(word, Ordering::Release);
        for peer in (0..self.group_info.size).filter(|peer| *peer != self.group_info.rank) {
            self.word32(peer, offsets::PEER_FAILED + u64::from(self.group_info.rank) * 4)
                .store(word, Ordering::Release);
        }
    }

    /// Fails if the group has failed, here or at another rank. Otherwise data that arrived before its rank failed
    /// would let this rank continue without it.
    pub fn check(&self) -> Result<(), GroupFailed> {
        let group_info = self.group_info;
        let peer_failed = |rank: &u32| {
            self.word32(group_info.rank, offsets::PEER_FAILED + u64::from(*rank) * 4).load(Ordering::Acquire)
        };
        if let Some(rank) = (0..group_info.size).find(|rank| peer_failed(rank) != 0) {
            self.fail(peer_failed(&rank), rank, None);
        }
        if self.word32(group_info.rank, offsets::FAILED).load(Ordering::Acquire) != 0 {
            Err(GroupFailed)
        } else {
            Ok(())
        }
    }

    /// Fails if a wait for `peer` since `start` must end: by a failure of the group, a stop request or the timeout.
    pub fn check_wait(&self, start: Instant, peer: u32) -> Result<(), GroupFailed> {
        self.check()?;
        let group_info = self.group_info;
        let mut word = self.report().stop.load(Ordering::Acquire);
        if word == 0 && group_info.timeout != 0 && start.elapsed() > Duration::from_nanos(group_info.timeout) {
            word = Reason::Timeout.word(peer);
        }
        if word == 0 {
            return Ok(());
        }
        self.fail(word, group_info.rank, None);
        Err(GroupFailed)
    }

    /// Waits until a number that `peer` writes is at least `value`.
    pub fn wait(&self, number: &AtomicU64, value: u64, peer: u32) -> Result<(), GroupFailed> {
        let mut backoff = Backoff::new();
        while number.load(Ordering::Acquire) < value {
            backoff.pause(|start| self.check_wait(start, peer))?;
        }
        Ok(())
    }

    /// Writes a header into a rank's buffer.
    pub fn write_header(&self, rank: u32, at: u64, header: &Header) {
        for (index, word) in header.iter().enumerate() {
            self.word64(rank, at + index as u64 * 8).store(*word, Ordering::Relaxed);
        }
    }

    /// Fails the group if another rank's header differs.
    pub fn compare(&self, at: u64, header: &Header, peer: u32) -> Result<(), GroupFailed> {
        let other = std::array::from_fn(|index| {
            self.word64(self.group_info.rank, at + index as u64 * 8).load(Ordering::Relaxed)
        });
        if other == *header {
            return Ok(());
        }
        self.fail(Reason::Mismatch.word(peer), self.group_info.rank, Some((header, &other)));
        Err(GroupFailed)
    }
}

/// Backoff of a waiting thread: it spins, then yields, then sleeps for short intervals.
pub struct Backoff {
    pauses: u32,
    start: Option<Instant>,
}

impl Backoff {
    /// Begins a wait.
    pub fn new() -> Backoff {
        Backoff { pauses: 0, start: None }
    }

    /// Lets other threads run. When the wait is long, checks with its start whether it must end.
    pub fn pause(&mut self, check: impl FnOnce(Instant) -> Result<(), GroupFailed>) -> Result<(), GroupFailed> {
        self.pauses += 1;
        match self.pauses {
            0..32 => std::hint::spin_loop(),
            32..128 => std::thread::yield_now(),
            _ => {
                check(*self.start.get_or_insert_with(Instant::now))?;
                std::thread::sleep(Duration::from_micros(40));
            }
        }
        Ok(())
    }
}

/// Copies between a program's memory and a symmetric buffer, or from one program's memory to that of another, or the same.
///
/// # Safety
///
/// The launch may read so many bytes at `from`, and write them at `to`.
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: u64) {
    // SAFETY: as the caller guarantees; the ranges may overlap.
    unsafe { std::ptr::copy(from, to, bytes as usize) };
}
