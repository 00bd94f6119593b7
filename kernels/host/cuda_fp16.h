// CUDA's half-precision type.
#pragma once
#include "plinth_host/math.h"
#include "plinth_host/small_float.h"

#define PLINTH_T __half
#define PLINTH_T2 __half2
#define PLINTH_RAW __half_raw
#define PLINTH_RAW2 __half2_raw
#define PLINTH_OTHER __nv_bfloat16
#define PLINTH_NAME half
#define PLINTH_NAME2 half2
#define PLINTH_FORMAT exponent = 5, mantissa = 10
#ifdef __CUDA_NO_HALF_CONVERSIONS__
#define PLINTH_CONVERSIONS 0
#else
#define PLINTH_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_HALF_OPERATORS__
#define PLINTH_OPERATORS 0
#else
#define PLINTH_OPERATORS 1
#endif
#ifdef __CUDA_NO_HALF2_OPERATORS__
#define PLINTH_OPERATORS2 0
#else
#define PLINTH_OPERATORS2 1
#endif
#include "plinth_host/half_functions.h"

typedef __half half;
typedef __half2 half2;
typedef __half __nv_half;
typedef __half2 __nv_half2;
typedef __half_raw __nv_half_raw;
typedef __half2_raw __nv_half2_raw;
typedef __half nv_half;
typedef __half2 nv_half2;

#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_MIN_DENORM_FP16 __ushort_as_half((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_FP16 __ushort_as_half((unsigned short)0x7bffu)
#define CUDART_NEG_ZERO_FP16 __ushort_as_half((unsigned short)0x8000u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)
