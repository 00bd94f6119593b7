// The macros of crt/host_defines.h, as a C++ compiler of the host needs them for cuda_runtime_api.h.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __align__(bytes)
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __host__
#define __device__
