// Allocation, frees and errors.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "bridge.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/env.h>
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <array>
#include <cstdio>

namespace plinth_torch {
namespace {

// torch refuses requests of this size without a try.
constexpr size_t kExabyte = size_t{1} << 60;

// What plinth reported to its out-of-memory observer, for the request that the thread is making.
struct OutOfMemory {
  bool happened = false;
  size_t total = 0;
  size_t free = 0;
};
thread_local OutOfMemory out_of_memory;

void on_out_of_memory(int32_t, size_t, size_t total, size_t free, void*) { out_of_memory = {true, total, free}; }

// Runs the callbacks that torch's libraries register to free memory, such as that of blocks other processes released.
bool free_memory(int32_t, size_t, void*) {
  bool freed = false;
  try {
    auto* registry = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto& name : registry->Keys()) {
      freed |= registry->Create(name)->Execute();
    }
  } catch (const std::exception& error) {
    warn("a callback that frees CUDA memory", error);
  }
  return freed;
}

std::string format_bytes(uint64_t bytes) {
  static const std::array<const char*, 4> units{"bytes", "KiB", "MiB", "GiB"};
  if (bytes <= 1024) return std::to_string(bytes) + " bytes";
  size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, units[unit]);
  return text.data();
}

// Returns the bytes that this process uses on a device according to NVML, which counts CUDA's own memory too; 0 if
// NVML does not tell.
uint64_t process_bytes(int32_t device) {
  char* text = nullptr;
  if (plinth_list_gpu_processes(device, &text) != PLINTH_OK) return 0;
  const std::string list(text);
  plinth_string_free(text);
  const std::string label = "process";
  for (size_t at = list.find(label); at != std::string::npos; at = list.find(label, at + 1)) {
    long process = 0;
    double mebibytes = 0;
    if (std::sscanf(list.c_str() + at, "process %ld uses %lf", &process, &mebibytes) == 2 && process == getpid()) {
      return static_cast<uint64_t>(mebibytes * 1048576);
    }
  }
  return 0;
}

// Tells the profiler of a change of a device's memory. `size` is negative for a free.
void report(void* pointer, int64_t size, c10::DeviceIndex device) {
  size_t allocated = 0;
  size_t reserved = 0;
  plinth_memory_allocated(device, &allocated);
  plinth_memory_reserved(device, &reserved);
  c10::reportMemoryUsageToProfiler(pointer, size, allocated, reserved, c10::Device(c10::DeviceType::CUDA, device));
}

// Returns the size and the device of an allocated block; 0 for other memory.
std::pair<size_t, c10::DeviceIndex> block_of(void* pointer) {
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  if (plinth_pointer_attributes(pointer, &attributes) != PLINTH_OK || attributes.base != pointer) return {0, 0};
  return {attributes.size, static_cast<c10::DeviceIndex>(attributes.device)};
}

void trace_allocation(const void* pointer) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_allocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(pointer));
  }
}

void trace_deallocation(const void* pointer) {
  const c10::impl::PyInterpreter* interpreter = c10::impl::GPUTrace::get_trace();
  if (C10_UNLIKELY(interpreter != nullptr)) {
    (*interpreter)->trace_gpu_memory_deallocation(c10::DeviceType::CUDA, reinterpret_cast<uintptr_t>(pointer));
  }
}

// What was allocated while the caching allocator was off. It is memory of the driver, which neither statistics nor the
// history know.
struct Uncached {
  std::mutex mutex;
  std::unordered_set<void*> pointers;
};

Uncached& uncached() {
  static auto* const created = new Uncached;
  return *created;
}

// Frees memory of the driver, which waits for the device. Returns false if the pointer is none of it.
bool free_uncached(void* pointer) {
  Uncached& all = uncached();
  {
    // Removed first: another thread may receive the same address as soon as it is free.
    const std::lock_guard<std::mutex> lock(all.mutex);
    if (all.pointers.erase(pointer) == 0) return false;
  }
  const plinth_status_t status = plinth_device_free(pointer);
  if (status == PLINTH_OK || status == PLINTH_ERROR_SHUTTING_DOWN) return true;
  const std::string message = plinth_last_error();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.pointers.insert(pointer);
  TORCH_CHECK(false, "freeing ", pointer, ": ", message);
}

