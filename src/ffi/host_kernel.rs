//! Kernels of the host device

use crate::{
    error::{Error, Result, invalid},
    ffi::{array, guard::guard, status::plinth_status_t, string},
    host::kernels::Launch,
    ops::jit::host_kernel,
    runtime,
};
use std::{
    ffi::{c_char, c_void},
    mem,
};

/// A launch that a function of the program runs in place of a kernel. It is valid during the call.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_host_launch_t {
    /// sizeof(plinth_host_launch_t) in the library's version of the header.
    pub struct_size: usize,
    /// The number of blocks in the grid, along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads in a block, along x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// The device number.
    pub device: i32,
    /// The address of each parameter's value, which need not be aligned.
    pub parameters: *const *const c_void,
    /// The number of parameters.
    pub count: usize,
}

/// A function that does on the CPU what a kernel does on a GPU: all blocks of one launch. It returns 0, or an error of its
/// own, which makes the launch fail with PLINTH_ERROR_LAUNCH_FAILED.
///
/// A thread of the library calls it when the launch's turn in its stream has come; launches in several streams, or on
/// several devices, at the same time. Addresses of device memory can be used as pointers. It must not unwind or throw, and
/// must not call CUDA, or a plinth function that calls CUDA.
#[allow(non_camel_case_types)]
pub type plinth_host_kernel_callback_t =
    Option<unsafe extern "C" fn(launch: *const plinth_host_launch_t, context: *mut c_void) -> i32>;

/// The function of a kernel and its context, which the program allows any thread to use.
struct Registered {
    function: unsafe extern "C" fn(*const plinth_host_launch_t, *mut c_void) -> i32,
    context: *mut c_void,
}

// SAFETY: the documentation of the registration says that any thread may call the function with the context.
unsafe impl Send for Registered {}
// SAFETY: as above, several at the same time.
unsafe impl Sync for Registered {}

impl Registered {
    fn run(&self, launch: &Launch) -> std::result::Result<(), String> {
        let parameters = launch.parameters().ok_or("the launch has too few parameters")?;
        let parameters: Vec<*const c_void> = parameters.iter().map(|bytes| bytes.as_ptr().cast()).collect();
        let described = plinth_host_launch_t {
            struct_size: mem::size_of::<plinth_host_launch_t>(),
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            device: launch.device as i32,
            parameters: parameters.as_ptr(),
            count: parameters.len(),
        };
        // SAFETY: the program registered the function for such launches, and all that the struct points to outlives the
        // call.
        match unsafe { (self.function)(&raw const described, self.context) } {
            0 => Ok(()),
            code => Err(format!("its host function returned {code}")),
        }
    }
}

/// Gives a kernel a function that runs on the host device in its place.
///
/// For kernels that the machine's compiler cannot compile: those of PTX, cubins and fatbins, and CUDA C++ that uses what
/// the host device does not have. plinth_kernel_module_load accepts any such image on the host device, and
/// plinth_kernel_module_get_kernel finds the kernels that have a function. plinth_compile_kernel takes the function, too, and
/// does not compile the source, if the name that it is given is the registered one. On a GPU the call has no effect.
///
/// Kernels that were found before keep the function that they had. Any thread may register.
///
/// @param name The kernel's name, as it will be passed to plinth_kernel_module_get_kernel (for C++ that is not extern "C",
///        the lowered name) or to plinth_compile_kernel; not one that begins with "plinth_". It is copied.
/// @param parameter_bytes The size of each parameter in bytes, in their order; NULL if `count` is 0. They are copied.
/// @param count The number of parameters.
/// @param function The function; NULL removes the registration of the name, if there is one.
/// @param context Passed to the function. It must stay valid as long as a kernel with the function may be launched, or may
///        run in a graph.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for an empty name, a name of the library, and
///         parameters of 0 or of more than 32764 bytes in all; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_host_kernel_register(
    name: *const c_char,
    parameter_bytes: *const usize,
    count: usize,
    function: plinth_host_kernel_callback_t,
    context: *mut c_void,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a string.
        let name = unsafe { string(name, "name") }?;
        runtime::ready()?;
        let Some(function) = function else {
            host_kernel::unregister(&name);
            return Ok(());
        };
        // SAFETY: the caller passes `count` sizes.
        let sizes = unsafe { sizes(parameter_bytes, count) }?;
        let registered = Registered { function, context };
        host_kernel::register(name, sizes, Box::new(move |launch| registered.run(launch)))
    })
}

/// Returns the sizes of parameters.
///
/// # Safety
/// `sizes` is NULL or points to `count` sizes.
unsafe fn sizes(sizes: *const usize, count: usize) -> Result<Vec<usize>> {
    if count > host_kernel::MAX_PARAMETER_BYTES {
        return Err(too_large());
    }
    // SAFETY: the caller makes this promise.
    let sizes = unsafe { array(sizes, count, "parameter_bytes") }?;
    let total = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
    if sizes.contains(&0) || total.is_none_or(|total| total > host_kernel::MAX_PARAMETER_BYTES) {
        return Err(too_large());
    }
    Ok(sizes.to_vec())
}

fn too_large() -> Error {
    invalid(format!(
        "a parameter has at least 1 byte, and those of a kernel at most {} in all",
        host_kernel::MAX_PARAMETER_BYTES
    ))
}
