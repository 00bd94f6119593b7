//! Random permutations: the indices, sorted by a random key each. kernels/permutation.cu tells how.

use super::{
    distribution::{code_of, refuse, unsupported},
    fill::Place,
    generator,
};
use crate::{
    driver::permutation::{CAPACITY, MAX_CHUNKS, Permutation, SHARED_BITS, Spread},
    error::{Context, Error, Result},
    memory::scratch::Scratch,
    runtime::tensor::{ElementType, Tensor},
    sanitizer,
    status::Status,
    stream::kernel::Kernel,
};

const NAME: &str = "plinth_randperm";

/// The most elements: their keys have 63 bits.
const MOST: u64 = 1 << 30;

/// The pairs that a bucket has at most on average.
const BUCKET: u64 = 2048;

/// As many keys PyTorch fills at once: 8 bytes each, in 32 bits.
const CHUNK: u64 = 1 << 28;

/// The threads of a block of the kernels that make keys.
const THREADS: u32 = 1024;

/// The bits of a key with which few of `n` are equal, by PyTorch's formula: with so many, there is none but with a
/// probability of a tenth.
fn key_bits(n: u64) -> u32 {
    let n = n as f64;
    let threshold = 0.9_f64.ln() * 12.0;
    ((n - (6.0 * n * n + 1.0) / threshold).log2().ceil() as u32).min(64)
}

/// Refuses more elements than a type can tell apart.
fn check_count(element: ElementType, n: u64) -> Result<()> {
    let most = match element {
        ElementType::F16 => (1 << 11) + 1,
        ElementType::F32 => (1 << 24) + 1,
        ElementType::U8 => 1 << 8,
        ElementType::I8 => 1 << 7,
        ElementType::I16 => 1 << 15,
        ElementType::I32 | ElementType::I64 | ElementType::F64 => MOST,
        _ => return Err(unsupported(NAME, element)),
    };
    if n <= most {
        return Ok(());
    }
    if n > MOST {
        return Err(Error::new(Status::NOT_SUPPORTED, format!("{NAME} of {n} elements, more than 2^30")));
    }
    Err(refuse(NAME, format_args!("cannot number {n} elements in {element}, which tells {most} apart")))
}

/// Writes the numbers below a one-dimensional tensor's length to it, in a random order.
pub fn randperm(tensor: &Tensor, generator: u64, stream: usize) -> Result<()> {
    if tensor.rank != 1 {
        return Err(refuse(NAME, format_args!("needs a tensor of one dimension, not {}", tensor.rank)));
    }
    let n = tensor.numel;
    check_count(tensor.element, n)?;
    let stride = tensor.strides[0];
    if stride == 0 && n > 1 {
        return Err(refuse(NAME, format_args!("cannot write {n} elements to one place")));
    }
    let place = Place::of(tensor, generator, stream)?;
    if n == 0 {
        return Ok(());
    }
    permute(&place, tensor, stride).context(|| format!("{NAME} of {n} elements of {}", tensor.element))
}

