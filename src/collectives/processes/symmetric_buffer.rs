//! The memory of a group: a symmetric buffer of each rank, mapped by all ranks.

use crate::{
    base::{retry::retry, units::Bytes},
    driver::{Driver, HandleTypes, Physical, Span},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device, sync_debug},
    status::Status,
};
use std::os::fd::OwnedFd;

/// A rank's symmetric buffer, mapped in this process.
#[derive(Debug)]
pub struct SymmetricBuffer {
    address: u64,
    bytes: u64,
    physical: Option<Physical>,
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
            let buffer = SymmetricBuffer::map(driver, device, bytes, physical)?;
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

    /// Maps the buffer of another rank.
    pub fn import(
        driver: &Driver,
        device: &Device,
        rank: u32,
        descriptor: &OwnedFd,
        bytes: u64,
    ) -> Result<SymmetricBuffer> {
        let mapped = || {
            let physical = driver.memory_import(descriptor)?;
            // The memory is there, so a failure other than a shortage means that this device cannot access it.
            SymmetricBuffer::map(driver, device, bytes, physical).map_err(|error| match error.status() {
                Status::OUT_OF_MEMORY => error,
                _ => error.with_status(Status::PEER_ACCESS_UNSUPPORTED),
            })
        };
        mapped().context(|| format!("mapping the memory of rank {rank} on device {}", device.ordinal))
    }

    /// Maps memory for a device, and takes ownership of it.
    fn map(driver: &Driver, device: &Device, bytes: u64, physical: Physical) -> Result<SymmetricBuffer> {
        let mut buffer = SymmetricBuffer { address: 0, bytes, physical: Some(physical) };
        let mapped = || -> Result<u64> {
            let address = driver.memory_reserve(bytes, 0)?;
            if let Err(failure) = driver.memory_map(address, bytes, physical) {
                // Only the address range was reserved.
                retry(|| driver.memory_unreserve(address, bytes));
                return Err(failure.into());
            }
            Ok(address)
        };
        match mapped() {
            Ok(address) => buffer.address = address,
            Err(error) => {
                buffer.release(driver);
                return Err(error);
            }
        }
        if let Err(failure) = driver.memory_allow(buffer.address, bytes, &[device.native]) {
            buffer.release(driver);
            return Err(Error::from(failure));
        }
        Ok(buffer)
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
    pub fn release(mut self, driver: &Driver) {
        // If a step fails, its resource leaks, and the next steps fail too.
        if self.address != 0 {
            retry(|| driver.memory_unmap(self.address, self.bytes));
            retry(|| driver.memory_unreserve(self.address, self.bytes));
        }
        if let Some(physical) = self.physical.take() {
            retry(|| driver.memory_release(physical));
        }
    }
}
