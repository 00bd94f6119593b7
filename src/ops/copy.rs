//! Copies and fills between any kinds of memory.

use crate::{
    base::units::Bytes,
    driver::{MemoryKind, Span, codes},
    error::{Context, Error, Result},
    memory, observe,
    runtime::{self, Runtime, sync_debug},
    status::Status,
    stream,
};

#[inline]
fn check_range(span: Span, what: &str) -> Result<()> {
    if span.address() == 0 || span.address().checked_add(span.bytes() as u64).is_none() {
        return Err(bad_range(span, what));
    }
    Ok(())
}

#[cold]
fn bad_range(span: Span, what: &str) -> Error {
    let (address, bytes) = (span.address(), span.bytes());
    if address == 0 {
        return Error::new(Status::NULL_POINTER, format!("the {what} is NULL"));
    }
    Error::new(
        Status::INVALID_VALUE,
        format!("the {what} runs past the end of all addresses: {bytes} bytes from {address:#x}"),
    )
}

fn is_pageable(runtime: &Runtime, span: Span) -> Result<bool> {
    Ok(runtime.pointer_info(span.address())?.kind == MemoryKind::Unregistered)
}

/// Copies in a stream between two addresses of any kind of memory. If one of them is pageable host memory, the driver
/// may block the CPU until the copy is done, and the sync debug mode reports the call.
pub fn in_stream(destination: Span, source: Span, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle)?;
    if destination.bytes() == 0 {
        return Ok(());
    }
    check_range(destination, "destination")?;
    check_range(source, "source")?;
    if sync_debug::is_on() && (is_pageable(runtime, destination)? || is_pageable(runtime, source)?) {
        sync_debug::check("plinth_memcpy with pageable host memory")?;
    }
    observe::copy(runtime, stream, destination, source)?;
    record_pinned_use(runtime, &[destination, source], stream)
        .and_then(|()| {
            with_peer_access(stream.device, &[destination, source], || {
                runtime.in_stream(stream, |driver, raw| Ok(driver.copy(destination, source, raw)?))
            })
        })
        .context(|| format!("copying {}", Bytes(destination.bytes() as u64)))?;
    observe::copied(runtime, stream, destination);
    Ok(())
}

/// Records that work in a stream uses those of the spans that are cached pinned memory: if they are freed, the
/// allocator does not reuse them until the work is done. Call it before the work is enqueued, so that nothing has
/// started if it fails.
#[inline]
fn record_pinned_use(runtime: &Runtime, spans: &[Span], stream: stream::Stream) -> Result<()> {
    spans.iter().try_for_each(|span| memory::pinned::record_use(runtime, *span, stream))
}

/// Runs `body`, which works on memory from a stream of `device`.
///
/// If peer memory was mapped with virtual memory management, as the caching allocator's is, and `device` has no access
/// to it, the driver returns "invalid value"; memory from the driver's own allocation calls is copied without that. The
/// caller need not know which kind it has: on that error this function enables access and runs `body` again.
#[inline]
pub(crate) fn with_peer_access(device: u32, spans: &[Span], mut body: impl FnMut() -> Result<()>) -> Result<()> {
    match body() {
        Err(error) if error.driver_code() == codes::CUDA_ERROR_INVALID_VALUE => {
            // Either device of a peer copy may be the one that runs it.
            let owners = spans.iter().filter_map(|span| memory::device_of(span.address()).ok().flatten());
            let readers: Vec<u32> = owners.chain([device]).collect();
            let mut reached = false;
            for span in spans {
                for reader in &readers {
                    reached |= memory::ensure_mapping_access(*reader, span.address());
                }
            }
            if reached {
                match body() {
                    Err(again) if again.driver_code() == codes::CUDA_ERROR_INVALID_VALUE => {}
                    result => return result,
                }
            }
            // The driver also checks that the device of the current context has access, even if another device does the
            // work.
            let runtime = runtime::ready()?;
            let owner = runtime.device(device as i32)?;
            if runtime.driver.current_context()? == Some(owner.context(&runtime.driver)?) {
                return Err(error);
            }
            owner.with_context(&runtime.driver, |_| body())
        }
        result => result,
    }
}

