// What differs between the versions of torch that the bridge supports.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 10
#error "the bridge supports torch 2.10 and later versions of torch 2"
#endif

// torch 2.11 added parameters to four methods. For 2.10, the methods with these parameters are overloads that those of
// 2.10 call.
#if TORCH_VERSION_MINOR >= 11
#define PLINTH_OVERRIDE_2_11 override
#else
#define PLINTH_OVERRIDE_2_11
#define PLINTH_TORCH_2_10
#endif

namespace plinth_torch {

#ifdef PLINTH_TORCH_2_10
using AnnotationEntry = c10::cuda::CUDACachingAllocator::AnnotationEntry;
#else
using AnnotationEntry = c10::CachingDeviceAllocator::AnnotationEntry;
#endif

}  // namespace plinth_torch
