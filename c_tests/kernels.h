/*
 * Helpers of the tests of CUDA C++ kernels: compiling, memory with guard bytes, launch shapes, and comparing with a
 * reference.
 *
 * A test runs the same kernel on the host device and on a GPU. Its bound must hold for both: NVRTC fuses products and
 * sums, and its math functions differ from the C library's by a few units in the last place.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef KERNELS_H
#define KERNELS_H

#include "wrapping.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using plinth::Launch;

/* ---- Compiling ---- */

/* Skips the test on a GPU whose NVRTC does not find a header of CUDA, or one that this includes: cooperative_groups.h
 * includes <cuda/std/type_traits>. The host device has its own headers. */
static inline void need_headers(std::initializer_list<const char *> headers) {
  if (on_host_device()) {
    return;
  }
  for (const char *header : headers) {
    const std::string source = std::string("#include <") + header + ">\nextern \"C\" __global__ void probe() {}\n";
    try {
      static_cast<void>(plinth::nvrtc_compile(source, "probe"));
    } catch (const plinth::Error &error) {
      const bool missing = error.status() == PLINTH_ERROR_COMPILATION_FAILED &&
                           std::string(error.what()).find("cannot open source file") != std::string::npos;
      if (!missing) {
        throw;
      }
      SKIP((std::string("NVRTC does not find ") + header + ", or a header that it includes").c_str());
    }
  }
}

/* Returns a folder of the project, which has a file. Skips the test if the program runs without the sources. */
static inline std::string folder_with(const std::string &folder, const std::string &file) {
  const std::string here = __FILE__;
  const std::size_t slash = here.rfind('/');
  const std::string beside = (slash == std::string::npos ? std::string(".") : here.substr(0, slash)) + "/../" + folder;
  for (const std::string &candidate : {beside, folder}) {
    if (access((candidate + "/" + file).c_str(), R_OK) == 0) {
      return candidate;
    }
  }
  SKIP((file + " is not here").c_str());
  return std::string();
}

/* Returns the folder of plinth_philox.cuh. */
static inline std::string include_folder() { return folder_with("include", "plinth_philox.cuh"); }

/* On the host device, compiles a kernel with NVRTC too, if PLINTH_NVRTC_LIBRARY names one: a source that only the host
 * device accepts is an error. */
static inline void check_with_nvrtc(const std::string &source, const std::string &name, plinth::CompileOptions options) {
  if (on_host_device() && std::getenv("PLINTH_NVRTC_LIBRARY") != nullptr) {
    options.compute_capability = "compute_90";
    static_cast<void>(plinth::nvrtc_compile(source, name, options));
  }
}

static inline plinth::Kernel compiled(const std::string &source, const std::string &name, std::int32_t device = -1) {
  plinth::Kernel kernel = plinth::compile_kernel(source, name, {}, device);
  check_with_nvrtc(source, name, {});
  return kernel;
}

static inline plinth::Kernel compiled_with(const std::string &source, const std::string &name,
                                           const std::vector<std::string> &options,
                                           const std::vector<std::string> &folders = {}) {
  plinth::CompileOptions all;
  all.options = options;
  all.include_dirs = folders;
  plinth::Kernel kernel = plinth::compile_kernel(source, name, all);
  check_with_nvrtc(source, name, all);
  return kernel;
}

/* Returns how many blocks of a size cover a count. */
static inline std::uint32_t blocks_for(std::size_t count, std::size_t size) {
  return static_cast<std::uint32_t>((count + size - 1) / size);
}

/* ---- Memory ---- */

/* Elements in device memory, between guard bytes that read() checks. */
template <class T>
class Device {
 public:
  explicit Device(const std::vector<T> &values, std::int32_t device = 0)
      : device_(device),
        count_(values.size()),
        memory_(values.size() * sizeof(T) + 2 * kGuard, plinth::StreamView(), device) {
    std::vector<unsigned char> bytes(memory_.size(), kPattern);
    if (count_ > 0) {
      std::memcpy(bytes.data() + kGuard, values.data(), count_ * sizeof(T));
    }
    plinth::copy(memory_.get(), bytes.data(), bytes.size());
    plinth::synchronize(device_);
  }
  /* Elements whose bytes are all 0. */
  explicit Device(std::size_t count, std::int32_t device = 0) : Device(std::vector<T>(count), device) {}
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  T *get() const { return reinterpret_cast<T *>(memory_.template as<unsigned char>() + kGuard); }
  std::size_t bytes() const { return count_ * sizeof(T); }