std::string backend() {
  const char* name = "";
  check(plinth_get_allocator_backend(&name));
  return name;
}

}  // namespace

void check(plinth_status_t status) {
  TORCH_CHECK(status == PLINTH_OK, plinth_last_error(), " (", plinth_status_name(status), ")");
}

void warn(const char* what, const std::exception& error) noexcept {
  try {
    TORCH_WARN(what, " failed: ", error.what());
  } catch (...) {
  }
}

Allocator& instance() {
  static Allocator* const allocator = [] {
    auto* created = new Allocator;
    check(plinth_attach_out_of_memory_observer(on_out_of_memory, nullptr));
    check(plinth_add_free_memory_callback(free_memory, nullptr));
    return created;
  }();
  return *allocator;
}

void delete_memory(void* pointer) noexcept {
  try {
    instance().raw_delete(pointer);
  } catch (const std::exception& error) {
    warn("freeing CUDA memory", error);
  }
}

void delete_uncached(void* pointer) noexcept { delete_memory(pointer); }

void Allocator::init(int device_count) {
  int32_t visible = 0;
  check(plinth_device_count(&visible));
  TORCH_CHECK(visible == device_count, "initializing plinth: PyTorch sees ", device_count, " devices, and plinth ", visible,
              "; set CUDA_VISIBLE_DEVICES before either is used");
  check(plinth_init());
  if (c10::utils::check_env("PYTORCH_NO_CUDA_MEMORY_CACHING") == true) {
    const std::string name = backend();
    always_uncached_ = name == "native" || name == "uncached";
    enable(false);
  }
  device_count_.store(device_count, std::memory_order_release);
}

bool Allocator::initialized() { return device_count_.load(std::memory_order_acquire) >= 0; }

void Allocator::enable(bool value) {
  check(plinth_caching_allocator_enable(value));
  // The other backends have no cache that could be switched off.
  uncached_.store(always_uncached_ || (!value && backend() == "native"), std::memory_order_relaxed);
}

bool Allocator::isEnabled() const {
  bool enabled = false;
  check(plinth_caching_allocator_is_enabled(&enabled));
  return enabled;
}

std::string Allocator::name() { return "plinth"; }

void* Allocator::request(size_t size, c10::DeviceIndex device, cudaStream_t stream) {
  if (size == 0) return nullptr;
  if (C10_UNLIKELY(uncached_.load(std::memory_order_relaxed))) return request_uncached(size, device);
  const CallScope call(history_, caching::RecordContext::STATE);
  void* pointer = nullptr;
  std::string reason;
  {
    const PoolRoute route(pools_, pools_.select(device, stream));
    out_of_memory.happened = false;
    pointer = plinth_alloc(static_cast<ptrdiff_t>(size), device, stream);
    if (C10_UNLIKELY(pointer == nullptr)) reason = plinth_last_error();
  }
  // Observers may take the GIL, so no pool's lock is held.
  if (C10_UNLIKELY(pointer == nullptr)) fail(size, device, reason);
  call.allocated(pointer);
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report(pointer, static_cast<int64_t>(block_of(pointer).first), device);
  }
  trace_allocation(pointer);
  return pointer;
}

// As torch does, this ignores pools, limits, observers and the profiler.
void* Allocator::request_uncached(size_t size, c10::DeviceIndex device) {
  void* pointer = nullptr;
  const plinth_status_t status = plinth_device_malloc(size, device, &pointer);
  TORCH_CHECK_WITH(OutOfMemoryError, status != PLINTH_ERROR_OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate ",
                   format_bytes(size), " with the caching allocator off. ", plinth_last_error());
  check(status);
  {
    const std::lock_guard<std::mutex> lock(uncached().mutex);
    uncached().pointers.insert(pointer);
  }
  trace_allocation(pointer);
  return pointer;
}

