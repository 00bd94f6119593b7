//! Random permutations: the indices, each sorted by a random key. kernels/permutation.cu describes the algorithm.

use super::{
    distribution::{code_of, invalid, unsupported},
    fill::FillTarget,
};
use crate::{
    driver::permutation::{CAPACITY, MAX_CHUNKS, Permutation, SHARED_BITS, Spread},
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    observe,
    runtime::tensor::{ElementType, Tensor},
    status::Status,
    stream::{self, kernel::Kernel},
};

const NAME: &str = "plinth_randperm";

/// The maximum number of elements: their keys have 63 bits.
const MAX_ELEMENTS: u64 = 1 << 30;

/// The maximum average number of pairs in a bucket.
const BUCKET: u64 = 2048;

/// The maximum number of keys that PyTorch fills at once: with 8 bytes each, 32 bits can index them.
const CHUNK: u64 = 1 << 28;

/// Threads per block of the kernels that generate keys.
const THREADS: u32 = 1024;

/// Returns the number of bits of a key, by PyTorch's formula: with that many bits, the probability of any equal keys
/// among `n` is a tenth.
fn key_bits(n: u64) -> u32 {
    let n = n as f64;
    let threshold = 0.9_f64.ln() * 12.0;
    ((n - (6.0 * n * n + 1.0) / threshold).log2().ceil() as u32).min(64)
}

/// Rejects a number of elements that a type cannot represent.
fn check_count(element: ElementType, n: u64) -> Result<()> {
    let max = match element {
        ElementType::F16 => (1 << 11) + 1,
        ElementType::F32 => (1 << 24) + 1,
        ElementType::U8 => 1 << 8,
        ElementType::I8 => 1 << 7,
        ElementType::I16 => 1 << 15,
        ElementType::I32 | ElementType::I64 | ElementType::F64 => MAX_ELEMENTS,
        _ => return Err(unsupported(NAME, element)),
    };
    if n <= max {
        return Ok(());
    }
    if n > MAX_ELEMENTS {
        return Err(Error::new(Status::NOT_SUPPORTED, format!("{NAME} of {n} elements, more than 2^30")));
    }
    Err(invalid(NAME, format_args!("cannot number {n} elements in {element}, which represents only {max}")))
}

/// Writes a random permutation of the numbers below a one-dimensional tensor's length to the tensor.
pub fn randperm(tensor: &Tensor, generator: u64, stream: usize) -> Result<()> {
    if tensor.rank != 1 {
        return Err(invalid(NAME, format_args!("needs a tensor of one dimension, not {}", tensor.rank)));
    }
    let n = tensor.numel;
    check_count(tensor.element, n)?;
    let stride = tensor.strides[0];
    if stride == 0 && n > 1 {
        return Err(invalid(NAME, format_args!("cannot write {n} elements to one address")));
    }
    let target = FillTarget::of(tensor, generator, stream)?;
    if n == 0 {
        return Ok(());
    }
    permute(&target, tensor, stride).context(|| format!("{NAME} of {n} elements of {}", tensor.element))
}

fn permute(target: &FillTarget, tensor: &Tensor, stride: i64) -> Result<()> {
    let n = tensor.numel;
    let bits = key_bits(n);
    let bucket_bits = if n <= u64::from(CAPACITY) { 0 } else { n.div_ceil(BUCKET).next_power_of_two().ilog2() };
    let scratch = match bucket_bits {
        0 => None,
        bits => Some(Scratch::alloc(n * 8 + counters_bytes(bits) as u64, target.stream)?),
    };
    let mut permutation = Permutation::of(tensor.memory, n as u32, scratch.as_ref().map(Scratch::memory));
    permutation.stride = stride;
    permutation.code = code_of(tensor.element) as u32;
    (permutation.bits, permutation.bucket_bits) = (bits, bucket_bits);
    permutation.index_bits = n.next_power_of_two().ilog2().max(1);
    // The keys are a fill of 32- or 64-bit integers; PyTorch splits the latter if it is too long.
    let mut parts = Vec::with_capacity(MAX_CHUNKS);
    parts_of(n, if bits <= 32 { n } else { CHUNK }, &mut parts);
    let whole = if parts.len() > 1 { target.geometry.increment(n, 2) } else { 0 };
    let mut consumed = whole;
    let (mut begin, mut lanes, mut calls) = (0, 0, 0);
    for (index, part) in parts.iter().enumerate() {
        permutation.lanes[index] = target.geometry.lanes(*part);
        permutation.begins[index] = begin as u32;
        permutation.calls[index] = consumed / 4;
        consumed += target.geometry.increment(*part, 2);
        begin += part;
        lanes = lanes.max(permutation.lanes[index]);
        calls = calls.max(target.geometry.calls(*part, 2));
    }
    permutation.chunks = parts.len() as u32;
    permutation.begins[parts.len()] = n as u32;
    permutation.shuffle_calls = consumed / 4;
    // The shuffle of equal keys may consume a number for each element.
    let capture = stream::capture_id(target.runtime, target.stream)?;
    let reservation = target.generator.reserve(capture, consumed + n)?;
    observe::access_with(target.runtime, target.stream, |operands| {
        observe::operands(tensor, observe::Kind::Write, operands);
        operands.extend(scratch.as_ref().map(|scratch| observe::write(scratch.memory())));
    })?;
    permutation.philox = reservation.after(0);
    launch(target, &permutation, scratch.as_ref(), lanes, calls)?;
    reservation.commit();
    Ok(())
}

