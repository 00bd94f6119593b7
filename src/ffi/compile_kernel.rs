//! Kernels
//!
//! Compiles CUDA C++ with NVRTC, loads modules, and launches kernels: torch.cuda._compile_kernel. The host device does
//! not run CUDA C++.
//!
//! The caller owns the handles of kernels and modules and destroys them. A compiled kernel stays loaded until the
//! process ends. A module is unloaded when its handle and those of all its kernels are destroyed; no launch may be in
//! progress then, and no graph may contain one. Arguments of a launch are copied before the call returns; the memory
//! that they point to must stay valid until the kernel is done.

use crate::{
    driver::{Arguments, Image, LaunchShape},
    error::{Error, Result},
    ffi::{
        Output,
        guard::guard,
        null, plinth_stream_t,
        properties::write_growable,
        sanitizer::{PLINTH_SANITIZER_READ, PLINTH_SANITIZER_WRITE},
        status::plinth_status_t,
        string,
        tensor::{CUDA, CUDA_HOST, CUDA_MANAGED, DLTensor, laid_out},
    },
    jit::kernel::{self, Attributes, Source},
    sanitizer::{self, Kind, Operand},
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    ptr,
};

/// A kernel that was compiled from a program's own source, or found in a module. Opaque, and checked: a handle that was
/// destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_kernel {
    _private: [u8; 0],
}

/// The handle of a kernel.
#[allow(non_camel_case_types)]
pub type plinth_kernel_t = *mut plinth_kernel;

/// A module that was loaded from an image. Opaque, and checked.
#[allow(non_camel_case_types)]
pub struct plinth_kernel_module {
    _private: [u8; 0],
}

/// The handle of a module.
#[allow(non_camel_case_types)]
pub type plinth_kernel_module_t = *mut plinth_kernel_module;

/// An argument that is a tensor: `value` leads to a DLTensor, and the kernel gets the address of its first element.
pub const PLINTH_ARGUMENT_TENSOR: i32 = 0;
/// An argument that is an address: `value` leads to the pointer.
pub const PLINTH_ARGUMENT_POINTER: i32 = 1;
/// An argument that is a bool: `value` leads to it.
pub const PLINTH_ARGUMENT_BOOL: i32 = 2;
/// An argument that is a 32-bit integer, of either sign: `value` leads to it.
pub const PLINTH_ARGUMENT_INT32: i32 = 3;
/// An argument that is a 64-bit integer, of either sign: `value` leads to it.
pub const PLINTH_ARGUMENT_INT64: i32 = 4;
/// An argument that is a float: `value` leads to it.
pub const PLINTH_ARGUMENT_FLOAT32: i32 = 5;
/// An argument that is a double: `value` leads to it.
pub const PLINTH_ARGUMENT_FLOAT64: i32 = 6;
/// An argument of any other type, a struct mostly: `value` leads to its `bytes` bytes.
pub const PLINTH_ARGUMENT_BYTES: i32 = 7;

/// All blocks of a launch run at the same time, and may wait for each other (cooperative groups' grid).
pub const PLINTH_LAUNCH_COOPERATIVE: u32 = 1;

/// An argument of a launch.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_argument_t {
    /// Where the value is.
    pub value: *const c_void,
    /// The bytes of the value where `kind` is PLINTH_ARGUMENT_BYTES; else 0.
    pub bytes: usize,
    /// One of the PLINTH_ARGUMENT_ constants.
    pub kind: i32,
    /// What the kernel does to the elements of a tensor, for the stream sanitizer: PLINTH_SANITIZER_READ,
    /// PLINTH_SANITIZER_WRITE, or both. 0 leaves that open, and counts as reading, which is never too much: it is in conflict
    /// with what others write, and that is wrong whatever the kernel does. 0 for what is no tensor.
    pub access: u32,
}

/// How a kernel is launched. An extent of 0 is 1. PLINTH_KERNEL_LAUNCH_INIT is one block of one thread.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_launch_t {
    /// sizeof(plinth_kernel_launch_t).
    pub struct_size: usize,
    /// How many blocks, along x, y and z.
    pub grid: [u32; 3],
    /// How many threads a block has.
    pub block: [u32; 3],
    /// How many blocks a cluster has; all 0 for no clusters. The grid must be a multiple of it.
    pub cluster: [u32; 3],
    /// Dynamic shared memory, in bytes a block; more than 48 KiB, too.
    pub shared_bytes: u32,
    /// PLINTH_LAUNCH_COOPERATIVE, or 0.
    pub flags: u32,
}