  /* Returns the elements once all streams of the device are done. */
  std::vector<T> read() const {
    std::vector<unsigned char> bytes(memory_.size());
    std::vector<T> values(count_);
    plinth::synchronize(device_);
    plinth::copy(bytes.data(), memory_.get(), bytes.size());
    for (std::size_t index = 0; index < kGuard; index++) {
      CHECK_EQ(bytes[index], kPattern);
      CHECK_EQ(bytes[bytes.size() - 1 - index], kPattern);
    }
    if (count_ > 0) {
      std::memcpy(values.data(), bytes.data() + kGuard, count_ * sizeof(T));
    }
    return values;
  }

 private:
  /* A multiple of the alignment of every vector type. */
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kPattern = 0xA5;

  std::int32_t device_;
  std::size_t count_;
  plinth::DeviceBuffer memory_;
};

/* ---- Data ---- */

/* Returns numbers between two limits; integers include both. */
template <class T>
std::vector<T> randoms(std::size_t count, std::uint64_t seed, T low, T high) {
  std::vector<T> values(count);
  std::uint64_t state = seed;
  for (T &value : values) {
    const std::uint64_t bits = random_next(&state);
    if constexpr (std::is_floating_point<T>::value) {
      value = low + static_cast<T>(static_cast<double>(bits >> 11) * 0x1p-53) * (high - low);
    } else {
      const std::uint64_t span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
      value = static_cast<T>(static_cast<std::uint64_t>(low) + (span == 0 ? bits : bits % span));
    }
  }
  return values;
}

/* Returns 0, 1, 2 and so on. */
template <class T>
std::vector<T> ascending(std::size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T(0));
  return values;
}

/* The bits of a binary16 or bfloat16 number that is nearest to a float; for finite numbers within its normal range. */
static inline std::uint16_t half_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const std::uint32_t sign = bits >> 16 & 0x8000;
  const std::uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude < 0x38800000) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::lrint(std::fabs(value) * 0x1p24f)));
  }
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000 + 0xFFF + (magnitude >> 13 & 1)) >> 13));
}

static inline std::uint16_t bfloat_bits(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static inline float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

static inline float from_bfloat(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

/* ---- Comparing ---- */

template <class T>
void expect_same(const std::vector<T> &actual, const std::vector<T> &expected, const char *text, const char *file,
                 int line) {
  char message[256];
  if (actual.size() != expected.size()) {
    std::snprintf(message, sizeof message, "%s: %zu elements instead of %zu", text, actual.size(), expected.size());
    harness_fail(file, line, message);
  }
  for (std::size_t index = 0; index < actual.size(); index++) {
    if (std::memcmp(&actual[index], &expected[index], sizeof(T)) != 0) {
      std::snprintf(message, sizeof message, "%s: element %zu is %.17g instead of %.17g", text, index,
                    static_cast<double>(actual[index]), static_cast<double>(expected[index]));
      harness_fail(file, line, message);
    }
  }
}

/* Two numbers agree if they differ by at most absolute + relative * |expected|, or are both NaN, or are equal. */
template <class T, class U>
void expect_near(const std::vector<T> &actual, const std::vector<U> &expected, double absolute, double relative,
                 const char *text, const char *file, int line) {
  char message[256];
  if (actual.size() != expected.size()) {
    std::snprintf(message, sizeof message, "%s: %zu elements instead of %zu", text, actual.size(), expected.size());
    harness_fail(file, line, message);
  }
  for (std::size_t index = 0; index < actual.size(); index++) {
    const double got = static_cast<double>(actual[index]), want = static_cast<double>(expected[index]);
    const bool near = got == want || (std::isnan(got) && std::isnan(want)) ||
                      std::fabs(got - want) <= absolute + relative * std::fabs(want);
    if (!near || (std::isinf(got) != std::isinf(want))) {
      std::snprintf(message, sizeof message, "%s: element %zu is %.9g instead of %.9g, which is %.3g apart", text,
                    index, got, want, std::fabs(got - want));
      harness_fail(file, line, message);
    }
  }
}

/* SAME(actual, expected): vectors that are equal to the bit. */
#define SAME(actual, expected) expect_same((actual), (expected), #actual, __FILE__, __LINE__)
/* NEAR(actual, expected, absolute, relative): vectors of floating-point numbers. */
#define NEAR(actual, expected, absolute, relative) \
  expect_near((actual), (expected), (absolute), (relative), #actual, __FILE__, __LINE__)

#endif
