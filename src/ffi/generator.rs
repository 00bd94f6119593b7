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
    ffi::{Output, guard::guard, null, status::plinth_status_t},
    random::{
        generator::{self, STATE_BYTES},
        seed,
    },
    status::Status,
};

/// A generator of random numbers: Philox4x32-10 with a seed and an offset. Opaque, and checked: a handle that was
/// destroyed, is of another kind, or never was one is answered with PLINTH_ERROR_INVALID_HANDLE.
#[allow(non_camel_case_types)]
pub struct plinth_generator {
    _private: [u8; 0],
}

/// The handle of a generator. Where a function takes one, NULL stands for the device's default generator.
#[allow(non_camel_case_types)]
pub type plinth_generator_t = *mut plinth_generator;

/// The bytes of a generator's state: the seed as a little-endian 64-bit integer, then the offset as one, as in PyTorch.
pub const PLINTH_RNG_STATE_SIZE: usize = 16;

fn handle(generator: plinth_generator_t) -> Result<u64> {
    if generator.is_null() { seed::default_generator(-1) } else { Ok(generator as u64) }
}

fn to_c(handle: u64) -> plinth_generator_t {
    handle as plinth_generator_t
}

/// Seeds the current device's default generator, and sets its offset to 0. Before the library is initialized the seed
/// waits until it is, for the device that is current then; so this is no error on a machine without a GPU. Thread-safe.
///
/// @param seed The seed.
/// @return PLINTH_OK; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator;
///         PLINTH_ERROR_FORKED_CHILD; PLINTH_ERROR_SHUTTING_DOWN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_manual_seed(seed: u64) -> plinth_status_t {
    guard(|| seed::manual_seed(seed))
}

/// Seeds the default generator of every device, as plinth_manual_seed does that of one.
///
/// @param seed The seed, the same for all.
/// @return As plinth_manual_seed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_manual_seed_all(seed: u64) -> plinth_status_t {
    guard(|| seed::manual_seed_all(seed))
}

/// Seeds the current device's default generator with a seed of 53 bits from the operating system. Otherwise as
/// plinth_manual_seed.
///
/// @return As plinth_manual_seed; PLINTH_ERROR_SYSTEM when there is no /dev/urandom.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_seed() -> plinth_status_t {
    guard(seed::seed)
}

/// Seeds the default generator of every device with one seed of 53 bits from the operating system. Otherwise as
/// plinth_manual_seed.
///
/// @return As plinth_seed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_seed_all() -> plinth_status_t {
    guard(seed::seed_all)
}

/// Tells the seed of the current device's default generator. One that was never seeded has a seed from the operating
/// system.
///
/// @param seed Out: the seed.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_SYSTEM; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_initial_seed(seed: *mut u64) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the seed.
        let output = unsafe { Output::new(seed, "seed") }?;
        output.set(seed::initial_seed()?);
        Ok(())
    })
}

/// Tells the state of a device's default generator: PLINTH_RNG_STATE_SIZE bytes that PyTorch's
/// torch.cuda.set_rng_state takes, too.
///
/// @param device The device; -1 for the current one.
/// @param state Out: the bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph
///         is being captured with the generator; PLINTH_ERROR_SYSTEM; the errors of initialization.
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
/// @param device The device; -1 for the current one.
/// @param state PLINTH_RNG_STATE_SIZE bytes, of plinth_get_rng_state or torch.cuda.get_rng_state.
/// @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_rng_state(device: i32, state: *const u8) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or 16 bytes.
        let state = unsafe { bytes(state, STATE_BYTES, "state") }?;
        seed::set_state(device, state)
    })
}

/// Tells the states of the default generators of the first `count` devices, one after the other.
///
/// @param states Out: PLINTH_RNG_STATE_SIZE bytes for each of them.
/// @param count How many; mostly the count of plinth_device_count.
/// @return As plinth_get_rng_state; PLINTH_ERROR_INVALID_VALUE for a count that is negative or larger than that of the
///         devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_rng_state_all(states: *mut u8, count: i32) -> plinth_status_t {
    guard(|| {
        if states.is_null() {
            return Err(null("states"));
        }
        for (index, state) in seed::states(count_of(count)?)?.iter().enumerate() {
            // SAFETY: the caller has room for as many states as were asked for.
            unsafe { states.add(index * STATE_BYTES).cast::<[u8; STATE_BYTES]>().write(*state) };
        }
        Ok(())
    })
}

