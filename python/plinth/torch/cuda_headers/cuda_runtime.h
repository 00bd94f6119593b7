// The part of cuda_runtime.h that a C++ compiler needs. The rest is for nvcc, and comes in another package than the API.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include <cuda_runtime_api.h>