/// What is known of a kernel.
///
/// The struct grows at its end in newer versions; set struct_size to sizeof(plinth_kernel_attributes_t) before the call, as
/// PLINTH_KERNEL_ATTRIBUTES_INIT does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_attributes_t {
    /// In: the bytes of the struct. Out: how many of them were filled.
    pub struct_size: usize,
    /// Registers a thread.
    pub registers: i32,
    /// Static shared memory, in bytes a block.
    pub shared_bytes: i32,
    /// The most dynamic shared memory that a launch may have as things are, in bytes.
    pub max_dynamic_shared_bytes: i32,
    /// Local memory, in bytes a thread: what did not fit into registers.
    pub local_bytes: i32,
    /// Constant memory, in bytes.
    pub const_bytes: i32,
    /// The most threads of a block.
    pub max_threads_per_block: i32,
    /// The virtual architecture that it was compiled for, 90 for compute_90.
    pub ptx_version: i32,
    /// The architecture that its code is for, 90 for sm_90.
    pub binary_version: i32,
}

impl From<Attributes> for plinth_kernel_attributes_t {
    fn from(found: Attributes) -> Self {
        plinth_kernel_attributes_t {
            struct_size: size_of::<Self>(),
            registers: found.registers,
            shared_bytes: found.shared_bytes,
            max_dynamic_shared_bytes: found.max_dynamic_shared_bytes,
            local_bytes: found.local_bytes,
            const_bytes: found.const_bytes,
            max_threads_per_block: found.max_threads_per_block,
            ptx_version: found.ptx_version,
            binary_version: found.binary_version,
        }
    }
}

#[cold]
fn invalid(message: String) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

/// The texts of a list that ends in NULL.
///
/// # Safety
/// `texts` is NULL or leads to pointers to strings, the last of them NULL.
unsafe fn texts(texts: *const *const c_char, name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if texts.is_null() {
        return Ok(found);
    }
    loop {
        // SAFETY: the caller promises pointers up to the NULL, which has not been met yet.
        let text = unsafe { *texts.add(found.len()) };
        if text.is_null() {
            return Ok(found);
        }
        // SAFETY: it is not NULL, so the caller promises a string.
        found.push(unsafe { string(text, name) }?);
    }
}

/// What a source is compiled from.
struct Given {
    text: String,
    name: String,
    capability: Option<String>,
    include_dirs: Vec<String>,
    options: Vec<String>,
}

impl Given {
    /// # Safety
    /// Each is NULL or a string, or a list of strings that ends in NULL.
    unsafe fn of(
        source: *const c_char,
        name: *const c_char,
        capability: *const c_char,
        include_dirs: *const *const c_char,
        options: *const *const c_char,
    ) -> Result<Given> {
        // SAFETY: the caller's promise.
        unsafe {
            Ok(Given {
                text: string(source, "kernel_source")?,
                name: string(name, "kernel_name")?,
                capability: if capability.is_null() { None } else { Some(string(capability, "compute_capability")?) },
                include_dirs: texts(include_dirs, "cuda_include_dirs")?,
                options: texts(options, "nvcc_options")?,
            })
        }
    }

    fn source(&self) -> Source<'_> {
        Source {
            text: &self.text,
            name: &self.name,
            capability: self.capability.as_deref(),
            include_dirs: &self.include_dirs,
            options: &self.options,
        }
    }
}

