//! Philox4x32-10: the generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
//!
//! A fill requests one call of many subsequences at once: 128 neighbouring lanes, whose counters are (n, n's high half,
//! lane, lane's high half). Two of the four products of the first two rounds, and some of their words, are then the
//! same for every lane.

/// The number of lanes of a block.
pub const WIDTH: usize = 128;

const M0: u64 = 0xD251_1F53;
const M1: u64 = 0xCD9E_8D57;
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// A block of numbers: word k of all lanes' calls is contiguous.
#[repr(C, align(64))]
pub struct Words(pub [[u32; WIDTH]; 4]);

impl Words {
    pub const ZERO: Words = Words([[0; WIDTH]; 4]);
}

/// Returns the key of each round.
fn schedule(seed: u64) -> [[u32; 2]; ROUNDS] {
    let mut key = [seed as u32, (seed >> 32) as u32];
    let mut keys = [key; ROUNDS];
    for round in &mut keys[1..] {
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        *round = key;
    }
    keys
}

fn high(product: u64) -> u32 {
    (product >> 32) as u32
}

fn round(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let (p0, p1) = (M0 * u64::from(counter[0]), M1 * u64::from(counter[2]));
    [high(p1) ^ counter[1] ^ key[0], p1 as u32, high(p0) ^ counter[3] ^ key[1], p0 as u32]
}

/// Returns the four numbers of a counter.
pub fn philox(counter: [u32; 4], seed: u64) -> [u32; 4] {
    schedule(seed).into_iter().fold(counter, round)
}

/// Computes call `call` of the lanes from `lane` on, a multiple of the width.
pub fn words(seed: u64, call: u64, lane: u64, out: &mut Words) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor's support was just checked.
        return unsafe { words_avx2(seed, call, lane, out) };
    }
    words_plain(seed, call, lane, out);
}

