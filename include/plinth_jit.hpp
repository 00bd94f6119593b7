/*!
 * @file plinth_jit.hpp
 * @brief Functions and kernels that are compiled at run time, in C++17. plinth.hpp includes it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_JIT_HPP
#define PLINTH_JIT_HPP

#include "plinth_core.hpp"
#include "plinth_tensor.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/* ---- The jiterator ---- */

/*! A named scalar: a default that a function declares, or a value that is passed to a call. The name is not copied. */
inline plinth_jit_scalar_t scalar(const char *name, bool value) noexcept {
  return {sizeof(plinth_jit_scalar_t), name, PLINTH_JIT_BOOL, 0, value ? 1 : 0, 0.0, 0.0};
}
inline plinth_jit_scalar_t scalar(const char *name, std::complex<double> value) noexcept {
  return {sizeof(plinth_jit_scalar_t), name, PLINTH_JIT_COMPLEX, 0, 0, value.real(), value.imag()};
}
/*! Throws std::invalid_argument for an integer above INT64_MAX. */
template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
plinth_jit_scalar_t scalar(const char *name, T value) {
  if constexpr (std::is_integral<T>::value) {
    if (value > T(0) && static_cast<std::uint64_t>(value) > INT64_MAX) {
      throw std::invalid_argument("plinth::scalar: the integer does not fit in 64 bits with a sign; pass a double");
    }
    return {sizeof(plinth_jit_scalar_t), name, PLINTH_JIT_INT, 0, static_cast<std::int64_t>(value), 0.0, 0.0};
  } else {
    return {sizeof(plinth_jit_scalar_t), name, PLINTH_JIT_FLOAT, 0, 0, static_cast<double>(value), 0.0};
  }
}

/*! A jiterated function: a function of tensors, created from a function of elements; destroyed by the destructor.
 *  Movable, not copyable. */
class JitFunction {
 public:
  using Scalars = std::initializer_list<plinth_jit_scalar_t>;

  /*! The type and the shape of every output of a call. */
  struct Result {
    DLDataType dtype;
    std::int32_t ndim;
    /*! The first `ndim` elements are valid. */
    std::array<std::int64_t, 25> shape;
  };

  /*! From a template that returns its one output: `template <typename T> T name(T x, T alpha) { ... }`. */
  explicit JitFunction(const std::string &code, Scalars scalars = {})
      : function_(detail::output<plinth_jit_function_t>([&](plinth_jit_function_t *out) {
          return plinth_jiterator_create_jit_fn(code.c_str(), scalars.begin(), scalars.size(), out);
        })) {}
  /*! From a template whose last `num_outputs` parameters are the outputs, `T &out`. */
  static JitFunction multi_output(const std::string &code, std::int32_t num_outputs, Scalars scalars = {}) {
    return JitFunction(detail::output<plinth_jit_function_t>([&](plinth_jit_function_t *out) {
      return plinth_jiterator_create_multi_output_jit_fn(code.c_str(), num_outputs, scalars.begin(), scalars.size(), out);
    }));
  }
  ~JitFunction() { static_cast<void>(plinth_jiterator_destroy_jit_fn(function_)); }
  JitFunction(JitFunction &&other) noexcept : function_(std::exchange(other.function_, nullptr)) {}
  JitFunction &operator=(JitFunction &&other) noexcept {
    std::swap(function_, other.function_);
    return *this;
  }
  JitFunction(const JitFunction &) = delete;
  JitFunction &operator=(const JitFunction &) = delete;

  plinth_jit_function_t get() const noexcept { return function_; }

  Result result(std::initializer_list<const DLTensor *> inputs) const {
    Result found{};
    check(plinth_jiterator_result(function_, inputs.begin(), inputs.size(), &found.dtype, &found.ndim,
                                  found.shape.data()));
    return found;
  }

