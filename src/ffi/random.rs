//! Random numbers for tensors, as C sees them.

use crate::{
    error::Result,
    ffi::{
        generator::plinth_generator_t,
        guard::guard,
        plinth_stream_t,
        status::plinth_status_t,
        tensor::{DLTensor, tensor},
    },
    ops::random::{
        distribution::{self, FillPlan},
        fill, integers, permutation,
    },
    runtime::tensor::ElementType,
};

/// Fills the tensor at a pointer as a plan for its type says.
///
/// # Safety
/// As [`tensor`].
unsafe fn fill_with(
    pointer: *const DLTensor,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
    plan: impl FnOnce(ElementType) -> Result<FillPlan>,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let tensor = unsafe { tensor(pointer, "tensor") }?;
    fill::fill(&tensor, &plan(tensor.element)?, generator as u64, stream as usize)
}

/// Fills a tensor with uniform numbers in [low, high): low + u * (high - low) for a u in (0, 1], where what comes out as `high`
/// becomes `low`. For 16-bit elements it is computed in float and rounded; low, high and their difference are rounded to the
/// element's type before.
///
/// The rules that hold for all functions that fill a tensor with random numbers:
/// - Every element gets the number that PyTorch 2.11 gives it on the same model of GPU, from a generator in the same state,
///   and the generator's offset advances alike; the host device has the geometry of its model (PLINTH_HOST_MODEL). docs/random.md
///   has the rule, and tells how near the host device comes where a GPU has fast but rough instructions.
/// - The tensor may have any shape, also an empty one, which takes no numbers, and any strides, by which the order of its
///   elements is that of memory; but no two elements in one place. It is filled in the stream, asynchronously, and must stay
///   valid until then. In a capture the fill becomes a node of the graph, and each replay takes new numbers.
/// - Where an error is returned the generator has not advanced.
/// - Thread-safe: threads that share a generator get numbers of their own, in the order of their calls.
///
/// @param tensor The tensor: float16, bfloat16, float32, float64.
/// @param low The least number, which float types of the element's size can hold.
/// @param high The end of the range, not below low; equal to it, every element is low.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_VALUE for a tensor of another type or of a malformed
///         shape, for a low or high that the elements cannot hold, and NaN; for low > high; for high - low that they cannot hold;
///         PLINTH_ERROR_INVALID_HANDLE for a generator or stream that is none; PLINTH_ERROR_DEVICE_MISMATCH for a tensor that
///         is not on a CUDA device or not on that of generator and stream; PLINTH_ERROR_INVALID_DEVICE;
///         PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a capture of a graph that does not know the generator;
///         PLINTH_ERROR_DRIVER; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_uniform(
    tensor: *mut DLTensor,
    low: f64,
    high: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::uniform(element, low, high)) }
    })
}

/// Fills a tensor with numbers of the normal distribution, by Box and Muller (1958).
///
/// @param tensor The tensor: float16, bfloat16, float32, float64.
/// @param mean The mean.
/// @param std The standard deviation, 0 or more.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std < 0, and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_normal(
    tensor: *mut DLTensor,
    mean: f64,
    std: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::normal(element, mean, std)) }
    })
}

/// Fills a tensor with e to the power of numbers of the normal distribution.
///
/// @param tensor The tensor: float16, bfloat16, float32, float64.
/// @param mean The mean of the exponents.
/// @param std Their standard deviation, more than 0.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for std <= 0, and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_log_normal(
    tensor: *mut DLTensor,
    mean: f64,
    std: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::log_normal(element, mean, std)) }
    })
}

/// Fills a tensor with numbers of the exponential distribution, of density lambda * e^(-lambda * x): -ln(u) / lambda. No
/// element is 0 but where the type has no smaller number.
///
/// @param tensor The tensor: float16, bfloat16, float32, float64.
/// @param lambda The rate, more than 0.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for lambda <= 0, and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_exponential(
    tensor: *mut DLTensor,
    lambda: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::exponential(element, lambda)) }
    })
}

/// Fills a tensor with numbers of the Cauchy distribution: median + sigma * tan(pi * (u - 1/2)).
///
/// @param tensor The tensor: float16, bfloat16, float32, float64.
/// @param median The median.
/// @param sigma Half the distance of the quartiles, more than 0.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for sigma <= 0, and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_cauchy(
    tensor: *mut DLTensor,
    median: f64,
    sigma: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::cauchy(element, median, sigma)) }
    })
}

