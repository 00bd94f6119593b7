//! Tensors
//!
//! Functions that take tensors take DLPack's DLTensor (<https://dmlc.github.io/dlpack>). Where a program can include
//! dlpack/dlpack.h, its declarations are used; elsewhere this header has the same ones.
//!
//! A DLTensor describes memory and owns nothing. The structure, its shape and its strides are read during the call
//! only. The memory must stay valid until the work that uses it is done.

use crate::{
    driver::Span,
    error::{Error, Result},
    ffi::{array, null},
    memory,
    ops::host_copy::{PAGEABLE, PINNED},
    runtime::tensor::{ElementType, Tensor},
    status::Status,
};
use std::ffi::c_void;

/// DLPack's DLDevice.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct DLDevice {
    pub device_type: i32,
    pub device_id: i32,
}

/// DLPack's DLDataType.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// DLPack's DLTensor.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(missing_docs)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// DLPack's device type of pageable host memory, kDLCPU.
pub(super) const CPU: i32 = 1;
/// DLPack's device type of CUDA device memory, kDLCUDA; also used for the host device.
pub(super) const CUDA: i32 = 2;
/// DLPack's device type of pinned host memory, kDLCUDAHost.
pub(super) const CUDA_HOST: i32 = 3;
/// DLPack's device type of managed memory, kDLCUDAManaged.
pub(super) const CUDA_MANAGED: i32 = 13;

#[cold]
fn invalid(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::new(Status::INVALID_VALUE, format!("{name}: {reason}"))
}

impl From<ElementType> for DLDataType {
    fn from(element: ElementType) -> Self {
        let code = match element {
            ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => 0,
            ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => 1,
            ElementType::F16 | ElementType::F32 | ElementType::F64 => 2,
            ElementType::Bf16 => 4,
            ElementType::Complex64 | ElementType::Complex128 => 5,
            ElementType::Bool => 6,
            ElementType::F8E4M3 => 10,
            ElementType::F8E5M2 => 12,
        };
        DLDataType { code, bits: element.bytes() as u8 * 8, lanes: 1 }
    }
}

/// Converts a tensor to a DLTensor. Shape and strides point into the tensor, and are read-only.
pub(super) fn to_c(tensor: &Tensor) -> DLTensor {
    DLTensor {
        data: tensor.memory.address() as *mut c_void,
        device: DLDevice { device_type: CUDA, device_id: tensor.device as i32 },
        ndim: tensor.rank as i32,
        dtype: tensor.element.into(),
        shape: tensor.sizes.as_ptr().cast_mut(),
        strides: tensor.strides.as_ptr().cast_mut(),
        byte_offset: 0,
    }
}

impl DLDataType {
    pub(super) fn element(self, name: &str) -> Result<ElementType> {
        let DLDataType { code, bits, lanes } = self;
        let element = match (code, bits) {
            (0, 8) => ElementType::I8,
            (0, 16) => ElementType::I16,
            (0, 32) => ElementType::I32,
            (0, 64) => ElementType::I64,
            (1, 8) => ElementType::U8,
            (1, 16) => ElementType::U16,
            (1, 32) => ElementType::U32,
            (1, 64) => ElementType::U64,
            (2, 16) => ElementType::F16,
            (2, 32) => ElementType::F32,
            (2, 64) => ElementType::F64,
            (4, 16) => ElementType::Bf16,
            (5, 64) => ElementType::Complex64,
            (5, 128) => ElementType::Complex128,
            (6, 8) => ElementType::Bool,
            (10, 8) => ElementType::F8E4M3,
            (12, 8) => ElementType::F8E5M2,
            _ => {
                return Err(invalid(
                    name,
                    format_args!("DLPack element type with code {code} and {bits} bits is not supported"),
                ));
            }
        };
        if lanes == 1 {
            return Ok(element);
        }
        Err(invalid(name, format_args!("its elements have {lanes} lanes; only 1 is supported")))
    }
}

/// Reads and validates a DLTensor on a CUDA device.
///
/// # Safety
/// `tensor` is NULL or points to a DLTensor. Its shape and strides are NULL or point to `ndim` numbers, and its
/// elements stay valid until the work that uses them is complete.
#[inline]
pub unsafe fn tensor(tensor: *const DLTensor, name: &str) -> Result<Tensor> {
    // SAFETY: the caller makes this promise.
    let described = unsafe { tensor.as_ref() }.ok_or_else(|| null(name))?;
    let element = described.dtype.element(name)?;
    let DLDevice { device_type, device_id } = described.device;
    if !matches!(device_type, CUDA | CUDA_MANAGED) {
        return Err(Error::new(
            Status::DEVICE_MISMATCH,
            format!("{name} has DLPack device type {device_type}; it must be on a CUDA device, type {CUDA}"),
        ));
    }
    let device = device_number(device_id, name).map_err(|error| misplaced(error, described, name))?;
    // SAFETY: the caller makes this promise.
    unsafe { laid_out(described, element, device, name) }
}

