//! Allocates each request directly from the driver. A free waits for all work of the device, so no stream can still
//! access the memory afterwards.

use super::{BackendRequest, Block, Freed, Owner, finish_free, registry};
use crate::{
    base::{retry::retry, units::Bytes},
    driver::codes,
    error::{Error, Result},
    runtime::{Runtime, device::Device},
};

pub(super) fn alloc(place: &BackendRequest) -> Result<Option<(u64, Owner)>> {
    let (memory, size) = (place.device.memory(), place.request.size);
    if !place.hold(size)? {
        return Ok(None);
    }
    match place.runtime.driver.segment_alloc(size) {
        Ok(segment) => {
            memory.created.increment();
            memory.confirm_hold(size);
            registry::record_driver_alloc(place.device, size, size);
            Ok(Some((segment.address(), Owner::Uncached(segment))))
        }
        Err(failure) => {
            memory.cancel_hold(size);
            if failure.code == codes::CUDA_ERROR_OUT_OF_MEMORY {
                return Ok(None);
            }
            Err(Error::from(failure).context(format_args!("allocating {}", Bytes(size))))
        }
    }
}

/// Frees a block.
pub(super) fn free(runtime: &Runtime, device: &Device, block: Block) -> Freed {
    let Owner::Uncached(segment) = block.owner else { return Ok(Ok(())) };
    let freed = device.with_context(&runtime.driver, |driver| {
        let mut last = Ok(());
        driver.with_relaxed_capture(|| {
            retry(|| {
                last = driver.segment_free(segment);
                last
            })
        })?;
        Ok(last?)
    });
    finish_free(device, block, freed, "freeing memory")
}
