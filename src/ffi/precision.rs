//! Precision of matrix products
//!
//! torch.backends.cuda.matmul, torch.set_float32_matmul_precision and the preferred libraries. The settings hold for the
//! whole process; threads may set and read them at any time. None of these functions needs a device.
//!
//! plinth_current_blas_handle sets the math mode of the handle that it returns to these settings. cuBLASLt and the Ex
//! functions of cuBLAS take a compute type as an argument, and the program calls the library that it prefers: there the
//! program reads the setting and passes what it says.

use crate::{
    error::invalid,
    ffi::{Output, guard::guard, status::plinth_status_t},
    ops::precision::{self, BlasLibrary, LinalgLibrary, MatmulPrecision},
};

/// Products of float32 matrices use float32 throughout. The initial setting.
pub const PLINTH_MATMUL_PRECISION_HIGHEST: i32 = 0;
/// Products of float32 matrices may use TF32 (10 bits of the fraction), or float32 split into bfloat16 numbers.
pub const PLINTH_MATMUL_PRECISION_HIGH: i32 = 1;
/// Products of float32 matrices may use bfloat16 (7 bits of the fraction). cuBLAS uses TF32, as in torch.
pub const PLINTH_MATMUL_PRECISION_MEDIUM: i32 = 2;

/// The default library for matrix products, which is cuBLAS.
pub const PLINTH_BLAS_LIBRARY_DEFAULT: i32 = 0;
/// cuBLAS. The initial setting, unless the environment variable TORCH_BLAS_PREFER_CUBLASLT is 1.
pub const PLINTH_BLAS_LIBRARY_CUBLAS: i32 = 1;
/// cuBLASLt.
pub const PLINTH_BLAS_LIBRARY_CUBLASLT: i32 = 2;

/// No preference: the program chooses a library for each operation. The initial setting, unless the environment variable
/// TORCH_LINALG_PREFER_CUSOLVER is 1.
pub const PLINTH_LINALG_LIBRARY_DEFAULT: i32 = 0;
/// cuSOLVER.
pub const PLINTH_LINALG_LIBRARY_CUSOLVER: i32 = 1;
/// MAGMA, of which the library has no handles.
pub const PLINTH_LINALG_LIBRARY_MAGMA: i32 = 2;

/// Sets whether products of float32 matrices may use TF32: torch.backends.cuda.matmul.allow_tf32.
///
/// It is another view of plinth_set_float32_matmul_precision: true is PLINTH_MATMUL_PRECISION_HIGH, false
/// PLINTH_MATMUL_PRECISION_HIGHEST. Initially false, or true if the environment variable
/// TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is 1. Devices that plinth_is_tf32_supported reports as not supported ignore it.
///
/// @param allow Whether they may.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_matmul_allow_tf32(allow: bool) -> plinth_status_t {
    guard(|| {
        precision::set_float32_matmul(if allow { MatmulPrecision::High } else { MatmulPrecision::Highest });
        Ok(())
    })
}

/// Returns whether products of float32 matrices may use TF32. A program that passes a compute type passes
/// CUBLAS_COMPUTE_32F_FAST_TF32 if so.
///
/// @param allow Out: whether they may: the precision is not PLINTH_MATMUL_PRECISION_HIGHEST.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_matmul_allow_tf32(allow: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let allow = unsafe { Output::new(allow, "allow") }?;
        allow.set(precision::float32_matmul() != MatmulPrecision::Highest);
        Ok(())
    })
}

/// Sets whether products of float16 matrices may be summed in reduced precision:
/// torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction. Initially true.
///
/// cuBLAS has one flag for float16 and bfloat16: a handle forbids it for both if one of the two settings is false.
///
/// @param allow Whether they may.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_matmul_allow_fp16_reduced_precision_reduction(allow: bool) -> plinth_status_t {
    guard(|| {
        precision::set_reduced_precision(true, allow);
        Ok(())
    })
}

/// Returns whether products of float16 matrices may be summed in reduced precision.
///
/// @param allow Out: whether they may.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_matmul_allow_fp16_reduced_precision_reduction(allow: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let allow = unsafe { Output::new(allow, "allow") }?;
        allow.set(precision::allows_reduced_precision(true));
        Ok(())
    })
}

/// Sets whether products of bfloat16 matrices may be summed in reduced precision:
/// torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction. Initially true.
///
/// @param allow Whether they may; see plinth_set_matmul_allow_fp16_reduced_precision_reduction.
/// @return PLINTH_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_matmul_allow_bf16_reduced_precision_reduction(allow: bool) -> plinth_status_t {
    guard(|| {
        precision::set_reduced_precision(false, allow);
        Ok(())
    })
}