  /*! `function({&x, &y}, {&out}, {scalar("alpha", 2.0)}, stream)`; scalars that are left out have their default
   *  values. */
  void operator()(std::initializer_list<const DLTensor *> inputs, std::initializer_list<DLTensor *> outputs,
                  Scalars scalars = {}) const {
    (*this)(inputs, outputs, scalars, StreamView::current());
  }
  void operator()(std::initializer_list<const DLTensor *> inputs, std::initializer_list<DLTensor *> outputs,
                  Scalars scalars, StreamView stream) const {
    call(inputs, outputs, scalars, stream);
  }
  /*! The same with any contiguous containers of pointers to tensors, and of scalars. */
  template <class Inputs, class Outputs, class Values>
  void call(const Inputs &inputs, const Outputs &outputs, const Values &scalars, StreamView stream) const {
    check(plinth_jiterator_call(function_, std::data(inputs), std::size(inputs), std::data(outputs), std::size(outputs),
                                std::data(scalars), std::size(scalars), stream.get()));
  }

 private:
  explicit JitFunction(plinth_jit_function_t function) noexcept : function_(function) {}

  plinth_jit_function_t function_;
};

/* ---- Launches ---- */

/*! Extents along x, y and z. */
struct Dim3 {
  constexpr Dim3(std::uint32_t x_extent = 1, std::uint32_t y_extent = 1, std::uint32_t z_extent = 1) noexcept
      : x(x_extent), y(y_extent), z(z_extent) {}

  std::uint32_t x;
  std::uint32_t y;
  std::uint32_t z;
};

/*! The configuration of a kernel launch: `Launch({blocks}, {threads}).shared_bytes(4096).on(stream)`. Without a
 *  stream, the kernel runs in the stream that is current at the launch. */
class Launch {
 public:
  Launch(Dim3 grid, Dim3 block) noexcept {
    set(launch_.grid, grid);
    set(launch_.block, block);
  }
  Launch &cluster(Dim3 extents) noexcept {
    set(launch_.cluster, extents);
    return *this;
  }
  /*! Dynamic shared memory per block, in bytes. */
  Launch &shared_bytes(std::uint32_t bytes) noexcept {
    launch_.shared_bytes = bytes;
    return *this;
  }
  Launch &cooperative() noexcept {
    launch_.flags |= PLINTH_LAUNCH_COOPERATIVE;
    return *this;
  }
  Launch &on(StreamView stream) noexcept {
    stream_ = stream;
    return *this;
  }

  const plinth_kernel_launch_t &get() const noexcept { return launch_; }
  StreamView stream() const { return stream_; }

 private:
  static void set(std::uint32_t *to, Dim3 from) noexcept {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
  }

  plinth_kernel_launch_t launch_ = PLINTH_KERNEL_LAUNCH_INIT;
  StreamView stream_ = StreamView::current();
};

/*! A tensor argument with the kernel's access to it, for the stream sanitizer; see reads() and writes(). */
struct TensorArgument {
  const DLTensor *tensor;
  std::uint32_t access;
};
/*! The kernel only reads the tensor. */
inline TensorArgument reads(const DLTensor &tensor) noexcept { return {&tensor, PLINTH_SANITIZER_READ}; }
/*! The kernel writes the tensor, and does not read it. */
inline TensorArgument writes(const DLTensor &tensor) noexcept { return {&tensor, PLINTH_SANITIZER_WRITE}; }
/*! The kernel reads and writes the tensor. */
inline TensorArgument reads_and_writes(const DLTensor &tensor) noexcept {
  return {&tensor, PLINTH_SANITIZER_READ | PLINTH_SANITIZER_WRITE};
}

