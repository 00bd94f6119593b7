//! Where pinned memory comes from and goes back to: the driver, the process's own pages, or a reserve that was pinned once.

use super::{
    slab_cache::{Origin, Piece},
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

/// A piece of memory that is cut up from its beginning, and never goes back.
struct Reserve {
    next: u64,
    end: u64,
}

static RESERVE: Mutex<Option<Reserve>> = Mutex::new(None);

/// Pins so many bytes, whole pages.
pub fn get(runtime: &Runtime, config: &Config, bytes: u64) -> Result<Piece> {
    if config.pinned_reserve_segment_size_mb > 0
        && let Some(piece) = of_reserve(runtime, config, bytes)?
    {
        return Ok(piece);
    }
    pin(runtime, config, bytes)
}

/// A part of the reserve, which is pinned now if it was not before; `None` if too little of it is left.
fn of_reserve(runtime: &Runtime, config: &Config, bytes: u64) -> Result<Option<Piece>> {
    let mut reserve = RESERVE.lock();
    let reserve = match &mut *reserve {
        Some(reserve) => reserve,
        none => {
            let size = config.pinned_reserve_segment_size_mb.saturating_mul(1 << 20);
            let whole = pin(runtime, config, size).context(|| {
                format!("pinning the reserve of {}, which pinned_reserve_segment_size_mb asks for", Bytes(size))
            })?;
            none.insert(Reserve { next: whole.address, end: whole.address + whole.bytes })
        }
    };
    if bytes > reserve.end - reserve.next {
        return Ok(None);
    }
    let address = reserve.next;
    reserve.next += bytes;
    Ok(Some(Piece { address, bytes, origin: Origin::Reserve }))
}

fn pin(runtime: &Runtime, config: &Config, bytes: u64) -> Result<Piece> {
    let length =
        usize::try_from(bytes).map_err(|_| Error::new(Status::OUT_OF_MEMORY, "more than there are addresses"))?;
    let started = Instant::now();
    let piece = runtime.current_device()?.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| {
            if config.pinned_use_cuda_host_register {
                return register(driver, length, config.pinned_num_register_threads);
            }
            let address = driver.pinned_alloc(length)?;
            Ok(Piece { address, bytes, origin: Origin::Driver })
        })?
    })?;
    stats::came(bytes, started.elapsed());
    Ok(piece)
}

/// Pages of the process's own, each touched by one of so many threads, and registered: for a driver that pins memory
/// with one thread, this brings the pages in faster.
fn register(driver: &Driver, bytes: usize, threads: u32) -> Result<Piece> {
    let pages =
        Pages::map(bytes).ok_or_else(|| Error::new(Status::OUT_OF_MEMORY, "the system has no such memory left"))?;
    pages.touch(threads);
    let span = pages.span();
    driver.host_register(span, CU_MEMHOSTREGISTER_PORTABLE)?;
    pages.keep();
    Ok(Piece { address: span.address(), bytes: bytes as u64, origin: Origin::Registered })
}

/// Gives memory back that [`get`] gave, and that nothing uses.
pub fn give_back(runtime: &Runtime, piece: &Piece) -> Result<()> {
    if piece.origin == Origin::Reserve {
        return Ok(());
    }
    let started = Instant::now();
    let span = Span::owned(piece.address, piece.bytes as usize);
    runtime.in_any_context(|driver| {
        Ok(driver.with_relaxed_capture(|| match piece.origin {
            Origin::Registered => driver.host_unregister(span).inspect(|()| Pages::of(span).unmap()),
            Origin::Driver | Origin::Reserve => driver.pinned_free(span),
        })??)
    })?;
    stats::went(piece.bytes, started.elapsed());
    Ok(())
}
