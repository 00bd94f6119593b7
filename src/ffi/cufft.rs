//! Plans of cuFFT
//!
//! Plans for Fourier transforms, with a cache for each device: torch.backends.cuda.cufft_plan_cache.
//!
//! The caller owns the handle of a plan and destroys it. The plan itself lives as long as the cache, a handle or a
//! graph needs it. Threads may share a plan: each execution takes the plan for the length of the call, and allocates
//! its own work memory. A thread that acquires a plan must release it.

use crate::{
    error::{Error, Result},
    ffi::{Output, guard::guard, null, span, status::plinth_status_t, tensor::DLDataType},
    fft::{
        self,
        params::{Params, Transform},
        plan::{FORWARD, INVERSE},
    },
    status::Status,
};
use std::ffi::c_void;

/// A plan of Fourier transforms. Opaque, and checked.
#[allow(non_camel_case_types)]
pub struct plinth_cufft_plan {
    _private: [u8; 0],
}

/// The handle of a plan.
#[allow(non_camel_case_types)]
pub type plinth_cufft_plan_t = *mut plinth_cufft_plan;

/// From complex numbers to complex ones.
pub const PLINTH_CUFFT_C2C: i32 = 0;
/// From real numbers to complex ones, of which the last dimension has n / 2 + 1.
pub const PLINTH_CUFFT_R2C: i32 = 1;
/// From those back to real numbers.
pub const PLINTH_CUFFT_C2R: i32 = 2;

/// From a signal to its frequencies.
pub const PLINTH_CUFFT_FORWARD: i32 = -1;
/// Back. Like cuFFT's, it does not divide by the number of elements.
pub const PLINTH_CUFFT_INVERSE: i32 = 1;

const _: () = assert!(PLINTH_CUFFT_FORWARD == FORWARD && PLINTH_CUFFT_INVERSE == INVERSE);

/// What a plan is for. PLINTH_CUFFT_PARAMS_INIT sets struct_size, and the rest to 0.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy)]
#[repr(C)]
pub struct plinth_cufft_params_t {
    /// sizeof(plinth_cufft_params_t).
    pub struct_size: usize,
    /// How many dimensions a signal has: 1, 2 or 3.
    pub rank: i32,
    /// PLINTH_CUFFT_C2C, _R2C or _C2R.
    pub transform: i32,
    /// The type of the real numbers, or of the parts of complex ones: a float of 16, 32 or 64 bits.
    pub number: DLDataType,
    /// How many signals there are, then the size of each dimension, as of real numbers.
    pub sizes: [i64; 4],
    /// The distance of neighbours in the input, in its elements: of signals, then in each dimension. All 0: side by
    /// side.
    pub input_strides: [i64; 4],
    /// The same of the output.
    pub output_strides: [i64; 4],
}

fn handle(plan: plinth_cufft_plan_t) -> Result<u64> {
    if plan.is_null() { Err(null("plan")) } else { Ok(plan as u64) }
}

/// What C asks for.
///
/// # Safety
/// `params` is NULL, or leads to as many bytes as the size in front says.
unsafe fn params(params: *const plinth_cufft_params_t) -> Result<Params> {
    // SAFETY: the caller's promise; where the size is another, nothing but it is read.
    let params = unsafe { params.as_ref() }.ok_or_else(|| null("params"))?;
    let invalid = |message: String| Error::new(Status::INVALID_VALUE, message);
    if params.struct_size != size_of::<plinth_cufft_params_t>() {
        return Err(invalid(format!(
            "params->struct_size is {}; set it to sizeof(plinth_cufft_params_t)",
            params.struct_size
        )));
    }
    let transform = match params.transform {
        PLINTH_CUFFT_C2C => Transform::ComplexToComplex,
        PLINTH_CUFFT_R2C => Transform::RealToComplex,
        PLINTH_CUFFT_C2R => Transform::ComplexToReal,
        other => return Err(invalid(format!("{other} is not the number of a transform"))),
    };
    let number = params.number.element("params->number")?;
    Params::new(params.rank, params.sizes, [params.input_strides, params.output_strides], transform, number)
}