namespace detail {
/*! Whether a type converts to a DLTensor that exists without the conversion: only a temporary, which would be gone at the
 *  launch, cannot become a reference to volatile. */
template <class T>
constexpr bool is_tensor = std::is_class<T>::value && std::is_convertible<const T &, const volatile DLTensor &>::value;

/*! A value argument; it must stay valid until the launch returns. */
template <class T>
plinth_kernel_argument_t kernel_argument(const T &value) noexcept {
  static_assert(!std::is_array<T>::value, "an array cannot be a kernel argument: pass a device pointer");
  static_assert(!std::is_same<std::remove_cv_t<std::remove_pointer_t<T>>, DLTensor>::value || !std::is_pointer<T>::value,
                "a tensor is passed itself, not by a pointer");
  static_assert(is_tensor<T> || !std::is_class<T>::value || !std::is_convertible<const T &, const DLTensor &>::value,
                "a conversion to a DLTensor must return a reference");
  static_assert(is_tensor<T> || std::is_trivially_copyable<T>::value, "a kernel argument must be trivially copyable");
  constexpr bool whole = std::is_integral<T>::value || std::is_enum<T>::value;
  if constexpr (is_tensor<T>) {
    const DLTensor &tensor = value;
    return {sizeof(plinth_kernel_argument_t), &tensor, 0, PLINTH_ARGUMENT_TENSOR, 0};
  } else if constexpr (std::is_same<T, TensorArgument>::value) {
    return {sizeof(plinth_kernel_argument_t), value.tensor, 0, PLINTH_ARGUMENT_TENSOR, value.access};
  } else if constexpr (std::is_pointer<T>::value || std::is_same<T, std::nullptr_t>::value) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_POINTER, 0};
  } else if constexpr (std::is_same<T, bool>::value) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_BOOL, 0};
  } else if constexpr (whole && sizeof(T) == 4) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_INT32, 0};
  } else if constexpr (whole && sizeof(T) == 8) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_INT64, 0};
  } else if constexpr (std::is_same<T, float>::value) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_FLOAT32, 0};
  } else if constexpr (std::is_same<T, double>::value) {
    return {sizeof(plinth_kernel_argument_t), &value, 0, PLINTH_ARGUMENT_FLOAT64, 0};
  } else {
    return {sizeof(plinth_kernel_argument_t), &value, sizeof value, PLINTH_ARGUMENT_BYTES, 0};
  }
}
}  // namespace detail

/* ---- Kernels ---- */

/*! A variable of a module: `__constant__` or `__device__`. */
struct Symbol {
  void *address; /*!< An address of device memory. */
  std::size_t bytes;
};

/*! A kernel, destroyed by the destructor. Movable, not copyable. */
class Kernel {
 public:
  /*! Takes ownership of a kernel of the C API. */
  static Kernel adopt(plinth_kernel_t kernel) noexcept { return Kernel(kernel); }
  ~Kernel() { static_cast<void>(plinth_kernel_destroy(kernel_)); }
  Kernel(Kernel &&other) noexcept : kernel_(std::exchange(other.kernel_, nullptr)) {}
  Kernel &operator=(Kernel &&other) noexcept {
    std::swap(kernel_, other.kernel_);
    return *this;
  }
  Kernel(const Kernel &) = delete;
  Kernel &operator=(const Kernel &) = delete;

  plinth_kernel_t get() const noexcept { return kernel_; }

  plinth_kernel_attributes_t attributes() const {
    plinth_kernel_attributes_t found = PLINTH_KERNEL_ATTRIBUTES_INIT;
    check(plinth_kernel_attributes(kernel_, &found));
    return found;
  }
  /*! The number of blocks that can be resident on one multiprocessor. */
  std::int32_t occupancy(std::uint32_t threads, std::uint32_t shared_bytes = 0) const {
    return detail::output<std::int32_t>(
        [&](std::int32_t *out) { return plinth_kernel_occupancy(kernel_, threads, shared_bytes, out); });
  }
  /*! A variable of the kernel's module, by its name in the image: see plinth_kernel_symbol. */
  Symbol symbol(const std::string &name) const {
    Symbol found{};
    check(plinth_kernel_symbol(kernel_, name.c_str(), &found.address, &found.bytes));
    return found;
  }
  void set_shared_memory_config(std::uint32_t shared_bytes) {
    check(plinth_kernel_set_shared_memory_config(kernel_, shared_bytes));
  }

