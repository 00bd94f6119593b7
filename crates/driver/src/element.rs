//! Element types, and conversions between them on the CPU: the same results as those of kernels/collective.cuh.

use super::{
    Span,
    float8::{F8E4M3, F8E5M2},
    half::{Bf16, F16},
};
use std::fmt;

/// Element types. Kernels know them by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum ElementType {
    F16 = 0,
    Bf16 = 1,
    F32 = 2,
    F64 = 3,
    U8 = 4,
    U16 = 5,
    U32 = 6,
    U64 = 7,
    I8 = 8,
    I16 = 9,
    I32 = 10,
    I64 = 11,
    Bool = 12,
    Complex64 = 13,
    Complex128 = 14,
    F8E4M3 = 15,
    F8E5M2 = 16,
}

impl ElementType {
    /// All element types, in the order of their numbers.
    pub const ALL: [ElementType; 17] = {
        use ElementType::*;
        [F16, Bf16, F32, F64, U8, U16, U32, U64, I8, I16, I32, I64, Bool, Complex64, Complex128, F8E4M3, F8E5M2]
    };

    /// Returns the size of an element in bytes.
    pub fn bytes(self) -> u64 {
        match self {
            ElementType::U8 | ElementType::I8 | ElementType::Bool | ElementType::F8E4M3 | ElementType::F8E5M2 => 1,
            ElementType::F16 | ElementType::Bf16 | ElementType::U16 | ElementType::I16 => 2,
            ElementType::F32 | ElementType::U32 | ElementType::I32 => 4,
            ElementType::F64 | ElementType::U64 | ElementType::I64 | ElementType::Complex64 => 8,
            ElementType::Complex128 => 16,
        }
    }

    /// Returns the required alignment of an element in bytes; a complex number is aligned like its real part.
    pub fn alignment(self) -> u64 {
        if self.is_complex() { self.bytes() / 2 } else { self.bytes() }
    }

    /// Returns whether the type is a real floating-point type. Those of 8 bits do not count: they are copied, converted and
    /// reduced, but random fills and generated kernels do not support them.
    pub fn is_float(self) -> bool {
        matches!(self, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64)
    }

    /// Returns the type of the real and the imaginary part; of a real type, the type itself.
    pub fn real(self) -> ElementType {
        match self {
            ElementType::Complex64 => ElementType::F32,
            ElementType::Complex128 => ElementType::F64,
            real => real,
        }
    }

    /// Returns whether elements are pairs of a real and an imaginary part.
    pub fn is_complex(self) -> bool {
        matches!(self, ElementType::Complex64 | ElementType::Complex128)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            ElementType::F16 => "float16",
            ElementType::Bf16 => "bfloat16",
            ElementType::F32 => "float32",
            ElementType::F64 => "float64",
            ElementType::U8 => "uint8",
            ElementType::U16 => "uint16",
            ElementType::U32 => "uint32",
            ElementType::U64 => "uint64",
            ElementType::I8 => "int8",
            ElementType::I16 => "int16",
            ElementType::I32 => "int32",
            ElementType::I64 => "int64",
            ElementType::Bool => "bool",
            ElementType::Complex64 => "complex64",
            ElementType::Complex128 => "complex128",
            ElementType::F8E4M3 => "float8_e4m3fn",
            ElementType::F8E5M2 => "float8_e5m2",
        })
    }
}

/// What a strided copy copies at each position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// This number of bytes: 1, 2, 4, 8 or 16.
    Bytes(u32),
    /// An element, from the type with the first number to the type with the second one.
    Converted(u16, u16),
}

impl Unit {
    /// Returns the unit that converts between two types.
    pub fn converted(from: ElementType, to: ElementType) -> Unit {
        Unit::Converted(from as u16, to as u16)
    }

    /// Returns the two types of a converting unit; `None` for bytes and for numbers of no type.
    fn types(self) -> Option<(ElementType, ElementType)> {
        let Unit::Converted(from, to) = self else { return None };
        Some((*ElementType::ALL.get(usize::from(from))?, *ElementType::ALL.get(usize::from(to))?))
    }

    /// Returns the size and the alignment of the source, and those of the destination, in bytes. Returns `None` for a
    /// width or a type that does not exist.
    pub fn shapes(self) -> Option<[(u64, u64); 2]> {
        match self {
            Unit::Bytes(width @ (1 | 2 | 4 | 8 | 16)) => Some([(width.into(), width.into()); 2]),
            Unit::Bytes(_) => None,
            Unit::Converted(..) => {
                let (from, to) = self.types()?;
                Some([from, to].map(|element| (element.bytes(), element.alignment())))
            }
        }
    }
}

/// One dimension of a strided copy: its extent, and the strides of the source and the destination in bytes.
pub type CopyDimension = (u64, i64, i64);

