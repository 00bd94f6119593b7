//! Results of PyTorch 2.11 on an H200, which the CPU kernels must reproduce.

use super::tests::{device, double, fill, hex, single};

/// The thresholds of probability 0.3, of 2^32 and of 2^53: the smallest integers whose fractions are not below 0.3.
const P32: u64 = 1_288_490_176;
const P53: u64 = 2_702_159_776_422_297;

const fn divisor(divisor: u64, base: i64) -> [u64; 3] {
    let reciprocal = (1 << 32) / divisor;
    [divisor, base as u64, if reciprocal > u32::MAX as u64 { u32::MAX as u64 } else { reciprocal }]
}

const fn wide_divisor(divisor: u64, base: i64) -> [u64; 3] {
    [divisor, base as u64, ((1 << 64) / divisor as u128) as u64]
}

/// A kernel, its arguments, the first elements and the last of 257 after `manual_seed(42)`, and the permitted
/// difference of the CPU kernel in units of the last place, which is nonzero where a GPU uses fast functions.
type Case = (&'static str, &'static [u64], &'static str, &'static str, u64);

/// Returns the bits of an element as an integer, such that neighbouring numbers have neighbouring integers.
fn ordinal(element: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes[8 - element.len()..].copy_from_slice(element);
    let bits = i64::from_le_bytes(bytes);
    (if bits < 0 { i64::MIN.wrapping_sub(bits) } else { bits }) >> (64 - 8 * element.len())
}

fn check(kernel: &str, output: &[u8], golden: &[u8], size: usize, units: u64) {
    for (one, other) in output.chunks_exact(size).zip(golden.chunks_exact(size)) {
        let apart = ordinal(one).abs_diff(ordinal(other));
        assert!(apart <= units, "{kernel}: {one:02x?} is {apart} units from {other:02x?}");
    }
    assert_eq!(output.len(), golden.len());
}

#[test]
fn elements_match_a_gpu() {
    let t = device();
    for (kernel, arguments, first, last, units) in CASES {
        let (first, last) = (hex(first), hex(last));
        let output = fill(&t, kernel, 42, 0, (257, 512), last.len(), arguments);
        check(kernel, &output[..first.len()], &first, last.len(), *units);
        check(kernel, &output[256 * last.len()..], &last, last.len(), *units);
    }
}

