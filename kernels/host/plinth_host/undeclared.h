// Takes back what the headers of the C library declare and NVRTC does not have, so that a kernel that uses it fails to compile
// here, too. kernel.h includes this last. tests/nvrtc.rs compares what is left with NVRTC.
//
// A type cannot be taken back; its name becomes one that says why there is no such type. A kernel may declare it.
#pragma once
#define PLINTH_HOST_UNDECLARED

#define int8_t int8_t_needs_cuda_std_cstdint
#define int16_t int16_t_needs_cuda_std_cstdint
#define int32_t int32_t_needs_cuda_std_cstdint
#define int64_t int64_t_needs_cuda_std_cstdint
#define uint8_t uint8_t_needs_cuda_std_cstdint
#define uint16_t uint16_t_needs_cuda_std_cstdint
#define uint32_t uint32_t_needs_cuda_std_cstdint
#define uint64_t uint64_t_needs_cuda_std_cstdint
#define uintptr_t uintptr_t_needs_cuda_std_cstdint
#define uint uint_is_no_type_of_CUDA
#define ushort ushort_is_no_type_of_CUDA
#define ulong ulong_is_no_type_of_CUDA

// <cuda/std/cmath> gives these back, and <cuda/std/cstddef> offsetof.
#pragma push_macro("NAN")
#undef NAN
#pragma push_macro("INFINITY")
#undef INFINITY
#pragma push_macro("FP_NAN")
#undef FP_NAN
#pragma push_macro("FP_INFINITE")
#undef FP_INFINITE
#pragma push_macro("FP_ZERO")
#undef FP_ZERO
#pragma push_macro("FP_SUBNORMAL")
#undef FP_SUBNORMAL
#pragma push_macro("FP_NORMAL")
#undef FP_NORMAL
#pragma push_macro("offsetof")
#undef offsetof

#undef M_E
#undef M_LOG2E
#undef M_LOG10E
#undef M_LN2
#undef M_LN10
#undef M_PI
#undef M_PI_2
#undef M_PI_4
#undef M_1_PI
#undef M_2_PI
#undef M_2_SQRTPI
#undef M_SQRT2
#undef M_SQRT1_2
#undef HUGE_VAL
#undef HUGE_VALF
#undef HUGE_VALL
#undef MAXFLOAT
#undef SNAN
#undef SNANF
#undef SNANL
#undef FP_ILOGB0
#undef FP_ILOGBNAN
#undef FP_LLOGB0
#undef FP_LLOGBNAN
#undef FP_INT_DOWNWARD
#undef FP_INT_TONEAREST
#undef FP_INT_TONEARESTFROMZERO
#undef FP_INT_TOWARDZERO
#undef FP_INT_UPWARD
#undef MATH_ERRNO
#undef MATH_ERREXCEPT
#undef math_errhandling
#undef issubnormal
#undef FE_ALL_EXCEPT
#undef FE_DFL_ENV
#undef FE_DFL_MODE
#undef FE_DIVBYZERO
#undef FE_DOWNWARD
#undef FE_INEXACT
#undef FE_INVALID
#undef FE_NOMASK_ENV
#undef FE_OVERFLOW
#undef FE_TONEAREST
#undef FE_TOWARDZERO
#undef FE_UNDERFLOW
#undef FE_UPWARD
#undef EXIT_FAILURE
#undef EXIT_SUCCESS
#undef MB_CUR_MAX
#undef RAND_MAX
#undef alloca
