//! Memory that all ranks of a group map: their symmetric buffers, and the memory that they register.

use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, HandleTypes, Physical, Span},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
};
use std::os::fd::OwnedFd;

/// A rank's symmetric buffer or registered memory, mapped in this process.
#[derive(Debug)]
pub struct SymmetricBuffer {
    address: u64,
    bytes: u64,
    /// The physical allocations with their sizes. Those after the first `mapped` are not mapped.
    parts: Vec<(Physical, u64)>,
    mapped: usize,
}

impl SymmetricBuffer {
    /// Creates this rank's buffer of at least `bytes` bytes, filled with zeros.
    pub fn create(runtime: &Runtime, device: &Device, bytes: u64) -> Result<(SymmetricBuffer, OwnedFd)> {
        sync_debug::check("the creation of a group's memory")?;
        let driver = &runtime.driver;
        let bytes = bytes.next_multiple_of(driver.memory_granularity(device.native)?.max(1));
        let made = || -> Result<(SymmetricBuffer, OwnedFd)> {
            let types = HandleTypes { file_descriptor: true, ..HandleTypes::default() };
            let physical = driver.memory_create(bytes, device.native, types)?;
            let buffer = SymmetricBuffer::map(driver, device, vec![(physical, bytes)])?;
            let cleared = device.with_context(driver, |driver| {
                let stream = driver.stream_create(0)?;
                let filled = driver.fill_8(buffer.span(), 0, stream);
                // Memory that the fill may still write is not unmapped.
                let is_done = filled.is_err() || retry(|| driver.stream_synchronize(stream));
                retry(|| driver.stream_destroy(stream));
                Ok(filled.map(|()| is_done)?)
            });
            if let Ok(false) = cleared {
                return Err(Error::new(
                    Status::DRIVER,
                    "the driver does not wait for the fill of the memory, which stays in use",
                ));
            }
            match cleared.and_then(|_| Ok(driver.memory_export(physical)?)) {
                Ok(descriptor) => Ok((buffer, descriptor)),
                Err(error) => {
                    buffer.release(driver);
                    Err(error)
                }
            }
        };
        made().context(|| format!("making {} for a group on device {}", Bytes(bytes), device.ordinal))
    }

    /// Maps the memory of another rank, whose physical allocations `import` returns with their sizes.
    pub fn import(
        driver: &Driver,
        device: &Device,
        rank: u32,
        import: impl FnOnce() -> Result<Vec<(Physical, u64)>>,
    ) -> Result<SymmetricBuffer> {
        let mapped = || {
            let parts = import()?;
            // The memory is there, so a failure other than a shortage means that this device cannot access it.
            SymmetricBuffer::map(driver, device, parts).map_err(|error| match error.status() {
                Status::OUT_OF_MEMORY => error,
                _ => error.with_status(Status::PEER_ACCESS_UNSUPPORTED),
            })
        };
        mapped().context(|| format!("mapping the memory of rank {rank} on device {}", device.ordinal))
    }

    /// Maps physical allocations for a device, one after the other, and takes ownership of them.
    fn map(driver: &Driver, device: &Device, parts: Vec<(Physical, u64)>) -> Result<SymmetricBuffer> {
        let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
        let mut buffer = SymmetricBuffer { address: 0, bytes, parts, mapped: 0 };
        let mut map = || {
            buffer.address = driver.memory_reserve(bytes, 0)?;
            let mut end = buffer.address;
            for (physical, bytes) in &buffer.parts {
                driver.memory_map(end, *bytes, *physical)?;
                buffer.mapped += 1;
                end += bytes;
            }
            driver.memory_allow(buffer.address, bytes, &[device.native])
        };
        match map() {
            Ok(()) => Ok(buffer),
            Err(error) => {
                buffer.release(driver);
                Err(error.into())
            }
        }
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
        // SAFETY: the buffer is mapped at this address with this size until `release`, which follows the last kernel that
        // uses it.
        #[allow(unsafe_code)]
        unsafe {
            Span::new(self.address, self.bytes as usize)
        }
    }

    /// Unmaps and releases it. No kernel may use it any more.
    pub fn release(self, driver: &Driver) {
        // If a step fails, its resource leaks, and the next steps fail too.
        let mut end = self.address;
        for (_, bytes) in &self.parts[..self.mapped] {
            retry(|| driver.memory_unmap(end, *bytes));
            end += bytes;
        }
        if self.address != 0 {
            retry(|| driver.memory_unreserve(self.address, self.bytes));
        }
        release_all(driver, self.parts);
    }
}

/// Releases physical allocations that are not mapped.
pub fn release_all(driver: &Driver, parts: Vec<(Physical, u64)>) {
    for (physical, _) in parts {
        retry(|| driver.memory_release(physical));
    }
}
