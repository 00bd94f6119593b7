//! Modules and kernels.

use super::*;
use crate::{
    driver::codes::*,
    kernels::{HostKernel, Launch, Run, register},
};

pub const PTX: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n\0";

/// Returns the sleep kernel.
pub fn sleep_kernel(t: &Table) -> CUfunction {
    function(t, c"plinth_sleep")
}

/// Occupies a stream of an H200 for a while.
pub fn sleep(t: &Table, sleep_kernel: CUfunction, stream: CUstream, time: Duration) {
    let mut cycles = (time.as_secs_f64() * 1.98e9) as u64;
    let mut parameters = [std::ptr::from_mut(&mut cycles).cast()];
    let none = std::ptr::null_mut();
    ok!(t.cuLaunchKernel(sleep_kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none));
}

/// Occupies a worker until [`HELD`] is opened.
pub static HOLD: HostKernel = HostKernel { name: "test_hold", parameter_sizes: &[], run: Run::Function(hold) };
pub static HELD: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn hold(_: &Launch) {
    let mut open = HELD.0.lock();
    while !*open {
        HELD.1.wait(&mut open);
    }
}

/// Returns a kernel by its name.
pub fn function(t: &Table, name: &std::ffi::CStr) -> CUfunction {
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(t.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    ok!(t.cuModuleGetFunction(&mut function, module, name.as_ptr()));
    function
}

/// Adds a number (the third parameter) to each of a number (the second) of words at an address (the first).
pub static ADD: HostKernel = HostKernel { name: "test_add", parameter_sizes: &[8, 4, 4], run: Run::Function(add) };

/// Implements the kernel.
fn add(launch: &Launch) {
    let (Some(address), Some(count), Some(amount)) = (launch.u64(0), launch.u32(1), launch.u32(2)) else {
        return launch.fail(CUDA_ERROR_INVALID_VALUE);
    };
    match launch.memory(address, u64::from(count) * 4, true) {
        Ok(words) => {
            for index in 0..count as usize {
                // SAFETY: checked to be accessible for that many words; the test keeps it mapped until the stream is
                // done.
                unsafe {
                    let word = words.cast::<u32>().add(index);
                    word.write(word.read() + amount);
                }
            }
        }
        Err(error) => launch.fail(error),
    }
}

#[test]
fn kernels_run_with_copies_of_their_parameters() {
    in_child("kernel::kernels_run_with_copies_of_their_parameters", &[], || {
        register(&ADD);
        let t = setup(0);
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(t.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok!(t.cuModuleGetFunction(&mut function, module, c"test_add".as_ptr()));
        let (stream, mut pointer) = (new_stream(&t, CU_STREAM_NON_BLOCKING), alloc(&t, 64));
        let gate = Gate::close(&t, stream);
        ok!(t.cuMemsetD32Async(pointer, 40, 16, stream));
        let (mut count, mut amount) = (16_u32, 2_u32);
        let mut parameters = [
            std::ptr::from_mut(&mut pointer).cast(),
            std::ptr::from_mut(&mut count).cast(),
            std::ptr::from_mut(&mut amount).cast(),
        ];
        let none = std::ptr::null_mut();
        ok!(t.cuLaunchKernel(function, 2, 1, 1, 8, 1, 1, 0, stream, parameters.as_mut_ptr(), none));
        let address = pointer;
        (pointer, count, amount) = (0, 0, 0);
        assert_eq!((pointer, count, amount), (0, 0, 0));
        gate.open();
        ok!(t.cuStreamSynchronize(stream));
        assert_eq!(read(&t, address + 60, 4), 42_u32.to_le_bytes());
        ok!(t.cuMemFree_v2(address));
        // An illegal access ends the context.
        pointer = std::ptr::from_mut(&mut amount) as u64;
        count = 1;
        let mut parameters = [
            std::ptr::from_mut(&mut pointer).cast(),
            std::ptr::from_mut(&mut count).cast(),
            std::ptr::from_mut(&mut count).cast(),
        ];
        ok!(t.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none));
        assert_eq!(code!(t.cuStreamSynchronize(stream)), CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn modules_and_launches_are_checked() {
    let t = setup(0);
    let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
    assert_eq!(code!(t.cuModuleLoadData(&mut module, std::ptr::null())), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(code!(t.cuModuleLoadData(&mut module, c"no text".as_ptr().cast())), CUDA_ERROR_INVALID_IMAGE);
    ok!(t.cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    assert_eq!(code!(t.cuModuleGetFunction(&mut function, module, c"none".as_ptr())), CUDA_ERROR_NOT_FOUND);
    let (sleep_kernel, none) = (sleep_kernel(&t), std::ptr::null_mut());
    let stream = new_stream(&t, CU_STREAM_NON_BLOCKING);
    let mut cycles = 0_u64;
    let mut parameters = [std::ptr::from_mut(&mut cycles).cast()];
    let p = parameters.as_mut_ptr();
    assert_eq!(code!(t.cuLaunchKernel(sleep_kernel, 0, 1, 1, 1, 1, 1, 0, stream, p, none)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        code!(t.cuLaunchKernel(sleep_kernel, 1, 65_536, 1, 1, 1, 1, 0, stream, p, none)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        code!(t.cuLaunchKernel(sleep_kernel, 1, 1, 1, 1025, 1, 1, 0, stream, p, none)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(code!(t.cuLaunchKernel(sleep_kernel, 1, 1, 1, 64, 64, 1, 0, stream, p, none)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        code!(t.cuLaunchKernel(sleep_kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, none)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(t.cuCtxSetCurrent(context(&t, 1)));
    let other = new_stream(&t, CU_STREAM_NON_BLOCKING);
    assert_eq!(code!(t.cuLaunchKernel(sleep_kernel, 1, 1, 1, 1, 1, 1, 0, other, p, none)), CUDA_ERROR_INVALID_HANDLE);
    ok!(t.cuStreamDestroy_v2(other));
    ok!(t.cuModuleUnload(module));
    assert_eq!(code!(t.cuModuleUnload(module)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(code!(t.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, p, none)), CUDA_ERROR_INVALID_HANDLE);
    ok!(t.cuStreamDestroy_v2(stream));
}
