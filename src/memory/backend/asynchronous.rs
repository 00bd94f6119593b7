//! The driver's own pools, which allocate and free in stream order: torch's backend cudaMallocAsync.
//!
//! Each device's default pool is used, told to keep what is freed and to use it again in every way that it knows. A block that
//! other streams were recorded on is freed behind all of them, in a stream that does nothing else.

use super::{Block, Owner, Place, later, registry};
use crate::{
    base::units::Bytes,
    driver::{
        Driver, MemoryPool, Span, Stream, codes,
        memory_pool::{PoolBytes, REUSE},
        types::{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_EVENT_WAIT_DEFAULT},
    },
    error::{Context, Error, Result},
    memory::{device_memory::device as device_of, stream_events::insist},
    runtime::{Runtime, device::Device},
    status::Status,
    stream::{capture_lock, event_pool},
};
use once_cell::sync::OnceCell;

/// What is kept for each device.
#[derive(Debug, Default)]
pub struct DevicePool {
    pool: OnceCell<MemoryPool>,
    /// The stream that blocks are freed in which several streams used.
    joint: OnceCell<Stream>,
}

/// The device's pool, set up by now at the latest. The device's context is current.
fn pool_of(runtime: &Runtime, device: &Device) -> Result<MemoryPool> {
    let pool = device.memory.driver_pool.pool.get_or_try_init(|| {
        let driver = &runtime.driver;
        if driver.device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device.native)? == 0 {
            let what = format!("device {} has no pools to allocate from in stream order", device.ordinal);
            return Err(Error::new(Status::NOT_SUPPORTED, what));
        }
        let pool = driver.default_memory_pool(device.native)?;
        driver.memory_pool_set(pool, PoolBytes::ReleaseThreshold, u64::MAX)?;
        for which in REUSE {
            driver.memory_pool_allow_reuse(pool, which)?;
        }
        let mut readers = Vec::new();
        for other in runtime.devices() {
            if other.ordinal != device.ordinal && driver.can_access_peer(other.native, device.native)? {
                readers.push(other.native);
            }
        }
        if !readers.is_empty() {
            driver.memory_pool_allow(pool, &readers)?;
        }
        Ok(pool)
    });
    pool.copied().map_err(|error: Error| error.context("setting up the driver's pool"))
}

pub(super) fn alloc(place: &Place) -> Result<Option<(u64, Owner)>> {
    let (driver, device, size) = (&place.runtime.driver, place.device, place.request.size);
    pool_of(place.runtime, device)?;
    if !place.hold(size)? {
        return Ok(None);
    }
    match driver.memory_alloc_async(size, place.stream) {
        Ok(address) => {
            device.memory.created.one();
            registry::note_held(device, size, size);
            Ok(Some((address, Owner::Async)))
        }
        Err(failure) => {
            device.memory.never_held(size);
            if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY {
                return Ok(None);
            }
            Err(Error::from(failure).context(format_args!("allocating {} in stream order", Bytes(size))))
        }
    }
}

pub(super) fn free(runtime: &Runtime, device: &Device, address: u64, block: Block) -> Result<()> {
    let held = capture_lock::lock_shared();
    if block.waits_for_a_capture(runtime) {
        return later(address, block);
    }
    let freed = device.with_context(&runtime.driver, |driver| {
        let stream = if block.uses.is_empty() { block.own.stand_in() } else { join(runtime, device, driver, &block)? };
        let mut last = Ok(());
        insist(|| {
            last = driver.memory_free_async(Span::owned(address, block.size as usize), stream);
            last
        });
        Ok(last?)
    });
    drop(held);
    match freed {
        Ok(()) => {
            registry::note_released(device, block.size, block.size);
            Ok(())
        }
        Err(error) => {
            registry::put_back(address, block, device);
            Err(error.context("freeing memory in stream order"))
        }
    }
}

/// A stream that comes after all streams of a block.
fn join(runtime: &Runtime, device: &Device, driver: &Driver, block: &Block) -> Result<Stream> {
    let joint = *device.memory.driver_pool.joint.get_or_try_init(|| driver.stream_create(0))?;
    for wanted in std::iter::once(&block.own).chain(&block.uses) {
        event_pool::with(runtime, wanted.device, |event| {
            // An event is recorded in its own device's context, and waited for from any.
            device_of(runtime, wanted.device)?
                .with_context(driver, |driver| Ok(driver.event_record(event, wanted.stand_in())?))?;
            Ok(driver.stream_wait_event(joint, event, CU_EVENT_WAIT_DEFAULT)?)
        })
        .context(|| "waiting for the streams that use a block")?;
    }
    Ok(joint)
}

/// Waits for the devices, unless a stream captures, and lets their pools give back what is free.
pub(super) fn empty(runtime: &Runtime) -> Result<()> {
    let mut outcome = Ok(());
    for device in runtime.devices() {
        let Some(pool) = device.memory.driver_pool.pool.get() else { continue };
        let trimmed = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| {
                // To wait for a device makes every capture on it invalid, whosever it is and in whatever mode. What is free
                // by now goes all the same.
                if !capture_lock::is_any_capturing() {
                    let _ = driver.context_synchronize();
                }
                Ok(driver.memory_pool_trim(*pool, 0)?)
            })?
        });
        outcome = outcome.and(trimmed.context(|| format!("giving back the free memory of device {}", device.ordinal)));
    }
    outcome
}

/// What the pool holds, and the most that it held. `None` before it was used, or where the driver does not tell.
pub(super) fn held(device: &Device, runtime: &Runtime) -> Option<(u64, u64)> {
    let pool = *device.memory.driver_pool.pool.get()?;
    let of = |attribute| runtime.driver.memory_pool_get(pool, attribute).ok();
    Some((of(PoolBytes::Reserved)?, of(PoolBytes::ReservedHigh)?))
}

/// Lets the peak of what the pool holds begin again.
pub(super) fn reset_peak(device: &Device, runtime: &Runtime) {
    if let Some(pool) = device.memory.driver_pool.pool.get() {
        // A peak that cannot be reset is no reason to fail.
        let _ = runtime.driver.memory_pool_set(*pool, PoolBytes::ReservedHigh, 0);
    }
}
