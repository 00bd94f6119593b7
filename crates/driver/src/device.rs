//! Devices: their count and attributes.

use super::{Driver, DriverResult, call, codes, types::*};
use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    ptr,
};

impl Driver {
    /// Returns the address of a function of the driver by its name without a version suffix, as of a CUDA version, with
    /// `CU_GET_PROC_ADDRESS_...` flags. Returns `None` if the driver has no such function as of that version.
    pub fn find_function(&self, name: &CStr, version: c_int, flags: u64) -> DriverResult<Option<*const c_void>> {
        let (mut function, mut status) = (ptr::null_mut(), 0);
        // SAFETY: the name is NUL-terminated, and the outputs are live locals.
        let found =
            unsafe { call!(self, cuGetProcAddress_v2(name.as_ptr(), &mut function, version, flags, &mut status)) };
        match found {
            Err(failure) if failure.code == codes::CUDA_ERROR_NOT_FOUND => Ok(None),
            found => found.map(|()| (!function.is_null()).then_some(function.cast_const())),
        }
    }

    /// Initializes the driver.
    pub fn init(&self) -> DriverResult<()> {
        // SAFETY: flags must be 0.
        unsafe { call!(self, cuInit(0)) }
    }

    /// Returns the newest CUDA version that the driver supports, in CUDA's encoding: 13000 is 13.0.
    pub fn version(&self) -> DriverResult<i32> {
        let mut version = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDriverGetVersion(&mut version)) }?;
        Ok(version)
    }

    /// Returns the number of devices that are visible to the process.
    pub fn device_count(&self) -> DriverResult<i32> {
        let mut count = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceGetCount(&mut count)) }?;
        Ok(count)
    }

    /// Returns the device with this ordinal.
    pub fn device(&self, ordinal: i32) -> DriverResult<CUdevice> {
        let mut device = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceGet(&mut device, ordinal)) }?;
        Ok(device)
    }

    /// Returns the device's name.
    pub fn device_name(&self, device: CUdevice) -> DriverResult<String> {
        let mut name = [0 as c_char; 256];
        // SAFETY: the call receives the buffer's length.
        unsafe { call!(self, cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device)) }?;
        Ok(text(&name))
    }

    /// Returns the device's memory in bytes.
    pub fn device_total_memory(&self, device: CUdevice) -> DriverResult<usize> {
        let mut bytes = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceTotalMem_v2(&mut bytes, device)) }?;
        Ok(bytes)
    }

    /// Returns one attribute of the device, a `CU_DEVICE_ATTRIBUTE_...` of [`types`](super::types).
    pub fn device_attribute(&self, attribute: c_uint, device: CUdevice) -> DriverResult<i32> {
        let mut value = 0;
        // SAFETY: the output is a live local, and an unknown attribute returns an error code.
        unsafe { call!(self, cuDeviceGetAttribute(&mut value, attribute, device)) }?;
        Ok(value)
    }

    /// Returns the device's PCI bus address, such as "0000:3b:00.0".
    pub fn device_pci_bus_id(&self, device: CUdevice) -> DriverResult<String> {
        let mut name = [0 as c_char; 32];
        // SAFETY: the call receives the buffer's length.
        unsafe { call!(self, cuDeviceGetPCIBusId(name.as_mut_ptr(), name.len() as i32, device)) }?;
        Ok(text(&name))
    }

    /// Returns the device's 16-byte UUID.
    pub fn device_uuid(&self, device: CUdevice) -> DriverResult<[u8; 16]> {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceGetUuid_v2(&mut uuid, device)) }?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Returns whether `device` can be given access to the memory of `peer`.
    pub fn can_access_peer(&self, device: CUdevice, peer: CUdevice) -> DriverResult<bool> {
        let mut can_access = 0;
        // SAFETY: the output is a live local.
        unsafe { call!(self, cuDeviceCanAccessPeer(&mut can_access, device, peer)) }?;
        Ok(can_access != 0)
    }
}

/// Returns the NUL-terminated string in a buffer; the whole buffer if there is no NUL.
fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().map(|&byte| byte as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
