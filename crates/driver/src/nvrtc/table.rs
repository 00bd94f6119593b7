//! The table of NVRTC's calls, as nvrtc.h declares them.

#![allow(missing_docs)]

use crate::calls::calls;
use std::ffi::{c_char, c_int, c_void};

/// What a call of NVRTC returns: 0, or one of its `nvrtcResult`.
pub type Code = c_int;

pub const SUCCESS: Code = 0;
pub const COMPILATION: Code = 6;
/// No code of NVRTC's: what the stand-in of an absent call returns.
pub const ABSENT: Code = -1;

/// What NVRTC calls a program: an address that only it follows.
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

/// The one call that returns a text.
pub type ErrorString = unsafe extern "C" fn(Code) -> *const c_char;
