// Exports the allocator to the test, which lives in another file as torch does.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

extern "C" __attribute__((visibility("default"))) c10::cuda::CUDACachingAllocator::CUDAAllocator* bridge_under_test() {
  return &plinth_torch::instance();
}
