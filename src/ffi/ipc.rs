//! Memory shared between processes
//!
//! Sends memory of the caching allocator to other processes, which see the same physical memory.
//!
//! The sender owns the block and may free it at any time. The memory is not reused before every receiver has closed it
//! or has ended. A receiver closes what it received, as often as it received it. Between the sender's and the
//! receiver's first use the library orders the streams; after that, the processes order their uses themselves.
//!
//! Two threads must not use the same socket at the same time.

use crate::{
    error::{Error, Result},
    ffi::{
        Output, array,
        guard::{guard, release},
        null,
        status::plinth_status_t,
        structs::{self, StructOutput},
    },
    memory::{
        self,
        ipc::{self, Received, legacy},
    },
    status::Status,
};
use std::{
    ffi::c_void,
    os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd},
    ptr,
};

/// Size in bytes of a CUDA IPC memory handle, cudaIpcMemHandle_t.
pub const PLINTH_IPC_MEM_HANDLE_SIZE: usize = 64;

/// Memory of another process, mapped in this process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_ipc_memory_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The address in this process that corresponds to the pointer that the other process exported.
    pub pointer: *mut c_void,
    /// Bytes from `pointer` to the end of the block that the other process allocated.
    pub size: usize,
    /// Offset of `pointer` from the beginning of the block, in bytes.
    pub offset: usize,
    /// The number that the memory's device has in this process.
    pub device: i32,
    /// Reserved: 0.
    pub reserved: i32,
}

/// A message that describes exported memory, for a program that transfers it to the other process itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_ipc_export_t {
    /// In: the size of the struct in the caller. Out: the number of bytes that were filled.
    pub struct_size: usize,
    /// The bytes of the message.
    pub bytes: *mut u8,
    /// Size of the message in bytes.
    pub size: usize,
    /// The file descriptors of the message, in order.
    pub descriptors: *mut i32,
    /// The number of file descriptors.
    pub descriptor_count: usize,
}

/// PLINTH_IPC_EXPORT_INIT.
const NO_EXPORT: plinth_ipc_export_t = plinth_ipc_export_t {
    struct_size: size_of::<plinth_ipc_export_t>(),
    bytes: ptr::null_mut(),
    size: 0,
    descriptors: ptr::null_mut(),
    descriptor_count: 0,
};

fn to_c(received: Received) -> plinth_ipc_memory_t {
    plinth_ipc_memory_t {
        struct_size: size_of::<plinth_ipc_memory_t>(),
        pointer: received.address as *mut c_void,
        size: received.bytes as usize,
        offset: received.offset as usize,
        device: received.device as i32,
        reserved: 0,
    }
}

/// Sends memory of the caching allocator to another process through a Unix socket.
///
/// The other process maps the same physical memory; nothing is copied. The receiver's stream waits for the work that
/// the current stream of the memory's device holds at the time of this call. Afterwards the two processes order their
/// accesses themselves. The message, and then the receiver, hold the block: plinth_caching_allocator_delete may free it
/// at any time, but the memory is not reused before every receiver has closed it or has ended, normally or not. Until
/// then the freed block counts as active, but no longer as allocated.
///
/// The call may wait until the receiver reads a part of a long message from the socket, at most for the time limit of
/// the socket (SO_SNDTIMEO), or 60 seconds without one. On a non-blocking socket it waits only in the middle of a
/// message. After PLINTH_ERROR_TIMED_OUT, close the socket, because it may hold a part of the message. With
/// PLINTH_IPC=wait in the environment the call waits for the device instead of sending an event; it may do so too when
/// 1000 events of messages are in use. Two threads must not send through the same socket at the same time.
///
/// @param socket A connected Unix socket of type SOCK_STREAM or SOCK_SEQPACKET. The caller keeps ownership. A datagram
///        socket is refused: the end of the process at its other end cannot be detected.
/// @param pointer Any address in memory of plinth_caching_allocator_alloc.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER for an address that is not in such memory;
///         PLINTH_ERROR_IPC_REEXPORT for memory that was itself received from another process;
///         PLINTH_ERROR_IPC_NOT_SHAREABLE with PLINTH_IPC=0, and on a device that does not support sharing;
///         PLINTH_ERROR_GRAPH_ASLEEP for memory of a suspended pool;
///         PLINTH_ERROR_CAPTURE_FORBIDS while the current stream of the memory's device captures;
///         PLINTH_ERROR_INVALID_VALUE for a descriptor that is not a Unix socket of these types;
///         PLINTH_ERROR_IPC_PEER_GONE if the other end is closed; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM, for
///         example for a full non-blocking socket, and for too many descriptors that were sent and not yet received;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE if the call must wait for the device and the sync debug mode forbids the
///         wait; PLINTH_ERROR_INVALID_CONFIGURATION; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_send(socket: i32, pointer: *const c_void) -> plinth_status_t {
    guard(|| {
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        ipc::send(borrow_socket(&socket)?, pointer as u64)
    })
}

