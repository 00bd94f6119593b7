//! The driver and its devices.

use super::{INVALID, Out, enter, put_optional, put_text};
use crate::{
    cost,
    driver::{
        codes,
        table::{Call, Code},
        types::*,
    },
    model::pci_bus,
    state::{self, State},
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// CUDA 13.0.
const VERSION: c_int = 13_000;

/// Returns the physical ordinal of a device.
fn physical(state: &State, device: CUdevice) -> Result<usize, Code> {
    let index = usize::try_from(device).map_err(|_| codes::CUDA_ERROR_INVALID_DEVICE)?;
    state.config.visible.get(index).copied().ok_or(codes::CUDA_ERROR_INVALID_DEVICE)
}

pub unsafe extern "C" fn cuInit(flags: c_uint) -> Code {
    let _charge = cost::charge(Call::cuInit, cost::price(Call::cuInit, 0));
    if flags != 0 {
        return INVALID;
    }
    state::initialise().err().unwrap_or(codes::CUDA_SUCCESS)
}

pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Code {
    let _charge = cost::charge(Call::cuDriverGetVersion, cost::price(Call::cuDriverGetVersion, 0));
    match Out::new(version) {
        Ok(out) => {
            out.put(VERSION);
            codes::CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

pub unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: c_ulonglong,
    status: *mut c_uint,
) -> Code {
    let _charge = cost::charge(Call::cuGetProcAddress_v2, cost::price(Call::cuGetProcAddress_v2, 0));
    let Ok(out) = Out::new(function) else { return INVALID };
    // The default, the legacy default stream, and the default stream of each thread.
    if name.is_null() || flags > 2 {
        return INVALID;
    }
    // SAFETY: the caller passed a string, and the pointer is not null.
    let name = unsafe { CStr::from_ptr(name) };
    let call = Call::ALL.iter().find(|call| call.info().base_name().as_bytes() == name.to_bytes());
    let (found, outcome, code) = match call {
        None => (std::ptr::null(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, codes::CUDA_ERROR_NOT_FOUND),
        Some(call) if call.info().since > version => {
            (std::ptr::null(), CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, codes::CUDA_ERROR_NOT_FOUND)
        }
        Some(call) => (crate::table().address(*call), CU_GET_PROC_ADDRESS_SUCCESS, codes::CUDA_SUCCESS),
    };
    out.put(found.cast_mut());
    put_optional(status, outcome);
    code
}

pub unsafe extern "C" fn cuGetErrorName(code: Code, name: *mut *const c_char) -> Code {
    let _charge = cost::charge(Call::cuGetErrorName, cost::price(Call::cuGetErrorName, 0));
    put_lookup(name, codes::lookup(code).map(|(name, _)| name))
}

pub unsafe extern "C" fn cuGetErrorString(code: Code, text: *mut *const c_char) -> Code {
    let _charge = cost::charge(Call::cuGetErrorString, cost::price(Call::cuGetErrorString, 0));
    put_lookup(text, codes::lookup(code).map(|(_, text)| text))
}

/// Writes a string that ends in a NUL. For an unknown code writes null and returns an error, as CUDA does.
fn put_lookup(output: *mut *const c_char, text: Option<&'static str>) -> Code {
    let Ok(out) = Out::new(output) else { return INVALID };
    out.put(text.map_or(std::ptr::null(), |text| text.as_ptr().cast()));
    if text.is_some() { codes::CUDA_SUCCESS } else { INVALID }
}

pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Code {
    enter(Call::cuDeviceGetCount, 0, |state| {
        Out::new(count)?.put(state.config.visible.len() as c_int);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> Code {
    enter(Call::cuDeviceGet, 0, |state| {
        let out = Out::new(device)?;
        physical(state, ordinal)?;
        out.put(ordinal);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, capacity: c_int, device: CUdevice) -> Code {
    enter(Call::cuDeviceGetName, 0, |state| {
        physical(state, device)?;
        put_text(name, capacity, state.config.model.name)
    })
}

pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> Code {
    enter(Call::cuDeviceTotalMem_v2, 0, |state| {
        let out = Out::new(bytes)?;
        physical(state, device)?;
        out.put(state.config.memory as usize);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice) -> Code {
    enter(Call::cuDeviceGetAttribute, 0, |state| {
        let out = Out::new(value)?;
        let physical = physical(state, device)?;
        out.put(state.config.model.attribute(attribute, physical).ok_or(INVALID)?);
        Ok(())
    })
}

pub unsafe extern "C" fn cuDeviceGetPCIBusId(text: *mut c_char, capacity: c_int, device: CUdevice) -> Code {
    enter(Call::cuDeviceGetPCIBusId, 0, |state| {
        let bus = pci_bus(physical(state, device)?);
        put_text(text, capacity, &format!("0000:{bus:02X}:00.0"))
    })
}

pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> Code {
    enter(Call::cuDeviceGetUuid_v2, 0, |state| {
        let out = Out::new(uuid)?;
        let bytes = state.config.model.uuid(physical(state, device)?);
        out.put(CUuuid { bytes: bytes.map(|byte| byte as c_char) });
        Ok(())
    })
}

pub unsafe extern "C" fn cuDeviceCanAccessPeer(can_access: *mut c_int, device: CUdevice, peer: CUdevice) -> Code {
    enter(Call::cuDeviceCanAccessPeer, 0, |state| {
        let out = Out::new(can_access)?;
        let (device, peer) = (physical(state, device)?, physical(state, peer)?);
        out.put(c_int::from(device != peer && state.config.peers));
        Ok(())
    })
}