/// Compiles CUDA C++ with NVRTC, and gives the image back: torch.cuda._utils._nvrtc_compile. Loads nothing, and needs a device only
/// where no compute capability is named. Thread-safe.
///
/// @param kernel_source The source. The compiler's log counts its lines from 1, and calls it "kernel.cu".
/// @param kernel_name The kernel, as the source writes its name: "add" or "outer::scale"; of a template with its arguments in
///        angle brackets.
/// @param compute_capability What is compiled for: "90", "90a" or "sm_90" gives a cubin, "compute_90" PTX; NULL for the current
///        device's.
/// @param cuda_include_dirs Where headers are looked for, a list that ends in NULL; NULL for none. CUDA's own are looked for behind
///        them in the include folder that belongs to the NVRTC that was found, if there is one.
/// @param nvcc_options More options for NVRTC, a list that ends in NULL; NULL for none.
/// @param image Out: the image, to be freed with free().
/// @param bytes Out: its size.
/// @param lowered_name Out: the kernel's name in the image, to be freed with free().
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a compute capability that is none, and for an
///         option that names an architecture; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC;
///         PLINTH_ERROR_COMPILATION_FAILED with the compiler's log; PLINTH_ERROR_NOT_SUPPORTED for a device older than NVRTC
///         knows; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization where the device is asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_nvrtc_compile(
    kernel_source: *const c_char,
    kernel_name: *const c_char,
    compute_capability: *const c_char,
    cuda_include_dirs: *const *const c_char,
    nvcc_options: *const *const c_char,
    image: *mut *mut c_void,
    bytes: *mut usize,
    lowered_name: *mut *mut c_char,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or places for what they are named after, and texts as they are described.
        let (image, bytes, lowered_name, given) = unsafe {
            (
                Output::new(image, "image")?,
                Output::new(bytes, "bytes")?,
                Output::new(lowered_name, "lowered_name")?,
                Given::of(kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options)?,
            )
        };
        let (made, lowered) = kernel::compile_image(&given.source())?;
        let made = made.bytes();
        // SAFETY: malloc takes any size.
        let copy = unsafe { libc::malloc(made.len()) };
        if copy.is_null() {
            return Err(Error::new(Status::OUT_OF_MEMORY, "no memory for an image"));
        }
        let name = match super::owned_text(&lowered) {
            Ok(name) => name,
            Err(error) => {
                // SAFETY: it was just allocated, and nobody else knows of it.
                unsafe { libc::free(copy) };
                return Err(error);
            }
        };
        // SAFETY: the new memory has as many bytes.
        unsafe { ptr::copy_nonoverlapping(made.as_ptr(), copy.cast(), made.len()) };
        image.set(copy);
        bytes.set(made.len());
        lowered_name.set(name);
        Ok(())
    })
}

/// Compiles a kernel from CUDA C++ and loads it: torch.cuda._compile_kernel. It stays loaded for as long as the process lives.
/// Thread-safe. The host device runs no CUDA C++.
///
/// @param kernel_source As plinth_nvrtc_compile.
/// @param kernel_name As plinth_nvrtc_compile.
/// @param compute_capability As plinth_nvrtc_compile; NULL for that of the device.
/// @param cuda_include_dirs As plinth_nvrtc_compile.
/// @param nvcc_options As plinth_nvrtc_compile.
/// @param device The device; -1 for the current one.
/// @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
/// @return As plinth_nvrtc_compile; PLINTH_ERROR_NOT_SUPPORTED on the host device; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_DRIVER for an image that the device does not take; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_compile_kernel(
    kernel_source: *const c_char,
    kernel_name: *const c_char,
    compute_capability: *const c_char,
    cuda_include_dirs: *const *const c_char,
    nvcc_options: *const *const c_char,
    device: i32,
    kernel: *mut plinth_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the kernel, and texts as they are described.
        let (output, given) = unsafe {
            (
                Output::new(kernel, "kernel")?,
                Given::of(kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options)?,
            )
        };
        output.set(kernel::compile(&given.source(), device)? as plinth_kernel_t);
        Ok(())
    })
}

/// Loads a module from an image: torch.cuda._utils._cuda_load_module. Thread-safe.
///
/// @param image PTX, which is text; a cubin; or a fatbin.
/// @param bytes Its size, a text's with or without the NUL at its end.
/// @param device The device; -1 for the current one.
/// @param module Out: the module. The caller owns it and destroys it with plinth_kernel_module_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for no bytes; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_COMPILATION_FAILED for PTX that the driver does not compile, with its log; PLINTH_ERROR_DRIVER for an image
///         that it does not take; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_load(
    image: *const c_void,
    bytes: usize,
    device: i32,
    module: *mut plinth_kernel_module_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the module.
        let output = unsafe { Output::new(module, "module") }?;
        if image.is_null() {
            return Err(null("image"));
        }
        if bytes == 0 {
            return Err(invalid("an image has some bytes".to_owned()));
        }
        // SAFETY: it is not NULL, so the caller promises that it is an image of so many bytes.
        let image = unsafe { Image::new(std::slice::from_raw_parts(image.cast(), bytes)) };
        output.set(kernel::load_module(&image, device)? as plinth_kernel_module_t);
        Ok(())
    })
}

