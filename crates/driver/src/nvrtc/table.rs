//! The table of NVRTC's calls, as nvrtc.h declares them.

#![allow(missing_docs)]

use crate::calls::calls;
use std::ffi::{c_char, c_int, c_void};

/// The return type of an NVRTC call: 0, or another `nvrtcResult`.
pub type Code = c_int;

pub const SUCCESS: Code = 0;
pub const COMPILATION: Code = 6;
/// Not an NVRTC code: the stub of a missing call returns it.
pub const ABSENT: Code = -1;

/// An `nvrtcProgram`: a pointer that only NVRTC dereferences.
pub type RawProgram = *mut c_void;

calls! {
    Code, ABSENT;
    required 7050 nvrtcVersion(major: *mut c_int, minor: *mut c_int);
    required 11020 nvrtcGetNumSupportedArchs(count: *mut c_int);
    required 11020 nvrtcGetSupportedArchs(archs: *mut c_int);
    required 7000 nvrtcCreateProgram(
        program: *mut RawProgram, source: *const c_char, name: *const c_char, headers: c_int,
        texts: *const *const c_char, includes: *const *const c_char);
    required 7000 nvrtcDestroyProgram(program: *mut RawProgram);
    required 7000 nvrtcCompileProgram(program: RawProgram, count: c_int, options: *const *const c_char);
    required 7000 nvrtcGetPTXSize(program: RawProgram, bytes: *mut usize);
    required 7000 nvrtcGetPTX(program: RawProgram, ptx: *mut c_char);
    required 11010 nvrtcGetCUBINSize(program: RawProgram, bytes: *mut usize);
    required 11010 nvrtcGetCUBIN(program: RawProgram, cubin: *mut c_char);
    required 7000 nvrtcGetProgramLogSize(program: RawProgram, bytes: *mut usize);
    required 7000 nvrtcGetProgramLog(program: RawProgram, log: *mut c_char);
    required 8000 nvrtcAddNameExpression(program: RawProgram, name: *const c_char);
    required 8000 nvrtcGetLoweredName(program: RawProgram, name: *const c_char, lowered: *mut *const c_char);
}

/// The type of `nvrtcGetErrorString`, which returns a string and is therefore not in the table.
pub type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;