/// Receives memory that another process sent with plinth_ipc_send, and maps it into this process.
///
/// Waits for a message on the CPU, unless the socket is non-blocking, without a limit unless the socket has one
/// (SO_RCVTIMEO). From its first byte on, the whole message must arrive within that limit, or within 60 seconds if the
/// socket has none. After PLINTH_ERROR_TIMED_OUT, close the socket. The current stream of the memory's device then
/// waits for the work that the sender's stream had to do on the memory; the call itself does not. The device is
/// identified by its UUID, whatever its number is in either process. If the same memory was received before and is not
/// closed yet, the call returns the same pointer, which must be closed once per call. If the sender allocates without
/// expandable segments, this holds for each receiving device separately: CUDA opens such memory for one device, and no
/// other device can access it at that pointer. The memory stays valid when the sender ends. Call plinth_record_stream
/// for other streams that use it. It cannot be sent on to another process. Two threads must not receive from the same
/// socket at the same time.
///
/// @param socket The connected Unix socket, as in plinth_ipc_send.
/// @param device A further device that is to access the memory, and whose current stream then waits as well; -1 for
///        none besides the memory's own. Devices that plinth_enable_peer_access gave access to the memory's device can
///        access it in any case. Exception: if the sender allocates without expandable segments, only the device that
///        is named here, or else the memory's own, can access the memory, regardless of peer access.
/// @param memory In: struct_size. Out: the memory. Close it with plinth_ipc_close.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE, also if the memory's device is not
///         visible to this process; PLINTH_ERROR_PEER_ACCESS_UNSUPPORTED if `device` cannot access the memory;
///         PLINTH_ERROR_INVALID_VALUE for a descriptor that is not a Unix socket of these types, for data that is not a
///         message, and for a message of this process itself; PLINTH_ERROR_IPC_PEER_GONE if the other end is closed, or
///         was closed in the middle of the message; PLINTH_ERROR_TIMED_OUT; PLINTH_ERROR_SYSTEM, for example for an
///         empty non-blocking socket and for too many open files; PLINTH_ERROR_OUT_OF_MEMORY;
///         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_receive(
    socket: i32,
    device: i32,
    memory: *mut plinth_ipc_memory_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let memory = unsafe { StructOutput::new(memory, "memory") }?;
        memory.set(to_c(ipc::receive(borrow_socket(&socket)?, device)?));
        Ok(())
    })
}

/// Creates the message that plinth_ipc_send would send, for a program with its own channel: bytes to copy, and file
/// descriptors to pass (by SCM_RIGHTS or inheritance). The receiver passes both to plinth_ipc_import, the descriptors
/// in the same order.
///
/// The message holds the block, as a receiver does, until plinth_ipc_export_free. Each message is for one receiver.
///
/// @param pointer As in plinth_ipc_send.
/// @param message In: struct_size. Out: the message. Free it with plinth_ipc_export_free after it is sent.
/// @return The statuses of plinth_ipc_send, except the errors of sockets; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_export(
    pointer: *const c_void,
    message: *mut plinth_ipc_export_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let message = unsafe { StructOutput::new(message, "message") }?;
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        let (bytes, descriptors) = ipc::export(pointer as u64)?;
        let numbers: Vec<RawFd> = descriptors.into_iter().map(IntoRawFd::into_raw_fd).collect();
        let (size, descriptor_count) = (bytes.len(), numbers.len());
        message.set(plinth_ipc_export_t {
            struct_size: size_of::<plinth_ipc_export_t>(),
            bytes: Box::into_raw(bytes.into_boxed_slice()).cast(),
            size,
            descriptors: Box::into_raw(numbers.into_boxed_slice()).cast(),
            descriptor_count,
        });
        Ok(())
    })
}

