//! The precision of matrix products, and the preferred libraries: torch.backends.cuda. The settings hold for the whole
//! process.
//!
//! A library handle gets the math mode when it is returned to the program. Whatever is an argument of the program's own
//! call, such as a compute type, the program chooses: the settings tell it what was asked for.

use crate::driver::cublas::{ALLOW_TF32, DEFAULT_MATH, DISALLOW_REDUCED_PRECISION};
use once_cell::sync::Lazy;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The precision of products of float32 matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MatmulPrecision {
    /// float32 throughout.
    Highest = 0,
    /// TF32, or the sum of two bfloat16 numbers.
    High = 1,
    /// bfloat16; cuBLAS uses TF32.
    Medium = 2,
}

/// The library for matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlasLibrary {
    /// The default, which is cuBLAS.
    Default = 0,
    /// cuBLAS.
    Cublas = 1,
    /// cuBLASLt.
    Cublaslt = 2,
}

/// The library for linear algebra.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LinalgLibrary {
    /// The program chooses for each operation.
    Default = 0,
    /// cuSOLVER.
    Cusolver = 1,
    /// MAGMA.
    Magma = 2,
}

/// The settings. The initial values are torch's, with the environment variables of torch.
struct Settings {
    matmul: AtomicU8,
    fp16_reduction: AtomicBool,
    bf16_reduction: AtomicBool,
    blas: AtomicU8,
    linalg: AtomicU8,
}

static SETTINGS: Lazy<Settings> = Lazy::new(|| Settings::new(|name| std::env::var_os(name)));

impl Settings {
    fn new(read: impl Fn(&str) -> Option<std::ffi::OsString>) -> Settings {
        let is_one = |name| read(name).is_some_and(|value| value == "1");
        let matmul = match is_one("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE") {
            true => MatmulPrecision::High,
            false => MatmulPrecision::Highest,
        };
        let blas = if is_one("TORCH_BLAS_PREFER_CUBLASLT") { BlasLibrary::Cublaslt } else { BlasLibrary::Cublas };
        let linalg =
            if is_one("TORCH_LINALG_PREFER_CUSOLVER") { LinalgLibrary::Cusolver } else { LinalgLibrary::Default };
        Settings {
            matmul: AtomicU8::new(matmul as u8),
            fp16_reduction: AtomicBool::new(true),
            bf16_reduction: AtomicBool::new(true),
            blas: AtomicU8::new(blas as u8),
            linalg: AtomicU8::new(linalg as u8),
        }
    }
}

/// Sets the precision of products of float32 matrices.
pub fn set_float32_matmul(precision: MatmulPrecision) {
    SETTINGS.matmul.store(precision as u8, Ordering::Relaxed);
}

/// Returns the precision of products of float32 matrices.
pub fn float32_matmul() -> MatmulPrecision {
    match SETTINGS.matmul.load(Ordering::Relaxed) {
        1 => MatmulPrecision::High,
        2 => MatmulPrecision::Medium,
        _ => MatmulPrecision::Highest,
    }
}

/// Sets whether 16-bit floats may be summed in reduced precision: those of float16, or of bfloat16.
pub fn set_reduced_precision(float16: bool, allow: bool) {
    let setting = if float16 { &SETTINGS.fp16_reduction } else { &SETTINGS.bf16_reduction };
    setting.store(allow, Ordering::Relaxed);
}

/// Returns whether 16-bit floats may be summed in reduced precision.
pub fn allows_reduced_precision(float16: bool) -> bool {
    let setting = if float16 { &SETTINGS.fp16_reduction } else { &SETTINGS.bf16_reduction };
    setting.load(Ordering::Relaxed)
}

/// Sets the preferred library for matrix products.
pub fn set_blas_library(library: BlasLibrary) {
    let library = if library == BlasLibrary::Default { BlasLibrary::Cublas } else { library };
    SETTINGS.blas.store(library as u8, Ordering::Relaxed);
}

/// Returns the preferred library for matrix products; never the default, but the library that it means.
pub fn blas_library() -> BlasLibrary {
    if SETTINGS.blas.load(Ordering::Relaxed) == 2 { BlasLibrary::Cublaslt } else { BlasLibrary::Cublas }
}

/// Sets the preferred library for linear algebra.
pub fn set_linalg_library(library: LinalgLibrary) {
    SETTINGS.linalg.store(library as u8, Ordering::Relaxed);
}

/// Returns the preferred library for linear algebra.
pub fn linalg_library() -> LinalgLibrary {
    match SETTINGS.linalg.load(Ordering::Relaxed) {
        1 => LinalgLibrary::Cusolver,
        2 => LinalgLibrary::Magma,
        _ => LinalgLibrary::Default,
    }
}

/// Returns the math mode of cuBLAS handles. cuBLAS has one flag for both 16-bit types, so the stricter setting applies.
pub fn cublas_math_mode() -> i32 {
    let tf32 = if float32_matmul() == MatmulPrecision::Highest { DEFAULT_MATH } else { ALLOW_TF32 };
    let reductions = [true, false].into_iter().all(allows_reduced_precision);
    if reductions { tf32 } else { tf32 | DISALLOW_REDUCED_PRECISION }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_sets_torchs_defaults() {
        let settings = |variable: &'static str, value: &'static str| {
            let settings = Settings::new(|name| (name == variable).then(|| value.into()));
            [&settings.matmul, &settings.blas, &settings.linalg].map(|setting| setting.load(Ordering::Relaxed))
        };
        assert_eq!(settings("", ""), [0, 1, 0]);
        assert_eq!(settings("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"), [1, 1, 0]);
        assert_eq!(settings("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "0"), [0, 1, 0]);
        assert_eq!(settings("TORCH_BLAS_PREFER_CUBLASLT", "1"), [0, 2, 0]);
        assert_eq!(settings("TORCH_LINALG_PREFER_CUSOLVER", "1"), [0, 1, 1]);
    }
}
