//! The end of a stream: everything that the library keeps for it goes to its successor.

use crate::{
    error::Result,
    memory,
    ops::blas,
    runtime::{self, device::Device},
    stream::{self, lifetime},
};
pub use lifetime::End;

/// Ends a stream of the caller; see [`lifetime::end`].
pub fn end(handle: usize, end: End) -> Result<()> {
    // In a forked child or an exiting process the operating system reclaims the driver's objects.
    let Some(runtime) = runtime::usable() else { return Ok(()) };
    let stream = lifetime::owned(runtime, handle, end)?;
    let is_used_on = |device: &Device| memory::has_memory_of(device, handle);
    lifetime::end(runtime, stream, end, is_used_on, |device, successor| memory::hand_over(device, stream, successor))?;
    blas::drop_workspaces_of_ended(runtime);
    runtime.devices().iter().for_each(|device| memory::retire_ended(runtime, device));
    Ok(())
}

/// Ends an external stream that its owner is about to destroy. The stream need not be registered if memory was allocated
/// for it.
///
/// # Errors
/// `INVALID_HANDLE` for a handle that the library has never met, because that may not be a stream.
pub fn unregister(stream: crate::driver::Stream) -> Result<()> {
    if let Some(runtime) = runtime::usable()
        && stream::resolve(runtime, stream.handle()).is_err()
        && runtime.devices().iter().any(|device| memory::has_memory_of(device, stream.handle()))
    {
        stream::from_unchecked(stream)?;
    }
    end(stream.handle(), End::Unregister)
}
