// The allocator under measurement: any library with two functions of the signatures of PyTorch's CUDAPluggableAllocator,
// and optional functions for its statistics.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "device.h"

namespace replay {

using AllocFunction = void *(*)(ssize_t size, int device, void *stream);
using FreeFunction = void (*)(void *pointer, ssize_t size, int device, void *stream);

// The command line's options for the allocator.
struct AllocatorArguments {
  std::string name, library, alloc, free;
  // Stores the value of an option; returns false for an unknown option.
  bool take(const std::string &option, const char *value) {
    std::string *field = option == "--allocator" ? &name
                         : option == "--library" ? &library
                         : option == "--alloc"   ? &alloc
                         : option == "--free"    ? &free
                                                 : nullptr;
    if (field) *field = value;
    return field;
  }
  bool complete() const { return !name.empty() && !library.empty() && !alloc.empty() && !free.empty(); }
};

class Allocator {
 public:
  std::string name;
  AllocFunction alloc;
  FreeFunction free;
  std::unique_ptr<Device> device;

  explicit Allocator(const AllocatorArguments &arguments) : name(arguments.name) {
    // dlopen searches a name without a slash in the loader's path instead of the current folder.
    std::string path = arguments.library.find('/') == std::string::npos ? "./" + arguments.library : arguments.library;
    library_ = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (!library_) throw SetupError(dlerror());
    alloc = need<AllocFunction>(library_, arguments.alloc.c_str());
    free = need<FreeFunction>(library_, arguments.free.c_str());
    device = open_device(library_);
    last_error_ = find<const char *(*)()>(library_, "plinth_last_error");
    reserved_ = find<int32_t (*)(int32_t, size_t *)>(library_, "plinth_memory_reserved");
    max_reserved_ = find<int32_t (*)(int32_t, size_t *)>(library_, "plinth_max_memory_reserved");
    reset_peak_ = find<int32_t (*)(int32_t)>(library_, "plinth_reset_peak_memory_stats");
    check_ = find<int32_t (*)()>(library_, "plinth_testing_check_allocator");
  }

  void *library() const { return library_; }

  // Returns the library's message for the last failed allocation; "" if it has no messages.
  std::string last_error() const { return last_error_ ? last_error_() : ""; }

  // Returns the device memory that the library reports as held, now or at its peak; -1 if it does not report it.
  int64_t reserved() const { return ask(reserved_); }
  int64_t max_reserved() const { return ask(max_reserved_); }
  void reset_peak() const {
    if (reset_peak_) reset_peak_(0);
  }

  // Returns the error that the library finds in its own data structures; "" for none.
  std::string check() const { return check_ && check_() != 0 ? last_error() : ""; }

  // Limits the memory that the library may hold. plinth has a call for it; a peer's library may export
  // `int peer_set_memory_fraction(double fraction, int device)`.
  void limit(uint64_t bytes) const {
    size_t total = device->total();
    if (bytes > total)
      throw SetupError("the limit of " + std::to_string(bytes) + " bytes is more than the device has: " +
                       std::to_string(total));
    auto set = find<int32_t (*)(double, int32_t)>(library_, "plinth_set_per_process_memory_fraction");
    if (!set) set = find<int32_t (*)(double, int32_t)>(library_, "peer_set_memory_fraction");
    if (!set) throw SetupError(name + " has no limit to set");
    if (set(static_cast<double>(bytes) / static_cast<double>(total), 0) != 0)
      throw SetupError("the limit cannot be set: " + last_error());
  }

 private:
  static int64_t ask(int32_t (*query)(int32_t, size_t *)) {
    size_t bytes = 0;
    return query && query(0, &bytes) == 0 ? static_cast<int64_t>(bytes) : -1;
  }
  void *library_;
  const char *(*last_error_)();
  int32_t (*reserved_)(int32_t, size_t *);
  int32_t (*max_reserved_)(int32_t, size_t *);
  int32_t (*reset_peak_)(int32_t);
  int32_t (*check_)();
};

}  // namespace replay