/// Copies as torch's `copy_` does: in the current streams of the devices that own the memory, which are determined from
/// the addresses.
///
/// Between devices, the copy runs in the source device's current stream, after the work that is in the destination
/// device's current stream now; later work of the destination stream waits for the copy. Between host and device, the
/// copy runs in the device's current stream, and the CPU waits for it unless `non_blocking` is set.
pub fn between_current_streams(destination: Span, source: Span, non_blocking: bool) -> Result<()> {
    let runtime = runtime::ready()?;
    if destination.bytes() == 0 {
        return Ok(());
    }
    check_range(destination, "destination")?;
    check_range(source, "source")?;
    let to = memory::owner(runtime, destination.address())?;
    let from = memory::owner(runtime, source.address())?;
    let copied = match (to, from) {
        (Some(to), Some(from)) if to == from => copy_on(runtime, destination, source, to),
        (Some(to), Some(from)) => copy_across(runtime, destination, to, source, from),
        (Some(device), None) | (None, Some(device)) => {
            if !non_blocking {
                sync_debug::check("plinth_copy between host and device")?;
            } else if sync_debug::is_on() {
                let host = if to.is_some() { source } else { destination };
                if is_pageable(runtime, host)? {
                    sync_debug::check("plinth_copy with pageable host memory")?;
                }
            }
            if non_blocking {
                record_pinned_use(runtime, &[destination, source], stream::current_on(runtime, device)?)?;
                copy_on(runtime, destination, source, device)
            } else {
                copy_on_and_wait(runtime, destination, source, device)
            }
        }
        (None, None) => copy_on_host(runtime, destination, source),
    };
    copied.context(|| format!("copying {}", Bytes(destination.bytes() as u64)))
}

fn copy_on(runtime: &Runtime, destination: Span, source: Span, device: u32) -> Result<()> {
    let stream = stream::current_on(runtime, device)?;
    observe::copy(runtime, stream, destination, source)?;
    with_peer_access(device, &[destination, source], || {
        runtime.in_stream(stream, |driver, raw| Ok(driver.copy(destination, source, raw)?))
    })?;
    observe::copied(runtime, stream, destination);
    Ok(())
}

fn copy_on_and_wait(runtime: &Runtime, destination: Span, source: Span, device: u32) -> Result<()> {
    copy_on(runtime, destination, source, device)?;
    let stream = stream::current_on(runtime, device)?;
    runtime.in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))
}

fn copy_across(runtime: &Runtime, destination: Span, to: u32, source: Span, from: u32) -> Result<()> {
    let (copying, receiving) = (stream::current_on(runtime, from)?, stream::current_on(runtime, to)?);
    let destination_context = runtime.device(to as i32)?.context(&runtime.driver)?;
    let source_context = runtime.device(from as i32)?.context(&runtime.driver)?;
    stream::make_wait(runtime, copying, receiving)?;
    observe::copy(runtime, copying, destination, source)?;
    runtime.in_stream(copying, |driver, raw| {
        Ok(driver.copy_peer(destination, destination_context, source, source_context, raw)?)
    })?;
    stream::make_wait(runtime, receiving, copying)
}

/// Copies from host to host after the work that is in the current device's current stream now, and waits for the copy,
/// as every CPU copy does.
fn copy_on_host(runtime: &Runtime, destination: Span, source: Span) -> Result<()> {
    sync_debug::check("plinth_copy between two places of host memory")?;
    let device = runtime.current_device()?.ordinal;
    copy_on_and_wait(runtime, destination, source, device)
}

/// A pattern of a fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One byte.
    One(u8),
    /// Two bytes.
    Two(u16),
    /// Four bytes.
    Four(u32),
}

impl Pattern {
    fn size(self) -> usize {
        match self {
            Pattern::One(_) => 1,
            Pattern::Two(_) => 2,
            Pattern::Four(_) => 4,
        }
    }
}

/// Fills memory with a pattern in a stream.
pub fn fill(destination: Span, pattern: Pattern, handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = stream::resolve(runtime, handle)?;
    if destination.bytes() == 0 {
        return Ok(());
    }
    check_range(destination, "destination")?;
    if !destination.address().is_multiple_of(pattern.size() as u64)
        || !destination.bytes().is_multiple_of(pattern.size())
    {
        return Err(Error::new(
            Status::INVALID_VALUE,
            format!(
                "a fill with a {}-byte pattern needs an address and a length that are multiples of it",
                pattern.size()
            ),
        ));
    }
    observe::access(runtime, stream, &[observe::write(destination)])?;
    record_pinned_use(runtime, &[destination], stream)
        .and_then(|()| fill_on_stream(runtime, destination, pattern, stream))
        .context(|| format!("filling {}", Bytes(destination.bytes() as u64)))
}

fn fill_on_stream(runtime: &Runtime, destination: Span, pattern: Pattern, stream: stream::Stream) -> Result<()> {
    runtime.in_stream(stream, |driver, raw| {
        Ok(match pattern {
            Pattern::One(value) => driver.fill_8(destination, value, raw),
            Pattern::Two(value) => driver.fill_16(destination, value, raw),
            Pattern::Four(value) => driver.fill_32(destination, value, raw),
        }?)
    })
}
