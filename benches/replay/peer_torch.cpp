// PyTorch's CUDACachingAllocator, for replay and allocator. PYTORCH_CUDA_ALLOC_CONF selects plain or expandable segments.
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime.h>
#include <sys/types.h>

namespace {

// Initializes when the library is loaded, because the first allocation is timed.
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