/// Gets a plan of Fourier transforms: from the device's cache, where it is the one used last from now on, or newly made
/// and put there. With a cache of no plans it is the caller's alone. Thread-safe; may be called while a stream
/// captures.
///
/// cuFFT is looked for in the process, where the system finds libraries, in CUDA's toolkit and in folders of Python
/// packages; PLINTH_CUFFT_LIBRARY names another file.
///
/// @param params What it is for.
/// @param device The device's number; -1 for the current one.
/// @param plan Out: the plan. The caller gives it up with plinth_cufft_plan_destroy; it lives on in the cache, and also
///        in the graphs that it was captured into.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_INVALID_VALUE for sizes,
///         types or strides that cuFFT does not do; PLINTH_ERROR_LIBRARY_UNAVAILABLE where there is no cuFFT, with a
///         message that says where it was looked for, and on the host device; PLINTH_ERROR_LIBRARY where cuFFT fails;
///         PLINTH_ERROR_NOT_SUPPORTED; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_get_plan(
    params: *const plinth_cufft_params_t,
    device: i32,
    plan: *mut plinth_cufft_plan_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the plan.
        let plan = unsafe { Output::new(plan, "plan") }?;
        // SAFETY: the caller passes NULL or a struct whose size stands in front.
        let params = unsafe { self::params(params) }?;
        plan.set(fft::get(&params, device)? as plinth_cufft_plan_t);
        Ok(())
    })
}

/// Carries a plan out, in the calling thread's current stream on the plan's device. Threads may share a plan: each call
/// takes it for as long as the call lasts, and works in memory of its own, which the allocator gives. May be captured.
/// Thread-safe.
///
/// @param plan The plan.
/// @param input The input, in the device's memory, aligned to its elements.
/// @param output The output; the input itself where both have the same layout. From complex to real numbers, cuFFT may
///        overwrite the input.
/// @param direction PLINTH_CUFFT_FORWARD or _INVERSE; from real numbers always forward, to real numbers always inverse.
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
        let plan = handle(plan)?;
        if input.is_null() || output.is_null() {
            return Err(null(if input.is_null() { "input" } else { "output" }));
        }
        // SAFETY: the caller vouches for as much memory as the plan's shape has; how much that is, cuFFT knows.
        let (input, output) = unsafe { (span(input, 0), span(output, 0)) };
        fft::execute(plan, input, output, direction)
    })
}

/// Gives the calling thread a plan for itself, for calls of cuFFT's that plinth does not make: set to the thread's
/// current stream on the plan's device, with memory to work with. Others that want the plan wait until
/// plinth_cufft_release_plan, which the thread must call before it ends. Thread-safe.
///
/// @param plan The plan.
/// @param native Out: the cufftHandle. It belongs to the library; what is set in it stays set, but for stream and work
///         area.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
///         has it already; PLINTH_ERROR_OUT_OF_MEMORY; PLINTH_ERROR_LIBRARY; PLINTH_ERROR_DRIVER; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_acquire_plan(plan: plinth_cufft_plan_t, native: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let native = unsafe { Output::new(native, "native") }?;
        native.set(fft::acquire(handle(plan)?)?);
        Ok(())
    })
}

/// Ends what plinth_cufft_acquire_plan began. What was put into the stream meanwhile is still carried out.
///
/// @param plan The plan.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if the thread
///         does not have it; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_release_plan(plan: plinth_cufft_plan_t) -> plinth_status_t {
    guard(|| fft::release(handle(plan)?))
}

/// Gives a plan up. What is in a stream is still carried out. Thread-safe.
///
/// @param plan The plan; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE while a thread has acquired the plan by this
///         handle: plinth_cufft_release_plan comes first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_destroy(plan: plinth_cufft_plan_t) -> plinth_status_t {
    guard(|| if plan.is_null() { Ok(()) } else { fft::forget(handle(plan)?) })
}

/// Tells how many plans a device's cache may hold: cufft_plan_cache.max_size, 4096 until it is set. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param max_size Out: how many.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_max_size(device: i32, max_size: *mut i64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let max_size = unsafe { Output::new(max_size, "max_size") }?;
        max_size.set(fft::max_size(device)?);
        Ok(())
    })
}

/// Says how many plans a device's cache may hold. If it holds more, those that were not used for the longest time go.
/// Thread-safe.
///
/// @param max_size How many; 0 lets it hold none.
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for a negative number; PLINTH_ERROR_INVALID_DEVICE; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_set_max_size(max_size: i64, device: i32) -> plinth_status_t {
    guard(|| fft::set_max_size(max_size, device))
}

/// Tells how many plans a device's cache holds: cufft_plan_cache.size. Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @param size Out: how many.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_size(device: i32, size: *mut i64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let size = unsafe { Output::new(size, "size") }?;
        size.set(fft::size(device)?);
        Ok(())
    })
}

/// Empties a device's cache: cufft_plan_cache.clear. Plans that somebody has, or a graph, live on for them.
/// Thread-safe.
///
/// @param device The device's number; -1 for the current one.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_DEVICE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cufft_plan_cache_clear(device: i32) -> plinth_status_t {
    guard(|| fft::clear(device))
}
