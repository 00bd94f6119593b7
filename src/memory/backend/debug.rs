//! The debugging allocator: each block a mapping of its own, so that the device itself finds what goes wrong.
//!
//! With `guard` a block ends where its mapping ends, and the granule behind it is never mapped: what runs over the end faults.
//! The few bytes between the end that was asked for and that of the block, and all before the block, hold a pattern that is
//! looked at when the block is freed. With `unmap` a freed block is unmapped, and its addresses are not used again until
//! many others were freed: what comes too late faults. With `fill` a block begins with bytes that are no number in any
//! format, and a freed one that stays mapped holds bytes which nobody may change: that is looked at before its memory goes.
//!
//! A free waits for the streams that may use the block. That is slow, and does not hide a stream that should have been
//! recorded and was not: nobody waits for that one.

use super::{Block, Kind, Owner, Place, Use, later, registry};
use crate::{
    base::units::Bytes,
    driver::{Driver, Failure, Span, Stream},
    error::{Context, Error, Result},
    memory::{
        device_memory::device as device_of,
        handles::{self, Handle},
        stream_events,
    },
    runtime::{Runtime, device::Device},
    status::Status,
    stream::capture_lock,
};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// What the bytes of a mapping are that are no block's.
const BESIDE: u8 = 0xBD;
/// What a block begins with: no number in any floating format, and -1 in any whole one.
const FRESH: u8 = 0xFF;
/// What a freed block holds.
const FREED: u8 = 0xDF;
/// Of a device's memory, the part that freed blocks may keep where they stay mapped.
const KEPT_OF_TOTAL: u64 = 16;
/// How much is looked at in one go.
const CHUNK: u64 = 1 << 20;

/// The memory of one block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    /// Where its addresses begin.
    base: u64,
    /// How many are reserved.
    reserved: u64,
    /// How many of the first of them are mapped.
    mapped: u64,
    handle: Handle,
}

impl Mapping {
    fn end(&self) -> u64 {
        self.base + self.mapped
    }
}

/// A freed block that stays mapped, and what it was.
#[derive(Debug)]
struct Kept {
    device: u32,
    mapping: Mapping,
    address: u64,
    size: u64,
    requested: u64,
    stream: Stream,
}

impl Kept {
    /// The first byte that somebody wrote since the free, and what it is.
    fn look(&self, driver: &Driver, guard: bool) -> Result<Option<(u64, u8)>> {
        let covered = covered(self.size, self.requested, guard);
        let inside = first_other(driver, self.address, covered, FREED, Stream::DEFAULT)?;
        if inside.is_some() || !guard {
            return Ok(inside);
        }
        look_at_rims(driver, &self.mapping, self.address, self.requested)
    }

    /// The error of a write that came after the free.
    fn written(&self, at: u64, byte: u8) -> Error {
        let what = format!(
            "{} at {:#x} on device {}, of stream {:#x}, was written to after it was freed: byte {} became {byte:#04x}",
            Bytes(self.requested),
            self.address,
            self.device,
            self.stream.handle(),
            at as i64 - self.address as i64
        );
        Error::new(Status::MEMORY_CORRUPTED, what)
    }
}

#[derive(Debug)]
struct Quarantine {
    /// Addresses and how many, the oldest first.
    addresses: VecDeque<(u64, u64)>,
    address_bytes: u64,
    kept: VecDeque<Kept>,
    kept_bytes: u64,
}

static QUARANTINE: Mutex<Quarantine> =
    Mutex::new(Quarantine { addresses: VecDeque::new(), address_bytes: 0, kept: VecDeque::new(), kept_bytes: 0 });

/// How much of a freed block is filled. What the guard looks at stays as it is: a free that fails half-way is tried again.
fn covered(size: u64, requested: u64, guard: bool) -> u64 {
    if guard { requested } else { size }
}

fn span(address: u64, bytes: u64) -> Span {
    Span::owned(address, bytes as usize)
}