/// The value of an element. A real number has the imaginary part 0.
#[derive(Debug, Clone, Copy)]
enum Value {
    Single(f32, f32),
    Double(f64, f64),
    Signed(i64),
    Unsigned(u64),
}

/// Reads an element.
///
/// # Safety
/// `address` is valid for reads of an element of the type. It need not be aligned.
unsafe fn load(element: ElementType, address: *const u8) -> Value {
    // SAFETY: the caller guarantees the bytes of the element, and the reads assume no alignment.
    unsafe {
        match element {
            ElementType::F16 => Value::Single(F16(address.cast::<u16>().read_unaligned()).to_f32(), 0.0),
            ElementType::Bf16 => Value::Single(Bf16(address.cast::<u16>().read_unaligned()).to_f32(), 0.0),
            ElementType::F8E4M3 => Value::Single(F8E4M3(address.read()).to_f32(), 0.0),
            ElementType::F8E5M2 => Value::Single(F8E5M2(address.read()).to_f32(), 0.0),
            ElementType::F32 => Value::Single(address.cast::<f32>().read_unaligned(), 0.0),
            ElementType::F64 => Value::Double(address.cast::<f64>().read_unaligned(), 0.0),
            ElementType::U8 => Value::Signed(address.read().into()),
            ElementType::U16 => Value::Signed(address.cast::<u16>().read_unaligned().into()),
            ElementType::U32 => Value::Signed(address.cast::<u32>().read_unaligned().into()),
            ElementType::U64 => Value::Unsigned(address.cast::<u64>().read_unaligned()),
            ElementType::I8 => Value::Signed(address.cast::<i8>().read().into()),
            ElementType::I16 => Value::Signed(address.cast::<i16>().read_unaligned().into()),
            ElementType::I32 => Value::Signed(address.cast::<i32>().read_unaligned().into()),
            ElementType::I64 => Value::Signed(address.cast::<i64>().read_unaligned()),
            ElementType::Bool => Value::Signed((address.read() != 0).into()),
            ElementType::Complex64 => {
                let [real, imaginary] = address.cast::<[f32; 2]>().read_unaligned();
                Value::Single(real, imaginary)
            }
            ElementType::Complex128 => {
                let [real, imaginary] = address.cast::<[f64; 2]>().read_unaligned();
                Value::Double(real, imaginary)
            }
        }
    }
}

/// The integer that PTX's `cvt.rzi` makes of a NaN (PTX ISA, "cvt"): 0 if neither type has 64 bits, else the integer
/// whose highest bit alone is set.
const WIDE_NAN: u64 = 1 << 63;

/// Conversions as the CUDA instructions do them: towards 0, and to the nearest integer of the type if out of range.
impl Value {
    fn to_single(self) -> (f32, f32) {
        match self {
            Value::Single(real, imaginary) => (real, imaginary),
            Value::Double(real, imaginary) => (real as f32, imaginary as f32),
            Value::Signed(integer) => (integer as f32, 0.0),
            Value::Unsigned(integer) => (integer as f32, 0.0),
        }
    }

    fn to_double(self) -> (f64, f64) {
        match self {
            Value::Single(real, imaginary) => (real.into(), imaginary.into()),
            Value::Double(real, imaginary) => (real, imaginary),
            Value::Signed(integer) => (integer as f64, 0.0),
            Value::Unsigned(integer) => (integer as f64, 0.0),
        }
    }

    fn to_i32(self) -> i32 {
        match self {
            Value::Single(real, _) => real as i32,
            Value::Double(real, _) => {
                if real.is_nan() {
                    i32::MIN
                } else {
                    real as i32
                }
            }
            Value::Signed(integer) => integer as i32,
            Value::Unsigned(integer) => integer as i32,
        }
    }

    fn to_u32(self) -> u32 {
        match self {
            Value::Single(real, _) => real as u32,
            Value::Double(real, _) => {
                if real.is_nan() {
                    1 << 31
                } else {
                    real as u32
                }
            }
            Value::Signed(integer) => integer as u32,
            Value::Unsigned(integer) => integer as u32,
        }
    }

    fn to_i64(self) -> i64 {
        match self {
            Value::Single(real, _) => {
                if real.is_nan() {
                    WIDE_NAN as i64
                } else {
                    real as i64
                }
            }
            Value::Double(real, _) => {
                if real.is_nan() {
                    WIDE_NAN as i64
                } else {
                    real as i64
                }
            }
            Value::Signed(integer) => integer,
            Value::Unsigned(integer) => integer as i64,
        }
    }

    fn to_u64(self) -> u64 {
        match self {
            Value::Single(real, _) => {
                if real.is_nan() {
                    WIDE_NAN
                } else {
                    real as u64
                }
            }
            Value::Double(real, _) => {
                if real.is_nan() {
                    WIDE_NAN
                } else {
                    real as u64
                }
            }
            Value::Signed(integer) => integer as u64,
            Value::Unsigned(integer) => integer,
        }
    }

