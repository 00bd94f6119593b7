//! Memory that all ranks of a group map: their symmetric buffers, and the memory that they register.

use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, HandleTypes, Physical, Span, Stream},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
};
use parking_lot::Mutex;
use std::{ops::Range, os::fd::OwnedFd};

/// A rank's symmetric buffer or registered memory: addresses in this process, and the memory that is mapped there, unless
/// the group sleeps.
#[derive(Debug)]
pub struct SymmetricBuffer {
    address: u64,
    bytes: u64,
    /// The physical allocations that are mapped, one after the other, with their sizes.
    parts: Mutex<Vec<(Physical, u64)>>,
}

impl SymmetricBuffer {
    /// Creates this rank's buffer of at least `bytes` bytes, with zeros in the parts `zeroed`.
    pub fn create(
        runtime: &Runtime,
        device: &Device,
        bytes: u64,
        zeroed: &[Range<u64>],
        stream: Stream,
    ) -> Result<(SymmetricBuffer, OwnedFd)> {
        sync_debug::check("the creation of a group's memory")?;
        let driver = &runtime.driver;
        let bytes = bytes.next_multiple_of(driver.memory_granularity(device.native)?.max(1));
        let buffer = SymmetricBuffer::reserve(driver, bytes)?;
        match buffer.allocate(runtime, device, zeroed, stream) {
            Ok(descriptor) => Ok((buffer, descriptor)),
            Err(error) => {
                buffer.release(driver);
                Err(error)
            }
        }
    }

    /// Maps physical allocations of another rank, with their sizes, and takes ownership of them.
    pub fn import(driver: &Driver, device: &Device, rank: u32, parts: Vec<(Physical, u64)>) -> Result<SymmetricBuffer> {
        let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let buffer = match SymmetricBuffer::reserve(driver, bytes) {
            Ok(buffer) => buffer,
            Err(error) => {
                release_all(driver, parts);
                return Err(error);
            }
        };
        if let Err(error) = buffer.map_of(driver, device, rank, parts) {
            buffer.release(driver);
            return Err(error);
        }
        Ok(buffer)
    }

    fn reserve(driver: &Driver, bytes: u64) -> Result<SymmetricBuffer> {
        let address =
            driver.memory_reserve(bytes, 0).context(|| format!("reserving addresses for {}", Bytes(bytes)))?;
        Ok(SymmetricBuffer { address, bytes, parts: Mutex::default() })
    }

    /// Allocates the memory of this rank's buffer, fills the parts `zeroed` with zeros, and exports it for the other ranks.
    pub fn allocate(
        &self,
        runtime: &Runtime,
        device: &Device,
        zeroed: &[Range<u64>],
        stream: Stream,
    ) -> Result<OwnedFd> {
        let driver = &runtime.driver;
        let allocated = || {
            let types = HandleTypes { file_descriptor: true, ..HandleTypes::default() };
            let physical = driver.memory_create(self.bytes, device.native, types)?;
            self.map(driver, device, vec![(physical, self.bytes)])?;
            let (mut filled, mut is_done) = (Ok(()), true);
            let entered = device.with_context(driver, |driver| {
                filled = zeroed
                    .iter()
                    .try_for_each(|range| driver.fill_8(self.part(range.start, range.end - range.start), 0, stream));
                is_done = retry(|| driver.stream_synchronize(stream));
                Ok(())
            });
            if !is_done {
                // Memory that the fill may still write is not unmapped.
                self.parts.lock().clear();
                return Err(Error::new(
                    Status::DRIVER,
                    "the driver does not wait for the fill of the memory, which stays in use",
                ));
            }
            let filled = entered.and_then(|()| Ok(filled?));
            filled.and_then(|()| Ok(driver.memory_export(physical)?)).inspect_err(|_| {
                retry(|| self.unmap(driver));
            })
        };
        allocated().context(|| format!("making {} for a group on device {}", Bytes(self.bytes), device.ordinal))
    }

    /// Maps the memory of another rank, and takes ownership of it.
    pub fn map_of(&self, driver: &Driver, device: &Device, rank: u32, parts: Vec<(Physical, u64)>) -> Result<()> {
        self.map(driver, device, parts)
            .map_err(|error| match error.status() {
                Status::OUT_OF_MEMORY => error,
                // The memory is there, so this device cannot access it.
                _ => error.with_status(Status::PEER_ACCESS_UNSUPPORTED),
            })
            .context(|| format!("mapping the memory of rank {rank} on device {}", device.ordinal))
    }

    /// Maps memory for a device, and takes ownership of it.
    fn map(&self, driver: &Driver, device: &Device, parts: Vec<(Physical, u64)>) -> Result<()> {
        let mut parts = parts.into_iter();
        let mut end = self.address;
        for (physical, bytes) in parts.by_ref() {
            if let Err(failure) = driver.memory_map(end, bytes, physical) {
                release_all(driver, [(physical, bytes)].into_iter().chain(parts));
                retry(|| self.unmap(driver));
                return Err(failure.into());
            }
            self.parts.lock().push((physical, bytes));
            end += bytes;
        }
        Ok(driver.memory_allow(self.address, self.bytes, &[device.native]).inspect_err(|_| {
            retry(|| self.unmap(driver));
        })?)
    }

    /// Unmaps and releases the memory, if there is any, and keeps the addresses. No kernel may use it any more.
    pub fn unmap(&self, driver: &Driver) -> Result<()> {
        let mut parts = self.parts.lock();
        let mut end = self.address + parts.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while let Some((physical, bytes)) = parts.last().copied() {
            end -= bytes;
            driver.memory_unmap(end, bytes)?;
            parts.pop();
            retry(|| driver.memory_release(physical));
        }
        Ok(())
    }

    /// Returns its address in this process.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns a part of it.
    pub fn part(&self, from: u64, bytes: u64) -> Span {
        self.span().part(from as usize, bytes as usize)
    }

    fn span(&self) -> Span {
        // SAFETY: the buffer is mapped at this address with this size until `unmap`, which follows the last kernel that uses it.
        // Until it is mapped again, the group launches no kernel, and uses no part.
        #[allow(unsafe_code)]
        unsafe {
            Span::new(self.address, self.bytes as usize)
        }
    }

    /// Unmaps and releases it. No kernel may use it any more.
    pub fn release(self, driver: &Driver) {
        // If a step fails, its resource leaks, and the next step fails too.
        retry(|| self.unmap(driver));
        retry(|| driver.memory_unreserve(self.address, self.bytes));
    }
}

/// Imports a physical allocation of another rank.
pub fn import_part(driver: &Driver, rank: usize, descriptor: &OwnedFd, bytes: u64) -> Result<(Physical, u64)> {
    let physical = driver.memory_import(descriptor).context(|| format!("importing the memory of rank {rank}"))?;
    Ok((physical, bytes))
}

/// Releases physical allocations that are not mapped.
pub fn release_all(driver: &Driver, parts: impl IntoIterator<Item = (Physical, u64)>) {
    for (physical, _) in parts {
        retry(|| driver.memory_release(physical));
    }
}
