//! Allocates and releases pinned memory: from the driver, as registered pages of the process, or from a reserve that
//! is pinned once.

use super::{
    slab_cache::{Origin, PinnedMemory},
    stats,
};
use crate::{
    base::units::Bytes,
    driver::{Driver, Pages, Span, types::CU_MEMHOSTREGISTER_PORTABLE},
    error::{Context, Error, Result},
    memory::config::Config,
    runtime::Runtime,
    status::Status,
};
use parking_lot::Mutex;
use std::time::Instant;

/// Pinned memory that is handed out from its start, and never released.
struct Reserve {
    next: u64,
    end: u64,
}

static RESERVE: Mutex<Option<Reserve>> = Mutex::new(None);

/// Allocates pinned memory. `bytes` is a multiple of the page size.
pub fn allocate(runtime: &Runtime, config: &Config, bytes: u64) -> Result<PinnedMemory> {
    if config.pinned_reserve_segment_size_mb > 0
        && let Some(memory) = allocate_from_reserve(runtime, config, bytes)?
    {
        return Ok(memory);
    }
    pin(runtime, config, bytes)
}

/// Allocates from the reserve, which the first call pins. Returns `None` if too little of it is left.
fn allocate_from_reserve(runtime: &Runtime, config: &Config, bytes: u64) -> Result<Option<PinnedMemory>> {
    let mut reserve = RESERVE.lock();
    let reserve = match &mut *reserve {
        Some(reserve) => reserve,
        none => {
            let size = config.pinned_reserve_segment_size_mb.saturating_mul(1 << 20);
            let memory = pin(runtime, config, size).context(|| {
                format!("pinning the reserve of {}, the value of pinned_reserve_segment_size_mb", Bytes(size))
            })?;
            none.insert(Reserve { next: memory.address, end: memory.address + memory.bytes })
        }
    };
    if bytes > reserve.end - reserve.next {
        return Ok(None);
    }
    let address = reserve.next;
    reserve.next += bytes;
    Ok(Some(PinnedMemory { address, bytes, origin: Origin::Reserve }))
}

fn pin(runtime: &Runtime, config: &Config, bytes: u64) -> Result<PinnedMemory> {
    let length = usize::try_from(bytes)
        .map_err(|_| Error::new(Status::OUT_OF_MEMORY, "the size is larger than the address space"))?;
    let started = Instant::now();
    let memory = runtime.current_device()?.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            if config.pinned_use_cuda_host_register {
                return register(driver, length, config.pinned_num_register_threads);
            }
            let address = driver.pinned_alloc(length)?;
            Ok(PinnedMemory { address, bytes, origin: Origin::Driver })
        })?
    })?;
    stats::record_driver_alloc(bytes, started.elapsed());
    Ok(memory)
}

/// Registers anonymous pages of the process, after `threads` threads have touched them. If the driver pins memory with
/// one thread, this faults the pages in faster.
fn register(driver: &Driver, bytes: usize, threads: u32) -> Result<PinnedMemory> {
    let pages = Pages::map(bytes).ok_or_else(|| Error::new(Status::OUT_OF_MEMORY, "the system is out of memory"))?;
    pages.touch(threads);
    let span = pages.span();
    driver.host_register(span, CU_MEMHOSTREGISTER_PORTABLE)?;
    pages.keep();
    Ok(PinnedMemory { address: span.address(), bytes: bytes as u64, origin: Origin::Registered })
}

/// Releases memory of [`allocate`] that is no longer used.
pub fn release(runtime: &Runtime, memory: &PinnedMemory) -> Result<()> {
    if memory.origin == Origin::Reserve {
        return Ok(());
    }
    let started = Instant::now();
    // SAFETY: the memory was allocated with this size, and the caller's last use of it is over.
    #[allow(unsafe_code)]
    let span = unsafe { Span::new(memory.address, memory.bytes as usize) };
    runtime.in_any_context(|driver| {
        Ok(driver.with_relaxed_capture(|| match memory.origin {
            Origin::Registered => driver.host_unregister(span).inspect(|()| Pages::of(span).unmap()),
            Origin::Driver | Origin::Reserve => driver.pinned_free(span),
        })??)
    })?;
    stats::record_driver_free(memory.bytes, started.elapsed());
    Ok(())
}
