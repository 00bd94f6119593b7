//! The jiterator, as C sees it: kernels from a function of elements.

use crate::{
    driver::random::MAX_RANK,
    error::{Error, Result},
    ffi::{
        Output,
        guard::guard,
        null, plinth_stream_t,
        status::plinth_status_t,
        string,
        tensor::{DLDataType, DLTensor, tensor},
    },
    ops::jit::{
        function::{self, MAX_TENSORS},
        scalar::{Kind, MAX_SCALARS, NamedScalar, Value},
    },
    runtime::tensor::Tensor,
    status::Status,
};
use std::{
    ffi::{CStr, c_char},
    mem::MaybeUninit,
};

/// A jiterated function. Opaque, and checked: a handle that was destroyed, is of another kind, or never was one is answered
/// with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_jit_function {
    _private: [u8; 0],
}

/// The handle of a jiterated function.
#[allow(non_camel_case_types)]
pub type plinth_jit_function_t = *mut plinth_jit_function;

/// The most inputs of a jiterated function, and the most outputs.
pub const PLINTH_JIT_MAX_TENSORS: usize = 8;
/// The most named scalars of a jiterated function.
pub const PLINTH_JIT_MAX_SCALARS: usize = 16;

/// A scalar that is true or false: its `integer` is not 0, or 0.
pub const PLINTH_JIT_BOOL: i32 = 0;
/// A scalar that is a 64-bit integer: its `integer`.
pub const PLINTH_JIT_INT: i32 = 1;
/// A scalar that is a double: its `real`.
pub const PLINTH_JIT_FLOAT: i32 = 2;
/// A scalar that is a complex number: its `real` and `imaginary`.
pub const PLINTH_JIT_COMPLEX: i32 = 3;

/// A named scalar: the default that a function declares, or the value that a call gives. Of the values only what `kind`
/// names counts.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct plinth_jit_scalar_t {
    /// The name.
    pub name: *const c_char,
    /// One of the PLINTH_JIT_ constants above.
    pub kind: i32,
    /// 0.
    pub reserved: i32,
    /// A bool or an integer.
    pub integer: i64,
    /// A double, or the real part.
    pub real: f64,
    /// The imaginary part.
    pub imaginary: f64,
}

const _: () = assert!(PLINTH_JIT_MAX_TENSORS == MAX_TENSORS && PLINTH_JIT_MAX_SCALARS == MAX_SCALARS);

#[cold]
fn invalid(message: String) -> Error {
    Error::new(Status::INVALID_VALUE, message)
}

fn value(scalar: &plinth_jit_scalar_t) -> Result<Value> {
    let none = Value::default();
    Ok(match scalar.kind {
        PLINTH_JIT_BOOL => Value { kind: Kind::Bool, integer: i64::from(scalar.integer != 0), ..none },
        PLINTH_JIT_INT => Value { kind: Kind::Int, integer: scalar.integer, ..none },
        PLINTH_JIT_FLOAT => Value { kind: Kind::Float, real: scalar.real, ..none },
        PLINTH_JIT_COMPLEX => Value { kind: Kind::Complex, real: scalar.real, imaginary: scalar.imaginary, ..none },
        kind => return Err(invalid(format!("{kind} is no kind of scalar"))),
    })
}

/// # Safety
/// `pointer` is NULL or leads to so many elements.
unsafe fn list<'a, T>(pointer: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises the elements.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// The scalars that a function declares.
///
/// # Safety
/// As [`list`]; their names are NULL or strings.
unsafe fn declared(scalars: *const plinth_jit_scalar_t, count: usize) -> Result<Vec<NamedScalar>> {
    if count > MAX_SCALARS {
        return Err(invalid(format!("a jiterated function has at most {MAX_SCALARS} scalars, not {count}")));
    }
    // SAFETY: the caller's promise.
    let scalars = unsafe { list(scalars, count, "scalars") }?;
    // SAFETY: the caller's promise.
    scalars
        .iter()
        .map(|scalar| {
            Ok(NamedScalar { name: unsafe { string(scalar.name, "a scalar's name") }?, value: value(scalar)? })
        })
        .collect()
}

/// Some tensors, in a place of their own: too large to be passed on.
struct Tensors {
    tensors: [MaybeUninit<Tensor>; MAX_TENSORS],
    count: usize,
}