/// Computes the same on any processor. One copy is enough for all kernels.
#[inline(never)]
pub fn words_plain(seed: u64, call: u64, lane: u64, out: &mut Words) {
    for index in 0..WIDTH {
        let counter = [call as u32, high(call), lane as u32 + index as u32, high(lane)];
        for (row, word) in out.0.iter_mut().zip(philox(counter, seed)) {
            row[index] = word;
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub use avx2::words as words_avx2;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{M0, M1, ROUNDS, WIDTH, Words, high, schedule};
    use std::arch::x86_64::*;

    /// The words of four lanes, each in the low half of 64 bits. The high halves are arbitrary: the multiplication
    /// ignores them.
    type State = [__m256i; 4];

    /// The key of a round, in the low halves.
    type Key = [__m256i; 2];

    #[target_feature(enable = "avx2")]
    fn splat(word: u32) -> __m256i {
        _mm256_set1_epi64x(i64::from(word))
    }

    #[target_feature(enable = "avx2")]
    fn products(counter: &State) -> [__m256i; 2] {
        [_mm256_mul_epu32(counter[0], splat(M0 as u32)), _mm256_mul_epu32(counter[2], splat(M1 as u32))]
    }

    /// Combines the key with the word first, since the product is available last.
    #[target_feature(enable = "avx2")]
    fn mix(product: __m256i, word: __m256i, key: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_srli_epi64::<32>(product), _mm256_xor_si256(word, key))
    }

    /// As `mix`, with the result in the high halves.
    #[target_feature(enable = "avx2")]
    fn mix_high(product: __m256i, word: __m256i, key: __m256i) -> __m256i {
        _mm256_xor_si256(product, _mm256_slli_epi64::<32>(_mm256_xor_si256(word, key)))
    }

    /// The values of the first three rounds that are the same in every lane.
    struct Start {
        /// For word 0 after the first round.
        first: __m256i,
        /// For words 0 and 2 after the second.
        second: Key,
        /// For words 0 and 2 after the third.
        third: Key,
    }

    /// Computes all rounds but the last, of two groups of four lanes, where `product` is M1 times the lane. Two groups
    /// are interleaved, since the rounds of one alone would wait for their products.
    #[target_feature(enable = "avx2")]
    fn nine_rounds(product: [__m256i; 2], start: &Start, keys: &[Key; ROUNDS]) -> [State; 2] {
        let mut counters = product.map(|product| {
            let first = _mm256_xor_si256(_mm256_srli_epi64::<32>(product), start.first);
            let p0 = _mm256_mul_epu32(first, splat(M0 as u32));
            let second = _mm256_xor_si256(_mm256_srli_epi64::<32>(p0), start.second[1]);
            [_mm256_xor_si256(product, start.second[0]), p0, second, p0]
        });
        for counter in &mut counters {
            let [p0, p1] = products(counter);
            let third = _mm256_xor_si256(_mm256_srli_epi64::<32>(p1), start.third[0]);
            *counter = [third, p1, mix(p0, counter[3], start.third[1]), p0];
        }
        for key in &keys[3..ROUNDS - 1] {
            for counter in &mut counters {
                let [p0, p1] = products(counter);
                *counter = [mix(p1, counter[1], key[0]), p1, mix(p0, counter[3], key[1]), p0];
            }
        }
        counters
    }

    /// See [`super::words`].
    #[inline(never)]
    #[target_feature(enable = "avx2")]
    pub fn words(seed: u64, call: u64, lane: u64, out: &mut Words) {
        let scalar = schedule(seed);
        let keys = scalar.map(|key| key.map(|word| splat(word)));
        // M0 times n in the first round; M1 times its result in the second.
        let p0 = M0 * u64::from(call as u32);
        let p1 = M1 * u64::from(high(p0) ^ high(lane) ^ scalar[0][1]);
        let start = Start {
            first: splat(high(call) ^ scalar[0][0]),
            second: [splat(high(p1) ^ scalar[1][0]), splat(p0 as u32 ^ scalar[1][1])],
            third: [splat(p1 as u32 ^ scalar[2][0]), keys[2][1]],
        };
        let last = keys[ROUNDS - 1];
        let lane_product = |index: u64| (M1 * (u64::from(lane as u32) + index)) as i64;
        let at = |from: u64| {
            _mm256_setr_epi64x(
                lane_product(from),
                lane_product(from + 2),
                lane_product(from + 4),
                lane_product(from + 6),
            )
        };
        let (mut even, mut odd) = (at(0), at(1));
        let step = _mm256_set1_epi64x(8 * M1 as i64);
        for index in (0..WIDTH).step_by(8) {
            let [a, b] = nine_rounds([even, odd], &start, &keys);
            let ([a0, a1], [b0, b1]) = (products(&a), products(&b));
            let rows = [
                _mm256_blend_epi32::<0xAA>(mix(a1, a[1], last[0]), mix_high(b1, b[1], last[0])),
                _mm256_blend_epi32::<0xAA>(a1, _mm256_slli_epi64::<32>(b1)),
                _mm256_blend_epi32::<0xAA>(mix(a0, a[3], last[1]), mix_high(b0, b[3], last[1])),
                _mm256_blend_epi32::<0xAA>(a0, _mm256_slli_epi64::<32>(b0)),
            ];
            for (row, words) in out.0.iter_mut().zip(rows) {
                // SAFETY: the index is less than the width, a multiple of 8, and each row begins at a multiple of 64
                // bytes.
                unsafe { _mm256_store_si256(row.as_mut_ptr().add(index).cast(), words) };
            }
            (even, odd) = (_mm256_add_epi64(even, step), _mm256_add_epi64(odd, step));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The known-answer tests of the paper's implementation.
    #[test]
    fn known_answers() {
        assert_eq!(philox([0; 4], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], u64::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let digits_of_pi = [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344];
        let numbers = philox(digits_of_pi, 0x299f_31d0_a409_3822);
        assert_eq!(numbers, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    fn check(seed: u64, call: u64, lane: u64) {
        let mut out = Box::new(Words::ZERO);
        let compare = |words: &Words, which: &str| {
            for index in 0..WIDTH {
                let lane = lane + index as u64;
                let expected = philox([call as u32, high(call), lane as u32, high(lane)], seed);
                assert_eq!(words.0.map(|row| row[index]), expected, "{which}, {seed} {call} {lane}");
            }
        };
        words_plain(seed, call, lane, &mut out);
        compare(&out, "plain");
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            *out = Words::ZERO;
            // SAFETY: the processor's support was just checked.
            unsafe { words_avx2(seed, call, lane, &mut out) };
            compare(&out, "AVX2");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn blocks_match_single_counters(seed: u64, call: u64, block in 0..u64::MAX / 128) {
            check(seed, call, block * 128);
        }
    }

    #[test]
    fn blocks_at_the_ends_of_the_counters() {
        for call in [0, 1, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            for lane in [0, 128, (1 << 31) - 128, 1 << 31, (1 << 32) - 128, 1 << 32, u64::MAX - 127] {
                check(0, call, lane);
                check(u64::MAX, call, lane);
            }
        }
    }
}
