//! Kernels
//!
//! Compiles CUDA C++, loads modules, and launches kernels: torch.cuda._compile_kernel. NVRTC compiles for a GPU, the
//! machine's C++ compiler for the host device. docs/compile_kernel.md lists what the host device does not have.
//!
//! The caller owns the handles of kernels and modules and destroys them. A compiled kernel stays loaded until the
//! process ends. A module is unloaded when its handle and those of all its kernels are destroyed; no launch may be in
//! progress then, and no graph may contain one. Arguments of a launch are copied before the call returns; the memory
//! that they point to must stay valid until the kernel is done.

use crate::{
    driver::Image,
    error::{Error, Result, invalid},
    ffi::{
        Output, array,
        guard::{guard, release},
        handle,
        status::plinth_status_t,
        string,
        structs::StructOutput,
    },
    ops::jit::{
        kernel::{self, Attributes},
        nvrtc_source::{self, Source},
    },
    status::Status,
};
use std::{
    ffi::{c_char, c_void},
    ptr,
};

/// A kernel that was compiled from source code or found in a module.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_kernel {
    _private: [u8; 0],
}

/// The handle of a kernel.
#[allow(non_camel_case_types)]
pub type plinth_kernel_t = *mut plinth_kernel;

/// A module that was loaded from an image. Opaque and checked, as plinth_kernel.
#[allow(non_camel_case_types)]
pub struct plinth_kernel_module {
    _private: [u8; 0],
}

/// The handle of a module.
#[allow(non_camel_case_types)]
pub type plinth_kernel_module_t = *mut plinth_kernel_module;

/// The attributes of a kernel.
///
/// The struct grows at its end in newer versions. Set struct_size to sizeof(plinth_kernel_attributes_t) before the
/// call, as PLINTH_KERNEL_ATTRIBUTES_INIT does.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_kernel_attributes_t {
    /// In: the size of the struct in bytes. Out: the number of bytes that were written.
    pub struct_size: usize,
    /// Registers per thread.
    pub registers: i32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: i32,
    /// The current limit on the dynamic shared memory per block of a launch, in bytes.
    pub max_dynamic_shared_bytes: i32,
    /// Local memory per thread, in bytes, including spilled registers.
    pub local_bytes: i32,
    /// Constant memory, in bytes.
    pub const_bytes: i32,
    /// The maximum number of threads in a block.
    pub max_threads_per_block: i32,
    /// The virtual architecture for which the kernel was compiled; 90 for compute_90.
    pub ptx_version: i32,
    /// The architecture of the kernel's machine code; 90 for sm_90.
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

/// Returns the strings of a NULL-terminated array.
///
/// # Safety
/// `texts` is NULL or points to pointers to strings, the last of which is NULL.
unsafe fn texts(texts: *const *const c_char, name: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    if texts.is_null() {
        return Ok(found);
    }
    loop {
        // SAFETY: the caller promises pointers up to the NULL, which was not reached yet.
        let text = unsafe { *texts.add(found.len()) };
        if text.is_null() {
            return Ok(found);
        }
        // SAFETY: it is not NULL, so the caller promises a string.
        found.push(unsafe { string(text, name) }?);
    }
}

/// The source code of a kernel and the options for its compilation.
struct SourceArguments {
    text: String,
    name: String,
    capability: Option<String>,
    include_dirs: Vec<String>,
    options: Vec<String>,
}

