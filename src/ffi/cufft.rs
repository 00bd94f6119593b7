//! Plans of cuFFT
//!
//! Plans for Fourier transforms, with a cache for each device: torch.backends.cuda.cufft_plan_cache.
//!
//! The caller owns the handle of a plan and destroys it. The plan itself lives as long as the cache, a handle or a
//! graph needs it. Threads may share a plan: each execution takes the plan for the length of the call, and allocates
//! its own work memory. A thread that acquires a plan must release it.

use crate::{
    error::{Error, Result},
    ffi::{
        Output,
        guard::{guard, release},
        handle, null, span,
        status::plinth_status_t,
        structs,
        tensor::DLDataType,
    },
    ops::fft::{
        self,
        params::{Params, Transform},
        plan::{FORWARD, INVERSE},
    },
    status::Status,
};
use std::ffi::c_void;

/// A plan for Fourier transforms. The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for an
/// invalid one.
#[allow(non_camel_case_types)]
pub struct plinth_cufft_plan {
    _private: [u8; 0],
}

/// The handle of a plan.
#[allow(non_camel_case_types)]
pub type plinth_cufft_plan_t = *mut plinth_cufft_plan;

/// Complex to complex.
pub const PLINTH_CUFFT_C2C: i32 = 0;
/// Real to complex. The last dimension of the output has n / 2 + 1 elements.
pub const PLINTH_CUFFT_R2C: i32 = 1;
/// Complex to real; the inverse of PLINTH_CUFFT_R2C.
pub const PLINTH_CUFFT_C2R: i32 = 2;

/// The forward transform, from a signal to its frequencies.
pub const PLINTH_CUFFT_FORWARD: i32 = -1;
/// The inverse transform. Like cuFFT's, it does not divide by the number of elements.
pub const PLINTH_CUFFT_INVERSE: i32 = 1;

const _: () = assert!(PLINTH_CUFFT_FORWARD == FORWARD && PLINTH_CUFFT_INVERSE == INVERSE);

/// The parameters of a plan. PLINTH_CUFFT_PARAMS_INIT sets struct_size, and the other fields to 0.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct plinth_cufft_params_t {
    /// sizeof(plinth_cufft_params_t).
    pub struct_size: usize,
    /// The number of dimensions of a signal: 1, 2 or 3.
    pub rank: i32,
    /// PLINTH_CUFFT_C2C, _R2C or _C2R.
    pub transform: i32,
    /// The type of the real numbers, or of the real and imaginary parts of complex ones: a float of 16, 32 or 64
    /// bits.
    pub number: DLDataType,
    /// The number of signals, then the size of each dimension, in elements of the real signal.
    pub sizes: [i64; 4],
    /// The strides of the input, in its elements: between signals, then in each dimension. All 0 for a contiguous
    /// input.
    pub input_strides: [i64; 4],
    /// The strides of the output, in the same form.
    pub output_strides: [i64; 4],
}

/// Converts the parameters that C passes.
///
/// # Safety
/// `params` is NULL or points to as many bytes as its first field says.
unsafe fn params(params: *const plinth_cufft_params_t) -> Result<Params> {
    let initial = plinth_cufft_params_t {
        struct_size: 0,
        rank: 0,
        transform: 0,
        number: DLDataType { code: 0, bits: 0, lanes: 0 },
        sizes: [0; 4],
        input_strides: [0; 4],
        output_strides: [0; 4],
    };
    // SAFETY: the caller's promise.
    let params = unsafe { structs::read(params, initial, "params") }?;
    let invalid = |message: String| Error::new(Status::INVALID_VALUE, message);
    let transform = match params.transform {
        PLINTH_CUFFT_C2C => Transform::ComplexToComplex,
        PLINTH_CUFFT_R2C => Transform::RealToComplex,
        PLINTH_CUFFT_C2R => Transform::ComplexToReal,
        other => return Err(invalid(format!("params->transform is {other}; use PLINTH_CUFFT_C2C, _R2C or _C2R"))),
    };
    let number = params.number.element("params->number")?;
    Params::new(params.rank, params.sizes, [params.input_strides, params.output_strides], transform, number)
}