impl Tensors {
    fn new() -> Tensors {
        Tensors { tensors: [const { MaybeUninit::uninit() }; MAX_TENSORS], count: 0 }
    }

    /// Takes those at some pointers.
    ///
    /// # Safety
    /// As [`list`]; each is as [`tensor`] wants it.
    #[inline]
    unsafe fn take(&mut self, pointers: *const *const DLTensor, count: usize, name: &str) -> Result<()> {
        if count > MAX_TENSORS {
            return Err(invalid(format!("the jiterator only supports up to {MAX_TENSORS} {name}, got {count}")));
        }
        // SAFETY: the caller's promise.
        let pointers = unsafe { list(pointers, count, name) }?;
        for (place, pointer) in self.tensors.iter_mut().zip(pointers) {
            // SAFETY: the caller's promise.
            place.write(unsafe { tensor(*pointer, name) }?);
        }
        self.count = count;
        Ok(())
    }

    fn all(&self) -> &[Tensor] {
        // SAFETY: `take` wrote as many before it counted them.
        unsafe { std::slice::from_raw_parts(self.tensors.as_ptr().cast(), self.count) }
    }
}

/// Makes a function of elements into one of tensors, which returns its one output: torch.cuda.jiterator._create_jit_fn.
///
/// The code is C++ that ends in a template of one type, `template <typename T> T name(T x, T y, T alpha) { ... }`, with any
/// helpers before it. Its parameters are the inputs, 1 to PLINTH_JIT_MAX_TENSORS, and after them the scalars in the order
/// in which they are declared here; T is the type that the inputs have in common, float for float16 and bfloat16. CUDA's
/// functions may be used, std:: before them or not, and those of plinth_jiterator_call's complex numbers; no header has to be
/// included. docs/jiterator.md says more.
///
/// The code is compiled when it is first called, for each list of types and each kind of layout. Thread-safe; needs no
/// device.
///
/// @param code The code.
/// @param scalars The scalars with their names and defaults; NULL for none.
/// @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
/// @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a code without such an entry, for one whose
///         parameters are not inputs and scalars, and for scalars without a name or with another's; PLINTH_ERROR_OUT_OF_MEMORY
///         with 16 million functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_create_jit_fn(
    code: *const c_char,
    scalars: *const plinth_jit_scalar_t,
    count: usize,
    function: *mut plinth_jit_function_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the function.
        let output = unsafe { Output::new(function, "function") }?;
        // SAFETY: the caller passes NULL or a string, and as many scalars as it says.
        let (code, scalars) = unsafe { (string(code, "code")?, declared(scalars, count)?) };
        output.set(function::create(&code, None, scalars)? as plinth_jit_function_t);
        Ok(())
    })
}

/// The same for a function with several outputs, which are its last parameters, `T &out`, behind inputs and scalars; it returns
/// void: torch.cuda.jiterator._create_multi_output_jit_fn.
///
/// @param code The code.
/// @param num_outputs How many outputs, 1 to PLINTH_JIT_MAX_TENSORS.
/// @param scalars The scalars with their names and defaults; NULL for none.
/// @param count How many scalars, at most PLINTH_JIT_MAX_SCALARS.
/// @param function Out: the function. The caller owns it and destroys it with plinth_jiterator_destroy_jit_fn.
/// @return As plinth_jiterator_create_jit_fn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_create_multi_output_jit_fn(
    code: *const c_char,
    num_outputs: i32,
    scalars: *const plinth_jit_scalar_t,
    count: usize,
    function: *mut plinth_jit_function_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the function.
        let output = unsafe { Output::new(function, "function") }?;
        // SAFETY: the caller passes NULL or a string, and as many scalars as it says.
        let (code, scalars) = unsafe { (string(code, "code")?, declared(scalars, count)?) };
        let outputs = usize::try_from(num_outputs).unwrap_or(0);
        output.set(function::create(&code, Some(outputs), scalars)? as plinth_jit_function_t);
        Ok(())
    })
}

/// Destroys a jiterated function. Calls that are under way still end; what was compiled for it stays loaded, and captured
/// graphs stay whole.
///
/// @param function The function; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_jiterator_destroy_jit_fn(function: plinth_jit_function_t) -> plinth_status_t {
    guard(|| if function.is_null() { Ok(()) } else { function::destroy(function as u64) })
}