/// Frees a message of plinth_ipc_export and closes its file descriptors. Needs no device.
///
/// @param message The message, which is empty afterwards; NULL and an empty message do nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE if struct_size was not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_export_free(message: *mut plinth_ipc_export_t) -> plinth_status_t {
    release(|| {
        // SAFETY: the caller passes NULL or a message that plinth_ipc_export filled in and that has not been freed.
        let output = match unsafe { StructOutput::new(message, "message") } {
            Err(error) if !message.is_null() => return Err(error),
            Err(_) => return Ok(()),
            Ok(output) => output,
        };
        // SAFETY: likewise.
        let message = unsafe { structs::read(message, NO_EXPORT, "message") }?;
        if !message.bytes.is_null() {
            // SAFETY: plinth_ipc_export created it from a boxed slice of this length.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(message.bytes, message.size)) });
        }
        if !message.descriptors.is_null() {
            let numbers = ptr::slice_from_raw_parts_mut(message.descriptors, message.descriptor_count);
            // SAFETY: as above.
            let numbers = unsafe { Box::from_raw(numbers) };
            for number in numbers {
                // SAFETY: the message owns its descriptors, and the caller has not closed any.
                drop(unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) });
            }
        }
        output.set(NO_EXPORT);
        Ok(())
    })
}

/// Maps the memory that a message of plinth_ipc_export describes. Otherwise like plinth_ipc_receive.
///
/// @param bytes The bytes of the message.
/// @param size Size of the message in bytes.
/// @param descriptors The message's file descriptors as they are numbered in this process, in order. The caller keeps
///        ownership and must close them after this call: an open descriptor holds the block.
/// @param descriptor_count The number of file descriptors.
/// @param device As in plinth_ipc_receive.
/// @param memory In: struct_size. Out: the memory. Close it with plinth_ipc_close.
/// @return The statuses of plinth_ipc_receive, except the errors of sockets; PLINTH_ERROR_SYSTEM for a number that is
///         not an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_import(
    bytes: *const u8,
    size: usize,
    descriptors: *const i32,
    descriptor_count: usize,
    device: i32,
    memory: *mut plinth_ipc_memory_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let memory = unsafe { StructOutput::new(memory, "memory") }?;
        // SAFETY: the caller passes NULL or this many bytes and numbers.
        let (bytes, numbers) =
            unsafe { (array(bytes, size, "bytes")?, array(descriptors, descriptor_count, "descriptors")?) };
        let descriptors = numbers.iter().map(|number| duplicate(*number)).collect::<Result<_>>()?;
        memory.set(to_c(ipc::import(bytes, descriptors, device)?));
        Ok(())
    })
}

/// Borrows a socket of the caller's.
fn borrow_socket(number: &RawFd) -> Result<BorrowedFd<'_>> {
    if *number < 0 {
        return Err(Error::new(Status::INVALID_VALUE, format!("descriptor {number} is not a Unix socket")));
    }
    // SAFETY: the number is not -1, and the caller keeps the socket open during the call. If it is not open, the first
    // system call, which asks for its type, reports an error.
    Ok(unsafe { BorrowedFd::borrow_raw(*number) })
}

/// Duplicates a descriptor of the caller's.
fn duplicate(number: RawFd) -> Result<OwnedFd> {
    let failed = |what: String| Error::new(Status::SYSTEM, format!("duplicating descriptor {number}: {what}"));
    if number < 0 {
        return Err(failed("it is negative".into()));
    }
    // SAFETY: the number is not -1, and is used for one system call, which reports an error if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.try_clone_to_owned().map_err(|error| failed(error.to_string()))
}

/// Closes received memory. The last close unmaps it here, and ends this process's hold on the block.
///
/// The exporting process must not reuse memory that this process still reads. The last close therefore waits, on the
/// CPU, for the current stream of the memory's device, for the streams that were current at earlier closes, and for the
/// streams that plinth_record_stream recorded.
///
/// @param pointer The pointer that plinth_ipc_receive or plinth_ipc_import returned, or any address in the block; NULL
///        does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that was not received, or that was closed already;
///         PLINTH_ERROR_CAPTURE_FORBIDS while one of these streams captures; PLINTH_ERROR_WOULD_SYNCHRONIZE if the call
///         must wait and the sync debug mode forbids it; PLINTH_ERROR_DRIVER; the errors of initialization. After an
///         error the memory is still open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_close(pointer: *mut c_void) -> plinth_status_t {
    release(|| ipc::close(pointer as u64))
}