fn permute(place: &Place, tensor: &Tensor, stride: i64) -> Result<()> {
    let n = tensor.numel;
    let bits = key_bits(n);
    let bucket_bits = if n <= u64::from(CAPACITY) { 0 } else { n.div_ceil(BUCKET).next_power_of_two().ilog2() };
    let scratch = match bucket_bits {
        0 => None,
        bits => Some(Scratch::alloc(n * 8 + counters_bytes(bits) as u64, place.stream)?),
    };
    sanitizer::access_with(place.runtime, place.stream, |operands| {
        sanitizer::operands(tensor, sanitizer::Kind::Write, operands);
        operands.extend(scratch.as_ref().map(|scratch| sanitizer::write(scratch.memory())));
    })?;
    let mut taking = place.generator.take(generator::capture_id(place.stream)?)?;
    let mut permutation = Permutation::of(tensor.memory, n as u32, scratch.as_ref().map(Scratch::memory));
    permutation.stride = stride;
    permutation.code = code_of(tensor.element) as u32;
    (permutation.bits, permutation.bucket_bits) = (bits, bucket_bits);
    permutation.index_bits = n.next_power_of_two().ilog2().max(1);
    // The keys are a fill of 32- or 64-bit integers, and the latter may be too long for PyTorch to make it at once.
    let mut parts = Vec::with_capacity(MAX_CHUNKS);
    parts_of(n, if bits <= 32 { n } else { CHUNK }, &mut parts);
    let whole = if parts.len() > 1 { place.geometry.increment(n, 2) } else { 0 };
    let mut taken = whole;
    let (mut begin, mut lanes, mut calls) = (0, 0, 0);
    for (index, part) in parts.iter().enumerate() {
        permutation.lanes[index] = place.geometry.lanes(*part);
        permutation.begins[index] = begin as u32;
        permutation.calls[index] = taken / 4;
        taken += place.geometry.increment(*part, 2);
        begin += part;
        lanes = lanes.max(permutation.lanes[index]);
        calls = calls.max(place.geometry.calls(*part, 2));
    }
    permutation.chunks = parts.len() as u32;
    permutation.begins[parts.len()] = n as u32;
    permutation.philox = taking.next(taken);
    permutation.shuffle_calls = taken / 4;
    // Shuffling what has equal keys may take a number for each element.
    taking.next(n);
    launch(place, &permutation, scratch.as_ref(), lanes, calls)?;
    taking.commit();
    Ok(())
}

/// The bytes of the counters: one for each bucket, and one more.
fn counters_bytes(bucket_bits: u32) -> usize {
    ((1 << bucket_bits) + 1) * 4
}

/// The parts that PyTorch makes of a fill: halves, until each is short enough.
fn parts_of(n: u64, most: u64, parts: &mut Vec<u64>) {
    if n <= most {
        return parts.push(n);
    }
    parts_of(n / 2, most, parts);
    parts_of(n - n / 2, most, parts);
}

fn launch(place: &Place, permutation: &Permutation, scratch: Option<&Scratch>, lanes: u32, calls: u64) -> Result<()> {
    let driver = &place.runtime.driver;
    let Some(scratch) = scratch else {
        let small = place.device.kernel(driver, Kernel::PermutationSmall)?;
        return place
            .runtime
            .in_stream(place.stream, |driver, raw| Ok(driver.launch_buckets(small, 1, permutation, raw)?));
    };
    let buckets = 1_u32 << permutation.bucket_bits;
    let count = place.device.kernel(driver, Kernel::PermutationCount)?;
    let deal = place.device.kernel(driver, Kernel::PermutationDeal)?;
    let sort = place.device.kernel(driver, Kernel::PermutationSort)?;
    let processors = place.device.properties(driver)?.multi_processor_count.max(1) as u64;
    let shared_bytes = if permutation.bucket_bits <= SHARED_BITS { buckets * 4 } else { 0 };
    // Every block adds all its counters to the device's, so there are not many: two for a multiprocessor.
    let across = lanes.div_ceil(THREADS);
    let down = (processors * 2 / u64::from(across)).clamp(1, calls);
    let each = calls.div_ceil(down);
    let blocks = [across, calls.div_ceil(each) as u32];
    let spread = Spread { blocks, threads: THREADS, shared_bytes, calls: each as u32 };
    place.runtime.in_stream(place.stream, |driver, raw| {
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
    fn long_permutations_come_in_halves() {
        let mut parts = Vec::new();
        parts_of((1 << 28) + 1, CHUNK, &mut parts);
        assert_eq!(parts, [1 << 27, (1 << 27) + 1]);
        parts.clear();
        parts_of(MOST, CHUNK, &mut parts);
        assert_eq!(parts.len(), 4);
        assert!(parts.len() <= MAX_CHUNKS);
    }

    #[test]
    fn a_small_type_numbers_few_elements() {
        assert!(check_count(ElementType::U8, 256).is_ok());
        for (element, n) in
            [(ElementType::U8, 257), (ElementType::F16, 2050), (ElementType::I64, MOST + 1), (ElementType::Bool, 1)]
        {
            assert!(check_count(element, n).is_err());
        }
    }
}
