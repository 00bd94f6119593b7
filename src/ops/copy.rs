//! Copies and fills between any kinds of memory.

use crate::{
    base::{cancellation, units::Bytes},
    driver::{MemoryKind, Span, codes},
    error::{Context, Error, Result, invalid},
    memory::{self, reach::ensure_access},
    observe,
    runtime::{
        self, Runtime, sync_debug,
        tensor::{ElementType, Tensor},
    },
    status::Status,
    stream::{self, Stream},
};

/// Memory of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSpan {
    /// The memory.
    pub span: Span,
    /// Ordinal of the device.
    pub device: u32,
}

impl DeviceSpan {
    /// Returns the same memory, advanced by some bytes.
    pub fn moved(self, bytes: u64) -> DeviceSpan {
        DeviceSpan { span: self.span.offset_by(bytes as i64), ..self }
    }
}

#[inline]
pub(super) fn check_range(span: Span, what: &str) -> Result<()> {
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

/// Returns whether memory is ordinary memory of the CPU.
pub(super) fn is_pageable(runtime: &Runtime, span: Span) -> Result<bool> {
    Ok(runtime.pointer_info(span.address())?.kind == MemoryKind::Unregistered)
}

/// Resolves the stream argument of a call that works on some ranges of memory. The device of the first range in device
/// memory decides which stream an argument without a device means. Any other stream can do the work if its device has
/// access to the memory.
#[inline]
fn resolve_for(runtime: &Runtime, handle: usize, spans: &[Span]) -> Result<stream::Stream> {
    if !stream::is_relative(handle) {
        return stream::resolve(runtime, handle);
    }
    let device = memory::device_for(runtime, spans.iter().map(|span| span.address()))?;
    stream::resolve_on(runtime, handle, device)
}

/// Copies in a stream between two addresses of any kind of memory. A stream argument that names no device refers to
/// that of the destination, or of the source if the destination is in host memory. If one of them is pageable host memory, the driver
/// may block the CPU until the copy is done, and the sync debug mode reports the call.
pub fn in_stream(destination: Span, source: Span, handle: usize) -> Result<()> {
    // For pageable memory the driver may wait in any way.
    let _uncancellable = cancellation::disable();
    let runtime = runtime::ready()?;
    let stream = resolve_for(runtime, handle, &[destination, source])?;
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
            with_peer_access(stream.device(), &[destination, source], || {
                runtime.in_stream(stream, |driver, raw| Ok(driver.copy(destination, source, raw)?))
            })
        })
        .map_err(|error| explain_ranges(error, &[("destination", destination), ("source", source)]))
        .context(|| format!("copying {}", Bytes(destination.bytes() as u64)))?;
    observe::copied(runtime, stream, destination);
    Ok(())
}

/// Copies memory within a device or between devices with the driver. CUDA captures no copy between two devices as such, so the
/// device of a stream that captures must have access to both.
pub fn copy_peer(runtime: &Runtime, stream: Stream, from: DeviceSpan, to: DeviceSpan, bytes: u64) -> Result<()> {
    let (source, destination) = (from.span.with_length(bytes as usize), to.span.with_length(bytes as usize));
    if source.address() == destination.address() {
        return Ok(());
    }
    let captures = stream::is_validated_capturing(runtime, stream)?;
    if captures && !ensure_access(runtime, stream.device(), [from.device, to.device])? {
        let (from, to) = (from.device, to.device);
        return Err(Error::new(
            Status::CAPTURE_FORBIDS,
            format!(
                "devices {from} and {to} have no peer access, which a captured copy needs; copy outside of the capture"
            ),
        ));
    }
    observe::access(runtime, stream, &[observe::read(source), observe::write(destination)])?;
    let from_context = runtime.device(from.device as i32)?.context(&runtime.driver)?;
    let to_context = runtime.device(to.device as i32)?.context(&runtime.driver)?;
    runtime
        .in_stream(stream, |driver, raw| match captures {
            true => Ok(driver.copy(destination, source, raw)?),
            false => Ok(driver.copy_peer(destination, to_context, source, from_context, raw)?),
        })
        .context(|| format!("copying from device {} to device {}", from.device, to.device))
}

/// Rows of bytes in memory.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// The memory from the first row on; its length is ignored.
    pub memory: Span,
    /// The distance between the beginnings of two rows, in bytes.
    pub pitch: usize,
}

