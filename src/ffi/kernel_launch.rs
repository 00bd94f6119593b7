//! Launches of kernels
//!
//! Arguments are copied before the call returns; the memory that they point to must stay valid until the kernel is done.

use crate::{
    driver::{Arguments, LaunchShape},
    error::{Error, Result, invalid},
    ffi::{
        compile_kernel::plinth_kernel_t,
        guard::guard,
        handle, null, plinth_stream_t,
        sanitizer::{PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE},
        status::plinth_status_t,
        structs::{self, StructList},
        tensor::{CUDA, CUDA_HOST, CUDA_MANAGED, DLTensor, laid_out},
    },
    ops::jit::kernel,
    sanitizer::{self, Kind, Operand},
    status::Status,
};
use std::{ffi::c_void, ptr};

/// A tensor argument: `value` points to a DLTensor, and the kernel receives the address of its first element.
pub const PLINTH_ARGUMENT_TENSOR: i32 = 0;
/// An address argument: `value` points to the pointer.
pub const PLINTH_ARGUMENT_POINTER: i32 = 1;
/// A bool argument: `value` points to it.
pub const PLINTH_ARGUMENT_BOOL: i32 = 2;
/// A 32-bit integer argument, signed or unsigned: `value` points to it.
pub const PLINTH_ARGUMENT_INT32: i32 = 3;
/// A 64-bit integer argument, signed or unsigned: `value` points to it.
pub const PLINTH_ARGUMENT_INT64: i32 = 4;
/// A float argument: `value` points to it.
pub const PLINTH_ARGUMENT_FLOAT32: i32 = 5;
/// A double argument: `value` points to it.
pub const PLINTH_ARGUMENT_FLOAT64: i32 = 6;
/// An argument of any other type, typically a struct: `value` points to its `bytes` bytes.
pub const PLINTH_ARGUMENT_BYTES: i32 = 7;

/// A cooperative launch: all blocks run at the same time and may wait for each other (grid of cooperative groups).
pub const PLINTH_LAUNCH_COOPERATIVE: u32 = 1;

/// An argument of a launch.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_argument_t {
    /// sizeof(plinth_kernel_argument_t) in the caller's version of the header.
    pub struct_size: usize,
    /// A pointer to the value.
    pub value: *const c_void,
    /// The size of the value in bytes if `kind` is PLINTH_ARGUMENT_BYTES; otherwise 0.
    pub bytes: usize,
    /// One of the PLINTH_ARGUMENT_ constants.
    pub kind: i32,
    /// How the kernel accesses the elements of a tensor, for the stream sanitizer: PLINTH_SANITIZER_READ,
    /// PLINTH_SANITIZER_WRITE, or both. 0 means unspecified and counts as a read. This causes no false report: a read
    /// conflicts only with the writes of others, and these are an error whatever the kernel does. Must be 0 for other
    /// kinds of argument.
    pub access: u32,
}

/// The launch configuration of a kernel. An extent of 0 means 1. PLINTH_KERNEL_LAUNCH_INIT is one block of one
/// thread.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_launch_t {
    /// sizeof(plinth_kernel_launch_t).
    pub struct_size: usize,
    /// The number of blocks in the grid, along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads in a block, along x, y and z.
    pub block: [u32; 3],
    /// The number of blocks in a cluster, along x, y and z; all 0 for no clusters. The grid must be a multiple of it.
    pub cluster: [u32; 3],
    /// Dynamic shared memory per block, in bytes. It may exceed 48 KiB.
    pub shared_bytes: u32,
    /// PLINTH_LAUNCH_COOPERATIVE, or 0.
    pub flags: u32,
}

/// PLINTH_KERNEL_LAUNCH_INIT.
const ONE_THREAD: plinth_kernel_launch_t =
    plinth_kernel_launch_t { struct_size: 0, grid: [1; 3], block: [1; 3], cluster: [0; 3], shared_bytes: 0, flags: 0 };

/// PLINTH_KERNEL_ARGUMENT_INIT.
const NO_ARGUMENT: plinth_kernel_argument_t =
    plinth_kernel_argument_t { struct_size: 0, value: ptr::null(), bytes: 0, kind: 0, access: 0 };

/// Appends the bytes that the kernel receives for an argument.
///
/// # Safety
/// `value` is NULL or points to a value of the argument's kind.
unsafe fn push(
    arguments: &mut Arguments,
    index: usize,
    argument: &plinth_kernel_argument_t,
    device: u32,
) -> Result<()> {
    let plinth_kernel_argument_t { value, bytes, kind, access, .. } = *argument;
    if value.is_null() {
        return Err(null(&format!("the value of argument {index}")));
    }
    if access & !(PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE) != 0
        || (access != 0 && kind != PLINTH_ARGUMENT_TENSOR)
    {
        return Err(invalid(format!(
            "the access of argument {index} is {access:#x}; for a tensor use PLINTH_SANITIZER_READ, _WRITE or both, \
             otherwise 0"
        )));
    }
    let size = match kind {
        PLINTH_ARGUMENT_TENSOR => {
            // SAFETY: it is not NULL, so the caller promises a tensor.
            let address = unsafe { address_of(&*value.cast::<DLTensor>(), index, device) }?;
            // SAFETY: the caller is responsible for what the kernel does with the tensor.
            unsafe { arguments.push(&address.to_ne_bytes()) };
            return Ok(());
        }
        PLINTH_ARGUMENT_BOOL => 1,
        PLINTH_ARGUMENT_INT32 | PLINTH_ARGUMENT_FLOAT32 => 4,
        PLINTH_ARGUMENT_POINTER | PLINTH_ARGUMENT_INT64 | PLINTH_ARGUMENT_FLOAT64 => 8,
        PLINTH_ARGUMENT_BYTES => bytes,
        kind => {
            return Err(invalid(format!(
                "the kind of argument {index} is {kind}; use one of the PLINTH_ARGUMENT_ constants"
            )));
        }
    };
    // No kernel has larger parameters.
    if size == 0 || size > 1 << 16 || (bytes != 0 && bytes != size) {
        return Err(invalid(format!("argument {index} of kind {kind} cannot have {bytes} bytes")));
    }
    // SAFETY: it is not NULL, so the caller promises `size` bytes, and is responsible for what the kernel does with
    // them.
    unsafe { arguments.push(std::slice::from_raw_parts(value.cast(), size)) };
    Ok(())
}

