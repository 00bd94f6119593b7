//! Random number generators
//!
//! A generator is a seed and an offset, from which Philox4x32-10 makes numbers: torch.Generator of a CUDA device. Each
//! device has a default generator. NULL stands for the default generator of the current device, or of a tensor's device
//! where there is a tensor.
//!
//! The default generators belong to the library. The caller owns every other generator and destroys it; graphs that use
//! it keep its state. Threads may share a generator: each call takes its own numbers, in the order of the calls.

use crate::{
    driver::random::PhiloxState,
    error::{Error, Result},
    ffi::{
        Output, array,
        guard::{guard, release},
        null,
        status::plinth_status_t,
    },
    ops::random::{
        generator::{self, STATE_BYTES},
        seed,
    },
    status::Status,
};

/// A generator of random numbers: Philox4x32-10 with a seed and an offset.
///
/// The handle is opaque and checked: calls return PLINTH_ERROR_INVALID_HANDLE for a handle that was destroyed, that
/// is of another kind, or that never was a handle.
#[allow(non_camel_case_types)]
pub struct plinth_generator {
    _private: [u8; 0],
}

/// The handle of a generator. As an argument, NULL means the default generator of the device.
#[allow(non_camel_case_types)]
pub type plinth_generator_t = *mut plinth_generator;

/// The size in bytes of a generator's state: the seed, then the offset, each as a little-endian 64-bit integer, as in
/// PyTorch.
pub const PLINTH_RNG_STATE_SIZE: usize = 16;

fn handle(generator: plinth_generator_t) -> Result<u64> {
    if generator.is_null() { seed::default_generator(-1) } else { Ok(generator as u64) }
}

fn to_c(handle: u64) -> plinth_generator_t {
    handle as plinth_generator_t
}

/// Seeds the current device's default generator and sets its offset to 0.
///
/// Before the library is initialized, the seed is stored and applied at initialization, to the device that is current
/// then. So the call does not fail on a machine without a GPU.
///
/// @param seed The seed.
/// @return PLINTH_OK; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream captures;
///         PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_manual_seed(seed: u64) -> plinth_status_t {
    guard(|| seed::manual_seed(seed))
}

/// Seeds the default generators of all devices, as plinth_manual_seed does for one device.
///
/// @param seed The seed, the same for all devices.
/// @return As plinth_manual_seed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_manual_seed_all(seed: u64) -> plinth_status_t {
    guard(|| seed::manual_seed_all(seed))
}

/// Seeds the current device's default generator with a seed of 53 bits from the operating system. Otherwise as
/// plinth_manual_seed.
///
/// @return As plinth_manual_seed; PLINTH_ERROR_SYSTEM if /dev/urandom is missing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_seed() -> plinth_status_t {
    guard(|| {
        seed::seed()?;
        Ok(())
    })
}

/// Seeds the default generators of all devices with one seed of 53 bits from the operating system. Otherwise as
/// plinth_manual_seed.
///
/// @return As plinth_seed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_seed_all() -> plinth_status_t {
    guard(|| {
        seed::seed_all()?;
        Ok(())
    })
}

/// Gets the seed of the current device's default generator. A generator that was never seeded has a seed from the
/// operating system.
///
/// @param seed Out: the seed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_initial_seed(seed: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(seed, "seed") }?;
        output.set(seed::initial_seed()?);
        Ok(())
    })
}

/// Gets the state of a device's default generator: PLINTH_RNG_STATE_SIZE bytes, which PyTorch's
/// torch.cuda.set_rng_state accepts too.
///
/// @param device The device index; -1 for the current device.
/// @param state Out: the bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_CAPTURE_FORBIDS if the
///         thread's current stream captures; PLINTH_ERROR_SYSTEM; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_rng_state(device: i32, state: *mut u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 16 bytes.
        let output = unsafe { Output::new(state.cast::<[u8; STATE_BYTES]>(), "state") }?;
        output.set(seed::state(device)?);
        Ok(())
    })
}

/// Sets the state of a device's default generator.
///
/// @param device The device index; -1 for the current device.
/// @param state PLINTH_RNG_STATE_SIZE bytes, from plinth_get_rng_state or torch.cuda.get_rng_state.
/// @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for an offset that is not a multiple of 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_rng_state(device: i32, state: *const u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or 16 bytes.
        let state = unsafe { array(state, STATE_BYTES, "state") }?;
        seed::set_state(device, state)
    })
}

