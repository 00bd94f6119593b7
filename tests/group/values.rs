//! Elements of each type as bytes, and reference results of reductions.

use plinth::internal::{collectives::devices::ReduceOp, runtime::tensor::ElementType};
use plinth_driver::half::{Bf16, F16};

pub const OPS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Minimum, ReduceOp::Maximum, ReduceOp::Average];

pub const ELEMENTS: [ElementType; 15] = [
    ElementType::F16,
    ElementType::Bf16,
    ElementType::F32,
    ElementType::F64,
    ElementType::U8,
    ElementType::I8,
    ElementType::U16,
    ElementType::I16,
    ElementType::U32,
    ElementType::I32,
    ElementType::U64,
    ElementType::I64,
    ElementType::Bool,
    ElementType::Complex64,
    ElementType::Complex128,
];

/// Returns whether the type supports the operation.
pub fn has(element: ElementType, op: ReduceOp) -> bool {
    match op {
        ReduceOp::Average => element != ElementType::Bool,
        ReduceOp::Minimum | ReduceOp::Maximum => !element.is_complex(),
        _ => true,
    }
}

fn word(rank: u32, index: u64, salt: u64) -> u64 {
    let mixed = (u64::from(rank) << 40 ^ index ^ salt << 50).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
}

/// Returns `count` elements of a rank: small fractional numbers, or any integers.
pub fn row(element: ElementType, rank: u32, count: u64, salt: u64) -> Vec<u8> {
    let number = |index| word(rank, index, salt);
    let real = |index: u64| (number(index) % 2001) as f64 / 500.0 - 2.0;
    let each = (0..count).map(|index| -> Vec<u8> {
        match element {
            ElementType::F16 => F16::from_f32(real(index) as f32).0.to_le_bytes().into(),
            ElementType::Bf16 => Bf16::from_f32(real(index) as f32).0.to_le_bytes().into(),
            ElementType::F32 => (real(index) as f32).to_le_bytes().into(),
            ElementType::F64 => real(index).to_le_bytes().into(),
            ElementType::Complex64 => {
                [(real(index) as f32).to_le_bytes(), (real(index + count) as f32).to_le_bytes()].concat()
            }
            ElementType::Complex128 => [real(index).to_le_bytes(), real(index + count).to_le_bytes()].concat(),
            ElementType::Bool => vec![(number(index) % 3 == 0) as u8],
            _ => number(index).to_le_bytes()[..element.bytes() as usize].into(),
        }
    });
    each.flatten().collect()
}

fn fold_real(op: ReduceOp, numbers: &[f64], round: fn(f64) -> f64) -> f64 {
    let reduced = numbers.iter().copied().reduce(|a, b| {
        round(match op {
            ReduceOp::Product => a * b,
            ReduceOp::Minimum => a.min(b),
            ReduceOp::Maximum => a.max(b),
            _ => a + b,
        })
    });
    let reduced = reduced.unwrap();
    if op == ReduceOp::Average { round(reduced / numbers.len() as f64) } else { reduced }
}

fn fold_whole(op: ReduceOp, numbers: &[i128], wrap: impl Fn(i128) -> i128) -> i128 {
    let reduced = numbers.iter().copied().reduce(|a, b| {
        wrap(match op {
            ReduceOp::Product => a.wrapping_mul(b),
            ReduceOp::Minimum => a.min(b),
            ReduceOp::Maximum => a.max(b),
            _ => a + b,
        })
    });
    if op == ReduceOp::Average { reduced.unwrap() / numbers.len() as i128 } else { reduced.unwrap() }
}

/// Reduces rows. A double represents each rounded intermediate result of an f32, so the same code serves both types.
pub fn reduced(element: ElementType, op: ReduceOp, rows: &[Vec<u8>]) -> Vec<u8> {
    let single = |x: f64| f64::from(x as f32);
    let bytes = element.bytes() as usize;
    let at = |index: usize| rows.iter().map(move |row| &row[index..index + bytes]);
    let half = |bytes: &[u8]| u16::from_le_bytes(bytes.try_into().unwrap());
    let f32_of = |bytes: &[u8]| f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    let f64_of = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().unwrap());
    let mut out = Vec::new();
    for index in (0..rows[0].len()).step_by(bytes) {
        let reals = |read: &dyn Fn(&[u8]) -> f64, round| fold_real(op, &at(index).map(read).collect::<Vec<_>>(), round);
        match element {
            ElementType::F16 => {
                let sum = reals(&|bytes| f64::from(F16(half(bytes)).to_f32()), single);
                out.extend(F16::from_f32(sum as f32).0.to_le_bytes());
            }
            ElementType::Bf16 => {
                let sum = reals(&|bytes| f64::from(Bf16(half(bytes)).to_f32()), single);
                out.extend(Bf16::from_f32(sum as f32).0.to_le_bytes());
            }
            ElementType::F32 => out.extend((reals(&f32_of, single) as f32).to_le_bytes()),
            ElementType::F64 => out.extend(reals(&f64_of, |x| x).to_le_bytes()),
            ElementType::Complex64 | ElementType::Complex128 => {
                let is_single = element == ElementType::Complex64;
                let round = if is_single { single } else { |x| x };
                let read = |bytes: &[u8]| if is_single { f32_of(bytes) } else { f64_of(bytes) };
                let (near, far) = (bytes / 2, bytes);
                let pairs = at(index).map(|pair| (read(&pair[..near]), read(&pair[near..far])));
                let (mut real, mut imaginary) = pairs
                    .reduce(|(a, b), (c, d)| match op {
                        ReduceOp::Product => (round(round(a * c) - round(b * d)), round(round(a * d) + round(b * c))),
                        _ => (round(a + c), round(b + d)),
                    })
                    .unwrap();
                if op == ReduceOp::Average {
                    (real, imaginary) = (round(real / rows.len() as f64), round(imaginary / rows.len() as f64));
                }
                for part in [real, imaginary] {
                    if is_single { out.extend((part as f32).to_le_bytes()) } else { out.extend(part.to_le_bytes()) }
                }
            }
            ElementType::Bool => {
                let mut all = at(index).map(|byte| byte[0] != 0);
                let one = match op {
                    ReduceOp::Product | ReduceOp::Minimum => all.all(|one| one),
                    _ => all.any(|one| one),
                };
                out.push(u8::from(one));
            }
            _ => {
                let signed =
                    matches!(element, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64);
                let bits = bytes as u32 * 8;
                let wrap = |number: i128| {
                    let unsigned = number & ((1 << bits) - 1);
                    if signed && unsigned >> (bits - 1) == 1 { unsigned - (1 << bits) } else { unsigned }
                };
                let read = |bytes: &[u8]| {
                    let mut word = [0; 16];
                    word[..bytes.len()].copy_from_slice(bytes);
                    wrap(i128::from_le_bytes(word))
                };
                let sum = fold_whole(op, &at(index).map(read).collect::<Vec<_>>(), wrap);
                out.extend(&sum.to_le_bytes()[..bytes]);
            }
        }
    }
    out
}
