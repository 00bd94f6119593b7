//! The debugging allocator: each block is a separate mapping, so that the device itself detects invalid accesses.
//!
//! With `guard`, a block ends where its mapping ends, and the granule behind it is never mapped: an access beyond the
//! end faults. The few bytes between the requested end and the end of the block, and all bytes before the block, hold
//! a pattern that is checked when the block is freed. With `unmap`, a freed block is unmapped, and its addresses are
//! not reused until many others were freed: a late access faults. With `fill`, a block begins with bytes that are NaN
//! in every floating-point format, and a freed block that stays mapped is filled with a pattern, which is checked
//! before its memory is released.
//!
//! A free waits for the streams that may use the block. That is slow, and it does not hide a missing record of a
//! stream: the free does not wait for a stream that was not recorded.

use super::{BackendRequest, Block, Freed, Kind, Owner, StreamUse, block_span, later, registry};
use crate::{
    base::{
        retry::retry,
        stack::{self, StackId},
        units::Bytes,
    },
    driver::{Driver, Failure, Stream},
    error::{Context, Error, Result},
    memory::{
        device_memory::device as device_of,
        handles::{self, Handle},
        pool::MemoryOptions,
    },
    runtime::{Runtime, device::Device, names, sync_debug},
    status::Status,
    stream::{capture_lock, ordering},
};
use parking_lot::Mutex;
use std::{collections::VecDeque, sync::Arc};

/// The pattern of bytes in a mapping outside the block.
const GUARD_BYTE: u8 = 0xBD;
/// The initial contents of a block: NaN in every floating-point format, and -1 in every signed integer.
const FRESH_BYTE: u8 = 0xFF;
/// The contents of a freed block.
const FREED_BYTE: u8 = 0xDF;
/// The divisor of a device's memory that gives the maximum for freed blocks that stay mapped.
const QUARANTINE_DIVISOR: u64 = 16;
/// The number of bytes that are checked per copy to the host.
const CHUNK: u64 = 1 << 20;

/// The memory of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    /// The start of the reserved addresses.
    base: u64,
    /// The number of reserved bytes.
    reserved: u64,
    /// The number of bytes at the start that are mapped.
    mapped: u64,
    handle: Handle,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.base + self.mapped
    }
}

/// A freed block that stays mapped, with its description.
#[derive(Debug)]
struct QuarantinedBlock {
    device: u32,
    mapping: Mapping,
    address: u64,
    size: u64,
    requested: u64,
    stream: Stream,
    name: Option<Arc<str>>,
    stacks: [StackId; 2],
}

impl QuarantinedBlock {
    /// Returns the first byte that was overwritten since the free, with its value.
    fn find_overwritten(&self, driver: &Driver, guard: bool) -> Result<Option<(u64, u8)>> {
        let filled = filled_bytes(self.size, self.requested, guard);
        let inside = first_mismatch(driver, self.address, filled, FREED_BYTE, Stream::DEFAULT)?;
        if inside.is_some() || !guard {
            return Ok(inside);
        }
        find_guard_mismatch(driver, &self.mapping, self.address, self.requested)
    }

    /// Creates the error for a write after the free.
    fn overwritten_error(&self, at: u64, byte: u8) -> Error {
        let what = format!(
            "{} at {:#x}{} of {} was overwritten after it was freed: byte {} is now {byte:#04x}{}",
            Bytes(self.requested),
            self.address,
            quoted(self.name.as_deref()),
            names::describe_stream(self.stream.handle(), self.device),
            at as i64 - self.address as i64,
            places(self.stacks)
        );
        Error::new(Status::MEMORY_CORRUPTED, what)
    }
}

#[derive(Debug)]
struct Quarantine {
    /// Start and size of reserved address ranges, oldest first.
    addresses: VecDeque<(u64, u64)>,
    address_bytes: u64,
    blocks: VecDeque<QuarantinedBlock>,
    block_bytes: u64,
}

static QUARANTINE: Mutex<Quarantine> =
    Mutex::new(Quarantine { addresses: VecDeque::new(), address_bytes: 0, blocks: VecDeque::new(), block_bytes: 0 });