/// Gets the states of the default generators of the first `count` devices, one after the other.
///
/// @param states Out: PLINTH_RNG_STATE_SIZE bytes for each device; may be NULL if `count` is 0.
/// @param count The number of devices, usually the result of plinth_device_count.
/// @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for a count that is negative or larger than the number
///         of devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_rng_state_all(states: *mut u8, count: i32) -> plinth_status_t {
    guard(|| {
        if states.is_null() && count != 0 {
            return Err(null("states"));
        }
        for (index, state) in seed::states(count_of(count)?)?.iter().enumerate() {
            // SAFETY: the caller has room for `count` states, and this is one of them.
            unsafe { states.add(index * STATE_BYTES).cast::<[u8; STATE_BYTES]>().write(*state) };
        }
        Ok(())
    })
}

fn count_of(count: i32) -> Result<usize> {
    usize::try_from(count)
        .map_err(|_| Error::new(Status::INVALID_VALUE, format!("count is {count}; it cannot be negative")))
}

/// Sets the states of the default generators of the first `count` devices. If one state is malformed, none is set.
///
/// @param states PLINTH_RNG_STATE_SIZE bytes for each device; may be NULL if `count` is 0.
/// @param count The number of devices.
/// @return As plinth_set_rng_state; PLINTH_ERROR_INVALID_VALUE for more states than devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_rng_state_all(states: *const u8, count: i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or 16 bytes for each.
        let states = unsafe { array(states, count_of(count)? * STATE_BYTES, "states") }?;
        let (states, _) = states.as_chunks::<STATE_BYTES>();
        seed::set_states(states)
    })
}

/// Gets the default generator of a device. It belongs to the library and cannot be destroyed.
///
/// @param device The device index; -1 for the current device.
/// @param generator Out: the generator.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_SYSTEM; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_default_generator(device: i32, generator: *mut plinth_generator_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(generator, "generator") }?;
        output.set(to_c(seed::default_generator(device)?));
        Ok(())
    })
}

/// Creates a generator with PyTorch's default seed, 67280421310721, and an offset of 0.
///
/// @param device The index of the device for whose tensors it generates numbers; -1 for the current device.
/// @param generator Out: the generator. The caller owns it and destroys it with plinth_generator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with 16
///         million live generators; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_create(device: i32, generator: *mut plinth_generator_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(generator, "generator") }?;
        output.set(to_c(generator::create(device)?));
        Ok(())
    })
}

/// Destroys a generator. Graphs that use it can still be replayed.
///
/// @param generator The generator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a device's default generator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_destroy(generator: plinth_generator_t) -> plinth_status_t {
    release(|| if generator.is_null() { Ok(()) } else { generator::destroy(generator as u64) })
}

/// Creates an independent generator with the seed and offset of another one: torch's clone_state.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param clone Out: the new generator. The caller owns it and destroys it with plinth_generator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
///         thread's current stream captures; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_clone(
    generator: plinth_generator_t,
    clone: *mut plinth_generator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(clone, "clone") }?;
        output.set(to_c(generator::copy(handle(generator)?)?));
        Ok(())
    })
}

/// Creates a generator that shares the state of another one: torch's graphsafe_get_state.
///
/// Both have the same seed and offset: numbers that one generator produces are not produced by the other. Allowed in
/// a capture.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param shared Out: the new generator. The caller owns it and destroys it with plinth_generator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors
///         of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_graphsafe_get_state(
    generator: plinth_generator_t,
    shared: *mut plinth_generator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(shared, "shared") }?;
        output.set(to_c(generator::share(handle(generator)?)?));
        Ok(())
    })
}

/// Makes a generator share the state of another one, in place of its own seed and offset: torch's
/// graphsafe_set_state. Allowed in a capture.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param shared The other generator, of the same device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH; the
///         errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_graphsafe_set_state(
    generator: plinth_generator_t,
    shared: plinth_generator_t,
) -> plinth_status_t {
    guard(|| generator::adopt(self::handle(generator)?, super::handle(shared, "shared")?))
}

/// Gets the device of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param device Out: the device index.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_device(generator: plinth_generator_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(generator::get(handle(generator)?)?.device as i32);
        Ok(())
    })
}