/// Finds a kernel of a module. Thread-safe.
///
/// @param module The module.
/// @param name The kernel's name in the image: of C++ that is not extern "C", the lowered one.
/// @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name that the
///         module does not have; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_get_kernel(
    module: plinth_kernel_module_t,
    name: *const c_char,
    kernel: *mut plinth_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the kernel, and NULL or a string.
        let (output, name) = unsafe { (Output::new(kernel, "kernel")?, string(name, "name")?) };
        output.set(kernel::of_module(module as u64, &name)? as plinth_kernel_t);
        Ok(())
    })
}

/// Destroys a module's handle. It is unloaded when that and all of its kernels' handles are destroyed: then no launch of them
/// may be under way, and no graph may have one.
///
/// @param module The module; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_destroy(module: plinth_kernel_module_t) -> plinth_status_t {
    guard(|| if module.is_null() { Ok(()) } else { kernel::destroy_module(module as u64) })
}

/// Destroys a kernel's handle. What plinth_compile_kernel compiled stays loaded; of a kernel of a module see
/// plinth_kernel_module_destroy.
///
/// @param kernel The kernel; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER, and the handle is still one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_destroy(kernel: plinth_kernel_t) -> plinth_status_t {
    guard(|| if kernel.is_null() { Ok(()) } else { kernel::destroy(kernel as u64) })
}

/// Tells what is known of a kernel. Thread-safe.
///
/// @param kernel The kernel.
/// @param attributes In: struct_size. Out: the attributes. On the host device sizes and versions are 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a struct_size that
///         was not set; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_attributes(
    kernel: plinth_kernel_t,
    attributes: *mut plinth_kernel_attributes_t,
) -> plinth_status_t {
    guard(|| {
        let found = kernel::attributes(kernel as u64)?;
        // SAFETY: the caller passes a struct whose first field says its size; ours is plain data that begins likewise.
        unsafe { write_growable(attributes, found.into(), "attributes") }
    })
}

/// Tells how many blocks of a kernel one multiprocessor runs at once. Thread-safe.
///
/// @param kernel The kernel.
/// @param threads The threads of a block.
/// @param shared_bytes The dynamic shared memory of a block, in bytes; the kernel may have as much from then on.
/// @param blocks Out: how many blocks.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for no threads, and for
///         more shared memory than a block of the device can have; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_occupancy(
    kernel: plinth_kernel_t,
    threads: u32,
    shared_bytes: u32,
    blocks: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let output = unsafe { Output::new(blocks, "blocks") }?;
        if threads == 0 {
            return Err(invalid("a block has some threads".to_owned()));
        }
        output.set(kernel::occupancy(kernel as u64, threads, shared_bytes)?);
        Ok(())
    })
}

/// Lets launches of a kernel have so much dynamic shared memory, as torch's kernels want it before they are launched with more
/// than 48 KiB. plinth_kernel_launch does so itself. Thread-safe.
///
/// @param kernel The kernel.
/// @param shared_bytes The bytes a block.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for more than a block of the device can have;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_set_shared_memory_config(
    kernel: plinth_kernel_t,
    shared_bytes: u32,
) -> plinth_status_t {
    guard(|| kernel::set_shared_bytes(kernel as u64, shared_bytes))
}

/// The bytes that a kernel gets for an argument.
///
/// # Safety
/// `value` is NULL or leads to what the argument's kind says.
unsafe fn push(
    arguments: &mut Arguments,
    index: usize,
    argument: &plinth_kernel_argument_t,
    device: u32,
) -> Result<()> {
    let plinth_kernel_argument_t { value, bytes, kind, access } = *argument;
    if value.is_null() {
        return Err(null(&format!("the value of argument {index}")));
    }
    if access & !(PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE) != 0
        || (access != 0 && kind != PLINTH_ARGUMENT_TENSOR)
    {
        return Err(invalid(format!(
            "the access of argument {index} is {access:#x}; of a tensor it can be PLINTH_SANITIZER_READ and _WRITE, else 0"
        )));
    }
    let size = match kind {
        PLINTH_ARGUMENT_TENSOR => {
            // SAFETY: it is not NULL, so the caller promises a tensor.
            let address = unsafe { address_of(&*value.cast::<DLTensor>(), index, device) }?;
            // SAFETY: the caller answers for what the kernel does with the tensor.
            unsafe { arguments.push(&address.to_ne_bytes()) };
            return Ok(());
        }
        PLINTH_ARGUMENT_BOOL => 1,
        PLINTH_ARGUMENT_INT32 | PLINTH_ARGUMENT_FLOAT32 => 4,
        PLINTH_ARGUMENT_POINTER | PLINTH_ARGUMENT_INT64 | PLINTH_ARGUMENT_FLOAT64 => 8,
        PLINTH_ARGUMENT_BYTES => bytes,
        kind => return Err(invalid(format!("argument {index} is of kind {kind}, which is none"))),
    };
    // What is larger no kernel takes.
    if size == 0 || size > 1 << 16 || (bytes != 0 && bytes != size) {
        return Err(invalid(format!("argument {index} cannot have {bytes} bytes")));
    }
    // SAFETY: it is not NULL, so the caller promises as many bytes, and answers for what the kernel does with them.
    unsafe { arguments.push(std::slice::from_raw_parts(value.cast(), size)) };
    Ok(())
}