/// Returns how much of a freed block is filled. The guard bytes stay unchanged, because a free that fails half-way is
/// retried.
fn filled_bytes(size: u64, requested: u64, guard: bool) -> u64 {
    if guard { requested } else { size }
}

pub(super) fn alloc(place: &BackendRequest) -> Result<Option<(u64, Owner)>> {
    let (driver, device, request) = (&place.runtime.driver, place.device, place.request);
    let granule =
        driver.memory_granularity(device.native).context(|| "memory debugging requires virtual memory management")?;
    let Some(mapped) = request.size.checked_next_multiple_of(granule) else { return Ok(None) };
    let Some(reserved) = mapped.checked_add(granule) else { return Ok(None) };
    let total = device.memory().total(device, driver)?;
    if mapped > total {
        return Ok(None);
    }
    let max_bytes = device.memory().limit(total).unwrap_or(u64::MAX);
    let Some(handle) = handles::create(device, driver, mapped, max_bytes, MemoryOptions::default())? else {
        return Ok(None);
    };
    let base = match driver.memory_reserve(reserved, granule) {
        Ok(base) => base,
        Err(failure) => {
            handles::undo(device, driver, vec![handle]);
            return Err(Error::from(failure).context(format_args!("reserving {} of addresses", Bytes(reserved))));
        }
    };
    let mapping = Mapping { base, reserved, mapped, handle };
    let undo = |error: Error| {
        retry(|| driver.memory_unreserve(base, reserved));
        handles::undo(device, driver, vec![handle]);
        error
    };
    handles::map(device, driver, base, &[handle]).map_err(undo)?;
    let debug = place.config.debug;
    let address = if debug.guard { mapping.end() - request.size } else { base };
    let fill = || {
        if debug.guard {
            driver.fill_8(block_span(base, mapped), GUARD_BYTE, place.stream)?;
        }
        if debug.fill {
            driver.fill_8(block_span(address, request.requested), FRESH_BYTE, place.stream)?;
        }
        Ok(())
    };
    let filled = {
        // Another thread may have begun to capture the stream meanwhile.
        let _held = capture_lock::lock_shared();
        place.check_capture(Kind::Debug).and_then(|_| {
            fill().map_err(|failure: Failure| {
                // Work that was started must end before the memory is released.
                let _ = sync_debug::require("an allocation that failed", || driver.stream_synchronize(place.stream));
                Error::from(failure).context("filling a block")
            })
        })
    };
    if let Err(error) = filled {
        retry(|| driver.memory_unmap(base, mapped));
        return Err(undo(error));
    }
    handles::confirm(device, &[handle]);
    registry::record_driver_alloc(device, request.size, mapped);
    Ok(Some((address, Owner::Debug(mapping))))
}

pub(super) fn free(runtime: &Runtime, device: &Device, address: u64, block: Block) -> Freed {
    for user in std::iter::once(&block.own).chain(&block.uses) {
        match synchronize(runtime, user) {
            Ok(true) => {}
            Ok(false) => return later(address, block),
            Err(error) => {
                let error = error.context("waiting for the streams of a block that is freed");
                return Err(Box::new((block, error)));
            }
        }
    }
    let freed = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| check_and_release(runtime, device, driver, address, &block))?
    });
    freed.map_err(|error| Box::new((block, error)))
}

/// Waits for a stream, unless it is capturing. Returns whether it waited.
fn synchronize(runtime: &Runtime, user: &StreamUse) -> Result<bool> {
    runtime.driver.with_relaxed_capture(|| ordering::finish_stream(runtime, *user, || Ok(())))?
}

