//! Bernoulli numbers with a probability for each element.

use super::{
    element::Element,
    elements, origin, parameter,
    philox::{self, WIDTH, Words},
    real::fraction,
    walk::{Offsets, extent},
};
use crate::driver::half::{Bf16, F16};
use crate::{
    driver::{
        codes,
        random::{Fill, Strided},
        table::Code,
    },
    kernels::Launch,
};

/// Reads the probability at an address plus an index in elements, which must exist.
type Read = unsafe fn(u64, i64) -> f64;

/// Reads element `index` of an array at `address`.
///
/// # Safety
/// The element exists and is aligned.
unsafe fn read<P: Copy>(address: u64, index: i64) -> P {
    // SAFETY: guaranteed by the caller.
    unsafe { (address as *const P).offset(index as isize).read() }
}

/// Returns the function that reads probabilities of a type, after checking that the launch may read all of them.
fn probabilities(launch: &Launch, kind: u64, address: u64, extent: (i64, i64)) -> Result<Read, Code> {
    // SAFETY: for all four functions, their caller guarantees that the element exists.
    let read: Read = match kind {
        0 => |address, index| f64::from(unsafe { read::<F16>(address, index) }.to_f32()),
        1 => |address, index| f64::from(unsafe { read::<Bf16>(address, index) }.to_f32()),
        2 => |address, index| f64::from(unsafe { read::<f32>(address, index) }),
        3 => read::<f64>,
        _ => return Err(codes::CUDA_ERROR_INVALID_VALUE),
    };
    match kind {
        0 | 1 => elements::<u16>(launch, address, extent, false).map(drop)?,
        2 => elements::<f32>(launch, address, extent, false).map(drop)?,
        _ => elements::<f64>(launch, address, extent, false).map(drop)?,
    }
    Ok(read)
}

/// The CPU kernel for one element type. It compares in f32, or with DOUBLE in f64.
pub fn run<E: Element, const DOUBLE: bool>(launch: &Launch) {
    fill::<E, DOUBLE>(launch).unwrap_or_else(|error| launch.fail(error));
}

fn fill<E: Element, const DOUBLE: bool>(launch: &Launch) -> Result<(), Code> {
    let fill = parameter::<Fill>(launch, 0)?;
    let (to, from) = (parameter::<Strided>(launch, 1)?, parameter::<Strided>(launch, 2)?);
    let (seed, offset) = origin(launch, &fill.philox)?;
    let [kind, one, address, first] = fill.arguments;
    let numel = u64::from(fill.numel);
    if numel == 0 {
        return Ok(());
    }
    let extent = |layout| extent(layout, numel).ok_or(codes::CUDA_ERROR_INVALID_VALUE);
    let data = elements::<E>(launch, fill.data(), extent(&to)?, true)?;
    let read = probabilities(launch, kind, address, extent(&from)?)?;
    let one = E::from_i64(one as i64);
    let (mut words, mut block_start) = (Words::ZERO, None);
    for ((index, to), from) in (0..numel).zip(Offsets::new(&to, 0)).zip(Offsets::new(&from, 0)) {
        // Four consecutive elements use the four numbers of one lane's call.
        let number = first.wrapping_add(index);
        let (lane, component) = (number / 4, (number % 4) as usize);
        let position = (lane % WIDTH as u64) as usize;
        if block_start != Some(lane - position as u64) {
            block_start = Some(lane - position as u64);
            philox::words(seed, offset / 4, lane - position as u64, &mut words);
        }
        // SAFETY: `probabilities` checked that all elements of the layout are accessible and aligned.
        let (u, p) = (fraction(words.0[component][position]), unsafe { read(address, from) });
        let chosen = if DOUBLE { f64::from(u) <= p } else { u <= p as f32 };
        // SAFETY: all elements of the layout were checked to be accessible.
        unsafe { data.offset(to as isize).write(if chosen { one } else { E::default() }) };
    }
    Ok(())
}
