//! The error message for insufficient memory: the request, where the memory is, and a remedy.
//!
//! torch's message gives advice for an allocator whose memory cannot move between segments. Here free physical memory
//! can be mapped where it is needed, so a request fails for one of a few reasons that the numbers distinguish, and the
//! advice follows from them.

use super::pool::PoolId;
use crate::base::units::Bytes;
use std::fmt;

/// The number of private pools to list individually; the smaller ones are summed up.
const MAX_LISTED_POOLS: usize = 8;

/// The memory of a private pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolShare {
    /// The first half of the pool's id.
    pub owner: u64,
    /// The second half.
    pub index: u64,
    /// The allocated bytes.
    pub allocated: u64,
    /// The bytes of physical memory that it holds.
    pub reserved: u64,
}

/// The budget of the request's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The maximum number of physical bytes of the pool on a device.
    pub bytes: u64,
    /// The pool.
    pub pool: PoolId,
    /// The physical bytes that it holds.
    pub reserved: u64,
}

/// The memory of a device at the time of a failed request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shortage {
    /// The ordinal of the device.
    pub device: u32,
    /// The requested bytes, before rounding.
    pub requested: u64,
    /// The total bytes of the device.
    pub total: u64,
    /// The free bytes of the device, as the driver reports them.
    pub free: u64,
    /// The process id.
    pub pid: u32,
    /// The physical bytes that the allocator holds on the device, including private pools.
    pub held: u64,
    /// The maximum number of bytes that it may hold, if a fraction is set.
    pub limit: Option<u64>,
    /// The allocated bytes, including private pools.
    pub allocated: u64,
    /// The bytes of freed blocks that a stream may still use.
    pub pending: u64,
    /// The size of the largest free block that could serve the request.
    pub largest_free: u64,
    /// The private pools.
    pub private_pools: Vec<PoolShare>,
    /// The number of earlier requests that succeeded only after the cache was emptied.
    pub retries: u64,
    /// Whether free physical memory can be mapped where it is needed.
    pub expandable: bool,
    /// The budget of the request's pool, if it has one.
    pub budget: Option<Budget>,
    /// Whether the request went to an allocator of the program, which returned NULL.
    pub external: bool,
}

impl Shortage {
    /// Returns the free bytes of the cache, including private pools.
    fn cached(&self) -> u64 {
        self.held.saturating_sub(self.allocated).saturating_sub(self.pending)
    }

    /// Returns the free bytes of private pools. Blocks that wait for streams are reported as pending.
    fn private_free(&self) -> u64 {
        let pools = self.private_pools.iter();
        pools.map(|pool| pool.reserved.saturating_sub(pool.allocated)).sum::<u64>().min(self.cached())
    }

    /// Returns the bytes of the device that plinth's allocator does not hold.
    fn used_by_others(&self) -> u64 {
        self.total.saturating_sub(self.free).saturating_sub(self.held)
    }