#[test]
fn the_last_elements_of_large_tensors() {
    const ONE: &[u64] = &[single(0.0), single(1.0), single(1.0)];
    const DOUBLE: &[u64] = &[double(0.0), double(1.0)];
    let t = device();
    // All elements of one call, and the first of the next.
    for (kernel, numel, arguments, last, units) in [
        ("plinth_uniform_f32", 1 << 20, ONE, "5bcda73e331f703f9ec6203f8e35e73e", 0),
        ("plinth_uniform_f32", 1_081_345, ONE, "8d08a43e95322d3fb0352b3e21db7c3f", 0),
        ("plinth_normal_f32", 1 << 20, ONE, "a05154bfb2a8663f6aa744bfeaabf1bf", 24),
        ("plinth_normal_f32", 1_081_345, ONE, "bbab4abe45a39dbfe681c13e137a0e3e", 24),
        ("plinth_normal_f64", 1 << 20, DOUBLE, "b9d034298624ebbf2bf77dc6d651c2bf2ebcf11ef6ddf03f", 4),
        ("plinth_normal_f64", 1_081_345, DOUBLE, "09c32669e247f0bf1d06eae2f498e1bf2c8e27a1bcf0ecbf", 4),
    ] {
        let (last, size) = (hex(last), if kernel.ends_with("f64") { 8 } else { 4 });
        let output = fill(&t, kernel, 42, 0, (numel, 270_336), size, arguments);
        check(kernel, &output[output.len() - last.len()..], &last, size, units);
    }
}

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("plinth_uniform_f32", &[single(0.0), single(1.0), single(1.0)], "f0ea1c3fdacd243ce1fccb3e6b1a253d", "99bc3c3c", 0),
    ("plinth_uniform_f32", &[single(-3.0), single(10.0), single(7.0)], "584b4840f58f39c065f07b3fdf3326c0", "a2a038c0", 0),
    ("plinth_normal_f32", &[single(0.0), single(1.0)], "ddac463ef2530a40ef2d30be015c593f", "17b2f7bf", 24),
    ("plinth_normal_f32", &[single(1.5), single(2.0)], "37abf13ff253ba4084f4933f00ae4c40", "17b217c0", 24),
    ("plinth_exponential_f32", &[single(-1.0 / 1.5)], "4c11a73ea73c4440f70e1d3fd1020940", "97733e40", 24),
    ("plinth_log_normal_f32", &[single(1.0), single(2.0)], "2c39804037f24c43d7a3f63feba06d41", "962e683d", 40),
    ("plinth_cauchy_f32", &[single(0.0), single(1.0)], "42babd3edf12fdc1342fa9bef958fbc0", "d4f5dcc1", 60),
    ("plinth_geometric_f32", &[single(0.3)], "00000040000050410000404000002041", "00005041", 0),
    ("plinth_bernoulli_b32", &[P32, 0x3F80_0000], "000000000000803f000000000000803f", "0000803f", 0),
    ("plinth_uniform_f64", &[double(0.0), double(1.0), double(1.0)], "a7e0157753fddd3fa6ddcc83f428c03f", "66f2b29f8896e33f", 0),
    ("plinth_uniform_f64", &[double(-3.0), double(10.0), double(7.0)], "a2b1b6a950f9fa3ff0ea3f5bceccfbbf", "ff5d3f8f55f80840", 0),
    ("plinth_normal_f64", &[double(0.0), double(1.0)], "a310376e8d93f03f33a9fafce39bffbf", "a3eb80fae447b8bf", 4),
    ("plinth_normal_f64", &[double(1.5), double(2.0)], "a310376e8d930c4033a9fafce39b03c0", "8ce2af6003f7f43f", 4),
    ("plinth_exponential_f64", &[double(-1.0 / 1.5)], "27313f41e02be03fbc3c50081813f63f", "e3585c9409f1d43f", 2),
    ("plinth_log_normal_f64", &[double(1.0), double(2.0)], "4b924621079635407df117f499c4aa3f", "38c16ed21ffd0140", 8),
    ("plinth_cauchy_f64", &[double(0.0), double(1.0)], "f455208da958b9bfc2fd18eee91903c0", "9fc803717f86d73f", 4),
    ("plinth_geometric_f64", &[double(0.3)], "00000000000008400000000000001840", "0000000000000040", 0),
    ("plinth_bernoulli_f64", &[P53, double(1.0)], "0000000000000000000000000000f03f", "0000000000000000", 0),
    ("plinth_uniform_f16", &[single(0.0), single(1.0), single(1.0)], "e738262160362929", "e621", 0),
    ("plinth_uniform_f16", &[single(-3.0), single(10.0), single(7.0)], "4242ccc1e03b32c1", "c5c1", 0),
    ("plinth_normal_f16", &[single(0.0), single(1.0)], "3532534081b1cb3a", "bebf", 0),
    ("plinth_normal_f16", &[single(1.5), single(2.0)], "8d3fd345a03c6542", "bec0", 0),
    ("plinth_exponential_f16", &[single(-1.0 / 1.5)], "39352242e8384840", "f441", 0),
    ("plinth_log_normal_f16", &[single(1.0), single(2.0)], "0244685ab53f6d4b", "412b", 0),
    ("plinth_cauchy_f16", &[single(0.0), single(1.0)], "ee35e9cf49b5dbc7", "e8ce", 0),
    ("plinth_geometric_f16", &[single(0.3)], "0040804a00420049", "804a", 0),
    ("plinth_bernoulli_b16", &[P32, 0x3C00], "0000003c0000003c", "003c", 0),
    ("plinth_uniform_bf16", &[single(0.0), single(1.0), single(1.0)], "1d3f253ccc3e253d", "3d3c", 0),
    ("plinth_uniform_bf16", &[single(-3.0), single(10.0), single(7.0)], "48403ac07c3f26c0", "39c0", 0),
    ("plinth_normal_bf16", &[single(0.0), single(1.0)], "473e0a4030be593f", "f8bf", 0),
    ("plinth_normal_bf16", &[single(1.5), single(2.0)], "f23fba40943f4d40", "18c0", 0),
    ("plinth_exponential_bf16", &[single(-1.0 / 1.5)], "a73e44401d3f0940", "3e40", 0),
    ("plinth_log_normal_bf16", &[single(1.0), single(2.0)], "80404d43f73f6e41", "683d", 0),
    ("plinth_cauchy_bf16", &[single(0.0), single(1.0)], "be3efdc1a9befbc0", "ddc1", 0),
    ("plinth_geometric_bf16", &[single(0.3)], "0040504140402041", "5041", 0),
    ("plinth_bernoulli_b16", &[P32, 0x3F80], "0000803f0000803f", "803f", 0),
    ("plinth_integers_b32", &divisor(1 << 31, 0), "53f0ea1c69379302a670fe65b2a6510a", "65f2f202", 0),
    ("plinth_integers_b32", &divisor(105, -5), "03000000310000001c00000055000000", "57000000", 0),
    ("plinth_integers64_b64", &wide_divisor(1 << 63, 0), "3b49f57753f0ea1c13e9512069379302", "ea44b49c65f2f202", 0),
    ("plinth_integers_b64", &divisor(105, -5), "03000000000000003100000000000000", "5700000000000000", 0),
    ("plinth_integers_b8", &divisor(256, 0), "5369a6b2", "65", 0),
    ("plinth_integers_b8", &divisor(97, 3), "5143634e", "59", 0),
    ("plinth_integers_b8", &divisor(128, 0), "53692632", "65", 0),
    ("plinth_integers_b8", &divisor(105, -5), "03311c55", "57", 0),
    ("plinth_integers_b16", &divisor(1 << 15, 0), "53706937a670b226", "6572", 0),
    ("plinth_integers_b16", &divisor(105, -5), "030031001c005500", "5700", 0),
    ("plinth_integers64_b64", &wide_divisor(1 << 40, 0), "3b49f5775300000013e9512069000000", "ea44b49c65000000", 0),
    ("plinth_bernoulli_b8", &[P32, 1], "00010001", "01", 0),
];