/// The largest distance between two rows that CUDA copies: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every device.
pub const MAX_PITCH: usize = i32::MAX as usize;

impl Rows {
    /// Returns the memory from the first to the last byte of the rows.
    fn whole(self, width: usize, height: usize) -> Result<Span> {
        let bytes = (height - 1).checked_mul(self.pitch).and_then(|before| before.checked_add(width));
        let bytes = bytes.ok_or_else(|| {
            invalid(format!("{height} rows with a pitch of {} bytes do not fit into the address space", self.pitch))
        })?;
        Ok(self.memory.with_length(bytes))
    }

    /// Returns the rows as a tensor of bytes.
    fn tensor(self, width: usize, height: usize) -> Result<Tensor> {
        let shape = [height as i64, width as i64];
        Tensor::new(self.memory, ElementType::U8, 0, &shape, Some(&[self.pitch as i64, 1]))
    }
}

/// Copies rows in a stream between two addresses of any kind of memory. Width and height are not 0, and the rows of each
/// side do not overlap.
pub fn enqueue_2d(
    runtime: &Runtime,
    stream: Stream,
    to: Rows,
    from: Rows,
    (width, height): (usize, usize),
) -> Result<()> {
    let (destination, source) = (to.whole(width, height)?, from.whole(width, height)?);
    if observe::is_on() {
        observe::copy_tensor(runtime, stream, &to.tensor(width, height)?, &from.tensor(width, height)?)?;
    }
    with_peer_access(stream.device(), &[destination, source], || {
        runtime.in_stream(stream, |driver, raw| {
            Ok(driver.copy_2d((destination, to.pitch), (source, from.pitch), (width, height), raw)?)
        })
    })?;
    observe::copied(runtime, stream, destination);
    Ok(())
}

/// Copies rows in a stream between two addresses of any kind of memory. For pageable memory, the same holds as for
/// [`in_stream`].
pub fn rows_in_stream(to: Rows, from: Rows, (width, height): (usize, usize), handle: usize) -> Result<()> {
    let runtime = runtime::ready()?;
    let stream = resolve_for(runtime, handle, &[to.memory, from.memory])?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    for (rows, name) in [(to, "destination"), (from, "source")] {
        if rows.pitch < width {
            return Err(invalid(format!(
                "{name}_pitch is {} bytes; it must be at least width_bytes, {width}, so that rows do not overlap",
                rows.pitch
            )));
        }
        if rows.pitch > MAX_PITCH && height > 1 {
            return Err(invalid(format!("{name}_pitch is {} bytes; it must be at most {MAX_PITCH}", rows.pitch)));
        }
        check_range(rows.whole(width, height)?, name)?;
    }
    let (destination, source) = (to.memory, from.memory);
    if sync_debug::is_on() && (is_pageable(runtime, destination)? || is_pageable(runtime, source)?) {
        sync_debug::check("plinth_memcpy_2d with pageable host memory")?;
    }
    record_pinned_use(runtime, &[destination, source], stream)?;
    // One row, or rows without a gap, have no limit of the pitch.
    let copied = if height == 1 || (to.pitch == width && from.pitch == width) {
        let bytes = width * height;
        enqueue(runtime, stream, destination.with_length(bytes), source.with_length(bytes))
    } else {
        enqueue_2d(runtime, stream, to, from, (width, height))
    };
    let ranges = [("destination", to.whole(width, height)?), ("source", from.whole(width, height)?)];
    copied
        .map_err(|error| explain_ranges(error, &ranges))
        .context(|| format!("copying {height} rows of {}", Bytes(width as u64)))
}

/// Records that work in a stream uses those of the spans that are cached pinned memory: if they are freed, the
/// allocator does not reuse them until the work is done. Call it before the work is enqueued, so that nothing has
/// started if it fails.
#[inline]
pub(super) fn record_pinned_use(runtime: &Runtime, spans: &[Span], stream: Stream) -> Result<()> {
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
    copied
        .map_err(|error| explain_ranges(error, &[("destination", destination), ("source", source)]))
        .context(|| format!("copying {}", Bytes(destination.bytes() as u64)))
}