  /*! Launches the kernel: `kernel({{blocks}, {threads}}, tensor, 2.0f, count)`. An argument is a tensor (the kernel
   *  gets the address of its first element), a pointer, a bool, a number, or any trivially copyable struct. Its size
   *  must match the kernel's parameter: a float for a double is an error, if the driver reports parameter sizes. */
  template <class... Arguments>
  void operator()(const Launch &launch, const Arguments &...arguments) const {
    const std::array<plinth_kernel_argument_t, sizeof...(Arguments)> list = {{detail::kernel_argument(arguments)...}};
    check(plinth_kernel_launch(kernel_, &launch.get(), list.data(), list.size(), launch.stream().get()));
  }

 private:
  explicit Kernel(plinth_kernel_t kernel) noexcept : kernel_(kernel) {}

  plinth_kernel_t kernel_;
};

namespace detail {
template <class... Parameters>
struct HostKernel {
  using Function = std::function<void(const plinth_host_launch_t &, Parameters...)>;

  template <class T>
  static T parameter(const plinth_host_launch_t &launch, std::size_t index) {
    static_assert(std::is_trivially_copyable<T>::value, "a kernel's parameter must be trivially copyable");
    alignas(T) unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, launch.parameters[index], sizeof bytes);
    return *std::launder(reinterpret_cast<T *>(bytes));
  }
  template <std::size_t... Index>
  static void call(const Function &function, const plinth_host_launch_t &launch, std::index_sequence<Index...>) {
    function(launch, parameter<Parameters>(launch, Index)...);
  }
  static std::int32_t run(const plinth_host_launch_t *launch, void *context) noexcept {
    try {
      call(*static_cast<const Function *>(context), *launch, std::index_sequence_for<Parameters...>());
      return 0;
    } catch (...) {
      return -1;
    }
  }
};
}  // namespace detail

/*! Gives a kernel a function that runs on the host device in its place: `register_host_kernel<float *, int>("scale",
 *  [](const plinth_host_launch_t &launch, float *data, int count) { ... })`. The template's arguments are the types of the
 *  kernel's parameters. The function runs all blocks of a launch, in a thread of the library; it must not call CUDA. A
 *  launch fails if it throws. It is kept until the process ends. On a GPU the call has no effect. */
template <class... Parameters, class Function>
void register_host_kernel(const std::string &name, Function function) {
  using Host = detail::HostKernel<Parameters...>;
  const std::array<std::size_t, sizeof...(Parameters)> sizes = {{sizeof(Parameters)...}};
  auto kept = std::make_unique<typename Host::Function>(std::move(function));
  detail::acquire([&] {
    return plinth_host_kernel_register(name.c_str(), sizes.data(), sizes.size(), Host::run, kept.get());
  });
  // A kernel that was found with the function may be launched as long as the process lives.
  static_cast<void>(kept.release());
}

/*! Removes the function of a kernel's name. Kernels that were found before keep it. */
inline void unregister_host_kernel(const std::string &name) {
  check(plinth_host_kernel_register(name.c_str(), nullptr, 0, nullptr, nullptr));
}

