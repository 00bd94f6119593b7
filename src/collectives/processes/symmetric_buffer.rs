//! The memory of a group: a symmetric buffer of each rank, mapped by all ranks.

use crate::{
    base::units::Bytes,
    driver::{Driver, Physical, Span},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
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
        let driver = &runtime.driver;
        let bytes = bytes.next_multiple_of(driver.memory_granularity(device.native)?.max(1));
        let made = || -> Result<(SymmetricBuffer, OwnedFd)> {
            let physical = driver.memory_create_shareable(bytes, device.native)?;
            let buffer = SymmetricBuffer::map(driver, device, bytes, physical)?;
            let cleared = device.with_context(driver, |driver| {
                let stream = driver.stream_create(0)?;
                let done = driver.fill_8(buffer.span(), 0, stream).and_then(|()| driver.stream_synchronize(stream));
                driver.stream_destroy(stream)?;
                Ok(done?)
            });
            let exported = cleared.and_then(|()| Ok(driver.memory_export(physical)?));
            match exported {
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
        let mapped = || SymmetricBuffer::map(driver, device, bytes, driver.memory_import(descriptor)?);
        mapped().map_err(|error| {
            let status = match error.status() {
                Status::OUT_OF_MEMORY => Status::OUT_OF_MEMORY,
                _ => Status::PEER_ACCESS_UNSUPPORTED,
            };
            error
                .context(format_args!("mapping the memory of rank {rank} on device {}", device.ordinal))
                .with_status(status)
        })
    }

    /// Maps memory for a device, and takes ownership of it.
    fn map(driver: &Driver, device: &Device, bytes: u64, physical: Physical) -> Result<SymmetricBuffer> {
        let mut buffer = SymmetricBuffer { address: 0, bytes, physical: Some(physical) };
        let mapped = || -> Result<u64> {
            let address = driver.memory_reserve(bytes, 0)?;
            if let Err(failure) = driver.memory_map(address, bytes, physical) {
                // Only the address range was reserved.
                let _ = driver.memory_unreserve(address, bytes);
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
            let _ = driver.memory_unmap(self.address, self.bytes);
            let _ = driver.memory_unreserve(self.address, self.bytes);
        }
        if let Some(physical) = self.physical.take() {
            let _ = driver.memory_release(physical);
        }
    }
}
