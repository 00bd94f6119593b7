// PyTorch's CUDACachingAllocator as replay and allocator want it. PYTORCH_CUDA_ALLOC_CONF chooses between its plain and
// its expandable segments.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime.h>
#include <sys/types.h>

namespace {

// Not at the first allocation, whose time is measured.
[[maybe_unused]] const bool initialized = [] {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  return true;
}();

}  // namespace

extern "C" void *torch_alloc(ssize_t size, int, cudaStream_t stream) {
  try {
    return c10::cuda::CUDACachingAllocator::raw_alloc_with_stream(static_cast<size_t>(size), stream);
  } catch (...) {
    return nullptr;
  }
}

extern "C" void torch_free(void *pointer, ssize_t, int, cudaStream_t) {
  c10::cuda::CUDACachingAllocator::raw_delete(pointer);
}

extern "C" int peer_set_memory_fraction(double fraction, int device) {
  try {
    c10::cuda::CUDACachingAllocator::setMemoryFraction(fraction, static_cast<c10::DeviceIndex>(device));
    return 0;
  } catch (...) {
    return 1;
  }
}
