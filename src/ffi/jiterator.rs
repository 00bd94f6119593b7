//! Jiterator
//!
//! Makes a C++ function of elements into a function of tensors: torch.cuda.jiterator.
//!
//! The caller owns a jiterated function and destroys it. The compiled code stays loaded until the process ends. Tensors
//! must stay valid until the work is done; the structs that describe them are read during the call only. Threads may
//! call one function at the same time.

use crate::{
    driver::random::MAX_RANK,
    error::{Result, invalid},
    ffi::{
        Output, array,
        guard::{guard, release},
        handle, null, plinth_stream_t,
        status::plinth_status_t,
        string,
        structs::StructList,
        tensor::{DLDataType, DLTensor, tensor},
    },
    ops::jit::{
        function::{self, MAX_TENSORS},
        scalar::{Kind, MAX_SCALARS, NamedScalar, Value},
    },
    runtime::tensor::Tensor,
};
use std::{
    ffi::{CStr, c_char},
    mem::MaybeUninit,
    ptr,
};

/// A jiterated function. Opaque and validated: calls with a handle that was destroyed, is of another kind, or was never
/// created return PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_jit_function {
    _private: [u8; 0],
}

/// The handle of a jiterated function.
#[allow(non_camel_case_types)]
pub type plinth_jit_function_t = *mut plinth_jit_function;

/// Maximum number of inputs, and of outputs, of a jiterated function.
pub const PLINTH_JIT_MAX_TENSORS: usize = 8;
/// Maximum number of named scalars of a jiterated function.
pub const PLINTH_JIT_MAX_SCALARS: usize = 16;

/// A boolean scalar: `integer` is 0 for false, anything else for true.
pub const PLINTH_JIT_BOOL: i32 = 0;
/// A 64-bit integer scalar, in `integer`.
pub const PLINTH_JIT_INT: i32 = 1;
/// A scalar of type double, in `real`.
pub const PLINTH_JIT_FLOAT: i32 = 2;
/// A complex scalar, in `real` and `imaginary`.
pub const PLINTH_JIT_COMPLEX: i32 = 3;

/// A named scalar: a default that a function declares, or a value that is passed to a call. Only the fields that `kind`
/// selects are read.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_jit_scalar_t {
    /// sizeof(plinth_jit_scalar_t) in the caller's version of the header.
    pub struct_size: usize,
    /// The name.
    pub name: *const c_char,
    /// One of the PLINTH_JIT_ constants above.
    pub kind: i32,
    /// Reserved: 0.
    pub reserved: i32,
    /// The value of a bool or an integer.
    pub integer: i64,
    /// The value of a double, or the real part of a complex number.
    pub real: f64,
    /// The imaginary part of a complex number.
    pub imaginary: f64,
}

const _: () = assert!(PLINTH_JIT_MAX_TENSORS == MAX_TENSORS && PLINTH_JIT_MAX_SCALARS == MAX_SCALARS);

/// PLINTH_JIT_SCALAR_INIT.
const NO_SCALAR: plinth_jit_scalar_t = plinth_jit_scalar_t {
    struct_size: 0,
    name: ptr::null(),
    kind: 0,
    reserved: 0,
    integer: 0,
    real: 0.0,
    imaginary: 0.0,
};

fn value(scalar: &plinth_jit_scalar_t) -> Result<Value> {
    let none = Value::default();
    Ok(match scalar.kind {
        PLINTH_JIT_BOOL => Value { kind: Kind::Bool, integer: i64::from(scalar.integer != 0), ..none },
        PLINTH_JIT_INT => Value { kind: Kind::Int, integer: scalar.integer, ..none },
        PLINTH_JIT_FLOAT => Value { kind: Kind::Float, real: scalar.real, ..none },
        PLINTH_JIT_COMPLEX => Value { kind: Kind::Complex, real: scalar.real, imaginary: scalar.imaginary, ..none },
        kind => return Err(invalid(format!("scalar kind {kind} is unknown; use one of the PLINTH_JIT_ constants"))),
    })
}

/// The scalars that a function declares.
///
/// # Safety
/// As for [`array`]; the names are NULL or NUL-terminated strings.
unsafe fn declared(scalars: *const plinth_jit_scalar_t, count: usize) -> Result<Vec<NamedScalar>> {
    if count > MAX_SCALARS {
        return Err(invalid(format!("a jiterated function has at most {MAX_SCALARS} scalars, not {count}")));
    }
    // SAFETY: the caller makes this promise.
    let scalars = unsafe { StructList::new(scalars, count, NO_SCALAR, "scalars") }?;
    let named = scalars.iter().map(|scalar| {
        let scalar = scalar?;
        // SAFETY: the caller makes this promise.
        Ok(NamedScalar { name: unsafe { string(scalar.name, "a scalar's name") }?, value: value(&scalar)? })
    });
    named.collect()
}