/// Seeds a generator and sets its offset to 0.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param seed The seed.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream
///         captures; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_manual_seed(generator: plinth_generator_t, seed: u64) -> plinth_status_t {
    guard(|| generator::get(handle(generator)?)?.set_seed(seed))
}

/// Seeds a generator with a seed of 53 bits from the operating system and sets its offset to 0.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param seed Out: the seed. May be NULL.
/// @return As plinth_generator_manual_seed; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_seed(generator: plinth_generator_t, seed: *mut u64) -> plinth_status_t {
    guard(|| {
        let chosen = seed::random_seed()?;
        generator::get(handle(generator)?)?.set_seed(chosen)?;
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        if let Some(output) = unsafe { seed.as_mut() } {
            *output = chosen;
        }
        Ok(())
    })
}

/// Gets the seed of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param seed Out: the seed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_initial_seed(
    generator: plinth_generator_t,
    seed: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(seed, "seed") }?;
        output.set(generator::get(handle(generator)?)?.seed());
        Ok(())
    })
}

/// Gets the state of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param state Out: PLINTH_RNG_STATE_SIZE bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS if the
///         thread's current stream captures; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_get_state(generator: plinth_generator_t, state: *mut u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or room for 16 bytes.
        let output = unsafe { Output::new(state.cast::<[u8; STATE_BYTES]>(), "state") }?;
        output.set(generator::get(handle(generator)?)?.bytes()?);
        Ok(())
    })
}

/// Sets the state of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param state The state.
/// @param size The size of the state: PLINTH_RNG_STATE_SIZE bytes, or 8 bytes for a seed alone, which sets the offset
///        to 0.
/// @return As plinth_generator_get_state; PLINTH_ERROR_INVALID_VALUE for another size, and for an offset that is not
///         a multiple of 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_set_state(
    generator: plinth_generator_t,
    state: *const u8,
    size: usize,
) -> plinth_status_t {
    guard(|| {
        generator::check_size(size)?;
        // SAFETY: the caller passes NULL or `size` bytes.
        let state = unsafe { array(state, size, "state") }?;
        generator::get(handle(generator)?)?.set_bytes(state)
    })
}

/// Gets the offset of a generator: the number of 32-bit values that each of its subsequences has produced.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param offset Out: the offset, a multiple of 4.
/// @return As plinth_generator_get_state.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_get_offset(
    generator: plinth_generator_t,
    offset: *mut u64,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(offset, "offset") }?;
        output.set(generator::get(handle(generator)?)?.offset()?);
        Ok(())
    })
}

/// Sets the offset of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param offset The offset, a multiple of 4.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an offset that is not a multiple of
///         4; PLINTH_ERROR_CAPTURE_FORBIDS if the thread's current stream captures; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_set_offset(generator: plinth_generator_t, offset: u64) -> plinth_status_t {
    guard(|| generator::get(handle(generator)?)?.set_offset(offset))
}

/// Reserves random numbers of a generator for a kernel of the program, launched in the current stream of the
/// generator's device.
///
/// plinth_philox.cuh converts the state to numbers, on the device and on the CPU. No two calls reserve the same
/// numbers, even if threads call at the same time.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param increment The maximum number of 32-bit values that one thread of the kernel uses, at most 2^62; rounded up to
///        a multiple of 4.
/// @param state Out: the state. Outside of a capture it has the seed and the offset. In a capture it has the device
///        addresses of the seed and the offset, which each replay writes, and a number to add to the offset. It is
///        then valid only for kernels of that capture.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a larger
///         increment; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a capture of a graph with which the generator is not
///         registered; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_philox_state(
    generator: plinth_generator_t,
    increment: u64,
    state: *mut plinth_philox_state_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a pointer that is valid for writes.
        let output = unsafe { Output::new(state, "state") }?;
        let PhiloxState { seed, offset, graph_offset, captured, reserved } =
            generator::philox_state(generator as u64, increment)?;
        output.set(plinth_philox_state_t { seed, offset, graph_offset, captured, reserved });
        Ok(())
    })
}

/// The state that plinth_generator_philox_state returns. The header declares it by hand, because plinth_philox.h also
/// declares it.
#[repr(C)]
#[derive(Clone, Copy)]
#[allow(non_camel_case_types, missing_docs)]
pub struct plinth_philox_state_t {
    pub seed: u64,
    pub offset: u64,
    pub graph_offset: u64,
    pub captured: u32,
    pub reserved: u32,
}