    fn is_nonzero(self) -> bool {
        match self {
            Value::Single(real, imaginary) => real != 0.0 || imaginary != 0.0,
            Value::Double(real, imaginary) => real != 0.0 || imaginary != 0.0,
            Value::Signed(integer) => integer != 0,
            Value::Unsigned(integer) => integer != 0,
        }
    }
}

/// Writes an element.
///
/// # Safety
/// `address` is valid for writes of an element of the type. It need not be aligned.
unsafe fn store(element: ElementType, address: *mut u8, value: Value) {
    // SAFETY: the caller guarantees the bytes of the element, and the writes assume no alignment.
    unsafe {
        match element {
            ElementType::F16 => address.cast::<u16>().write_unaligned(F16::from_f32(value.to_single().0).0),
            ElementType::Bf16 => address.cast::<u16>().write_unaligned(Bf16::from_f32(value.to_single().0).0),
            ElementType::F8E4M3 => address.write(F8E4M3::from_f32(value.to_single().0).0),
            ElementType::F8E5M2 => address.write(F8E5M2::from_f32(value.to_single().0).0),
            ElementType::F32 => address.cast::<f32>().write_unaligned(value.to_single().0),
            ElementType::F64 => address.cast::<f64>().write_unaligned(value.to_double().0),
            // Through 64 bits, so that negative numbers wrap.
            ElementType::U8 => address.write(value.to_i64() as u8),
            ElementType::U16 => address.cast::<u16>().write_unaligned(value.to_u32() as u16),
            ElementType::U32 => address.cast::<u32>().write_unaligned(value.to_u32()),
            ElementType::U64 => address.cast::<u64>().write_unaligned(value.to_u64()),
            ElementType::I8 => address.cast::<i8>().write(value.to_i32() as i8),
            ElementType::I16 => address.cast::<i16>().write_unaligned(value.to_i32() as i16),
            ElementType::I32 => address.cast::<i32>().write_unaligned(value.to_i32()),
            ElementType::I64 => address.cast::<i64>().write_unaligned(value.to_i64()),
            ElementType::Bool => address.write(value.is_nonzero().into()),
            ElementType::Complex64 => address.cast::<[f32; 2]>().write_unaligned(value.to_single().into()),
            ElementType::Complex128 => address.cast::<[f64; 2]>().write_unaligned(value.to_double().into()),
        }
    }
}

/// Copies on the CPU from one address to another, at every position of the dimensions, of which the first is the
/// fastest. A unit that does not exist copies nothing.
///
/// # Safety
/// All units of the source are valid for reads and those of the destination for writes, and no other thread writes
/// them.
pub unsafe fn copy_on_cpu(unit: Unit, dimensions: &[CopyDimension], from: u64, to: u64) {
    let types = unit.types();
    let Some([(width, _), _]) = unit.shapes() else { return };
    let mut indices = vec![0; dimensions.len()];
    let (mut source, mut destination) = (from, to);
    if dimensions.iter().any(|dimension| dimension.0 == 0) {
        return;
    }
    loop {
        // SAFETY: the caller guarantees the unit at every position of the dimensions; a unit may be copied onto itself.
        unsafe {
            match types {
                Some((from, to)) => store(to, destination as *mut u8, load(from, source as *const u8)),
                None => (source as *const u8).copy_to(destination as *mut u8, width as usize),
            }
        }
        let mut carried = true;
        for (index, (extent, from, to)) in indices.iter_mut().zip(dimensions) {
            *index += 1;
            source = source.wrapping_add_signed(*from);
            destination = destination.wrapping_add_signed(*to);
            carried = *index == *extent;
            if !carried {
                break;
            }
            *index = 0;
            source = source.wrapping_add_signed(from.wrapping_mul(*extent as i64).wrapping_neg());
            destination = destination.wrapping_add_signed(to.wrapping_mul(*extent as i64).wrapping_neg());
        }
        if carried {
            return;
        }
    }
}