impl SourceArguments {
    /// Copies the arguments from C.
    ///
    /// # Safety
    /// Each argument is NULL, or a string or a NULL-terminated array of strings.
    unsafe fn of(
        source: *const c_char,
        name: *const c_char,
        capability: *const c_char,
        include_dirs: *const *const c_char,
        options: *const *const c_char,
    ) -> Result<SourceArguments> {
        // SAFETY: the caller's promise.
        unsafe {
            Ok(SourceArguments {
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

/// Compiles CUDA C++ with NVRTC and returns the image: torch.cuda._utils._nvrtc_compile.
///
/// The call loads nothing. It needs a device only if compute_capability is NULL.
///
/// @param kernel_source The source code. The compiler's log numbers its lines from 1 and calls the file "kernel.cu".
/// @param kernel_name The kernel's name as in the source: "add" or "outer::scale". The name of a template instance
///        includes the arguments in angle brackets.
/// @param compute_capability The target: "90", "90a" or "sm_90" produces a cubin, "compute_90" PTX; NULL for the
///        current device's compute capability.
/// @param cuda_include_dirs A NULL-terminated array of include directories; NULL for none. After these, the include
///        directory that belongs to the NVRTC that was found is searched for CUDA's own headers, if it exists.
/// @param nvcc_options A NULL-terminated array of further options for NVRTC; NULL for none. -default-device is always on.
/// @param image Out: the image. The caller owns it and frees it with free().
/// @param bytes Out: the size of the image in bytes.
/// @param lowered_name Out: the kernel's name in the image. The caller owns it and frees it with free().
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an invalid compute capability, and
///         for an option that names an architecture; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC;
///         PLINTH_ERROR_COMPILATION_FAILED with the compiler's log; PLINTH_ERROR_NOT_SUPPORTED for a device that is
///         too old for NVRTC; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization if compute_capability is NULL.
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
        // SAFETY: the caller passes NULL or pointers that are valid for writes, and strings as documented.
        let (image, bytes, lowered_name, given) = unsafe {
            (
                Output::new(image, "image")?,
                Output::new(bytes, "bytes")?,
                Output::new(lowered_name, "lowered_name")?,
                SourceArguments::of(kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options)?,
            )
        };
        let (made, lowered) = nvrtc_source::compile_image(&given.source())?;
        let made = made.bytes();
        // SAFETY: malloc accepts any size.
        let copy = unsafe { libc::malloc(made.len()) };
        if copy.is_null() {
            return Err(Error::new(Status::OUT_OF_MEMORY, "copying the compiled image: malloc failed"));
        }
        let name = match super::owned_text(&lowered) {
            Ok(name) => name,
            Err(error) => {
                // SAFETY: it was just allocated, and there is no other reference to it.
                unsafe { libc::free(copy) };
                return Err(error);
            }
        };
        // SAFETY: the new memory has `made.len()` bytes.
        unsafe { ptr::copy_nonoverlapping(made.as_ptr(), copy.cast(), made.len()) };
        image.set(copy);
        bytes.set(made.len());
        lowered_name.set(name);
        Ok(())
    })
}

/// Compiles a kernel from CUDA C++ and loads it: torch.cuda._compile_kernel.
///
/// The kernel stays loaded for the lifetime of the process. On the host device the call runs the machine's C++ compiler
/// (PLINTH_CXX, CXX, c++, g++ or clang++), and the error of a kernel that fails names the kernel, the block, the thread
/// and the line.
///
/// @param kernel_source As plinth_nvrtc_compile.
/// @param kernel_name As plinth_nvrtc_compile.
/// @param compute_capability As plinth_nvrtc_compile; NULL for that of the device.
/// @param cuda_include_dirs As plinth_nvrtc_compile.
/// @param nvcc_options As plinth_nvrtc_compile.
/// @param device The device index; -1 for the current device.
/// @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
/// @return As plinth_nvrtc_compile; on the host device also PLINTH_ERROR_COMPILER_UNAVAILABLE without a C++ compiler, and
///         PLINTH_ERROR_INVALID_VALUE for an option that the host device does not know; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_DRIVER for an image that the device does not accept; the errors of initialization.
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
        // SAFETY: the caller passes NULL or a pointer that is valid for writes, and strings as documented.
        let (output, given) = unsafe {
            (
                Output::new(kernel, "kernel")?,
                SourceArguments::of(kernel_source, kernel_name, compute_capability, cuda_include_dirs, nvcc_options)?,
            )
        };
        output.set(kernel::compile(&given.source(), device)? as plinth_kernel_t);
        Ok(())
    })
}