/// What the sanitizer is to know of an argument: the elements of a tensor, if they are of a type that is known.
///
/// # Safety
/// As [`push`], which has found nothing wrong with the argument.
unsafe fn add_operands(argument: &plinth_kernel_argument_t, device: u32, operands: &mut Vec<Operand>) {
    if argument.kind != PLINTH_ARGUMENT_TENSOR {
        return;
    }
    // SAFETY: a tensor's value was found not to be NULL, so the caller promises a tensor.
    let described = unsafe { &*argument.value.cast::<DLTensor>() };
    let Ok(element) = described.dtype.element("") else { return };
    // SAFETY: the caller promises that its shape is one; the elements are only counted.
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
            "argument {index} is on device {}, and the kernel on device {device}",
            tensor.device.device_id
        )),
        CUDA | CUDA_HOST | CUDA_MANAGED => Ok((tensor.data as u64).wrapping_add(tensor.byte_offset)),
        other => elsewhere(format!(
            "argument {index} is on a device of DLPack's type {other}; a kernel takes tensors of a CUDA device and of pinned memory"
        )),
    }
}

/// Launches a kernel in a stream, asynchronously. More than 48 KiB of dynamic shared memory is asked for where it is needed. In a
/// capture the launch becomes a node of the graph. Thread-safe.
///
/// Arguments are checked against the kernel's parameters, as far as the driver tells them (from CUDA 12.4 on): their number, and
/// the bytes of each.
///
/// The stream sanitizer knows the launch by the kernel's name, with what `access` says of each tensor; of addresses it knows
/// nothing, and is told by plinth_sanitizer_operation.
///
/// @param kernel The kernel.
/// @param launch Grid, block, and what else there is to say.
/// @param arguments The arguments, whose values are copied before the call returns; NULL for none.
/// @param count How many there are.
/// @param stream The stream, of the kernel's device; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a kernel or stream that is none;
///         PLINTH_ERROR_INVALID_VALUE for a struct_size that was not set, arguments that are not the kernel's, flags and an
///         access that are none, for more threads or shared memory than a block can have, and for a grid that is no multiple of
///         the cluster; PLINTH_ERROR_DEVICE_MISMATCH for a tensor or a stream of another device, and a tensor in memory that
///         devices cannot use; PLINTH_ERROR_RACE, as plinth_sanitizer_enable says;
///         PLINTH_ERROR_NOT_SUPPORTED for clusters and cooperative launches where the driver or the device has none;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_launch(
    kernel: plinth_kernel_t,
    launch: *const plinth_kernel_launch_t,
    arguments: *const plinth_kernel_argument_t,
    count: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or how to launch.
        let launch = *unsafe { launch.as_ref() }.ok_or_else(|| null("launch"))?;
        if launch.struct_size != size_of::<plinth_kernel_launch_t>() {
            return Err(invalid(format!(
                "launch->struct_size is {}; set it to sizeof(plinth_kernel_launch_t)",
                launch.struct_size
            )));
        }
        if launch.flags & !PLINTH_LAUNCH_COOPERATIVE != 0 {
            return Err(invalid(format!("{:#x} has flags that are none", launch.flags)));
        }
        if count > 0 && arguments.is_null() {
            return Err(null("arguments"));
        }
        let device = kernel::device_of(kernel as u64)?;
        let mut values = Arguments::default();
        for index in 0..count {
            // SAFETY: it is not NULL, so the caller promises as many arguments, each as its kind says.
            unsafe { push(&mut values, index, &*arguments.add(index), device) }?;
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
                // SAFETY: as above, and each of them was taken.
                unsafe { add_operands(&*arguments.add(index), device, &mut operands) };
            }
        }
        kernel::launch(kernel as u64, &shape, &values, &operands, stream as usize)
    })
}
