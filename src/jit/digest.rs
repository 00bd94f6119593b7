//! SHA-256 (FIPS 180-4), by which kernels are told apart.

/// A digest.
pub type Digest = [u8; 32];

/// The first 32 bits of the fractions of the square roots (`cube` false) or cube roots of the first primes.
const fn roots<const N: usize>(cube: bool) -> [u32; N] {
    let (mut words, mut found, mut number) = ([0; N], 0, 2_u128);
    while found < N {
        let (mut divisor, mut prime) = (2, true);
        while divisor * divisor <= number {
            if number % divisor == 0 {
                prime = false;
            }
            divisor += 1;
        }
        if prime {
            // The largest r with r^2 <= n * 2^64, or r^3 <= n * 2^96: the root with 32 bits of fraction.
            let scaled = if cube { number << 96 } else { number << 64 };
            let (mut root, mut bit) = (0_u128, 1 << 40);
            while bit > 0 {
                let next = root | bit;
                let power = if cube { next * next * next } else { next * next };
                if power <= scaled {
                    root = next;
                }
                bit >>= 1;
            }
            words[found] = root as u32;
            found += 1;
        }
        number += 1;
    }
    words
}

const START: [u32; 8] = roots(false);
const ROUNDS: [u32; 64] = roots(true);

/// The digest of some bytes.
pub fn sha256(bytes: &[u8]) -> Digest {
    let mut state = START;
    let (whole, rest) = bytes.as_chunks::<64>();
    whole.iter().for_each(|block| mix(&mut state, block));
    let mut last = [0; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    let end = if rest.len() < 56 { 64 } else { 128 };
    last[end - 8..end].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    last[..end].as_chunks::<64>().0.iter().for_each(|block| mix(&mut state, block));
    let mut digest = [0; 32];
    for (place, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    digest
}

fn mix(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut words = [0; 64];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for at in 16..64 {
        let (early, late) = (words[at - 15], words[at - 2]);
        let small = early.rotate_right(7) ^ early.rotate_right(18) ^ early >> 3;
        let large = late.rotate_right(17) ^ late.rotate_right(19) ^ late >> 10;
        words[at] = large.wrapping_add(words[at - 7]).wrapping_add(small).wrapping_add(words[at - 16]);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (constant, word) in ROUNDS.iter().zip(words) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h.wrapping_add(sum).wrapping_add(choice).wrapping_add(*constant).wrapping_add(word);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let second = sum.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, value) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(value);
    }
}

/// A digest as text.
pub fn hex(digest: &Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_have_their_digests() {
        let long = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        for (text, expected) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (long, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
        ] {
            assert_eq!(hex(&sha256(text.as_bytes())), expected);
        }
        let million = vec![b'a'; 1_000_000];
        assert_eq!(hex(&sha256(&million)), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}