/// Returns whether products of bfloat16 matrices may be summed in reduced precision.
///
/// @param allow Out: whether they may.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_matmul_allow_bf16_reduced_precision_reduction(allow: *mut bool) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let allow = unsafe { Output::new(allow, "allow") }?;
        allow.set(precision::allows_reduced_precision(false));
        Ok(())
    })
}

/// Sets the precision of products of float32 matrices: torch.set_float32_matmul_precision.
///
/// @param precision PLINTH_MATMUL_PRECISION_HIGHEST, _HIGH or _MEDIUM.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_float32_matmul_precision(precision: i32) -> plinth_status_t {
    guard(|| {
        precision::set_float32_matmul(match precision {
            PLINTH_MATMUL_PRECISION_HIGHEST => MatmulPrecision::Highest,
            PLINTH_MATMUL_PRECISION_HIGH => MatmulPrecision::High,
            PLINTH_MATMUL_PRECISION_MEDIUM => MatmulPrecision::Medium,
            _ => return Err(invalid(format!("precision is {precision}; highest, high and medium are 0, 1 and 2"))),
        });
        Ok(())
    })
}

/// Returns the precision of products of float32 matrices: torch.get_float32_matmul_precision.
///
/// @param precision Out: PLINTH_MATMUL_PRECISION_HIGHEST, _HIGH or _MEDIUM.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_float32_matmul_precision(precision: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let precision = unsafe { Output::new(precision, "precision") }?;
        precision.set(precision::float32_matmul() as i32);
        Ok(())
    })
}

/// Sets the preferred library for matrix products: torch.backends.cuda.preferred_blas_library.
///
/// @param library PLINTH_BLAS_LIBRARY_DEFAULT, _CUBLAS or _CUBLASLT.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_preferred_blas_library(library: i32) -> plinth_status_t {
    guard(|| {
        precision::set_blas_library(match library {
            PLINTH_BLAS_LIBRARY_DEFAULT => BlasLibrary::Default,
            PLINTH_BLAS_LIBRARY_CUBLAS => BlasLibrary::Cublas,
            PLINTH_BLAS_LIBRARY_CUBLASLT => BlasLibrary::Cublaslt,
            _ => return Err(invalid(format!("library is {library}; default, cuBLAS and cuBLASLt are 0, 1 and 2"))),
        });
        Ok(())
    })
}

/// Returns the preferred library for matrix products. The program calls plinth_current_blas_handle or
/// plinth_current_blaslt_handle accordingly.
///
/// @param library Out: PLINTH_BLAS_LIBRARY_CUBLAS or _CUBLASLT; as in torch, the default is returned as the library that it
///        means.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_preferred_blas_library(library: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let library = unsafe { Output::new(library, "library") }?;
        library.set(precision::blas_library() as i32);
        Ok(())
    })
}

/// Sets the preferred library for linear algebra: torch.backends.cuda.preferred_linalg_library.
///
/// @param library PLINTH_LINALG_LIBRARY_DEFAULT, _CUSOLVER or _MAGMA.
/// @return PLINTH_OK; PLINTH_ERROR_INVALID_VALUE for another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_set_preferred_linalg_library(library: i32) -> plinth_status_t {
    guard(|| {
        precision::set_linalg_library(match library {
            PLINTH_LINALG_LIBRARY_DEFAULT => LinalgLibrary::Default,
            PLINTH_LINALG_LIBRARY_CUSOLVER => LinalgLibrary::Cusolver,
            PLINTH_LINALG_LIBRARY_MAGMA => LinalgLibrary::Magma,
            _ => return Err(invalid(format!("library is {library}; default, cuSOLVER and MAGMA are 0, 1 and 2"))),
        });
        Ok(())
    })
}

/// Returns the preferred library for linear algebra.
///
/// @param library Out: PLINTH_LINALG_LIBRARY_DEFAULT, _CUSOLVER or _MAGMA.
/// @return PLINTH_OK; PLINTH_ERROR_NULL_POINTER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plinth_get_preferred_linalg_library(library: *mut i32) -> plinth_status_t {
    guard(|| {
        // SAFETY: the caller passes NULL or a valid pointer.
        let library = unsafe { Output::new(library, "library") }?;
        library.set(precision::linalg_library() as i32);
        Ok(())
    })
}