/// Validated tensors. They are stored in place, because they are too large to be returned by value.
struct Tensors {
    tensors: [MaybeUninit<Tensor>; MAX_TENSORS],
    count: usize,
}

impl Tensors {
    fn new() -> Tensors {
        Tensors { tensors: [const { MaybeUninit::uninit() }; MAX_TENSORS], count: 0 }
    }

    /// Reads and appends the tensors at some pointers.
    ///
    /// # Safety
    /// As for [`array`]; each tensor is as [`tensor`] requires.
    #[inline]
    unsafe fn take(&mut self, pointers: *const *const DLTensor, count: usize, name: &str) -> Result<()> {
        if count > MAX_TENSORS {
            return Err(invalid(format!("the jiterator only supports up to {MAX_TENSORS} {name}, got {count}")));
        }
        // SAFETY: the caller makes this promise.
        let pointers = unsafe { array(pointers, count, name) }?;
        for (place, pointer) in self.tensors.iter_mut().zip(pointers) {
            // SAFETY: the caller makes this promise.
            place.write(unsafe { tensor(*pointer, name) }?);
        }
        self.count = count;
        Ok(())
    }

    fn all(&self) -> &[Tensor] {
        // SAFETY: `take` wrote this many tensors before it counted them.
        unsafe { std::slice::from_raw_parts(self.tensors.as_ptr().cast(), self.count) }
    }
}

/// Creates a function of tensors from a function of elements, with one output: torch.cuda.jiterator._create_jit_fn.
///
/// The code is C++ that ends in a template of one type, `template <typename T> T name(T x, T y, T alpha) { ... }`,
/// preceded by any helper functions. Its parameters are the inputs, 1 to PLINTH_JIT_MAX_TENSORS, followed by the
/// scalars in the order in which they are declared here. T is the common type of the inputs, float for float16 and
/// bfloat16. The code may use CUDA's functions, with or without std::, and the functions of complex numbers that
/// plinth_jiterator_call provides; no header has to be included. See docs/jiterator.md.
///
/// The code is compiled at the first call with each list of types and each kind of layout. Needs no device.
///
/// @param code The source code.
/// @param scalars The scalars with their names and defaults; NULL for none.
/// @param count The number of scalars, at most PLINTH_JIT_MAX_SCALARS.
/// @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for code without such a template, for
///         parameters that are neither inputs nor declared scalars, and for scalars without a name or with a duplicate
///         name; PLINTH_ERROR_OUT_OF_MEMORY when 16 million functions exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_create_jit_fn(
    code: *const c_char,
    scalars: *const plinth_jit_scalar_t,
    count: usize,
    function: *mut plinth_jit_function_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(function, "function") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string, and `count` scalars.
        let (code, scalars) = unsafe { (string(code, "code")?, declared(scalars, count)?) };
        output.set(function::create(&code, None, scalars)? as plinth_jit_function_t);
        Ok(())
    })
}

/// Creates a function of tensors with several outputs: torch.cuda.jiterator._create_multi_output_jit_fn. As
/// plinth_jiterator_create_jit_fn, but the template returns void, and its last parameters, after inputs and scalars,
/// are the outputs, `T &out`.
///
/// @param code The source code.
/// @param num_outputs The number of outputs, 1 to PLINTH_JIT_MAX_TENSORS.
/// @param scalars The scalars with their names and defaults; NULL for none.
/// @param count The number of scalars, at most PLINTH_JIT_MAX_SCALARS.
/// @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
/// @return The statuses of plinth_jiterator_create_jit_fn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_create_multi_output_jit_fn(
    code: *const c_char,
    num_outputs: i32,
    scalars: *const plinth_jit_scalar_t,
    count: usize,
    function: *mut plinth_jit_function_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let output = unsafe { Output::new(function, "function") }?;
        // SAFETY: the caller passes NULL or a NUL-terminated string, and `count` scalars.
        let (code, scalars) = unsafe { (string(code, "code")?, declared(scalars, count)?) };
        let outputs = usize::try_from(num_outputs)
            .map_err(|_| invalid(format!("a jiterated function has 1 to {MAX_TENSORS} outputs, not {num_outputs}")))?;
        output.set(function::create(&code, Some(outputs), scalars)? as plinth_jit_function_t);
        Ok(())
    })
}

/// Destroys a jiterated function. Calls in progress still complete; its compiled kernels stay loaded, and captured
/// graphs stay valid.
///
/// @param function The function; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_destroy_jit_fn(function: plinth_jit_function_t) -> plinth_status_t {
    release(|| if function.is_null() { Ok(()) } else { function::destroy(function as u64) })
}

