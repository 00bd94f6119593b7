//! cuSOLVER handles: one for each thread and device, bound to the thread's current stream.

use crate::{
    driver::cusolver::{self, Handle},
    error::{Context, Result},
    runtime::{
        self,
        handle_pool::{HandlePool, ThreadHandles, thread_ending_error},
        thread::DroppedInCall,
    },
    stream,
};

static HANDLES: HandlePool<Handle> = HandlePool::new();

thread_local! {
    static THREAD_HANDLES: DroppedInCall<ThreadHandles<Handle>> =
        const { DroppedInCall::new(ThreadHandles::new(&HANDLES, |_| {})) };
}

/// Returns the thread's handle for its current device, bound to its current stream.
pub fn current_handle() -> Result<usize> {
    let runtime = runtime::ready()?;
    let library = cusolver::LIBRARY.get_for(&runtime.driver)?;
    let device = runtime.current_device()?;
    let stream = stream::current_on(runtime, device.ordinal)?;
    device.with_context(&runtime.driver, |driver| {
        let make = || {
            let made = driver.with_relaxed_capture(|| library.create())?;
            made.context(|| format!("making a handle of cuSOLVER's for device {}", device.ordinal))
        };
        let handle = THREAD_HANDLES
            .try_with(|handles| handles.get(device.ordinal, |_| Ok(()), make))
            .map_err(thread_ending_error)??;
        library.set_stream(*handle, stream.raw)?;
        Ok(handle.value())
    })
}