/// Checks a block that is no longer used, and releases its memory. The outer error is that of a call that failed
/// before anything was released; the inner result is the outcome of the check.
fn check_and_release(
    runtime: &Runtime,
    device: &Device,
    driver: &Driver,
    address: u64,
    block: &Block,
) -> Result<Result<()>> {
    let Owner::Debug(mapping) = block.owner else { return Ok(Ok(())) };
    let config = crate::memory::config::get()?;
    let total = device.memory().total(device, driver)?;
    let found = if config.debug.guard { check_guards(driver, &mapping, address, block)? } else { Ok(()) };
    if config.debug.fill && !config.debug.unmap {
        // Use the legacy stream: the block's own stream may have been destroyed by the time the fill is checked.
        let stream = Stream::DEFAULT;
        driver
            .fill_8(
                block_span(address, filled_bytes(block.size, block.requested, config.debug.guard)),
                FREED_BYTE,
                stream,
            )
            .and_then(|()| driver.stream_synchronize(stream))
            .context(|| "filling a freed block")?;
        add_to_quarantine(QuarantinedBlock {
            device: device.ordinal,
            mapping,
            address,
            size: block.size,
            requested: block.requested,
            stream: block.own.stream,
            name: block.name.clone(),
            stacks: block.stacks,
        });
        let max_bytes = (config.debug_quarantine_mb << 20).min(total / QUARANTINE_DIVISOR);
        // A block that cannot be checked now is checked later; the free of this block has succeeded.
        return Ok(found.and(shrink(runtime, max_bytes).unwrap_or(Ok(()))));
    }
    release_memory(device, driver, &mapping, block.size);
    if config.debug.unmap {
        quarantine_addresses(driver, &mapping, config.debug_quarantine_mb << 20);
    } else {
        retry(|| driver.memory_unreserve(mapping.base, mapping.reserved));
    }
    Ok(found)
}

/// Releases the memory of a block. Its addresses stay reserved.
fn release_memory(device: &Device, driver: &Driver, mapping: &Mapping, size: u64) {
    // If this fails repeatedly, the device and its memory are lost.
    if retry(|| driver.memory_unmap(mapping.base, mapping.mapped)) && retry(|| driver.memory_release(mapping.handle.0))
    {
        registry::record_driver_free(device, size, mapping.mapped);
    }
}

/// Quarantines the addresses of a mapping, and unreserves the oldest ranges beyond `max_bytes` bytes.
fn quarantine_addresses(driver: &Driver, mapping: &Mapping, max_bytes: u64) {
    let mut quarantine = QUARANTINE.lock();
    quarantine.addresses.push_back((mapping.base, mapping.reserved));
    quarantine.address_bytes += mapping.reserved;
    let mut expired = Vec::new();
    while quarantine.address_bytes > max_bytes
        && let Some((base, bytes)) = quarantine.addresses.pop_front()
    {
        quarantine.address_bytes -= bytes;
        expired.push((base, bytes));
    }
    drop(quarantine);
    for (base, bytes) in expired {
        retry(|| driver.memory_unreserve(base, bytes));
    }
}

fn add_to_quarantine(block: QuarantinedBlock) {
    let mut quarantine = QUARANTINE.lock();
    quarantine.block_bytes += block.mapping.mapped;
    quarantine.blocks.push_back(block);
}

/// Checks and releases quarantined blocks, oldest first, until at most `max_bytes` bytes remain. The inner result is
/// the first overwritten block; the outer error is that of a failed call, and that block stays quarantined.
fn shrink(runtime: &Runtime, max_bytes: u64) -> Result<Result<()>> {
    let guard = crate::memory::config::get()?.debug.guard;
    let mut found = Ok(());
    loop {
        let mut quarantine = QUARANTINE.lock();
        if quarantine.block_bytes <= max_bytes {
            return Ok(found);
        }
        let Some(block) = quarantine.blocks.pop_front() else { return Ok(found) };
        quarantine.block_bytes -= block.mapping.mapped;
        drop(quarantine);
        let checked = device_of(runtime, block.device).and_then(|device| {
            device.with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| {
                    let overwritten = block.find_overwritten(driver, guard)?;
                    release_memory(device, driver, &block.mapping, block.size);
                    retry(|| driver.memory_unreserve(block.mapping.base, block.mapping.reserved));
                    Ok(overwritten)
                })?
            })
        });
        match checked {
            Ok(None) => {}
            Ok(Some((at, byte))) => found = found.and(Err(block.overwritten_error(at, byte))),
            Err(error) => {
                add_to_quarantine(block);
                return Err(error);
            }
        }
    }
}