/// Adds to the driver's error about an argument the range that runs past the end of its block, or what the ranges are. The
/// driver names neither.
#[cold]
pub fn explain_ranges(error: Error, ranges: &[(&str, Span)]) -> Error {
    if error.driver_code() != codes::CUDA_ERROR_INVALID_VALUE {
        return error;
    }
    let found = ranges
        .iter()
        .find_map(|(what, span)| Some((what, memory::describe_overrun(span.address(), span.bytes() as u64)?)));
    match found {
        Some((what, overrun)) => error.context(format_args!("the {what} is {overrun}")),
        None => {
            let describe = |(what, span): &(&str, Span)| {
                format!("the {what} at {:#x} is {}", span.address(), memory::describe(span.address()))
            };
            error.context(ranges.iter().map(describe).collect::<Vec<_>>().join(", "))
        }
    }
}

fn copy_on(runtime: &Runtime, destination: Span, source: Span, device: u32) -> Result<()> {
    enqueue(runtime, stream::current_on(runtime, device)?, destination, source)
}

/// Copies in a stream between two addresses of any kind of memory.
pub(super) fn enqueue(runtime: &Runtime, stream: Stream, destination: Span, source: Span) -> Result<()> {
    observe::copy(runtime, stream, destination, source)?;
    with_peer_access(stream.device(), &[destination, source], || {
        runtime.in_stream(stream, |driver, raw| Ok(driver.copy(destination, source, raw)?))
    })?;
    observe::copied(runtime, stream, destination);
    Ok(())
}

fn copy_on_and_wait(runtime: &Runtime, destination: Span, source: Span, device: u32) -> Result<()> {
    let stream = stream::current_on(runtime, device)?;
    check_may_wait(runtime, stream, &[destination, source])?;
    copy_on(runtime, destination, source, device)?;
    wait(runtime, stream)
}

/// Waits on the CPU for the work of a stream.
pub(super) fn wait(runtime: &Runtime, stream: Stream) -> Result<()> {
    runtime.in_stream(stream, |driver, raw| Ok(driver.stream_synchronize(raw)?))
}

/// Fails if the stream that a copy waits for is capturing. Call it before anything is enqueued.
pub(super) fn check_may_wait(runtime: &Runtime, stream: Stream, spans: &[Span]) -> Result<()> {
    if stream::is_validated_capturing(runtime, stream)? {
        Err(waits_in_capture(runtime, stream, spans))
    } else {
        Ok(())
    }
}

/// Creates the error for a copy that would wait for a stream that is capturing. The copy is not made, so the capture
/// stays valid.
#[cold]
fn waits_in_capture(runtime: &Runtime, stream: stream::Stream, spans: &[Span]) -> Error {
    let pageable = spans.iter().find(|span| is_pageable(runtime, **span).unwrap_or(false));
    let pageable = pageable.map_or(String::new(), |span| {
        format!(" and pinned memory (plinth_host_alloc): the host memory at {:#x} is pageable", span.address())
    });
    Error::new(
        Status::CAPTURE_FORBIDS,
        format!("the CPU would wait for {}, which is capturing; pass non_blocking{pageable}", stream.describe()),
    )
}

fn copy_across(runtime: &Runtime, destination: Span, to: u32, source: Span, from: u32) -> Result<()> {
    let (copying, receiving) = (stream::current_on(runtime, from)?, stream::current_on(runtime, to)?);
    stream::make_wait(runtime, copying, receiving)?;
    let [source, destination] = [(source, from), (destination, to)].map(|(span, device)| DeviceSpan { span, device });
    copy_peer(runtime, copying, source, destination, destination.span.bytes() as u64)?;
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

/// Fills memory with a pattern in a stream of the memory's device.
pub fn fill(destination: Span, pattern: Pattern, handle: usize) -> Result<()> {
    // Threads may be cancelled here: a driver that waits for room in a stream reaches no cancellation point.
    let runtime = runtime::ready()?;
    let stream = resolve_for(runtime, handle, &[destination])?;
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
        .map_err(|error| explain_ranges(error, &[("destination", destination)]))
        .context(|| format!("filling {}", Bytes(destination.bytes() as u64)))
}

fn fill_on_stream(runtime: &Runtime, destination: Span, pattern: Pattern, stream: Stream) -> Result<()> {
    runtime.in_stream(stream, |driver, raw| {
        Ok(match pattern {
            Pattern::One(value) => driver.fill_8(destination, value, raw),
            Pattern::Two(value) => driver.fill_16(destination, value, raw),
            Pattern::Four(value) => driver.fill_32(destination, value, raw),
        }?)
    })
}
