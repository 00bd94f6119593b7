/*
 * What the tests of the library's own kernels share: compiling their sources for the host device, and comparing results.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef KERNELS_LIBRARY_H
#define KERNELS_LIBRARY_H

#include "kernels.h"

#include <fstream>

using Bytes = std::vector<unsigned char>;

/* Returns the folder of the library's kernels. */
inline std::string kernels_folder() { return folder_with("kernels", "collective.cu"); }

/* Returns the text of a file of that folder. Of the lines that make a kernel each, PLINTH_NAME(kernel, ...), only that of
 * `kernel`. */
inline std::string source_of(const std::string &file, const std::string &kernel) {
  const bool has_lines = file == "random.cu" || file == "random_half.cu" || file.rfind("group", 0) == 0;
  std::ifstream stream(kernels_folder() + "/" + file);
  CHECK(stream.good());
  std::string text;
  for (std::string line; std::getline(stream, line);) {
    const bool is_other =
        has_lines && line.rfind("PLINTH_", 0) == 0 && line.find("(" + kernel + ",") == std::string::npos;
    text += (is_other ? "" : line) + "\n";
  }
  return text;
}

/* The host device's own version of a kernel, and its compiled source, which is written for nvcc: NVRTC need not accept it.
 * The line that makes the kernel `prefix` + `name` has only `name`. */
struct Pair {
  plinth::KernelModule module;
  plinth::Kernel own, from_source;

  explicit Pair(const std::string &name, const std::string &file = "collective.cu", const std::string &prefix = "")
      : module(std::string(".version 7.0\n.target sm_75\n.address_size 64\n")),
        own(module.kernel(prefix + name)),
        from_source(compile(file, name, prefix)) {}

  static plinth::Kernel compile(const std::string &file, const std::string &name, const std::string &prefix = "") {
    plinth::CompileOptions options;
    options.include_dirs = {kernels_folder()};
    return plinth::compile_kernel(source_of(file, name), prefix + name, options);
  }
};

/* A type of numbers that kernels reduce. */
struct Reduction {
  const char *type;
  std::size_t width;
  bool is_float;
};

/* Bytes of numbers: all patterns of bits, and, for every second element, neighbours of 1 so that sums are rounded. */
inline Bytes numbers(std::size_t count, const Reduction &type, std::uint64_t seed) {
  Bytes bytes = randoms<unsigned char>(count * type.width, seed, 0, 255);
  for (std::size_t i = 0; i < count && type.is_float; i += 2) {
    const std::size_t high = (i + 1) * type.width - 1;
    bytes[high] = static_cast<unsigned char>((bytes[high] & 0x80) | (type.type[0] == 'f' && type.width == 2 ? 0x3C : 0x3F));
  }
  return bytes;
}

template <class T>
bool is_nan_at(const Bytes &bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value != value;
}

/* Whether both have the same bits. All NaNs of float and double are alike: compilers may exchange the terms of a sum. */
inline bool same(const Bytes &one, const Bytes &other, std::size_t width, bool is_float) {
  if (!is_float || width < 4) {
    return one == other;
  }
  for (std::size_t at = 0; at + width <= one.size(); at += width) {
    const bool equal = std::memcmp(&one[at], &other[at], width) == 0;
    const bool nans = width == 4 ? is_nan_at<float>(one, at) && is_nan_at<float>(other, at)
                                 : is_nan_at<double>(one, at) && is_nan_at<double>(other, at);
    if (!equal && !nans) {
      return false;
    }
  }
  return one.size() == other.size();
}

#endif