/// Gets a plan for Fourier transforms from the device's cache, or creates it and adds it to the cache.
///
/// The plan becomes the most recently used one of the cache. If the maximum size of the cache is 0, only the caller
/// has the plan. May be called while a stream captures.
///
/// The library looks for cuFFT in the process, in the system's library paths, in the CUDA toolkit and in folders of
/// Python packages; PLINTH_CUFFT_LIBRARY names another file.
///
/// @param params The parameters of the plan.
/// @param device The device index; -1 for the current device.
/// @param plan Out: the plan. The caller releases it with plinth_cufft_plan_destroy. The cache, and graphs that
///        captured the plan, keep their own references.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for sizes,
///         types or strides that cuFFT does not support; PLINTH_ERROR_LIBRARY_UNAVAILABLE if cuFFT is not found, with
///         a message that lists where the library looked for it, and on the host device; PLINTH_ERROR_LIBRARY if
///         cuFFT fails; PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_create(
    params: *const plinth_cufft_params_t,
    device: i32,
    plan: *mut plinth_cufft_plan_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let plan = unsafe { Output::new(plan, "plan") }?;
        // SAFETY: the caller passes NULL or a struct whose first field is its size.
        let params = unsafe { self::params(params) }?;
        plan.set(fft::get(&params, device)? as plinth_cufft_plan_t);
        Ok(())
    })
}

/// Executes a plan in the calling thread's current stream on the plan's device.
///
/// Threads may share a plan: each call locks the plan until it returns, and uses a work area of its own from the
/// allocator. May be captured.
///
/// @param plan The plan.
/// @param input The input, in the device's memory, aligned to its elements.
/// @param output The output; may be the input if both have the same layout. A complex-to-real transform may overwrite
///        the input.
/// @param direction PLINTH_CUFFT_FORWARD or _INVERSE. A real-to-complex transform is always forward, a
///        complex-to-real transform always inverse.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another
///         direction, and for a plan that this thread has acquired; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_execute(
    plan: plinth_cufft_plan_t,
    input: *const c_void,
    output: *mut c_void,
    direction: i32,
) -> plinth_status_t {
    guard(|| {
        let plan = handle(plan, "plan")?;
        if input.is_null() || output.is_null() {
            return Err(null(if input.is_null() { "input" } else { "output" }));
        }
        // SAFETY: the caller promises as much memory as the plan's shape needs; cuFFT knows the size.
        let (input, output) = unsafe { (span(input, 0), span(output, 0)) };
        fft::execute(plan, input, output, direction)
    })
}

/// Acquires a plan exclusively for the calling thread, for cuFFT calls that the program makes itself.
///
/// The plan is set to the thread's current stream on the plan's device and has a work area. Other threads that use
/// the plan wait until plinth_cufft_plan_release. The thread must make that call before it ends.
///
/// @param plan The plan.
/// @param native Out: the cufftHandle. It belongs to the library. Settings that the program changes on it persist,
///        except stream and work area.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the
///         thread has already acquired the plan; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_acquire(plan: plinth_cufft_plan_t, native: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let native = unsafe { Output::new(native, "native") }?;
        native.set(fft::acquire(handle(plan, "plan")?)?);
        Ok(())
    })
}

/// Releases a plan that plinth_cufft_plan_acquire acquired. Work that was added to the stream in between still runs.
///
/// @param plan The plan.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the
///         thread has not acquired the plan; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_release(plan: plinth_cufft_plan_t) -> plinth_status_t {
    release(|| fft::release(handle(plan, "plan")?))
}

/// Releases the caller's reference to a plan. Work that is in a stream still runs.
///
/// @param plan The plan; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has acquired the plan
///         through this handle: call plinth_cufft_plan_release first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_destroy(plan: plinth_cufft_plan_t) -> plinth_status_t {
    release(|| if plan.is_null() { Ok(()) } else { fft::forget(handle(plan, "plan")?) })
}

/// Gets the maximum number of plans in a device's cache: cufft_plan_cache.max_size. The default is 4096.
///
/// @param device The device index; -1 for the current device.
/// @param max_size Out: the maximum number of plans.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_get_max_size(device: i32, max_size: *mut i64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let max_size = unsafe { Output::new(max_size, "max_size") }?;
        max_size.set(fft::max_size(device)?);
        Ok(())
    })
}

/// Sets the maximum number of plans in a device's cache. If the cache has more, the least recently used plans are
/// removed.
///
/// @param device The device index; -1 for the current device.
/// @param max_size The maximum number of plans; 0 disables the cache.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a negative number; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_set_max_size(device: i32, max_size: i64) -> plinth_status_t {
    guard(|| fft::set_max_size(max_size, device))
}

/// Gets the number of plans in a device's cache: cufft_plan_cache.size.
///
/// @param device The device index; -1 for the current device.
/// @param size Out: the number of plans.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_size(device: i32, size: *mut i64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let size = unsafe { Output::new(size, "size") }?;
        size.set(fft::size(device)?);
        Ok(())
    })
}

/// Removes all plans from a device's cache: cufft_plan_cache.clear. Plans that the program or a graph uses stay
/// valid.
///
/// @param device The device index; -1 for the current device.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_clear(device: i32) -> plinth_status_t {
    guard(|| fft::clear(device))
}