    fn write_pools(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.private_pools.is_empty() {
            return Ok(());
        }
        let mut pools = self.private_pools.clone();
        pools.sort_unstable_by_key(|pool| (std::cmp::Reverse(pool.reserved), pool.owner, pool.index));
        let reserved = |pools: &[PoolShare]| Bytes(pools.iter().map(|pool| pool.reserved).sum());
        write!(formatter, " Private pools hold {} of it:", reserved(&pools))?;
        for (number, pool) in pools.iter().take(MAX_LISTED_POOLS).enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let PoolShare { owner, index, allocated, reserved } = *pool;
            write!(formatter, "{comma} {{{owner}, {index}}} {} with {} in use", Bytes(reserved), Bytes(allocated))?;
        }
        if let Some(rest @ [_, ..]) = pools.get(MAX_LISTED_POOLS..) {
            write!(formatter, ", and {} more {} together", rest.len(), reserved(rest))?;
        }
        formatter.write_str(".")
    }

    /// Writes one piece of advice: the first remedy that would suffice by the numbers, otherwise where the memory is.
    fn write_advice(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requested = self.requested;
        if let Some(Budget { bytes, pool, reserved }) = self.budget
            && reserved.saturating_add(requested) > bytes
        {
            return write!(
                formatter,
                " The request went to pool {pool}, which has a budget of {} and holds {} of it; \
                 plinth_mem_pool_set_budget sets it.",
                Bytes(bytes),
                Bytes(reserved)
            );
        }
        if requested > self.total {
            return write!(formatter, " The request exceeds the total memory of the device; check the size.");
        }
        if let Some(limit) = self.limit
            && self.held.saturating_add(requested) > limit
            && (requested > limit || self.free >= requested)
        {
            return write!(
                formatter,
                " The request exceeds the limit, not the device; plinth_set_per_process_memory_fraction sets the limit."
            );
        }
        if self.external {
            return write!(
                formatter,
                " The request went to the program's own allocator, which returned NULL; the cause is in that allocator."
            );
        }
        let private_free = self.private_free();
        let shared = self.cached() - private_free;
        let reach = |more: u64| self.free.saturating_add(more) >= requested;
        if !self.expandable && reach(shared) {
            return write!(
                formatter,
                " Enough memory is free, but fragmented: remove expandable_segments:False from PLINTH_ALLOC_CONF, so \
                 that free memory can be combined."
            );
        }
        if reach(self.pending) && self.pending > 0 {
            return write!(
                formatter,
                " Freed memory that waits for streams would suffice: wait for the work of the streams that were \
                 passed to plinth_record_stream, and end a capture that prevents queries of them."
            );
        }
        if reach(shared) {
            return write!(
                formatter,
                " The free memory of the cache is fragmented by live blocks and cannot be moved: free those blocks, \
                 or allocate long-lived memory first."
            );
        }
        if private_free > 0 && reach(private_free.saturating_add(shared)) {
            return write!(
                formatter,
                " Free memory of private pools would suffice: release unused pools, or let the default pool use them \
                 with plinth_mem_pool_set_use_on_oom."
            );
        }
        if self.used_by_others() > self.held {
            return write!(
                formatter,
                " Most memory of the device is held outside of plinth; nvidia-smi lists the processes. Use a device \
                 with more free memory, or a smaller request."
            );
        }
        write!(formatter, " Too little of what plinth holds is free: free some memory, or allocate less at a time.")
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { device, requested, pid, .. } = *self;
        write!(formatter, "out of memory: tried to allocate {}", Bytes(requested))?;
        if requested >= 1 << 10 {
            write!(formatter, " ({requested} bytes)")?;
        }
        write!(formatter, " on device {device}, which has {}, {} of it free.", Bytes(self.total), Bytes(self.free))?;
        write!(formatter, " This process ({pid}) holds {} through plinth's allocator", Bytes(self.held))?;
        if let Some(limit) = self.limit {
            write!(formatter, " and may hold {}", Bytes(limit))?;
        }
        write!(
            formatter,
            "; other processes, and other libraries in this one, have {}. Of what plinth holds, {} are in use",
            Bytes(self.used_by_others()),
            Bytes(self.allocated)
        )?;
        if self.pending > 0 {
            write!(formatter, ", {} are freed but may be in use by a stream", Bytes(self.pending))?;
        }
        write!(formatter, ", and {} are free", Bytes(self.cached()))?;
        if self.cached() > 0 {
            write!(formatter, ", {} of them in one run", Bytes(self.largest_free))?;
        }
        formatter.write_str(".")?;
        self.write_pools(formatter)?;
        if self.retries > 0 {
            let times = if self.retries == 1 { "once".to_string() } else { format!("{} times", self.retries) };
            write!(formatter, " The cache was emptied {times} before, for requests that then succeeded.")?;
        }
        self.write_advice(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn pool(index: u64, allocated: u64, reserved: u64) -> PoolShare {
        PoolShare { owner: 0, index, allocated, reserved }
    }

    /// Returns a device that is nearly full of allocated memory.
    fn full() -> Shortage {
        Shortage {
            device: 1,
            requested: 6 * GIB + 1,
            total: 140 * GIB,
            free: 300 * MIB,
            pid: 4711,
            held: 130 * GIB,
            allocated: 129 * GIB,
            largest_free: 640 * MIB,
            expandable: true,
            ..Shortage::default()
        }
    }

    #[test]
    fn message_states_the_memory_figures() {
        assert_eq!(
            full().to_string(),
            "out of memory: tried to allocate 6.00 GiB (6442450945 bytes) on device 1, which has 140.00 GiB, \
             300.00 MiB of it free. This process (4711) holds 130.00 GiB through plinth's allocator; other processes, \
             and other libraries in this one, have 9.71 GiB. Of what plinth holds, 129.00 GiB are in use, and 1.00 GiB \
             are free, 640.00 MiB of them in one run. Too little of what plinth holds is free: free some \
             memory, or allocate less at a time."
        );
    }

    #[test]
    fn message_states_limit_streams_pools_and_retries() {
        let shortage = Shortage {
            limit: Some(131 * GIB),
            pending: 512 * MIB,
            private_pools: vec![pool(1, GIB, GIB), pool(2, 3 * GIB, 3 * GIB + 256 * MIB)],
            retries: 2,
            ..full()
        };
        let text = shortage.to_string();
        for part in [
            "holds 130.00 GiB through plinth's allocator and may hold 131.00 GiB; other",
            "129.00 GiB are in use, 512.00 MiB are freed but may be in use by a stream, and 512.00 MiB are free, ",
            " Private pools hold 4.25 GiB of it: {0, 2} 3.25 GiB with 3.00 GiB in use, {0, 1} 1.00 GiB with 1.00 GiB \
             in use. The cache was emptied 2 times before, ",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn many_pools_are_summed_up() {
        let private_pools = (0..11).map(|index| pool(index, 0, (11 - index) * MIB)).collect();
        let text = Shortage { private_pools, ..full() }.to_string();
        assert!(text.contains("hold 66.00 MiB of it: {0, 0} 11.00 MiB with 0 bytes in use, "), "{text}");
        assert!(text.contains("{0, 7} 4.00 MiB with 0 bytes in use, and 3 more 6.00 MiB together."), "{text}");
    }

    #[test]
    fn advice_matches_the_figures() {
        let cases = [
            (
                Shortage { budget: Some(Budget { bytes: GIB, pool: PoolId::new(0, 7), reserved: GIB }), ..full() },
                "The request went to pool (0, 7), which has a budget of 1.00 GiB and holds 1.00 GiB of it",
            ),
            (
                Shortage { requested: u64::MAX, limit: Some(GIB), ..full() },
                "The request exceeds the total memory of the device",
            ),
            (
                Shortage { limit: Some(132 * GIB), free: 7 * GIB, ..full() },
                "The request exceeds the limit, not the device",
            ),
            (
                Shortage { limit: Some(5 * GIB), held: 0, allocated: 0, ..full() },
                "The request exceeds the limit, not the device",
            ),
            (
                Shortage { allocated: 120 * GIB, free: 9 * GIB, external: true, ..full() },
                "The request went to the program's own allocator, which returned NULL",
            ),
            (Shortage { allocated: 120 * GIB, expandable: false, ..full() }, "Enough memory is free, but fragmented"),
            (Shortage { allocated: 120 * GIB, pending: 8 * GIB, ..full() }, "Freed memory that waits for streams"),
            (
                Shortage { allocated: 120 * GIB, private_pools: vec![pool(1, 0, 9 * GIB)], ..full() },
                "Free memory of private pools would suffice",
            ),
            (
                Shortage { allocated: 120 * GIB, private_pools: vec![pool(1, 0, GIB)], ..full() },
                "The free memory of the cache is fragmented",
            ),
            (Shortage { allocated: 120 * GIB, ..full() }, "The free memory of the cache is fragmented"),
            (Shortage { held: GIB, allocated: GIB, ..full() }, "Most memory of the device is held outside of plinth"),
            (full(), "Too little of what plinth holds is free"),
        ];
        for (shortage, expected) in cases {
            let text = shortage.to_string();
            assert!(text.contains(expected), "{expected}\n{text}");
        }
    }

    #[test]
    fn inconsistent_figures_are_formatted() {
        let shortage =
            Shortage { requested: 7, held: 1, allocated: 9, pending: 9, total: 3, free: 8, ..Shortage::default() };
        let text = shortage.to_string();
        assert!(
            text.starts_with("out of memory: tried to allocate 7 bytes on device 0, which has 3 bytes, "),
            "{text}"
        );
    }
}