/// Copies on the CPU between two places of host memory. The spans are the first elements; their constructors' contracts
/// cover the elements that the dimensions reach.
pub fn copy_in_host_memory(unit: Unit, dimensions: &[CopyDimension], from: Span, to: Span) {
    // SAFETY: the constructors of the spans guarantee the elements, as `Span::offset_by` says.
    unsafe { copy_on_cpu(unit, dimensions, from.address(), to.address()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts the bytes of an element.
    fn convert<const N: usize>(from: ElementType, to: ElementType, bytes: &[u8]) -> [u8; N] {
        assert_eq!((bytes.len() as u64, N as u64), (from.bytes(), to.bytes()));
        let mut out = [0xEE; N];
        // SAFETY: both arrays have the sizes of their types.
        unsafe { copy_on_cpu(Unit::converted(from, to), &[], bytes.as_ptr() as u64, out.as_mut_ptr() as u64) };
        out
    }

    #[test]
    fn numbers_and_sizes_match() {
        for (number, element) in ElementType::ALL.into_iter().enumerate() {
            assert_eq!(element as usize, number);
            assert_eq!(Unit::converted(element, element).shapes(), Some([(element.bytes(), element.alignment()); 2]));
        }
        assert_eq!(Unit::Converted(ElementType::ALL.len() as u16, 0).shapes(), None);
        assert_eq!(Unit::Bytes(3).shapes(), None);
    }

    #[test]
    fn floats_become_integers_as_in_cuda() {
        use ElementType::*;
        let to_i32 = |value: f32| i32::from_ne_bytes(convert(F32, I32, &value.to_ne_bytes()));
        assert_eq!([-1.9, 1.9, 3e9, -3e9, f32::NAN].map(to_i32), [-1, 1, i32::MAX, i32::MIN, 0]);
        let to_u8 = |value: f32| convert::<1>(F32, U8, &value.to_ne_bytes())[0];
        assert_eq!([-1.0, 255.9, 256.0, 300.0, f32::NAN].map(to_u8), [255, 255, 0, 44, 0]);
        let to_i8 = |value: f64| convert::<1>(F64, I8, &value.to_ne_bytes())[0] as i8;
        assert_eq!([-128.5, 127.9, 200.0, 1e30, f64::NAN].map(to_i8), [-128, 127, -56, -1, 0]);
        let to_u32 = |value: f64| u32::from_ne_bytes(convert(F64, U32, &value.to_ne_bytes()));
        assert_eq!([-1.0, 4e9, 5e9, f64::NAN].map(to_u32), [0, 4_000_000_000, u32::MAX, 1 << 31]);
        let to_i64 = |value: f32| i64::from_ne_bytes(convert(F32, I64, &value.to_ne_bytes()));
        assert_eq!([1e30, f32::NAN].map(to_i64), [i64::MAX, i64::MIN]);
    }

    #[test]
    fn complex_numbers_lose_or_gain_an_imaginary_part() {
        use ElementType::*;
        let bytes = |real: f32, imaginary: f32| [real.to_ne_bytes(), imaginary.to_ne_bytes()].concat();
        assert_eq!(f64::from_ne_bytes(convert(Complex64, F64, &bytes(1.5, 7.0))), 1.5);
        assert_eq!(convert(Complex64, Bool, &bytes(0.0, 7.0)), [1]);
        assert_eq!(convert(Complex64, Bool, &bytes(0.0, -0.0)), [0]);
        assert_eq!(convert::<8>(I16, Complex64, &(-3_i16).to_ne_bytes()), bytes(-3.0, 0.0)[..]);
        assert_eq!(convert(F32, Bool, &f32::NAN.to_ne_bytes()), [1]);
        assert_eq!(convert(Bool, I16, &[2]), 1_i16.to_ne_bytes());
    }

    #[test]
    fn halves_are_rounded_to_even() {
        use ElementType::*;
        let to_bf16 = |value: f64| u16::from_ne_bytes(convert(F64, Bf16, &value.to_ne_bytes()));
        assert_eq!([1.0, 1.00390625, 1.01171875].map(to_bf16), [0x3F80, 0x3F80, 0x3F82]);
        let from_i64 = |value: i64| u16::from_ne_bytes(convert(I64, F16, &value.to_ne_bytes()));
        assert_eq!([2049, 2051, 65_520].map(from_i64), [0x6800, 0x6802, 0x7C00]);
        let from_u64 = |value: u64| f32::from_ne_bytes(convert(U64, F32, &value.to_ne_bytes()));
        assert_eq!(from_u64(u64::MAX), 18_446_744_073_709_551_616.0);
    }

    #[test]
    fn every_position_is_copied() {
        let from: Vec<u16> = (0..24).collect();
        let mut to = vec![u16::MAX; 24];
        // The source is 4 x 6; the destination has its columns as rows, and those in reverse.
        let last = from.as_ptr() as u64 + 2 * 5;
        let dimensions = [(4, 12, 2), (6, -2, 8)];
        // SAFETY: the dimensions stay within both vectors.
        unsafe { copy_on_cpu(Unit::Bytes(2), &dimensions, last, to.as_mut_ptr() as u64) };
        let expected: Vec<u16> = (0..6).flat_map(|column| (0..4).map(move |row| row * 6 + 5 - column)).collect();
        assert_eq!(to, expected);
        // SAFETY: there is nothing to copy.
        unsafe { copy_on_cpu(Unit::Bytes(2), &[(4, 2, 2), (0, 1, 1)], 0, 0) };
    }
}