/// Loads a module from an image: torch.cuda._utils._cuda_load_module.
///
/// @param image PTX text, a cubin or a fatbin.
/// @param bytes The size in bytes. The terminating NUL of a text may be included or not.
/// @param device The device index; -1 for the current device.
/// @param module Out: the module. The caller owns it and destroys it with plinth_kernel_module_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a size of 0, and for a cubin or a fatbin
///         that is shorter than its header states; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILATION_FAILED for PTX
///         that the driver cannot compile, with the driver's log; PLINTH_ERROR_DRIVER for an image that the driver does
///         not accept; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_load(
    image: *const c_void,
    bytes: usize,
    device: i32,
    module: *mut plinth_kernel_module_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(module, "module") }?;
        if bytes == 0 {
            return Err(invalid("bytes is 0; pass the size of the image".to_owned()));
        }
        // SAFETY: the caller promises `bytes` bytes.
        let content = unsafe { array::<u8>(image.cast(), bytes, "image") }?;
        if let Some(length) = Image::stated_length(content).filter(|length| *length > bytes as u64) {
            return Err(invalid(format!(
                "loading an image of {bytes} bytes: its header states at least {length}; pass the complete image"
            )));
        }
        // SAFETY: the caller promises an image, and it is complete.
        let image = unsafe { Image::new(content.to_vec()) };
        output.set(kernel::load_module(&image, device)? as plinth_kernel_module_t);
        Ok(())
    })
}

/// Gets a kernel of a module.
///
/// @param module The module.
/// @param name The kernel's name in the image. For C++ that is not extern "C", this is the lowered name.
/// @param kernel Out: the kernel. The caller owns it and destroys it with plinth_kernel_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name
///         that the module does not have; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_get_kernel(
    module: plinth_kernel_module_t,
    name: *const c_char,
    kernel: *mut plinth_kernel_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes, and NULL or a string.
        let (output, name) = unsafe { (Output::new(kernel, "kernel")?, string(name, "name")?) };
        output.set(kernel::from_module(handle(module, "module")?, &name)? as plinth_kernel_t);
        Ok(())
    })
}

/// Gets a variable of a kernel's module, `__constant__` or `__device__`: cudaGetSymbolAddress.
///
/// The address is that of device memory, of the kernel's device. Copies may read and write it, in the order of their
/// streams: copy to a `__constant__` variable before the launches that use it, in their stream. Each module has variables of
/// its own; kernels of plinth_compile_kernel are modules of one kernel each. On the host device a variable that is const in
/// C++ is not found.
///
/// @param kernel The kernel.
/// @param name The variable's name in the image: as in the source at global scope; the mangled name in a namespace, and for
///        a variable that is static on the host device. On a GPU static variables are not found.
/// @param address Out: the address, which is valid as long as the module is loaded.
/// @param bytes Out: the size in bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a name that the
///         module does not have, which may be that of a variable that no kernel uses; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_symbol(
    kernel: plinth_kernel_t,
    name: *const c_char,
    address: *mut *mut c_void,
    bytes: *mut usize,
) -> plinth_status_t {
    // SAFETY: the caller makes the same promises.
    guard(|| unsafe { symbol(name, address, bytes, |name| kernel::symbol(handle(kernel, "kernel")?, name)) })
}

/// Gets a variable of a module, as plinth_kernel_symbol.
///
/// @param module The module.
/// @param name As in plinth_kernel_symbol.
/// @param address Out: the address, which is valid as long as the module is loaded.
/// @param bytes Out: the size in bytes.
/// @return As plinth_kernel_symbol.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_symbol(
    module: plinth_kernel_module_t,
    name: *const c_char,
    address: *mut *mut c_void,
    bytes: *mut usize,
) -> plinth_status_t {
    // SAFETY: the caller makes the same promises.
    guard(|| unsafe { symbol(name, address, bytes, |name| kernel::symbol_of_module(handle(module, "module")?, name)) })
}

