// Installs the allocator in torch: the only part that needs libtorch_cuda.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

namespace {

thread_local std::string failure;

}  // namespace

// Makes plinth torch's allocator. Returns NULL, or a message, which is valid until the thread's next call. plinth is not
// initialized; this happens when torch initializes CUDA.
extern "C" __attribute__((visibility("default"))) const char* plinth_torch_install() {
  try {
    // torch keeps a shared_ptr, and destroys it at exit, when tensors may still exist.
    const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> allocator(&plinth_torch::instance(), [](auto*) {});
    torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(allocator);
    // torch.accelerator finds the allocator of a device type here.
    c10::SetAllocator(c10::DeviceType::CUDA, allocator.get());
    return nullptr;
  } catch (const std::exception& error) {
    failure = error.what();
    return failure.c_str();
  }
}

// Returns whether plinth is torch's allocator.
extern "C" __attribute__((visibility("default"))) bool plinth_torch_is_installed() {
  return c10::cuda::CUDACachingAllocator::get() == &plinth_torch::instance();
}
