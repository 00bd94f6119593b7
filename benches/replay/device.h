// The device of an allocator, independent of the allocator: its streams, and the amount of memory in use.
//
// For plinth, plinth itself is queried, so the device may be the host device. For every other library the few driver calls
// are found at run time, so that compiling needs no toolkit and starting needs no GPU.
#pragma once
#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace replay {

struct SetupError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns a function of a library by its name; null if there is none.
template <class Function>
Function find(void *library, const char *name) {
  void *address = dlsym(library, name);
  Function function;
  static_assert(sizeof function == sizeof address);
  std::memcpy(&function, &address, sizeof function);
  return function;
}

template <class Function>
Function need(void *library, const char *name) {
  auto function = find<Function>(library, name);
  if (!function) throw SetupError(std::string("the library has no ") + name);
  return function;
}

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string describe() = 0;
  // Returns whether the device is a GPU, so that its times are representative.
  virtual bool is_gpu() = 0;
  virtual void *stream() = 0;
  virtual size_t used() = 0;
  virtual size_t total() = 0;
  virtual void synchronize() = 0;
  // Makes the calling thread use the device. Every thread but the first must call it.
  virtual void enter_thread() {}

 protected:
  static std::string cuda(int version) {
    return ", CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
};

class PlinthDevice : public Device {
 public:
  explicit PlinthDevice(void *library)
      : last_error_(need<const char *(*)()>(library, "plinth_last_error")),
        stream_create_(need<int32_t (*)(int32_t, int32_t, void **)>(library, "plinth_stream_create")),
        mem_get_info_(need<int32_t (*)(int32_t, size_t *, size_t *)>(library, "plinth_mem_get_info")),
        synchronize_(need<int32_t (*)(int32_t)>(library, "plinth_synchronize")) {
    must(need<int32_t (*)()>(library, "plinth_init")());
    char name[256];
    int32_t version;
    must(need<int32_t (*)(int32_t *)>(library, "plinth_get_device_kind")(&kind_));
    must(need<int32_t (*)(int32_t, char *, size_t)>(library, "plinth_get_device_name")(0, name, sizeof name));
    must(need<int32_t (*)(int32_t *)>(library, "plinth_driver_version")(&version));
    description_ = std::string(name) + (is_gpu() ? "" : " (host device)") + cuda(version);
  }
  std::string describe() override { return description_; }
  bool is_gpu() override { return kind_ == 0; }
  void *stream() override {
    void *stream = nullptr;
    must(stream_create_(0, 0, &stream));
    return stream;
  }
  size_t used() override {
    size_t free = 0, total = 0;
    must(mem_get_info_(0, &free, &total));
    return total - free;
  }
  size_t total() override {
    size_t free = 0, total = 0;
    must(mem_get_info_(0, &free, &total));
    return total;
  }
  void synchronize() override { must(synchronize_(0)); }

 private:
  void must(int32_t status) {
    if (status != 0) throw SetupError(last_error_());
  }
  const char *(*last_error_)();
  int32_t (*stream_create_)(int32_t, int32_t, void **);
  int32_t (*mem_get_info_)(int32_t, size_t *, size_t *);
  int32_t (*synchronize_)(int32_t);
  int32_t kind_ = 0;
  std::string description_;
};

// Device 0 and its primary context, which PyTorch and RMM use too.
class CudaDevice : public Device {
 public:
  CudaDevice() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) throw SetupError(std::string("there is no CUDA driver: ") + dlerror());
    set_current_ = need<int (*)(void *)>(driver, "cuCtxSetCurrent");
    create_ = need<int (*)(void **, unsigned)>(driver, "cuStreamCreate");
    info_ = need<int (*)(size_t *, size_t *)>(driver, "cuMemGetInfo_v2");
    synchronize_ = need<int (*)()>(driver, "cuCtxSynchronize");
    int device = 0, version = 0;
    char name[256] = "";
    must("cuInit", need<int (*)(unsigned)>(driver, "cuInit")(0));
    must("cuDeviceGet", need<int (*)(int *, int)>(driver, "cuDeviceGet")(&device, 0));
    must("cuDevicePrimaryCtxRetain",
         need<int (*)(void **, int)>(driver, "cuDevicePrimaryCtxRetain")(&context_, device));
    must("cuDeviceGetName", need<int (*)(char *, int, int)>(driver, "cuDeviceGetName")(name, sizeof name, device));
    must("cuDriverGetVersion", need<int (*)(int *)>(driver, "cuDriverGetVersion")(&version));
    enter_thread();
    description_ = name + cuda(version);
  }
  std::string describe() override { return description_; }
  bool is_gpu() override { return true; }
  void *stream() override {
    void *stream = nullptr;
    constexpr unsigned non_blocking = 1;
    must("cuStreamCreate", create_(&stream, non_blocking));
    return stream;
  }
  size_t used() override {
    size_t free = 0, total = 0;
    must("cuMemGetInfo", info_(&free, &total));
    return total - free;
  }
  size_t total() override {
    size_t free = 0, total = 0;
    must("cuMemGetInfo", info_(&free, &total));
    return total;
  }
  void synchronize() override { must("cuCtxSynchronize", synchronize_()); }
  void enter_thread() override { must("cuCtxSetCurrent", set_current_(context_)); }

 private:
  static void must(const char *call, int result) {
    if (result != 0) throw SetupError(std::string(call) + " failed: CUresult " + std::to_string(result));
  }
  int (*set_current_)(void *);
  int (*create_)(void **, unsigned);
  int (*info_)(size_t *, size_t *);
  int (*synchronize_)();
  void *context_ = nullptr;
  std::string description_;
};

inline std::unique_ptr<Device> open_device(void *library) {
  if (dlsym(library, "plinth_init")) return std::make_unique<PlinthDevice>(library);
  return std::make_unique<CudaDevice>();
}

}  // namespace replay
