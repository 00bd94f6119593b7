//! Tests of the CPU kernels, launched as a stream launches them, on device memory.

use super::*;
use crate::{
    driver::{Span, codes::*, table::Table, types::*},
    kernels::Function,
    tests::{alloc, code, kernel, new_stream, ok, read, setup},
};
use philox::philox;
use proptest::prelude::*;
use real::fraction;

pub const fn single(value: f32) -> u64 {
    value.to_bits() as u64
}

pub const fn double(value: f64) -> u64 {
    value.to_bits()
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks_exact(2).map(digits).collect()
}

pub fn device() -> Table {
    setup(0)
}

fn bytes<T: Parameter>(parameter: &T) -> &[u8] {
    // SAFETY: parameters have no padding.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(parameter).cast(), size_of::<T>()) }
}

/// Creates a launch of a CPU kernel.
fn launch(name: &str, parameters: &[&[u8]]) -> Launch {
    let kernel = CPU_KERNELS.iter().find(|kernel| kernel.name == name).unwrap();
    let mut launch = Launch::new(Function { kernel, device: 0, shared_bytes: 0 }, [1; 3], [256, 1, 1], 0).unwrap();
    assert_eq!(kernel.parameter_sizes, parameters.iter().map(|bytes| bytes.len()).collect::<Vec<_>>());
    parameters.iter().for_each(|bytes| launch.push(bytes));
    launch
}

/// Returns the strided kernel that corresponds to a kernel for contiguous elements, and its element type.
fn strided_kernel(name: &str) -> (String, ElementCode) {
    let (distribution, element) = name.rsplit_once('_').unwrap();
    let code = match element {
        "f16" => ElementCode::F16,
        "bf16" => ElementCode::Bf16,
        "f32" => ElementCode::F32,
        "f64" => ElementCode::F64,
        "b8" => ElementCode::U8,
        "b16" => ElementCode::I16,
        "b32" => ElementCode::I32,
        _ => ElementCode::I64,
    };
    let double = if code == ElementCode::F64 { "_f64" } else { "" };
    (format!("{distribution}_any{double}"), code)
}

/// Creates a fill of elements at an address.
fn fill_at(address: u64, numel: u32, lanes: u32, seed: u64, offset: u64, arguments: &[u64]) -> Fill {
    // SAFETY: a CPU kernel checks the memory itself before it uses it.
    let mut fill = Fill::of(unsafe { Span::new(address, 0) }, numel, lanes);
    (fill.philox.seed, fill.philox.offset) = (seed, offset);
    fill.arguments[..arguments.len()].copy_from_slice(arguments);
    fill
}

/// Device memory that is freed at the end of a test.
struct Memory<'a>(&'a Table, u64, usize);

impl<'a> Memory<'a> {
    /// Allocates memory in which every byte is 0xEE.
    fn new(t: &'a Table, bytes: usize) -> Self {
        let memory = Memory(t, alloc(t, bytes), bytes);
        memory.put(0, &vec![0xEE; bytes]);
        memory
    }

    fn put(&self, offset: u64, data: &[u8]) {
        let (t, stream) = (self.0, new_stream(self.0, CU_STREAM_NON_BLOCKING));
        ok!(t.cuMemcpyAsync(self.1 + offset, data.as_ptr() as u64, data.len(), stream));
        ok!(t.cuStreamSynchronize(stream));
        ok!(t.cuStreamDestroy_v2(stream));
    }

    fn get(&self) -> Vec<u8> {
        read(self.0, self.1, self.2)
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        let t = self.0;
        ok!(t.cuMemFree_v2(self.1));
    }
}

/// Returns what a CPU kernel writes to contiguous elements of `size` bytes.
pub fn fill(
    t: &Table,
    name: &str,
    seed: u64,
    offset: u64,
    (numel, lanes): (u32, u32),
    size: usize,
    arguments: &[u64],
) -> Vec<u8> {
    let bytes_made = numel as usize * size;
    let memory = Memory::new(t, bytes_made + 8);
    let fill = fill_at(memory.1, numel, lanes, seed, offset, arguments);
    assert_eq!(launch(name, &[bytes(&fill)]).run(), Ok(()));
    let mut elements = memory.get();
    assert_eq!(elements.split_off(bytes_made), [0xEE; 8], "{name} writes behind the end");
    elements
}

