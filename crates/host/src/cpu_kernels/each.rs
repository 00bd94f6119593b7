//! Bernoulli numbers of a probability each.

use super::{
    element::Element,
    elements, origin, parameter,
    philox::{self, WIDTH, Words},
    real::fraction,
    walk::{Places, extent},
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

/// Reads a probability: from an address, so many elements on. There must be one.
type Read = unsafe fn(u64, i64) -> f64;

/// Reads element `index` of those from `address` on.
///
/// # Safety
/// There is one, and it is aligned.
unsafe fn read<P: Copy>(address: u64, index: i64) -> P {
    // SAFETY: the caller answers for it.
    unsafe { (address as *const P).offset(index as isize).read() }
}

/// How to read probabilities of a type, all of which the launch may read.
fn probabilities(launch: &Launch, kind: u64, address: u64, extent: (i64, i64)) -> Result<Read, Code> {
    // SAFETY: of all four, whoever calls them answers for the place.
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

/// The twin for elements of a type, which compares in f32, or with DOUBLE in f64.
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
    let (mut words, mut known) = (Words::ZERO, None);
    for ((index, to), from) in (0..numel).zip(Places::new(&to, 0)).zip(Places::new(&from, 0)) {
        // Four elements in a row take the four numbers of one lane's call.
        let number = first.wrapping_add(index);
        let (lane, component) = (number / 4, (number % 4) as usize);
        let place = (lane % WIDTH as u64) as usize;
        if known != Some(lane - place as u64) {
            known = Some(lane - place as u64);
            philox::words(seed, offset / 4, lane - place as u64, &mut words);
        }
        // SAFETY: `probabilities` has found all places of the layout usable and aligned.
        let (u, p) = (fraction(words.0[component][place]), unsafe { read(address, from) });
        let chosen = if DOUBLE { f64::from(u) <= p } else { u <= p as f32 };
        // SAFETY: all places of the layout were found usable.
        unsafe { data.offset(to as isize).write(if chosen { one } else { E::default() }) };
    }
    Ok(())
}