pub(super) fn alloc(place: &Place) -> Result<Option<(u64, Owner)>> {
    let (driver, device, request) = (&place.runtime.driver, place.device, place.request);
    let granule =
        driver.memory_granularity(device.native).context(|| "memory debugging needs memory that is mapped")?;
    let Some(mapped) = request.size.checked_next_multiple_of(granule) else { return Ok(None) };
    let Some(reserved) = mapped.checked_add(granule) else { return Ok(None) };
    let total = device.memory.total(device, driver)?;
    if mapped > total {
        return Ok(None);
    }
    let most = device.memory.limit(total).unwrap_or(u64::MAX);
    let Some(handle) = handles::create(device, driver, mapped, most)? else { return Ok(None) };
    let base = match driver.memory_reserve(reserved, granule) {
        Ok(base) => base,
        Err(failure) => {
            handles::undo(device, driver, vec![handle]);
            return Err(Error::from(failure).context(format_args!("reserving {} of addresses", Bytes(reserved))));
        }
    };
    let mapping = Mapping { base, reserved, mapped, handle };
    let give_up = |error: Error| {
        stream_events::insist(|| driver.memory_unreserve(base, reserved));
        handles::undo(device, driver, vec![handle]);
        error
    };
    handles::map(device, driver, base, &[handle]).map_err(give_up)?;
    let debug = place.config.debug;
    let address = if debug.guard { mapping.end() - request.size } else { base };
    let fill = || {
        if debug.guard {
            driver.fill_8(span(base, mapped), BESIDE, place.stream)?;
        }
        if debug.fill {
            driver.fill_8(span(address, request.requested), FRESH, place.stream)?;
        }
        Ok(())
    };
    let filled = {
        // While the memory was made, another thread may have begun to capture the stream.
        let _held = capture_lock::lock_shared();
        place.check_capture(Kind::Debug).and_then(|()| {
            fill().map_err(|failure: Failure| {
                // What was begun must end before the memory goes.
                let _ = driver.stream_synchronize(place.stream);
                Error::from(failure).context("filling a block")
            })
        })
    };
    if let Err(error) = filled {
        stream_events::insist(|| driver.memory_unmap(base, mapped));
        return Err(give_up(error));
    }
    registry::note_held(device, request.size, mapped);
    Ok(Some((address, Owner::Debug(mapping))))
}

pub(super) fn free(runtime: &Runtime, device: &Device, address: u64, block: Block) -> Result<()> {
    for one in std::iter::once(&block.own).chain(&block.uses) {
        match finish(runtime, one) {
            Ok(true) => {}
            Ok(false) => return later(address, block),
            Err(error) => {
                registry::put_back(address, block, device);
                return Err(error.context("waiting for the streams of a block that is freed"));
            }
        }
    }
    let freed = device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| take_back(runtime, device, driver, address, &block))?
    });
    freed.unwrap_or_else(|error| {
        registry::put_back(address, block, device);
        Err(error)
    })
}

/// Waits for a stream, unless it is capturing. Whether it did.
fn finish(runtime: &Runtime, one: &Use) -> Result<bool> {
    let device = device_of(runtime, one.device)?;
    device.with_context(&runtime.driver, |driver| {
        driver.with_relaxed_capture(|| stream_events::finish_stream(device, driver, one.stand_in(), || Ok(())))?
    })
}

/// Looks at a block that nobody uses any more, and lets its memory go. An error is that of a call which failed before
/// anything was done; within, there is what was found.
fn take_back(runtime: &Runtime, device: &Device, driver: &Driver, address: u64, block: &Block) -> Result<Result<()>> {
    let Owner::Debug(mapping) = block.owner else { return Ok(Ok(())) };
    let config = crate::memory::config::get()?;
    let total = device.memory.total(device, driver)?;
    let found = if config.debug.guard { check_rims(driver, &mapping, address, block)? } else { Ok(()) };
    if config.debug.fill && !config.debug.unmap {
        // In the legacy stream: the block's own may be gone by the time that this is looked at.
        let stream = Stream::DEFAULT;
        driver
            .fill_8(span(address, covered(block.size, block.requested, config.debug.guard)), FREED, stream)
            .and_then(|()| driver.stream_synchronize(stream))
            .context(|| "filling a freed block")?;
        keep(Kept {
            device: device.ordinal,
            mapping,
            address,
            size: block.size,
            requested: block.requested,
            stream: block.own.stream,
        });
        let most = (config.debug_quarantine_mb << 20).min(total / KEPT_OF_TOTAL);
        // What cannot be looked at now is looked at later: this block is freed.
        return Ok(found.and(shrink(runtime, most).unwrap_or(Ok(()))));
    }
    let_go(device, driver, &mapping, block.size);
    if config.debug.unmap {
        wait_for_addresses(driver, &mapping, config.debug_quarantine_mb << 20);
    } else {
        stream_events::insist(|| driver.memory_unreserve(mapping.base, mapping.reserved));
    }
    Ok(found)
}

/// Gives the memory of a block back. Its addresses stay reserved.
fn let_go(device: &Device, driver: &Driver, mapping: &Mapping, size: u64) {
    // Where this fails again and again the device is lost, and its memory with it.
    if stream_events::insist(|| driver.memory_unmap(mapping.base, mapping.mapped))
        && stream_events::insist(|| driver.memory_release(mapping.handle.0))
    {
        registry::note_released(device, size, mapping.mapped);
    }
}

/// Keeps addresses out of use, and gives back those that waited longest beyond so many bytes.
fn wait_for_addresses(driver: &Driver, mapping: &Mapping, most: u64) {
    let mut quarantine = QUARANTINE.lock();
    quarantine.addresses.push_back((mapping.base, mapping.reserved));
    quarantine.address_bytes += mapping.reserved;
    let mut leaving = Vec::new();
    while quarantine.address_bytes > most
        && let Some((base, bytes)) = quarantine.addresses.pop_front()
    {
        quarantine.address_bytes -= bytes;
        leaving.push((base, bytes));
    }
    drop(quarantine);
    for (base, bytes) in leaving {
        stream_events::insist(|| driver.memory_unreserve(base, bytes));
    }
}