/*! A module, destroyed by the destructor. Movable, not copyable. */
class KernelModule {
 public:
  /*! Loads PTX, a cubin or a fatbin. */
  KernelModule(const void *image, std::size_t bytes, std::int32_t device = -1)
      : module_(detail::output<plinth_kernel_module_t>([&](plinth_kernel_module_t *out) {
          return plinth_kernel_module_load(image, bytes, device, out);
        })) {}
  /*! Loads an image from a contiguous container of bytes: a std::string of PTX, a std::vector. */
  template <class Image, class = decltype(std::data(std::declval<const Image &>()))>
  explicit KernelModule(const Image &image, std::int32_t device = -1)
      : KernelModule(std::data(image), std::size(image) * sizeof(*std::data(image)), device) {}
  ~KernelModule() { static_cast<void>(plinth_kernel_module_destroy(module_)); }
  KernelModule(KernelModule &&other) noexcept : module_(std::exchange(other.module_, nullptr)) {}
  KernelModule &operator=(KernelModule &&other) noexcept {
    std::swap(module_, other.module_);
    return *this;
  }
  KernelModule(const KernelModule &) = delete;
  KernelModule &operator=(const KernelModule &) = delete;

  plinth_kernel_module_t get() const noexcept { return module_; }
  Kernel kernel(const std::string &name) const {
    return Kernel::adopt(detail::output<plinth_kernel_t>(
        [&](plinth_kernel_t *out) { return plinth_kernel_module_get_kernel(module_, name.c_str(), out); }));
  }
  /*! A variable of the module, by its name in the image. */
  Symbol symbol(const std::string &name) const {
    Symbol found{};
    check(plinth_kernel_module_symbol(module_, name.c_str(), &found.address, &found.bytes));
    return found;
  }

 private:
  plinth_kernel_module_t module_;
};

/* ---- Compiling ---- */

/*! Options for the compilation of CUDA C++. */
struct CompileOptions {
  /*! "90", "90a", "sm_90" or "compute_90"; if empty, that of the device. */
  std::string compute_capability;
  std::vector<std::string> include_dirs;
  /*! Further options for NVRTC. */
  std::vector<std::string> options;
};

/*! A compiled image, and the kernel's name in it. */
struct CompiledImage {
  std::vector<std::uint8_t> image;
  std::string lowered_name;
};

namespace detail {
/*! Converts a list of strings to pointers that end in NULL; they are valid as long as the strings. */
inline std::vector<const char *> null_ended(const std::vector<std::string> &texts) {
  std::vector<const char *> list;
  list.reserve(texts.size() + 1);
  for (const std::string &text : texts) {
    list.push_back(text.c_str());
  }
  list.push_back(nullptr);
  return list;
}

inline const char *capability_of(const CompileOptions &options) noexcept {
  return options.compute_capability.empty() ? nullptr : options.compute_capability.c_str();
}

struct Free {
  void operator()(void *memory) const noexcept { std::free(memory); }
};
}  // namespace detail

inline CompiledImage nvrtc_compile(const std::string &source, const std::string &name,
                                   const CompileOptions &options = {}) {
  const std::vector<const char *> folders = detail::null_ended(options.include_dirs);
  const std::vector<const char *> more = detail::null_ended(options.options);
  void *image = nullptr;
  std::size_t bytes = 0;
  char *lowered = nullptr;
  detail::acquire([&] {
    return plinth_nvrtc_compile(source.c_str(), name.c_str(), detail::capability_of(options), folders.data(), more.data(),
                                &image, &bytes, &lowered);
  });
  const std::unique_ptr<void, detail::Free> owned(image), owned_name(lowered);
  const auto *const first = static_cast<const std::uint8_t *>(image);
  return {std::vector<std::uint8_t>(first, first + bytes), std::string(lowered)};
}

inline Kernel compile_kernel(const std::string &source, const std::string &name, const CompileOptions &options = {},
                             std::int32_t device = -1) {
  const std::vector<const char *> folders = detail::null_ended(options.include_dirs);
  const std::vector<const char *> more = detail::null_ended(options.options);
  return Kernel::adopt(detail::output<plinth_kernel_t>([&](plinth_kernel_t *out) {
    return plinth_compile_kernel(source.c_str(), name.c_str(), detail::capability_of(options), folders.data(),
                                 more.data(), device, out);
  }));
}

}  // namespace plinth

#endif

#endif /* PLINTH_JIT_HPP */
