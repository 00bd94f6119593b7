//! Allocates from the driver's pools in stream order: torch's backend `cudaMallocAsync`.
//!
//! Each device's default pool is used, configured to keep freed memory and to allow every form of reuse. A block with
//! recorded streams is freed behind all of them, in a stream that is used for nothing else.
//!
//! In a capture an allocation becomes a node of the graph, and so does its free, if that is made in the same capture.
//! Otherwise the program has the memory after a launch of the graph, until it frees it or the graph is launched again.
//! Memory from before the capture is freed after it.

use super::{BackendRequest, Block, Freed, Owner, StreamUse, block_span, finish_free, later, registry};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::{
        Driver, MemoryPool, Stream, codes,
        memory_pool::{PoolBytes, REUSE},
        types::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    },
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, per_device::PerDevice},
    status::Status,
    stream::{
        self, capture_lock, capture_status,
        ordering::{OutsideCaptures, make_wait},
    },
};
use once_cell::sync::OnceCell;

/// The state of one device.
#[derive(Debug, Default)]
struct DevicePool {
    pool: OnceCell<MemoryPool>,
    /// The stream in which blocks with several streams are freed.
    join_stream: OnceCell<Stream>,
}

impl DevicePool {
    fn of(device: &Device) -> &'static DevicePool {
        static VALUES: PerDevice<DevicePool> = PerDevice::new();
        VALUES.of(device)
    }
}

/// Returns the device's pool, which the first call configures. The device's context must be current.
fn pool_of(runtime: &Runtime, device: &Device) -> Result<MemoryPool> {
    let pool = DevicePool::of(device).pool.get_or_try_init(|| {
        let driver = &runtime.driver;
        if driver.device_attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device.native)? == 0 {
            let what = format!(
                "device {} does not support memory pools, which the backend cudaMallocAsync requires",
                device.ordinal
            );
            return Err(Error::new(Status::NOT_SUPPORTED, what));
        }
        let pool = driver.default_memory_pool(device.native)?;
        driver.memory_pool_set(pool, PoolBytes::ReleaseThreshold, u64::MAX)?;
        for which in REUSE {
            driver.memory_pool_allow_reuse(pool, which)?;
        }
        let mut peers = Vec::new();
        for other in runtime.devices() {
            if other.ordinal != device.ordinal && driver.can_access_peer(other.native, device.native)? {
                peers.push(other.native);
            }
        }
        if !peers.is_empty() {
            driver.memory_pool_allow(pool, &peers)?;
        }
        Ok(pool)
    });
    pool.copied().map_err(|error: Error| error.context("setting up the driver's pool"))
}

pub(super) fn alloc(place: &BackendRequest, capture: Option<u64>) -> Result<Option<(u64, Owner)>> {
    let (driver, device, size) = (&place.runtime.driver, place.device, place.request.size);
    pool_of(place.runtime, device)?;
    if !place.hold(size)? {
        return Ok(None);
    }
    match driver.memory_alloc_async(size, place.stream) {
        Ok(address) => {
            device.memory().created.increment();
            device.memory().confirm_hold(size);
            registry::record_driver_alloc(device, size, size);
            Ok(Some((address, Owner::Async { capture })))
        }
        Err(failure) => {
            device.memory().cancel_hold(size);
            if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY {
                return Ok(None);
            }
            Err(Error::from(failure).context(format_args!("allocating {} in stream order", Bytes(size))))
        }
    }
}