/// Computes the type and shape of the outputs of a call: the common type of the inputs, by the rules of
/// torch.result_type, and their broadcast shape. The inputs' elements are not read.
///
/// @param function The function.
/// @param inputs The inputs.
/// @param num_inputs The number of inputs.
/// @param dtype Out: the type of every output.
/// @param ndim Out: the number of dimensions of every output.
/// @param shape Out: the extents; must have room for 25.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE if num_inputs
///         is not the function's number of inputs, and for shapes that cannot be broadcast; PLINTH_ERROR_NOT_SUPPORTED
///         for types without a common type: uint16, uint32 or uint64 and another integer type;
///         PLINTH_ERROR_DEVICE_MISMATCH for a tensor that is not on a CUDA device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_result(
    function: plinth_jit_function_t,
    inputs: *const *const DLTensor,
    num_inputs: usize,
    dtype: *mut DLDataType,
    ndim: *mut i32,
    shape: *mut i64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (dtype, ndim, shape) = unsafe {
            (
                Output::new(dtype, "dtype")?,
                Output::new(ndim, "ndim")?,
                Output::new(shape.cast::<[i64; MAX_RANK]>(), "shape")?,
            )
        };
        let mut taken = Tensors::new();
        // SAFETY: the caller passes NULL or `num_inputs` tensors.
        unsafe { taken.take(inputs, num_inputs, "inputs") }?;
        let (element, sizes, rank) = function::result_of(handle(function, "function")?, taken.all())?;
        dtype.set(element.into());
        ndim.set(rank as i32);
        shape.set(sizes);
        Ok(())
    })
}

/// Calls a jiterated function: computes its outputs in a stream, asynchronously.
///
/// - The inputs may have any types, shapes and strides, and may have no dimensions. They are broadcast: dimensions of
///   one element, and dimensions that an input lacks, are repeated. Every input is converted to the common type of all
///   inputs, by the rules of torch.result_type. Every output must have that type and the broadcast shape (see
///   plinth_jiterator_result), with strides that give each element its own address. Tensors with more than 2^31
///   elements, and tensors without elements, are supported.
/// - An output may be the same tensor as an input. If outputs overlap other tensors in any other way, the elements
///   there are undefined.
/// - The first call with a list of types and a kind of layout compiles the code, which takes tenths of a second or
///   longer; docs/jiterator.md describes how often that happens and where compiled code is cached. Later calls do not
///   allocate, and cost one kernel launch.
/// - In a capture the call becomes a node of the graph, even if it has to compile.
/// - The tensors' memory must stay valid until the work is complete; the DLTensor structures and the scalars only until
///   the call returns.
///
/// @param function The function.
/// @param inputs The inputs, all on one device.
/// @param num_inputs The function's number of inputs.
/// @param outputs The outputs, on the same device.
/// @param num_outputs The function's number of outputs.
/// @param scalars Values of scalars, in any order; scalars that are not listed have their default values. NULL for
///        none.
/// @param num_scalars The number of values in `scalars`.
/// @param stream The stream, of the tensors' device; NULL for that device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for an invalid function or stream;
///         PLINTH_ERROR_INVALID_VALUE for a wrong number of tensors, shapes that cannot be broadcast, an output of
///         another type or shape, an output with two elements at one address, a malformed tensor, and a scalar that the
///         function does not declare; PLINTH_ERROR_NOT_SUPPORTED as in plinth_jiterator_result, and for a device that
///         the compiler does not support any more; PLINTH_ERROR_DEVICE_MISMATCH for tensors that are not on a CUDA
///         device, or not all on the stream's device; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILER_UNAVAILABLE
///         without NVRTC, or on the host device without a C++ compiler; PLINTH_ERROR_COMPILATION_FAILED with the
///         compiler's log, in which lines of "jiterator" are lines of the code; PLINTH_ERROR_SYSTEM if a compiler
///         cannot be run; PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_call(
    function: plinth_jit_function_t,
    inputs: *const *const DLTensor,
    num_inputs: usize,
    outputs: *const *mut DLTensor,
    num_outputs: usize,
    scalars: *const plinth_jit_scalar_t,
    num_scalars: usize,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        let (mut taken, mut written) = (Tensors::new(), Tensors::new());
        // SAFETY: the caller passes NULL or as many tensors and scalars as the counts state.
        let scalars = unsafe {
            taken.take(inputs, num_inputs, "inputs")?;
            written.take(outputs.cast(), num_outputs, "outputs")?;
            StructList::new(scalars, num_scalars, NO_SCALAR, "scalars")?
        };
        for scalar in scalars.iter() {
            let scalar = scalar?;
            if scalar.name.is_null() {
                return Err(null("a scalar's name"));
            }
            value(&scalar)?;
        }
        let values = scalars.iter().flatten().filter_map(|scalar| {
            // SAFETY: the check above found it not to be NULL, so the caller promises a NUL-terminated string.
            let name = unsafe { CStr::from_ptr(scalar.name) };
            Some((name.to_bytes(), value(&scalar).ok()?))
        });
        function::call(handle(function, "function")?, taken.all(), written.all(), values, stream as usize)
    })
}