fn words_of(elements: &[u8]) -> Vec<u32> {
    elements.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn longs_of(elements: &[u8]) -> Vec<u64> {
    elements.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Returns the numbers of the call that an element uses, and the index of the element's number.
fn call_of(index: u64, seed: u64, offset: u64, lanes: u64, unroll: u64) -> ([u32; 4], usize) {
    let (lane, row) = (index % lanes, index / lanes);
    let call = (offset / 4).wrapping_add(row / unroll);
    (philox([call as u32, (call >> 32) as u32, lane as u32, 0], seed), (row % unroll) as usize)
}

/// A divisor that leaves all 32-bit numbers unchanged, except one.
const ALL: [u64; 3] = [u32::MAX as u64, 0, 1];

const SOME: [(&str, usize, &[u64]); 4] = [
    ("plinth_normal_f32", 4, &[single(1.5), single(2.0)]),
    ("plinth_uniform_f64", 8, &[double(0.0), double(1.0), double(1.0)]),
    ("plinth_integers_b8", 1, &[256, 0, 1 << 24]),
    ("plinth_bernoulli_b16", 2, &[1 << 31, 0x3C00]),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_element_has_its_own_number(
        numel in 1_u32..6000, blocks in 1_u32..4, seed: u64, offset in prop_oneof![0..100_u64, any::<u64>()],
    ) {
        let (t, lanes, offset) = (device(), 256 * blocks, offset & !3);
        let elements = words_of(&fill(&t, "plinth_integers_b32", seed, offset, (numel, lanes), 4, &ALL));
        let wide = longs_of(&fill(&t, "plinth_integers64_b64", seed, offset, (numel, lanes), 8, &[]));
        for index in 0..u64::from(numel) {
            let (call, component) = call_of(index, seed, offset, lanes.into(), 4);
            prop_assert_eq!(elements[index as usize], call[component] % u32::MAX);
            let (call, component) = call_of(index, seed, offset, lanes.into(), 2);
            let (high, low) = (call[2 * component], call[2 * component + 1]);
            prop_assert_eq!(wide[index as usize], u64::from(high) << 32 | u64::from(low));
        }
    }

    #[test]
    fn strided_elements_are_the_same(
        shape in prop::collection::vec((1_u32..9, 0_i64..3, any::<bool>()), 0..6), swaps: u64, which in 0_usize..4,
    ) {
        let t = device();
        let (name, size, arguments) = SOME[which];
        // The dimensions have an arbitrary order in memory, with gaps, and some have negative strides.
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|dimension| swaps.rotate_left(11 * *dimension as u32) & 0xFF);
        let mut layout = Strided { rank: shape.len() as u32, ..Strided::default() };
        let (mut stride, mut start) = (1, 0);
        for dimension in order {
            let (extent, gap, backwards) = shape[dimension];
            layout.sizes[dimension] = extent;
            layout.strides[dimension] = if backwards { -stride } else { stride };
            start += if backwards { stride * i64::from(extent - 1) } else { 0 };
            stride = stride * i64::from(extent) + gap;
        }
        let numel: u32 = shape.iter().map(|part| part.0).product();
        let dense = fill(&t, name, 7, 4, (numel, 256), size, arguments);
        let memory = Memory::new(&t, stride as usize * size);
        let mut fill = fill_at(memory.1 + start as u64 * size as u64, numel, 256, 7, 4, arguments);
        let (strided, code) = strided_kernel(name);
        fill.code = code as u32;
        let strided = launch(&strided, &[bytes(&fill), bytes(&layout)]);
        prop_assert_eq!(strided.run(), Ok(()));
        let mut expected = vec![0xEE; stride as usize * size];
        for index in 0..numel {
            let (mut rest, mut place) = (index, start);
            for dimension in 0..shape.len() {
                place += i64::from(rest % layout.sizes[dimension]) * layout.strides[dimension];
                rest /= layout.sizes[dimension];
            }
            let (from, to) = (index as usize * size, place as usize * size);
            expected[to..to + size].copy_from_slice(&dense[from..from + size]);
        }
        prop_assert_eq!(memory.get(), expected);
    }

    #[test]
    fn integers_are_remainders(divisor in prop_oneof![1..1000_u64, 1..1_u64 << 32], base: i64, seed: u64) {
        let t = device();
        let arguments = [divisor, base as u64, ((1 << 32) / divisor).min(u64::from(u32::MAX))];
        let elements = longs_of(&fill(&t, "plinth_integers_b64", seed, 0, (2000, 256), 8, &arguments));
        for (index, number) in elements.into_iter().enumerate() {
            let (call, component) = call_of(index as u64, seed, 0, 256, 4);
            prop_assert_eq!(number, (u64::from(call[component]) % divisor).wrapping_add(base as u64));
        }
    }

    #[test]
    fn wide_integers_are_remainders(divisor in prop_oneof![1..1000_u64, 1..u64::MAX], base: i64, seed: u64) {
        let t = device();
        let reciprocal = ((1_u128 << 64) / u128::from(divisor)).min(u128::from(u64::MAX)) as u64;
        let arguments = [divisor, base as u64, reciprocal];
        let elements = longs_of(&fill(&t, "plinth_integers64_b64", seed, 0, (1000, 256), 8, &arguments));
        for (index, number) in elements.into_iter().enumerate() {
            let (call, component) = call_of(index as u64, seed, 0, 256, 2);
            let word = u64::from(call[2 * component]) << 32 | u64::from(call[2 * component + 1]);
            prop_assert_eq!(number, (word % divisor).wrapping_add(base as u64));
        }
    }

    #[test]
    fn bernoulli_numbers_are_below_a_threshold(threshold in 0..=1_u64 << 32, seed: u64) {
        let t = device();
        let elements = fill(&t, "plinth_bernoulli_b8", seed, 0, (2000, 256), 1, &[threshold, 1]);
        let wide = longs_of(&fill(&t, "plinth_bernoulli_f64", seed, 0, (2000, 256), 8, &[threshold << 21, 5]));
        for index in 0..2000 {
            let (call, component) = call_of(index, seed, 0, 256, 4);
            prop_assert_eq!(elements[index as usize], u8::from(u64::from(call[component]) < threshold));
            let (call, component) = call_of(index, seed, 0, 256, 2);
            let bits = u64::from(call[2 * component]) ^ u64::from(call[2 * component + 1]) << 21;
            prop_assert_eq!(wide[index as usize], if bits < threshold << 21 { 5 } else { 0 });
        }
    }

    #[test]
    fn bernoulli_probabilities_per_element(
        numel in 1_u32..3000, first in prop_oneof![0..5000_u64, any::<u64>()], seed: u64, kind in 0_u64..4, double: bool,
    ) {
        let t = device();
        let (name, size) = if double { ("plinth_bernoulli_each_f64", 8) } else { ("plinth_bernoulli_each_b16", 2) };
        let (p_size, count) = ([2, 2, 4, 8][kind as usize], numel as usize);
        // Every other element of the probabilities, with the output reversed; some probabilities are equal to the
        // number itself.
        let (output, input) = (Memory::new(&t, count * size), Memory::new(&t, 2 * count * p_size));
        let layout = |stride| {
            let mut layout = Strided { rank: 1, ..Strided::default() };
            (layout.sizes[0], layout.strides[0]) = (numel, stride);
            layout
        };
        let mut expected = vec![0; count * size];
        for index in 0..count {
            let number = first.wrapping_add(index as u64);
            let lane = number / 4;
            let call = philox([3, 0, lane as u32, (lane >> 32) as u32], seed);
            let u = fraction(call[(number % 4) as usize]);
            let p = if index % 3 == 0 { u } else { index as f32 / count as f32 };
            let (data, p) = match kind {
                0 => (F16::from_f32(p).0.to_le_bytes().to_vec(), f64::from(F16::from_f32(p).to_f32())),
                1 => (Bf16::from_f32(p).0.to_le_bytes().to_vec(), f64::from(Bf16::from_f32(p).to_f32())),
                2 => (p.to_le_bytes().to_vec(), f64::from(p)),
                // A difference that f32 cannot represent.
                _ => ((f64::from(p) * (1.0 - 1e-12)).to_le_bytes().to_vec(), f64::from(p) * (1.0 - 1e-12)),
            };
            input.put((2 * index * p_size) as u64, &data);
            let chosen = if double { f64::from(u) <= p } else { u <= p as f32 };
            let place = (count - 1 - index) * size;
            expected[place..place + 2].copy_from_slice(&(if chosen { 0x3C00_u16 } else { 0 }).to_le_bytes());
        }
        let fill = fill_at(
            output.1 + ((count - 1) * size) as u64, numel, 0, seed, 12, &[kind, 0x3C00, input.1, first],
        );
        let each = launch(name, &[bytes(&fill), bytes(&layout(-1)), bytes(&layout(2))]);
        prop_assert_eq!(each.run(), Ok(()));
        prop_assert_eq!(output.get(), expected);
    }
}

#[test]
fn captured_fills_read_seed_and_offset_at_run_time() {
    let t = device();
    let (memory, state) = (Memory::new(&t, 4096), Memory::new(&t, 16));
    let mut fill_captured = fill_at(memory.1, 1024, 256, state.1, state.1 + 8, &ALL);
    (fill_captured.philox.captured, fill_captured.philox.graph_offset) = (1, 20);
    let captured = launch("plinth_integers_b32", &[bytes(&fill_captured)]);
    for (seed, offset) in [(1_u64, 0_u64), (u64::MAX, 400)] {
        state.put(0, &seed.to_le_bytes());
        state.put(8, &offset.to_le_bytes());
        assert_eq!(captured.run(), Ok(()));
        let expected = fill(&t, "plinth_integers_b32", seed, offset + 20, (1024, 256), 4, &ALL);
        assert_eq!(memory.get(), expected);
    }
    for wrong in [state.1 + 4, 0, 8] {
        fill_captured.philox.offset = wrong;
        let code = if wrong % 8 == 0 { CUDA_ERROR_ILLEGAL_ADDRESS } else { CUDA_ERROR_MISALIGNED_ADDRESS };
        assert_eq!(launch("plinth_integers_b32", &[bytes(&fill_captured)]).run(), Err(code));
    }
}

#[test]
fn memory_and_parameters_are_checked() {
    let t = device();
    let memory = Memory::new(&t, 4096);
    let dense =
        |address, numel, lanes| launch("plinth_uniform_f32", &[bytes(&fill_at(address, numel, lanes, 0, 0, &[]))]);
    let end = memory.1 + 4096;
    assert_eq!(dense(end - 400, 100, 256).run(), Ok(()));
    assert_eq!(dense(0, 0, 256).run(), Ok(()));
    assert_eq!(dense(memory.1 + 2, 1, 256).run(), Err(CUDA_ERROR_MISALIGNED_ADDRESS));
    assert_eq!(dense(0, 1, 256).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(dense(0x10_0000, 1, 256).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(dense(memory.1, 1 << 31, 256).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    for lanes in [0, 255, 300] {
        assert_eq!(dense(memory.1, 1, lanes).run(), Err(CUDA_ERROR_INVALID_VALUE), "{lanes}");
    }
    let coded = |address, numel, code| {
        let mut fill = fill_at(address, numel, 256, 0, 0, &[]);
        fill.code = code as u32;
        fill
    };
    let float_at = |address, numel| coded(address, numel, ElementCode::F32);
    let strided = |address, numel, size, stride| {
        let mut layout = Strided { rank: 1, ..Strided::default() };
        (layout.sizes[0], layout.strides[0]) = (size, stride);
        launch("plinth_uniform_any", &[bytes(&float_at(address, numel)), bytes(&layout)])
    };
    assert_eq!(strided(memory.1, 2, 2, 1023).run(), Ok(()));
    assert_eq!(strided(end - 4, 2, 2, -1023).run(), Ok(()));
    // Whole granules are mapped: the memory before them is not mapped, and little after them.
    assert_eq!(strided(memory.1, 2, 2, 1 << 40).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(strided(memory.1, 2, 2, -(1 << 40)).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(strided(memory.1, 2, 2, i64::MAX).run(), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    assert_eq!(strided(memory.1, 3, 3, i64::MAX).run(), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(strided(memory.1, 3, 2, 1).run(), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(strided(memory.1, 1, 0, 1).run(), Err(CUDA_ERROR_INVALID_VALUE));
    let mut layout = Strided { rank: 26, ..Strided::default() };
    layout.sizes = [1; 25];
    let wrong = launch("plinth_uniform_any", &[bytes(&float_at(memory.1, 1)), bytes(&layout)]);
    assert_eq!(wrong.run(), Err(CUDA_ERROR_INVALID_VALUE));
    // A type that the kernel does not support.
    let unknown = coded(memory.1, 1, ElementCode::I64);
    let wrong = launch("plinth_uniform_any", &[bytes(&unknown), bytes(&layout)]);
    assert_eq!(wrong.run(), Err(CUDA_ERROR_INVALID_VALUE));
    layout.rank = 1;
    let each = |kind, address| {
        let fill = fill_at(memory.1, 1, 0, 0, 0, &[kind, 1, address, 0]);
        launch("plinth_bernoulli_each_b8", &[bytes(&fill), bytes(&layout), bytes(&layout)]).run()
    };
    assert_eq!(each(3, memory.1 + 8), Ok(()));
    assert_eq!(each(4, memory.1), Err(CUDA_ERROR_INVALID_VALUE));
    assert_eq!(each(3, memory.1 + 4), Err(CUDA_ERROR_MISALIGNED_ADDRESS));
    assert_eq!(each(0, 64), Err(CUDA_ERROR_ILLEGAL_ADDRESS));
}

#[test]
fn streams_launch_cpu_kernels() {
    let t = device();
    let (memory, stream) = (Memory::new(&t, 4000), new_stream(&t, CU_STREAM_NON_BLOCKING));
    let arguments = [single(0.0), single(1.0), single(1.0)];
    let mut parameter = fill_at(memory.1, 1000, 1024, 3, 8, &arguments);
    let mut pointers = [std::ptr::from_mut(&mut parameter).cast()];
    let (function, none) = (kernel::function(&t, c"plinth_uniform_f32"), std::ptr::null_mut());
    ok!(t.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, stream, pointers.as_mut_ptr(), none));
    ok!(t.cuStreamSynchronize(stream));
    ok!(t.cuStreamDestroy_v2(stream));
    assert_eq!(memory.get(), fill(&t, "plinth_uniform_f32", 3, 8, (1000, 1024), 4, &arguments));
}

#[test]
fn kernel_names_are_unique() {
    let mut names: Vec<_> = CPU_KERNELS.iter().map(|kernel| kernel.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), CPU_KERNELS.len());
}

/// The results of the extreme numbers, tested directly instead of with seeds that produce them.
#[test]
fn extreme_numbers_stay_in_range() {
    fn made_of<D: Distribution<N>, const N: usize>(words: [u32; 4], arguments: &[u64; 4]) -> D::Element {
        let mut out = walk::Rows([[D::Element::default(); philox::WIDTH]; N]);
        D::new(arguments).make(&philox::Words(words.map(|word| [word; philox::WIDTH])), &mut out, N);
        out.0[0][0]
    }
    fn made<D: Distribution<4>>(word: u32, arguments: &[u64; 4]) -> D::Element {
        made_of::<D, 4>([word; 4], arguments)
    }
    // All 53 bits of a wide number.
    const WIDEST: [u32; 4] = [0x001F_FFFF, u32::MAX, 0x001F_FFFF, u32::MAX];
    let (zero, one) = (0.0_f32.to_bits().into(), 1.0_f32.to_bits().into());
    // The upper bound is not in the range, the lower bound is.
    assert_eq!(made::<Uniform<f32>>(u32::MAX, &[zero, one, one, 0]), 0.0);
    assert_eq!(made::<Uniform<F16>>(u32::MAX - (1 << 19), &[zero, one, one, 0]).0, 0);
    assert_eq!(made_of::<UniformDouble, _>(WIDEST, &[0, double(1.0), double(1.0), 0]), 0.0);
    assert!(made::<Uniform<f32>>(0, &[zero, one, one, 0]) > 0.0);
    assert_eq!(made::<Uniform<f32>>(1 << 31, &[single(2.0), zero, single(2.0), 0]), 2.0);
    // An exponential number is never 0 or infinite.
    assert_eq!(made::<Exponential<f32>>(u32::MAX, &[single(-1.0), 0, 0, 0]), f32::EPSILON / 2.0);
    assert!(made::<Exponential<f32>>(0, &[single(-1.0), 0, 0, 0]) < 23.0);
    assert_eq!(made_of::<ExponentialDouble, _>(WIDEST, &[double(-1.0), 0, 0, 0]), f64::EPSILON / 2.0);
    for word in [0, 1, u32::MAX - 1, u32::MAX] {
        assert!(made::<Normal<f32, false>>(word, &[zero, one, 0, 0]).is_finite());
        assert!(made::<Normal<f32, true>>(word, &[zero, one, 0, 0]).is_finite());
        assert!(made_of::<NormalDouble<false>, _>([word; 4], &[0, double(1.0), 0, 0]).is_finite());
        assert!(made::<Cauchy<f32>>(word, &[zero, one, 0, 0]).is_finite());
        assert!(made_of::<CauchyDouble, _>([word; 4], &[0, double(1.0), 0, 0]).is_finite());
    }
    // All fractions except the largest need at least one trial.
    assert_eq!(made::<Geometric<i64>>(u32::MAX - 256, &[single(0.5), 0, 0, 0]), 1);
    assert_eq!(made::<Geometric<u8>>(0, &[single(0.5), 0, 0, 0]), 33);
}