/// Releases all quarantined blocks.
pub(super) fn empty(runtime: &Runtime) -> Result<()> {
    shrink(runtime, 0)?
}

/// Says where in the program a block was allocated and freed, after a semicolon; empty if that is unknown.
fn places(stacks: [StackId; 2]) -> String {
    let [allocated, freed] = stacks.map(stack::describe_place);
    match (allocated, freed) {
        (Some(allocated), Some(freed)) => format!("; it was allocated in {allocated} and freed in {freed}"),
        (Some(allocated), None) => format!("; it was allocated in {allocated}"),
        (None, Some(freed)) => format!("; it was freed in {freed}"),
        (None, None) => String::new(),
    }
}

/// Formats the name of a block for a message.
fn quoted(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!(" (\"{name}\")"))
}

/// Checks the guard bytes around a block. The outer error is that of a failed call.
fn check_guards(driver: &Driver, mapping: &Mapping, address: u64, block: &Block) -> Result<Result<()>> {
    let Some((at, byte)) = find_guard_mismatch(driver, mapping, address, block.requested)? else { return Ok(Ok(())) };
    let place = if at < address {
        format!("{} bytes before its beginning", address - at)
    } else {
        format!("{} bytes behind its end", at - address - block.requested)
    };
    let what = format!(
        "{} at {address:#x}{} of {} was overwritten outside its bounds: the byte {place} is now {byte:#04x}{}",
        Bytes(block.requested),
        quoted(block.name.as_deref()),
        names::describe_stream(block.own.stream.handle(), block.own.device),
        places(block.stacks)
    );
    Ok(Err(Error::new(Status::MEMORY_CORRUPTED, what)))
}

/// Returns the first overwritten guard byte of a mapping, with its value.
fn find_guard_mismatch(driver: &Driver, mapping: &Mapping, address: u64, requested: u64) -> Result<Option<(u64, u8)>> {
    let before = first_mismatch(driver, mapping.base, address - mapping.base, GUARD_BYTE, Stream::DEFAULT)?;
    if before.is_some() {
        return Ok(before);
    }
    let end = address + requested;
    first_mismatch(driver, end, mapping.end() - end, GUARD_BYTE, Stream::DEFAULT)
}

/// Returns the index of the first byte other than `expected`. Compares whole pages, because most are unchanged.
fn find_mismatch(bytes: &[u8], expected: u8) -> Option<usize> {
    let page = [expected; 4096];
    let (number, part) = bytes.chunks(page.len()).enumerate().find(|(_, part)| **part != page[..part.len()])?;
    let within = part.iter().position(|byte| *byte != expected)?;
    Some(number * page.len() + within)
}

/// Returns the first byte of a range on the device other than `expected`, with its value.
fn first_mismatch(driver: &Driver, start: u64, bytes: u64, expected: u8, stream: Stream) -> Result<Option<(u64, u8)>> {
    let mut buffer = vec![0; CHUNK.min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let part = CHUNK.min(bytes - done);
        let buffer = &mut buffer[..part as usize];
        driver
            .copy_to_host(buffer, block_span(start + done, part), stream)
            .context(|| "reading the bytes of a block")?;
        if let Some(at) = find_mismatch(buffer, expected) {
            return Ok(Some((start + done + at as u64, buffer[at])));
        }
        done += part;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_mismatch_in_any_page() {
        let mut bytes = vec![GUARD_BYTE; 3 * 4096 + 10];
        assert_eq!(find_mismatch(&bytes, GUARD_BYTE), None);
        assert_eq!(find_mismatch(&[], GUARD_BYTE), None);
        for at in [bytes.len() - 1, 3 * 4096, 2 * 4096 - 1, 4096, 7, 0] {
            bytes[at] = FREED_BYTE;
            assert_eq!(find_mismatch(&bytes, GUARD_BYTE), Some(at));
        }
    }
}