/// Adds the elements of a tensor argument to the operands for the sanitizer, if their type is known.
///
/// # Safety
/// As [`push`], which has accepted the argument.
unsafe fn add_operands(argument: &plinth_kernel_argument_t, device: u32, operands: &mut Vec<Operand>) {
    if argument.kind != PLINTH_ARGUMENT_TENSOR {
        return;
    }
    // SAFETY: `push` checked that the value is not NULL, so the caller promises a tensor.
    let described = unsafe { &*argument.value.cast::<DLTensor>() };
    let Ok(element) = described.dtype.element("") else { return };
    // SAFETY: the caller promises a valid shape; the elements are not accessed.
    let Ok(tensor) = (unsafe { laid_out(described, element, device, "") }) else { return };
    let reads = argument.access & PLINTH_SANITIZER_READ != 0;
    let kind = match argument.access & PLINTH_SANITIZER_WRITE != 0 {
        true if reads => Kind::ReadWrite,
        true => Kind::Write,
        false => Kind::Read,
    };
    sanitizer::operands(&tensor, kind, operands);
}

fn address_of(tensor: &DLTensor, index: usize, device: u32) -> Result<u64> {
    let elsewhere = |message: String| Err(Error::new(Status::DEVICE_MISMATCH, message));
    match tensor.device.device_type {
        CUDA if tensor.device.device_id != device as i32 => elsewhere(format!(
            "argument {index} is on device {}, but the kernel is on device {device}",
            tensor.device.device_id
        )),
        CUDA | CUDA_HOST | CUDA_MANAGED => Ok((tensor.data as u64).wrapping_add(tensor.byte_offset)),
        other => elsewhere(format!(
            "argument {index} has DLPack device type {other}; pass a tensor in CUDA device, managed or pinned memory"
        )),
    }
}

/// Launches a kernel in a stream, asynchronously.
///
/// If the launch needs more than 48 KiB of dynamic shared memory, the call raises the kernel's limit. In a capture
/// the launch becomes a node of the graph.
///
/// Arguments are checked against the kernel's parameters if the driver can report them (CUDA 12.4 or later): the
/// number of arguments and the size of each.
///
/// The stream sanitizer records the launch under the kernel's name, with the `access` of each tensor. It does not
/// know what the kernel does with address arguments; report these accesses with plinth_sanitizer_operation.
///
/// @param kernel The kernel.
/// @param launch The launch configuration.
/// @param arguments The arguments, whose values are copied before the call returns; NULL for none.
/// @param count The number of arguments.
/// @param stream The stream, of the kernel's device; NULL for that device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid kernel or stream;
///         PLINTH_ERROR_INVALID_VALUE if struct_size was not set, for arguments that do not match the kernel's
///         parameters, for invalid flags or access, for more threads or shared memory than a block can have, and for
///         a grid that is not a multiple of the cluster; PLINTH_ERROR_DEVICE_MISMATCH for a tensor or a stream of
///         another device, and for a tensor in memory that devices cannot access; PLINTH_ERROR_RACE, see
///         plinth_sanitizer_enable; PLINTH_ERROR_NOT_SUPPORTED for clusters and cooperative launches if the driver or
///         the device does not support them; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_launch(
    kernel: plinth_kernel_t,
    launch: *const plinth_kernel_launch_t,
    arguments: *const plinth_kernel_argument_t,
    count: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        let kernel = handle(kernel, "kernel")?;
        // SAFETY: the caller passes NULL or a launch configuration.
        let launch = unsafe { structs::read(launch, ONE_THREAD, "launch") }?;
        if launch.flags & !PLINTH_LAUNCH_COOPERATIVE != 0 {
            return Err(invalid(format!("launch->flags is {:#x}; use 0 or PLINTH_LAUNCH_COOPERATIVE", launch.flags)));
        }
        // SAFETY: the caller passes `count` arguments.
        let arguments = unsafe { StructList::new(arguments, count, NO_ARGUMENT, "arguments") }?;
        let device = kernel::device_of(kernel)?;
        let mut values = Arguments::default();
        for index in 0..count {
            // SAFETY: the caller promises that each argument has a value of its kind.
            unsafe { push(&mut values, index, &arguments.get(index)?, device) }?;
        }
        let whole = |extents: [u32; 3]| extents.map(|extent| extent.max(1));
        let cluster = if launch.cluster == [0; 3] { [0; 3] } else { whole(launch.cluster) };
        let shape = LaunchShape {
            grid: whole(launch.grid),
            block: whole(launch.block),
            cluster,
            shared_bytes: launch.shared_bytes,
            cooperative: launch.flags & PLINTH_LAUNCH_COOPERATIVE != 0,
        };
        let mut operands = Vec::new();
        if sanitizer::is_on() {
            for index in 0..count {
                // SAFETY: as above, and `push` accepted each of them.
                unsafe { add_operands(&arguments.get(index)?, device, &mut operands) };
            }
        }
        kernel::launch(kernel, &shape, &values, &operands, stream as usize)
    })
}
