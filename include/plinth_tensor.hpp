/*!
 * @file plinth_tensor.hpp
 * @brief DLPack tensors in C++17, as arguments of the library's functions. plinth.hpp includes it.
 *
 * A DLTensor owns neither its memory nor its shape: the program must keep both alive.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_TENSOR_HPP
#define PLINTH_TENSOR_HPP

#include "plinth_core.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace plinth {

/*! The shape of a tensor of `Rank` dimensions. */
template <std::size_t Rank>
using Shape = std::array<std::int64_t, Rank>;

namespace detail {
template <class T>
struct IsComplex : std::false_type {};
template <class T>
struct IsComplex<std::complex<T>> : std::true_type {};

inline DLDevice on_device(std::int32_t device) noexcept {
  DLDevice place{};
  place.device_type = static_cast<decltype(place.device_type)>(2);
  place.device_id = device;
  return place;
}
}  // namespace detail

/*! The DLPack type of a C++ type: a bool, an integer, a float, a double, or a std::complex of those. */
template <class T>
constexpr DLDataType data_type() noexcept {
  using Plain = std::remove_cv_t<T>;
  constexpr bool is_complex = detail::IsComplex<Plain>::value;
  static_assert(std::is_arithmetic<Plain>::value || is_complex, "this type has no name in DLPack");
  const int code = std::is_same<Plain, bool>::value       ? 6
                   : is_complex                           ? 5
                   : std::is_floating_point<Plain>::value ? 2
                   : std::is_unsigned<Plain>::value       ? 1
                                                          : 0;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * sizeof(Plain)), 1};
}

/*! Describes a contiguous tensor. The shape is not copied, and must outlive the tensor. A device of -1 stands for
 *  the device that owns the memory, which the driver is queried for. */
template <class T, std::size_t Rank>
DLTensor tensor_view(T *data, Shape<Rank> &shape, std::int32_t device = -1) {
  DLTensor tensor{};
  tensor.data = const_cast<std::remove_cv_t<T> *>(data);
  tensor.device = detail::on_device(device >= 0 ? device : device_of(data));
  tensor.ndim = static_cast<std::int32_t>(Rank);
  tensor.dtype = data_type<T>();
  tensor.shape = shape.data();
  return tensor;
}

/*! The number of elements of a tensor. */
inline std::size_t element_count(const DLTensor &tensor) noexcept {
  std::size_t count = 1;
  for (std::int32_t dimension = 0; dimension < tensor.ndim; dimension++) {
    count *= static_cast<std::size_t>(tensor.shape[dimension]);
  }
  return count;
}

/*! The address of a tensor's first element. */
inline void *first_element(const DLTensor &tensor) noexcept {
  return static_cast<char *>(tensor.data) + tensor.byte_offset;
}

/*! Whether a tensor is contiguous in row-major order. */
inline bool is_contiguous(const DLTensor &tensor) noexcept {
  if (tensor.strides == nullptr || element_count(tensor) == 0) return true;
  std::int64_t next = 1;
  for (std::int32_t dimension = tensor.ndim - 1; dimension >= 0; dimension--) {
    if (tensor.shape[dimension] != 1 && tensor.strides[dimension] != next) return false;
    next *= tensor.shape[dimension];
  }
  return true;
}

}  // namespace plinth

#endif /* PLINTH_TENSOR_HPP */