/// Frees the blocks that were freed while other processes held them, and that no process holds any more.
///
/// The allocator does this on its own too, whenever a stream's free memory does not suffice for a request. The call also
/// destroys the events of messages once no block of this process is shared, and unmaps the memory of refused messages that
/// the driver failed to unmap. Waits for nothing.
///
/// @return PLINTH_OK; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_collect() -> plinth_status_t {
    guard(|| {
        memory::ipc::collect()?;
        Ok(())
    })
}

/// Creates a CUDA IPC handle of memory, a cudaIpcMemHandle_t, for receivers that do not use plinth. There is no
/// reference count: the memory must not be freed before every process has closed it.
///
/// @param pointer An address in memory of plinth_device_malloc, or of the caching allocator without expandable segments
///        (PLINTH_ALLOC_CONF=expandable_segments:False).
/// @param ipc_handle Out: PLINTH_IPC_MEM_HANDLE_SIZE bytes, to be sent to the other process.
/// @param offset Out: offset of the pointer from the beginning of the driver allocation, in bytes. The other process
///        receives the beginning.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_POINTER; PLINTH_ERROR_IPC_NOT_SHAREABLE for
///         memory that has no such handle: mapped from physical memory handles (expandable segments, memory debugging),
///         of a memory pool of the driver, or managed;
///         PLINTH_ERROR_IPC_REEXPORT for memory of another process; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER;
///         the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_mem_handle(
    pointer: *const c_void,
    ipc_handle: *mut u8,
    offset: *mut usize,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 64 bytes, and NULL or a valid pointer for the offset.
        let (output, offset) = unsafe {
            (
                Output::new(ipc_handle.cast::<[u8; PLINTH_IPC_MEM_HANDLE_SIZE]>(), "ipc_handle")?,
                Output::new(offset, "offset")?,
            )
        };
        if pointer.is_null() {
            return Err(null("pointer"));
        }
        let (handle, distance) = legacy::handle(pointer as u64)?;
        output.set(handle);
        offset.set(distance as usize);
        Ok(())
    })
}

/// Opens memory of another process by its CUDA IPC handle. The same handle, opened again for the same device, returns
/// the same pointer, which must be closed once per call.
///
/// @param device The device that is to access the memory: its own, or one with peer access to that; -1 for the current
///        device. No other device can access the memory at this pointer.
/// @param ipc_handle The handle: PLINTH_IPC_MEM_HANDLE_SIZE bytes.
/// @param pointer Out: the beginning of the driver allocation. Close it with plinth_ipc_close_mem_handle.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for bytes that
///         are not a handle; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_DRIVER, for example
///         for a handle of this process itself; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_open_mem_handle(
    device: i32,
    ipc_handle: *const u8,
    pointer: *mut *mut c_void,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let pointer = unsafe { Output::new(pointer, "pointer") }?;
        // SAFETY: the caller passes NULL or 64 bytes; an array of bytes needs no alignment.
        let handle = unsafe { ipc_handle.cast::<[u8; PLINTH_IPC_MEM_HANDLE_SIZE]>().as_ref() };
        let handle = handle.ok_or_else(|| null("ipc_handle"))?;
        pointer.set(legacy::open_on(device, *handle)? as *mut c_void);
        Ok(())
    })
}

/// Closes memory of plinth_ipc_open_mem_handle. As cudaIpcCloseMemHandle does, it waits for all work of this process on
/// the device that the memory was opened for.
///
/// @param pointer The pointer; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_POINTER for memory that plinth_ipc_open_mem_handle did not open;
///         PLINTH_ERROR_WOULD_SYNCHRONIZE if the sync debug mode forbids the wait; PLINTH_ERROR_CAPTURE_FORBIDS;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_ipc_close_mem_handle(pointer: *mut c_void) -> plinth_status_t {
    release(|| legacy::close(pointer as u64))
}