fn keep(kept: Kept) {
    let mut quarantine = QUARANTINE.lock();
    quarantine.kept_bytes += kept.mapping.mapped;
    quarantine.kept.push_back(kept);
}

/// Lets go of freed blocks that stay mapped, the oldest first, until they are no more than so many bytes. The first that
/// somebody wrote to is told, within; an error is that of a call that failed, and then the block waits on.
fn shrink(runtime: &Runtime, most: u64) -> Result<Result<()>> {
    let guard = crate::memory::config::get()?.debug.guard;
    let mut found = Ok(());
    loop {
        let mut quarantine = QUARANTINE.lock();
        if quarantine.kept_bytes <= most {
            return Ok(found);
        }
        let Some(kept) = quarantine.kept.pop_front() else { return Ok(found) };
        quarantine.kept_bytes -= kept.mapping.mapped;
        drop(quarantine);
        let looked = device_of(runtime, kept.device).and_then(|device| {
            device.with_context(&runtime.driver, |driver| {
                driver.with_relaxed_capture(|| {
                    let other = kept.look(driver, guard)?;
                    let_go(device, driver, &kept.mapping, kept.size);
                    stream_events::insist(|| driver.memory_unreserve(kept.mapping.base, kept.mapping.reserved));
                    Ok(other)
                })?
            })
        });
        match looked {
            Ok(None) => {}
            Ok(Some((at, byte))) => found = found.and(Err(kept.written(at, byte))),
            Err(error) => {
                keep(kept);
                return Err(error);
            }
        }
    }
}

/// Lets go of all freed blocks that stay mapped.
pub(super) fn empty(runtime: &Runtime) -> Result<()> {
    shrink(runtime, 0)?
}

/// Whether somebody wrote beside a block: what was found, unless it could not be looked at.
fn check_rims(driver: &Driver, mapping: &Mapping, address: u64, block: &Block) -> Result<Result<()>> {
    let Some((at, byte)) = look_at_rims(driver, mapping, address, block.requested)? else { return Ok(Ok(())) };
    let place = if at < address {
        format!("{} bytes before its beginning", address - at)
    } else {
        format!("{} bytes behind its end", at - address - block.requested)
    };
    let what = format!(
        "{} at {address:#x} on device {}, of stream {:#x}: somebody wrote {byte:#04x} {place}",
        Bytes(block.requested),
        block.own.device,
        block.own.stream.handle()
    );
    Ok(Err(Error::new(Status::MEMORY_CORRUPTED, what)))
}

/// The first byte beside a block, in its mapping, that is not what it should be.
fn look_at_rims(driver: &Driver, mapping: &Mapping, address: u64, requested: u64) -> Result<Option<(u64, u8)>> {
    let before = first_other(driver, mapping.base, address - mapping.base, BESIDE, Stream::DEFAULT)?;
    if before.is_some() {
        return Ok(before);
    }
    let end = address + requested;
    first_other(driver, end, mapping.end() - end, BESIDE, Stream::DEFAULT)
}

/// Where the first byte is that is not what it should be. Whole pages are compared at once: most are as they should be.
fn other_than(bytes: &[u8], expected: u8) -> Option<usize> {
    let page = [expected; 4096];
    let (number, part) = bytes.chunks(page.len()).enumerate().find(|(_, part)| **part != page[..part.len()])?;
    let within = part.iter().position(|byte| *byte != expected)?;
    Some(number * page.len() + within)
}

/// The first byte of a range that is not what it should be, and what it is.
fn first_other(driver: &Driver, start: u64, bytes: u64, expected: u8, stream: Stream) -> Result<Option<(u64, u8)>> {
    let mut buffer = vec![0; CHUNK.min(bytes) as usize];
    let mut done = 0;
    while done < bytes {
        let part = CHUNK.min(bytes - done);
        let buffer = &mut buffer[..part as usize];
        driver.read_back(span(start + done, part), buffer, stream).context(|| "looking at the bytes of a block")?;
        if let Some(at) = other_than(buffer, expected) {
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
    fn the_first_other_byte_is_found_in_any_page() {
        let mut bytes = vec![BESIDE; 3 * 4096 + 10];
        assert_eq!(other_than(&bytes, BESIDE), None);
        assert_eq!(other_than(&[], BESIDE), None);
        for at in [bytes.len() - 1, 3 * 4096, 2 * 4096 - 1, 4096, 7, 0] {
            bytes[at] = FREED;
            assert_eq!(other_than(&bytes, BESIDE), Some(at));
        }
    }
}