/// Returns the size in bytes of the counters: one for each bucket, and one more.
fn counters_bytes(bucket_bits: u32) -> usize {
    ((1 << bucket_bits) + 1) * 4
}

/// Appends the lengths of the parts into which PyTorch splits a fill: it halves until each part is short enough.
fn parts_of(n: u64, max: u64, parts: &mut Vec<u64>) {
    if n <= max {
        return parts.push(n);
    }
    parts_of(n / 2, max, parts);
    parts_of(n - n / 2, max, parts);
}

fn launch(
    target: &FillTarget,
    permutation: &Permutation,
    scratch: Option<&Scratch>,
    lanes: u32,
    calls: u64,
) -> Result<()> {
    let driver = &target.runtime.driver;
    let Some(scratch) = scratch else {
        let small = target.device.kernel(driver, Kernel::PermutationSmall)?;
        return target
            .runtime
            .in_stream(target.stream, |driver, raw| Ok(driver.launch_buckets(small, 1, permutation, raw)?));
    };
    let buckets = 1_u32 << permutation.bucket_bits;
    let count = target.device.kernel(driver, Kernel::PermutationCount)?;
    let deal = target.device.kernel(driver, Kernel::PermutationDeal)?;
    let sort = target.device.kernel(driver, Kernel::PermutationSort)?;
    let processors = target.device.properties(driver)?.multi_processor_count.max(1) as u64;
    let shared_bytes = if permutation.bucket_bits <= SHARED_BITS { buckets * 4 } else { 0 };
    // Every block adds all its counters to the device's counters, so use few blocks: two for each multiprocessor.
    let across = lanes.div_ceil(THREADS);
    let down = (processors * 2 / u64::from(across)).clamp(1, calls);
    let each = calls.div_ceil(down);
    let blocks = [across, calls.div_ceil(each) as u32];
    let spread = Spread { blocks, threads: THREADS, shared_bytes, calls: each as u32 };
    target.runtime.in_stream(target.stream, |driver, raw| {
        let pairs_bytes = permutation.n as usize * 8;
        let counters = scratch.memory().part(pairs_bytes, counters_bytes(permutation.bucket_bits));
        driver.fill_32(counters, 0, raw)?;
        driver.launch_keys(count, spread, permutation, raw)?;
        driver.launch_keys(deal, spread, permutation, raw)?;
        Ok(driver.launch_buckets(sort, buckets, permutation, raw)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_as_many_bits_as_pytorchs() {
        // log2(n + (6 n^2 + 1) / 1.264...), rounded up.
        for (n, bits) in [(1, 3), (2, 5), (5, 7), (1000, 23), (30_000, 32), (1 << 24, 51), (1 << 30, 63)] {
            assert_eq!(key_bits(n), bits, "{n}");
        }
    }

    #[test]
    fn long_permutations_are_split_in_halves() {
        let mut parts = Vec::new();
        parts_of((1 << 28) + 1, CHUNK, &mut parts);
        assert_eq!(parts, [1 << 27, (1 << 27) + 1]);
        parts.clear();
        parts_of(MAX_ELEMENTS, CHUNK, &mut parts);
        assert_eq!(parts.len(), 4);
        assert!(parts.len() <= MAX_CHUNKS);
    }

    #[test]
    fn small_types_represent_few_indices() {
        assert!(check_count(ElementType::U8, 256).is_ok());
        for (element, n) in [
            (ElementType::U8, 257),
            (ElementType::F16, 2050),
            (ElementType::I64, MAX_ELEMENTS + 1),
            (ElementType::Bool, 1),
        ] {
            assert!(check_count(element, n).is_err());
        }
    }
}