fn count_of(count: i32) -> Result<usize> {
    usize::try_from(count).map_err(|_| Error::new(Status::INVALID_VALUE, format!("there cannot be {count} states")))
}

/// Sets the states of the default generators of the first `count` devices; nothing changes if one of them is malformed.
///
/// @param states PLINTH_RNG_STATE_SIZE bytes for each of them.
/// @param count How many.
/// @return As plinth_set_rng_state; PLINTH_ERROR_INVALID_VALUE for more states than devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_rng_state_all(states: *const u8, count: i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or 16 bytes for each.
        let states = unsafe { bytes(states, count_of(count)? * STATE_BYTES, "states") }?;
        let (states, _) = states.as_chunks::<STATE_BYTES>();
        seed::set_states(states)
    })
}

/// # Safety
/// `pointer` is NULL, or leads to so many bytes.
unsafe fn bytes<'a>(pointer: *const u8, count: usize, name: &str) -> Result<&'a [u8]> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: it is not NULL, so the caller promises the bytes.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Tells the default generator of a device. It is the library's: it cannot be destroyed.
///
/// @param device The device; -1 for the current one.
/// @param generator Out: the generator.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_SYSTEM; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_default_generator(device: i32, generator: *mut plinth_generator_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the generator.
        let output = unsafe { Output::new(generator, "generator") }?;
        output.set(to_c(seed::default_generator(device)?));
        Ok(())
    })
}

/// Creates a generator with PyTorch's default seed, 67280421310721, and an offset of 0. Thread-safe.
///
/// @param device The device whose tensors it is to fill; -1 for the current one.
/// @param generator Out: the generator. The caller owns it and destroys it with plinth_generator_destroy.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_DEVICE; PLINTH_ERROR_OUT_OF_MEMORY with 16 million
///         live generators; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_create(device: i32, generator: *mut plinth_generator_t) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the generator.
        let output = unsafe { Output::new(generator, "generator") }?;
        output.set(to_c(generator::create(device)?));
        Ok(())
    })
}

/// Destroys a generator. Graphs that use it go on. Thread-safe, but a generator must not be destroyed while another thread
/// is in a call with it.
///
/// @param generator The generator; NULL does nothing.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for a device's default generator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_destroy(generator: plinth_generator_t) -> plinth_status_t {
    guard(|| if generator.is_null() { Ok(()) } else { generator::destroy(generator as u64) })
}

/// Makes a generator with another's seed and offset, which from then on goes its own way: torch's clone_state.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param clone Out: the new one. The caller owns it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
///         being captured with the generator; PLINTH_ERROR_OUT_OF_MEMORY; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_clone(
    generator: plinth_generator_t,
    clone: *mut plinth_generator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the clone.
        let output = unsafe { Output::new(clone, "clone") }?;
        output.set(to_c(generator::copy(handle(generator)?)?));
        Ok(())
    })
}

/// Makes a generator that shares another's seed and offset: what one of them takes, the other does not get. torch's
/// graphsafe_get_state; allowed in a capture.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param shared Out: the new one. The caller owns it.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_OUT_OF_MEMORY; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_graphsafe_get_state(
    generator: plinth_generator_t,
    shared: *mut plinth_generator_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the generator.
        let output = unsafe { Output::new(shared, "shared") }?;
        output.set(to_c(generator::share(handle(generator)?)?));
        Ok(())
    })
}

/// Lets a generator share another's seed and offset in place of its own. torch's graphsafe_set_state; allowed in a
/// capture.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param shared The other one, of the same device.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_DEVICE_MISMATCH; the errors of
///         initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_graphsafe_set_state(
    generator: plinth_generator_t,
    shared: plinth_generator_t,
) -> plinth_status_t {
    guard(|| {
        if shared.is_null() {
            return Err(null("shared"));
        }
        generator::adopt(handle(generator)?, shared as u64)
    })
}

/// Tells the device of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param device Out: the device's number.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_device(generator: plinth_generator_t, device: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the number.
        let output = unsafe { Output::new(device, "device") }?;
        output.set(generator::get(handle(generator)?)?.device as i32);
        Ok(())
    })
}