/// Writes the address and the size of the variable that `find` finds.
///
/// # Safety
/// The name is NULL or a string; the outputs are NULL or valid for writes.
unsafe fn symbol(
    name: *const c_char,
    address: *mut *mut c_void,
    bytes: *mut usize,
    find: impl FnOnce(&str) -> Result<(u64, usize)>,
) -> Result<()> {
    // SAFETY: the caller promises this.
    let (address, bytes, name) =
        unsafe { (Output::new(address, "address")?, Output::new(bytes, "bytes")?, string(name, "name")?) };
    let found = find(&name)?;
    address.set(found.0 as *mut c_void);
    bytes.set(found.1);
    Ok(())
}

/// Destroys the handle of a module.
///
/// The module is unloaded when its handle and the handles of all its kernels are destroyed. At that time no launch of
/// its kernels may be in progress, and no graph may contain one.
///
/// @param module The module; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the handle remains valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_module_destroy(module: plinth_kernel_module_t) -> plinth_status_t {
    release(|| if module.is_null() { Ok(()) } else { kernel::destroy_module(module as u64) })
}

/// Destroys the handle of a kernel.
///
/// A kernel from plinth_compile_kernel stays loaded. For a kernel of a module see plinth_kernel_module_destroy.
///
/// @param kernel The kernel; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DRIVER: the handle remains valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_destroy(kernel: plinth_kernel_t) -> plinth_status_t {
    release(|| if kernel.is_null() { Ok(()) } else { kernel::destroy(kernel as u64) })
}

/// Gets the attributes of a kernel.
///
/// @param kernel The kernel.
/// @param attributes In: struct_size. Out: the attributes. On the host device sizes and versions are 0.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if
///         struct_size was not set; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_attributes(
    kernel: plinth_kernel_t,
    attributes: *mut plinth_kernel_attributes_t,
) -> plinth_status_t {
    guard(|| {
        let found = kernel::attributes(handle(kernel, "kernel")?)?;
        // SAFETY: the caller passes NULL or a struct that begins with its size.
        unsafe { StructOutput::new(attributes, "attributes") }?.set(found.into());
        Ok(())
    })
}

/// Gets the number of blocks of a kernel that one multiprocessor can run at the same time.
///
/// @param kernel The kernel.
/// @param threads The number of threads in a block.
/// @param shared_bytes The dynamic shared memory per block, in bytes. The call raises the kernel's limit to this
///        size, as plinth_kernel_set_shared_memory_config does.
/// @param blocks Out: the number of blocks.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for 0
///         threads, and for more shared memory than a block of the device can have; PLINTH_ERROR_DRIVER; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_occupancy(
    kernel: plinth_kernel_t,
    threads: u32,
    shared_bytes: u32,
    blocks: *mut i32,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(blocks, "blocks") }?;
        if threads == 0 {
            return Err(invalid("threads is 0; a block needs at least one thread".to_owned()));
        }
        output.set(kernel::occupancy(handle(kernel, "kernel")?, threads, shared_bytes)?);
        Ok(())
    })
}

/// Raises the limit on the dynamic shared memory of a kernel's launches.
///
/// torch's kernels need this call before a launch with more than 48 KiB. plinth_kernel_launch raises the limit
/// itself. The call never lowers the limit.
///
/// @param kernel The kernel.
/// @param shared_bytes The limit in bytes per block.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for more than a
///         block of the device can have; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_kernel_set_shared_memory_config(
    kernel: plinth_kernel_t,
    shared_bytes: u32,
) -> plinth_status_t {
    guard(|| kernel::set_shared_bytes(handle(kernel, "kernel")?, shared_bytes))
}