/// Frees a block. `capture` is the ID of the capture in which it was allocated.
pub(super) fn free(runtime: &Runtime, device: &Device, address: u64, block: Block, capture: Option<u64>) -> Freed {
    let outside = OutsideCaptures::lock(runtime);
    let is_in_capture = |user: &StreamUse| {
        capture_status::capture_id(runtime, stream::of_use(runtime, *user)).is_ok_and(|id| id == capture)
    };
    if capture.is_some() && is_in_capture(&block.own) && block.uses.iter().all(is_in_capture) {
        // The streams cannot end while they capture.
        drop(outside);
        return free_in_capture(runtime, device, address, block);
    }
    if block.has_capturing_stream(runtime) {
        return later(address, block);
    }
    let free = |driver: &Driver| {
        let stream = if block.uses.is_empty() {
            stream::of_use(runtime, block.own).raw
        } else {
            join_streams(runtime, &outside, device, &block)?
        };
        let mut last = Ok(());
        retry(|| {
            last = driver.memory_free_async(block_span(address, block.size), stream);
            last
        });
        match last {
            // Without a launch of the graph there is no memory, and its address ends with the graph.
            Err(failure) if capture.is_some() && failure.code == codes::CUDA_ERROR_INVALID_VALUE => Ok(()),
            freed => Ok(freed?),
        }
    };
    // Another stream may be capturing.
    let freed = device.with_context(&runtime.driver, |driver| driver.with_relaxed_capture(|| free(driver))?);
    drop(outside);
    finish_free(device, block, freed, "freeing memory in stream order")
}

/// Frees a block in the capture that allocated it, after the work of all streams of the block.
fn free_in_capture(runtime: &Runtime, device: &Device, address: u64, block: Block) -> Freed {
    let own = stream::of_use(runtime, block.own);
    let ordered = block.uses.iter().try_for_each(|user| make_wait(runtime, own, stream::of_use(runtime, *user)));
    let freed = ordered.and_then(|()| {
        let _held = capture_lock::lock_shared();
        runtime.in_stream(own, |driver, raw| Ok(driver.memory_free_async(block_span(address, block.size), raw)?))
    });
    finish_free(device, block, freed, "freeing memory in a capture")
}

/// Returns a stream that is ordered after all streams of a block.
fn join_streams(runtime: &Runtime, outside: &OutsideCaptures, device: &Device, block: &Block) -> Result<Stream> {
    let join_stream = *DevicePool::of(device).join_stream.get_or_try_init(|| runtime.driver.stream_create(0))?;
    let waiting = stream::from_validated(runtime, join_stream, device.ordinal);
    for user in std::iter::once(&block.own).chain(&block.uses) {
        outside
            .make_wait(waiting, stream::of_use(runtime, *user))
            .context(|| "waiting for the streams that use a block")?;
    }
    Ok(join_stream)
}

/// Waits for the devices, unless a stream is capturing, and releases the free memory of their pools.
pub(super) fn empty(runtime: &Runtime) -> Result<()> {
    let mut outcome = Ok(());
    for device in runtime.devices() {
        let Some(pool) = DevicePool::of(device).pool.get() else { continue };
        // Without the wait, memory that is free by now is still released.
        let _ = capture_lock::synchronize_device(runtime, device);
        let trimmed = device.with_context(&runtime.driver, |driver| {
            driver.with_relaxed_capture(|| Ok(driver.memory_pool_trim(*pool, 0)?))?
        });
        outcome = outcome.and(trimmed.context(|| format!("releasing the free memory of device {}", device.ordinal)));
    }
    outcome
}

/// Returns the bytes that the pool has reserved, and the peak. `None` before the first use of the pool, or if the
/// driver does not report them.
pub(super) fn reserved_bytes(device: &Device, runtime: &Runtime) -> Option<(u64, u64)> {
    let pool = *DevicePool::of(device).pool.get()?;
    let driver = &runtime.driver;
    // A stream may be capturing.
    let of = |attribute| driver.with_relaxed_capture(|| driver.memory_pool_get(pool, attribute)).ok()?.ok();
    Some((of(PoolBytes::Reserved)?, of(PoolBytes::ReservedHigh)?))
}

/// Resets the peak of the bytes that the pool has reserved.
pub(super) fn reset_peak(device: &Device, runtime: &Runtime) {
    if let Some(pool) = DevicePool::of(device).pool.get() {
        let driver = &runtime.driver;
        // Failing to reset a peak is not an error.
        let _ = driver.with_relaxed_capture(|| driver.memory_pool_set(*pool, PoolBytes::ReservedHigh, 0));
    }
}