void Allocator::fail(size_t size, c10::DeviceIndex device, const std::string& reason) {
  const OutOfMemory state = out_of_memory;
  TORCH_CHECK(state.happened, reason);

  size_t allocated = 0;
  size_t reserved = 0;
  double fraction = 1;
  plinth_memory_allocated(device, &allocated);
  plinth_memory_reserved(device, &reserved);
  plinth_get_per_process_memory_fraction(device, &fraction);
  const auto limit = static_cast<size_t>(fraction * static_cast<double>(state.total));
  std::vector<caching::OutOfMemoryObserver> observers;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    observers = observers_;
  }
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(size), allocated, reserved,
                                   c10::Device(c10::DeviceType::CUDA, device));
  for (const auto& observer : observers) {
    observer(device, size, fraction < 1 ? limit : state.total, state.free);
  }

  const uint64_t process = process_bytes(device);
  const size_t in_pools = pools_.allocated(device);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", format_bytes(size), ". GPU ",
      static_cast<int>(device), " has a total capacity of ", format_bytes(state.total), " of which ",
      format_bytes(state.free), " is free. ",
      process == 0 ? "" : "Process " + std::to_string(getpid()) + " has " + format_bytes(process) + " in use. ",
      fraction < 1 ? format_bytes(limit) + " allowed. " : "", "plinth holds ", format_bytes(reserved), ": ",
      format_bytes(allocated), " allocated by PyTorch",
      in_pools == 0 ? "" : " (" + format_bytes(in_pools) + " of it in private pools)", ", and ",
      format_bytes(reserved > allocated ? reserved - allocated : 0), " cached. ", reason);
}

c10::DataPtr Allocator::allocate(size_t size) {
  TORCH_CHECK_WITH(OutOfMemoryError, size < kExabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  const c10::DeleterFnPtr deleter = raw_deleter();
  void* pointer = size == 0 ? nullptr : request(size, device, c10::cuda::getCurrentCUDAStream(device).stream());
  return {pointer, pointer, deleter, c10::Device(c10::DeviceType::CUDA, device)};
}

void* Allocator::raw_alloc(size_t size) {
  if (size == 0) return nullptr;
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return raw_alloc_with_stream(size, c10::cuda::getCurrentCUDAStream(device).stream());
}

void* Allocator::raw_alloc_with_stream(size_t size, cudaStream_t stream) {
  if (size == 0) return nullptr;
  TORCH_CHECK_WITH(OutOfMemoryError, size < kExabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
  c10::DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  return request(size, device, stream);
}

void Allocator::raw_delete(void* pointer) {
  if (pointer == nullptr) return;
  const CallScope call(history_, caching::RecordContext::ALL);
  trace_deallocation(pointer);
  if (C10_UNLIKELY(history_.keeps_stacks())) history_.forget(pointer);
  const bool profiled = C10_UNLIKELY(c10::memoryProfilingEnabled());
  const auto block = profiled ? block_of(pointer) : std::pair<size_t, c10::DeviceIndex>{0, 0};
  const plinth_status_t status = plinth_caching_allocator_delete(pointer);
  // The process is exiting, and its memory goes with it.
  if (status == PLINTH_ERROR_SHUTTING_DOWN) return;
  if (C10_UNLIKELY(status == PLINTH_ERROR_INVALID_POINTER)) {
    const std::string message = plinth_last_error();
    TORCH_CHECK(free_uncached(pointer), "invalid device pointer: ", pointer, ": ", message);
    return;
  }
  TORCH_CHECK(status == PLINTH_OK, "freeing ", pointer, ": ", plinth_last_error());
  sharing_.on_free(pointer);
  if (profiled) report(pointer, -static_cast<int64_t>(block.first), block.second);
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
  return uncached_.load(std::memory_order_relaxed) ? &delete_uncached : &delete_memory;
}

void Allocator::copy_data(void* destination, const void* source, size_t count) const {
  C10_CUDA_CHECK(cudaMemcpy(destination, source, count, cudaMemcpyDeviceToDevice));
}

void Allocator::recordStream(const c10::DataPtr& pointer, c10::cuda::CUDAStream stream) {
  // Memory of another process or another allocator is not this allocator's to reuse.
  if (!pointer || pointer.get_deleter() != &delete_memory) return;
  plinth_stream_t handle = stream.stream();
  if (handle == nullptr) handle = PLINTH_STREAM_DEFAULT_OF(stream.device_index());
  // This entry point accepts streams that plinth has not seen. It returns no status; a failure leaves a message.
  plinth_pluggable_record_stream(pointer.get_context(), handle);
  const char* message = plinth_last_error();
  TORCH_CHECK(message[0] == '\0', message);
}

void Allocator::attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  observers_.push_back(std::move(observer));
}

}  // namespace plinth_torch