/// Reads and validates the DLTensors of an array.
///
/// # Safety
/// `first` is NULL or points to `count` DLTensors, each as [`tensor`] requires.
pub(super) unsafe fn list(first: *const DLTensor, count: usize, name: &str) -> Result<Vec<Tensor>> {
    // SAFETY: the caller makes this promise.
    let described = unsafe { array(first, count, name) }?.iter().enumerate();
    // SAFETY: likewise.
    described.map(|(index, one)| unsafe { tensor(one, &format!("{name}[{index}]")) }).collect()
}

/// Reads and validates a DLTensor on a CUDA device or in memory of the CPU, whose element type is known.
///
/// # Safety
/// As [`tensor`].
pub(super) unsafe fn tensor_anywhere(described: &DLTensor, element: ElementType, name: &str) -> Result<Tensor> {
    let mut tensor = Tensor::UNSET;
    // SAFETY: the caller makes this promise.
    unsafe { set_anywhere(&mut tensor, described, element, name) }?;
    Ok(tensor)
}

/// Does the same in place; see [`Tensor::set`].
///
/// # Safety
/// As [`tensor`].
#[inline]
pub(super) unsafe fn set_anywhere(
    tensor: &mut Tensor,
    described: &DLTensor,
    element: ElementType,
    name: &str,
) -> Result<()> {
    let device = match described.device.device_type {
        CPU => PAGEABLE,
        CUDA_HOST => PINNED,
        CUDA | CUDA_MANAGED => device_number(described.device.device_id, name)?,
        other => {
            return Err(Error::new(
                Status::DEVICE_MISMATCH,
                format!("{name} has DLPack device type {other}; it must be on a CUDA device or the CPU"),
            ));
        }
    };
    // SAFETY: the caller makes this promise.
    unsafe { set_layout(tensor, described, element, device, name) }
}

/// Replaces the error about a tensor's device by one about its memory, if no device owns that: a program that asked for
/// the device of host memory got -1.
#[cold]
fn misplaced(error: Error, tensor: &DLTensor, name: &str) -> Error {
    let (number, address) = (tensor.device.device_id, tensor.data as u64);
    if number != -1 || address == 0 || !matches!(memory::device_of(address), Ok(None)) {
        return error;
    }
    let what = format!(
        "{name} is in host memory (device {number}): its data at {address:#x} is {}; copy it to memory of a device \
         first",
        memory::describe(address)
    );
    Error::new(error.status(), what)
}

/// Validates a device number where -1 does not stand for the current device.
pub(super) fn device_number(number: i32, name: &str) -> Result<u32> {
    u32::try_from(number).map_err(|_| {
        Error::new(Status::INVALID_DEVICE, format!("{name} is on device {number}; device numbers start at 0"))
    })
}

/// Reads and validates the layout of a DLTensor whose element type and device are known.
///
/// # Safety
/// As [`tensor`].
#[inline]
pub(super) unsafe fn laid_out(described: &DLTensor, element: ElementType, device: u32, name: &str) -> Result<Tensor> {
    let mut tensor = Tensor::UNSET;
    // SAFETY: the caller makes this promise.
    unsafe { set_layout(&mut tensor, described, element, device, name) }?;
    Ok(tensor)
}

/// Does the same in place; see [`Tensor::set`].
///
/// # Safety
/// As [`tensor`].
#[inline]
unsafe fn set_layout(
    tensor: &mut Tensor,
    described: &DLTensor,
    element: ElementType,
    device: u32,
    name: &str,
) -> Result<()> {
    let rank = usize::try_from(described.ndim)
        .map_err(|_| invalid(name, format_args!("it has {} dimensions", described.ndim)))?;
    if rank > crate::driver::random::MAX_RANK {
        return Err(invalid(name, format_args!("it has {rank} dimensions, more than 25")));
    }
    if rank > 0 && described.shape.is_null() {
        return Err(null(&format!("{name}->shape")));
    }
    let numbers = |pointer: *const i64| {
        if rank == 0 || pointer.is_null() {
            return None;
        }
        // SAFETY: it is not NULL, so the caller promises `rank` numbers.
        Some(unsafe { std::slice::from_raw_parts(pointer, rank) })
    };
    let (shape, strides) = (numbers(described.shape).unwrap_or(&[]), numbers(described.strides));
    let address = match described.data as u64 {
        0 => 0,
        data => data
            .checked_add(described.byte_offset)
            .ok_or_else(|| invalid(name, "data + byte_offset is past the end of the address space"))?,
    };
    // SAFETY: the caller promises that the elements are valid; the core computes their extent from the shape.
    let memory = unsafe { Span::new(address, 0) };
    tensor.set(memory, element, device, shape, strides).map_err(|error| error.context(name))
}

/// Reads and validates a DLTensor without its elements: device, type and shape.
///
/// # Safety
/// As for [`tensor`], except that the elements are not used.
pub unsafe fn described(pointer: *const DLTensor, name: &str) -> Result<Tensor> {
    // SAFETY: the caller makes this promise.
    let shape = unsafe { pointer.as_ref() }.ok_or_else(|| null(name))?;
    // An address that is aligned for every element type, and that is never dereferenced.
    let data = std::ptr::without_provenance_mut(256);
    let shape = DLTensor { data, byte_offset: 0, strides: std::ptr::null_mut(), ..*shape };
    // SAFETY: the caller makes this promise; there are no elements to access.
    unsafe { tensor(&shape, name) }
}
