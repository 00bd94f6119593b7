// CUDA's bfloat16 type.
#pragma once
#include "cuda_fp16.h"

#define PLINTH_T __nv_bfloat16
#define PLINTH_T2 __nv_bfloat162
#define PLINTH_RAW __nv_bfloat16_raw
#define PLINTH_RAW2 __nv_bfloat162_raw
#define PLINTH_OTHER __half
#define PLINTH_NAME bfloat16
#define PLINTH_NAME2 bfloat162
#define PLINTH_FORMAT exponent = 8, mantissa = 7
#ifdef __CUDA_NO_BFLOAT16_CONVERSIONS__
#define PLINTH_CONVERSIONS 0
#else
#define PLINTH_CONVERSIONS 1
#endif
#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define PLINTH_OPERATORS 0
#else
#define PLINTH_OPERATORS 1
#endif
#ifdef __CUDA_NO_BFLOAT162_OPERATORS__
#define PLINTH_OPERATORS2 0
#else
#define PLINTH_OPERATORS2 1
#endif
#include "plinth_host/half_functions.h"

#ifndef __CUDA_NO_HALF_CONVERSIONS__
inline __half::__half(const __nv_bfloat16 &value) { *this = __float2half(__bfloat162float(value)); }
#endif
#ifndef __CUDA_NO_BFLOAT16_CONVERSIONS__
inline __nv_bfloat16::__nv_bfloat16(const __half &value) { *this = __float2bfloat16(__half2float(value)); }
#endif

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80u)
#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffu)
#define CUDART_MIN_DENORM_BF16 __ushort_as_bfloat16((unsigned short)0x0001u)
#define CUDART_MAX_NORMAL_BF16 __ushort_as_bfloat16((unsigned short)0x7f7fu)
#define CUDART_NEG_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x8000u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80u)
