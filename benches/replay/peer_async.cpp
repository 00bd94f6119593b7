// CUDA's own stream-ordered allocator, cuMemAllocAsync, for replay and allocator. The driver is found at run time, so that
// compiling needs no toolkit.
#include <dlfcn.h>
#include <sys/types.h>

#include <cstdint>
#include <cstring>

namespace {

struct Driver {
  int (*alloc)(uint64_t *, size_t, void *) = nullptr;
  int (*free)(uint64_t, void *) = nullptr;

  Driver() {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*get_pool)(void **, int) = nullptr, (*set_attribute)(void *, int, void *) = nullptr;
    if (!cuda || !find(cuda, "cuDeviceGetDefaultMemPool", get_pool) ||
        !find(cuda, "cuMemPoolSetAttribute", set_attribute))
      return;
    // By default the pool releases all free memory at each synchronization, and caches nothing.
    constexpr int release_threshold = 4;
    uint64_t everything = UINT64_MAX;
    void *pool;
    if (get_pool(&pool, 0) != 0 || set_attribute(pool, release_threshold, &everything) != 0) return;
    find(cuda, "cuMemFreeAsync", free);
    find(cuda, "cuMemAllocAsync", alloc);
  }

  template <class Function>
  static bool find(void *library, const char *name, Function &function) {
    void *address = dlsym(library, name);
    std::memcpy(&function, &address, sizeof address);
    return address;
  }
};

// Initialized at the first allocation, because then a context exists.
const Driver &driver() {
  static const Driver driver;
  return driver;
}

}  // namespace

extern "C" void *async_alloc(ssize_t size, int, void *stream) {
  uint64_t address = 0;
  if (!driver().alloc || driver().alloc(&address, static_cast<size_t>(size), stream) != 0) return nullptr;
  return reinterpret_cast<void *>(address);
}

extern "C" void async_free(void *pointer, ssize_t, int, void *stream) {
  if (pointer) driver().free(reinterpret_cast<uint64_t>(pointer), stream);
}