/// Tells what the outputs of a call are: the type that the inputs have in common, as torch.result_type has it, and the shape that
/// they have in common when dimensions of one element are repeated. The inputs' elements are not looked at. Thread-safe.
///
/// @param function The function.
/// @param inputs The inputs.
/// @param num_inputs How many there are.
/// @param dtype Out: the type of every output.
/// @param ndim Out: how many dimensions they have.
/// @param shape Out: their extents; room for 25.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for another number of
///         inputs than the function takes, and for shapes that do not go together; PLINTH_ERROR_NOT_SUPPORTED for types
///         that have none in common: uint16, uint32 or uint64 and another integer; PLINTH_ERROR_DEVICE_MISMATCH for a tensor that
///         is not on a CUDA device.
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
        // SAFETY: the caller passes NULL or places for what they are named after.
        let (dtype, ndim, shape) = unsafe {
            (
                Output::new(dtype, "dtype")?,
                Output::new(ndim, "ndim")?,
                Output::new(shape.cast::<[i64; MAX_RANK]>(), "shape")?,
            )
        };
        let mut taken = Tensors::new();
        // SAFETY: the caller passes NULL or as many tensors as it says.
        unsafe { taken.take(inputs, num_inputs, "inputs") }?;
        let (element, sizes, rank) = function::result_of(function as u64, taken.all())?;
        dtype.set(element.into());
        ndim.set(rank as i32);
        shape.set(sizes);
        Ok(())
    })
}

/// Calls a jiterated function: writes its outputs, in a stream, asynchronously.
///
/// - The inputs may have any types, shapes and strides, also none, and also none of their own: dimensions of one element, and
///   those that an input lacks, are repeated. Every input is brought to the type that all have in common; torch.result_type
///   says which. Every output must be of that type and of the inputs' common shape (plinth_jiterator_result tells both), with any
///   strides that give each element its own place. Tensors of more than 2^31 elements, and without elements, are fine.
/// - An output may be one of the inputs, element for element. Memory that outputs share with other tensors in another way gets
///   undefined elements.
/// - The first call with a list of types and a kind of layout compiles, for tenths of a second or longer; docs/jiterator.md
///   says what is compiled once, and where it is kept. Later calls do not allocate, and cost a launch.
/// - In a capture the call becomes a node of the graph, also a first call.
/// - The tensors must stay valid until the work is done; the structures that describe them, and the scalars, only until the call
///   returns. Thread-safe.
///
/// @param function The function.
/// @param inputs The inputs, all on one device.
/// @param num_inputs How many there are: as many as the function takes.
/// @param outputs The outputs, on the same device.
/// @param num_outputs How many there are: as many as the function has.
/// @param scalars Values of scalars, in any order; those that are left out have their defaults. NULL for none.
/// @param num_scalars How many there are.
/// @param stream The stream, of the tensors' device; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE for a function or stream that is none;
///         PLINTH_ERROR_INVALID_VALUE for other numbers of tensors than the function has, shapes that do not go together,
///         an output of another type or shape, elements of it in one place, a malformed tensor, and a scalar that the function
///         does not declare; PLINTH_ERROR_NOT_SUPPORTED as plinth_jiterator_result, and for a device older than the compiler
///         knows; PLINTH_ERROR_DEVICE_MISMATCH for tensors that are not on a CUDA device, or not all on that of the stream;
///         PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_COMPILER_UNAVAILABLE without NVRTC, or on the host device without a C++
///         compiler; PLINTH_ERROR_COMPILATION_FAILED with the compiler's log, whose lines of "jiterator" are those of the code;
///         PLINTH_ERROR_SYSTEM where a compiler cannot be run; PLINTH_ERROR_DRIVER; the errors of initialization.
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
        // SAFETY: the caller passes NULL or as many tensors and scalars as it says.
        let scalars = unsafe {
            taken.take(inputs, num_inputs, "inputs")?;
            written.take(outputs.cast(), num_outputs, "outputs")?;
            list(scalars, num_scalars, "scalars")?
        };
        for scalar in scalars {
            if scalar.name.is_null() {
                return Err(null("a scalar's name"));
            }
            value(scalar)?;
        }
        let values = scalars.iter().filter_map(|scalar| {
            // SAFETY: it was just seen not to be NULL, so the caller promises a string.
            let name = unsafe { CStr::from_ptr(scalar.name) };
            Some((name.to_bytes(), value(scalar).ok()?))
        });
        function::call(function as u64, taken.all(), written.all(), values, stream as usize)
    })
}
