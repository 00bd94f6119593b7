//! The memory of a group: a window of each rank, mapped by all.

use crate::{
    base::units::Bytes,
    driver::{Driver, Physical, Span},
    error::{Context, Error, Result},
    runtime::{Runtime, device::Device},
    status::Status,
};
use std::os::fd::OwnedFd;

/// A window, mapped here.
#[derive(Debug)]
pub struct Window {
    address: u64,
    bytes: u64,
    physical: Option<Physical>,
}

impl Window {
    /// Makes this rank's own, of at least so many bytes, all zero.
    pub fn create(runtime: &Runtime, device: &Device, bytes: u64) -> Result<(Window, OwnedFd)> {
        let driver = &runtime.driver;
        let bytes = bytes.next_multiple_of(driver.memory_granularity(device.native)?.max(1));
        let made = || -> Result<(Window, OwnedFd)> {
            let physical = driver.memory_create_shareable(bytes, device.native)?;
            let window = Window::map(driver, device, bytes, physical)?;
            let cleared = device.with_context(driver, |driver| {
                let stream = driver.stream_create(0)?;
                let done = driver
                    .fill_8(Span::owned(window.address, bytes as usize), 0, stream)
                    .and_then(|()| driver.stream_synchronize(stream));
                driver.stream_destroy(stream)?;
                Ok(done?)
            });
            let exported = cleared.and_then(|()| Ok(driver.memory_export(physical)?));
            match exported {
                Ok(descriptor) => Ok((window, descriptor)),
                Err(error) => {
                    window.release(driver);
                    Err(error)
                }
            }
        };
        made().context(|| format!("making {} for a group on device {}", Bytes(bytes), device.ordinal))
    }

    /// Maps another rank's.
    pub fn import(driver: &Driver, device: &Device, rank: u32, descriptor: &OwnedFd, bytes: u64) -> Result<Window> {
        let mapped = || Window::map(driver, device, bytes, driver.memory_import(descriptor)?);
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

    /// Maps memory for a device, and takes it over.
    fn map(driver: &Driver, device: &Device, bytes: u64, physical: Physical) -> Result<Window> {
        let mut window = Window { address: 0, bytes, physical: Some(physical) };
        let mapped = || -> Result<u64> {
            let address = driver.memory_reserve(bytes, 0)?;
            if let Err(failure) = driver.memory_map(address, bytes, physical) {
                // What was reserved is only addresses.
                let _ = driver.memory_unreserve(address, bytes);
                return Err(failure.into());
            }
            Ok(address)
        };
        match mapped() {
            Ok(address) => window.address = address,
            Err(error) => {
                window.release(driver);
                return Err(error);
            }
        }
        if let Err(failure) = driver.memory_allow(window.address, bytes, &[device.native]) {
            window.release(driver);
            return Err(Error::from(failure));
        }
        Ok(window)
    }

    /// Where it is here.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A part of it, for the driver.
    pub fn part(&self, from: u64, bytes: u64) -> Span {
        Span::owned(self.address, self.bytes as usize).part(from as usize, bytes as usize)
    }

    /// Gives it up. No kernel uses it any more.
    pub fn release(mut self, driver: &Driver) {
        // A step that fails leaves what it was about, and the next ones find that out.
        if self.address != 0 {
            let _ = driver.memory_unmap(self.address, self.bytes);
            let _ = driver.memory_unreserve(self.address, self.bytes);
        }
        if let Some(physical) = self.physical.take() {
            let _ = driver.memory_release(physical);
        }
    }
}