/// Fills a tensor with numbers of the geometric distribution, how many trials the first success takes: ceil(ln(u) / ln(1 - p)).
/// Where the last number is 0, u was 1. A number too large for an integer element is cut off as the GPU's conversion does.
///
/// @param tensor The tensor: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64.
/// @param p The probability of a success, between 0 and 1.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p <= 0, p >= 1, and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_geometric(
    tensor: *mut DLTensor,
    p: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::geometric(element, p)) }
    })
}

/// Fills a tensor with ones and zeros: one where u < p.
///
/// @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
/// @param p The probability of a one, from 0 to 1. With 1, one of 2^25 elements is 0 all the same, as in PyTorch: u may be 1.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for p outside of [0, 1], and NaN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_bernoulli(
    tensor: *mut DLTensor,
    p: f64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| distribution::bernoulli(element, p)) }
    })
}

/// Fills a tensor with ones and zeros, with a probability for each element: one where u <= p. PyTorch's bernoulli_ with a
/// tensor, which takes 12 numbers of the generator, however large the tensor is. A probability outside of [0, 1] or NaN is no
/// error, for it is seen only on the device: below 0 and NaN never give a one, above 1 always does.
///
/// @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64. With more than 2^30
///        elements, they and their probabilities lie side by side.
/// @param p The probabilities: float16, bfloat16, float32 or float64, of the tensor's shape, or of one that is stretched to it
///        by repeating dimensions of one element or missing in front. Read in the stream.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for probabilities of another type or shape;
///         PLINTH_ERROR_DEVICE_MISMATCH for probabilities on another device; PLINTH_ERROR_NOT_SUPPORTED for more than 2^30
///         elements that do not lie side by side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_bernoulli_tensor(
    tensor: *mut DLTensor,
    p: *const DLTensor,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or tensors.
        let (tensor, p) = unsafe { (self::tensor(tensor, "tensor")?, self::tensor(p, "p")?) };
        fill::bernoulli_each(&tensor, &p, generator as u64, stream as usize)
    })
}

/// Fills a tensor with whole numbers, all alike: of an integer type, those from 0 to its largest; of a float type, those from
/// 0 to 2^d, where d is the digits of its fraction (11 for float16, 8 for bfloat16, 24, 53).
///
/// @param tensor The tensor: bool, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_random(
    tensor: *mut DLTensor,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, integers::full_range) }
    })
}

/// Fills a tensor with whole numbers of [low, high): x mod (high - low) + low, where x has 32 bits, and 64 from 2^28 numbers
/// on. Float elements get the nearest number; low and high move inwards to what such a type can hold.
///
/// @param tensor The tensor: any type.
/// @param low The least number.
/// @param high The end of the range, above low.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for low >= high, and for low or high - 1 that the elements cannot
///         hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_random_range(
    tensor: *mut DLTensor,
    low: i64,
    high: i64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| integers::range(element, low, high)) }
    })
}

/// Fills a tensor with whole numbers from low to the largest that plinth_random gives: torch's random_(low, None). With
/// INT64_MIN, all 64 bits are random (int64, float64, float32 and bfloat16 only).
///
/// @param tensor The tensor: bool, uint8, int8, int16, int32, int64, uint16, uint32, float16, bfloat16, float32, float64.
/// @param low The least number.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for a low that the elements cannot hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_random_from(
    tensor: *mut DLTensor,
    low: i64,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        unsafe { fill_with(tensor, generator, stream, |element| integers::from_low(element, low)) }
    })
}

/// Writes the numbers from 0 to n - 1 to a tensor of n elements, in a random order. From 2497 elements on it takes memory
/// of the caching allocator, 8 bytes for each and a little more, which is free again for what comes later in the stream.
///
/// @param tensor The tensor: one dimension; uint8, int8, int16, int32, int64, float16, float32 or float64, which has
///        to tell n numbers apart; at most 2^30 elements.
/// @param generator The generator that the numbers are taken from, of the tensor's device; NULL for that device's default one.
/// @param stream The stream, of the tensor's device; NULL for the current device's default stream.
/// @return As plinth_uniform; PLINTH_ERROR_INVALID_VALUE for a tensor of another rank, or of more elements than its type can
///         number; PLINTH_ERROR_NOT_SUPPORTED for more than 2^30; PLINTH_ERROR_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_randperm(
    tensor: *mut DLTensor,
    generator: plinth_generator_t,
    stream: plinth_stream_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a tensor.
        let tensor = unsafe { self::tensor(tensor, "tensor") }?;
        permutation::randperm(&tensor, generator as u64, stream as usize)
    })
}