/// Seeds a generator, and sets its offset to 0. Thread-safe.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param seed The seed.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the
///         generator; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_manual_seed(generator: plinth_generator_t, seed: u64) -> plinth_status_t {
    guard(|| generator::get(handle(generator)?)?.set_seed(seed))
}

/// Seeds a generator with a seed of 53 bits from the operating system, and sets its offset to 0. Thread-safe.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param seed Out: the seed; NULL when it is of no interest.
/// @return As plinth_generator_manual_seed; PLINTH_ERROR_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_seed(generator: plinth_generator_t, seed: *mut u64) -> plinth_status_t {
    guard(|| {
        let chosen = seed::unforeseen()?;
        generator::get(handle(generator)?)?.set_seed(chosen)?;
        // SAFETY: the caller passes NULL or a place for the seed.
        if let Some(output) = unsafe { seed.as_mut() } {
            *output = chosen;
        }
        Ok(())
    })
}

/// Tells the seed of a generator.
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
        // SAFETY: the caller passes NULL or a place for the seed.
        let output = unsafe { Output::new(seed, "seed") }?;
        output.set(generator::get(handle(generator)?)?.seed());
        Ok(())
    })
}

/// Tells the state of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param state Out: PLINTH_RNG_STATE_SIZE bytes.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_CAPTURE_FORBIDS while a graph is
///         being captured with the generator; the errors of initialization.
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
/// @param size PLINTH_RNG_STATE_SIZE bytes, or 8 for a seed alone, with which the offset is 0.
/// @return As plinth_generator_get_state; PLINTH_ERROR_INVALID_VALUE for another size, and for an offset that is no
///         multiple of 4.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_set_state(
    generator: plinth_generator_t,
    state: *const u8,
    size: usize,
) -> plinth_status_t {
    guard(|| {
        generator::check_size(size)?;
        // SAFETY: the caller passes NULL or so many bytes.
        let state = unsafe { bytes(state, size, "state") }?;
        generator::get(handle(generator)?)?.set_bytes(state)
    })
}

/// Tells the offset of a generator: how many 32-bit numbers each of its subsequences has given.
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
        // SAFETY: the caller passes NULL or a place for the offset.
        let output = unsafe { Output::new(offset, "offset") }?;
        output.set(generator::get(handle(generator)?)?.offset()?);
        Ok(())
    })
}

/// Sets the offset of a generator.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param offset The offset, a multiple of 4.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_INVALID_VALUE for an offset that is no multiple of 4;
///         PLINTH_ERROR_CAPTURE_FORBIDS while a graph is being captured with the generator; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_set_offset(generator: plinth_generator_t, offset: u64) -> plinth_status_t {
    guard(|| generator::get(handle(generator)?)?.set_offset(offset))
}

/// Takes numbers of a generator for a kernel of the caller's own, launched in the current stream of the generator's
/// device. plinth_philox.cuh turns the state into numbers, on the device and on the CPU. Thread-safe: no two calls give the
/// same numbers.
///
/// @param generator The generator; NULL for the current device's default one.
/// @param increment How many 32-bit numbers a thread of the kernel takes at most; rounded up to a multiple of 4.
/// @param state Out: the state. Outside a capture it has the seed and the offset. In one, it has the addresses of both in
///        device memory, where each replay puts its own, and what is to be added to the offset; it is valid for kernels of
///        that capture only.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER; PLINTH_ERROR_INVALID_HANDLE; PLINTH_ERROR_GENERATOR_NOT_REGISTERED in a
///         capture of a graph that does not know the generator; the errors of initialization.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_generator_philox_state(
    generator: plinth_generator_t,
    increment: u64,
    state: *mut plinth_philox_state_t,
) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a place for the state.
        let output = unsafe { Output::new(state, "state") }?;
        let PhiloxState { seed, offset, graph_offset, captured, reserved } =
            generator::philox_state(generator as u64, increment)?;
        output.set(plinth_philox_state_t { seed, offset, graph_offset, captured, reserved });
        Ok(())
    })
}

/// What plinth_generator_philox_state gives, declared in the header by hand, for plinth_philox.h has it, too.
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
