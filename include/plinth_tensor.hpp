/*!
 * @file plinth_tensor.hpp
 * @brief DLPack tensors in C++17, as arguments of the library's functions. plinth.hpp includes it.
 *
 * A DLTensor owns neither its memory nor its shape: the program must keep both alive. A Tensor owns both.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_TENSOR_HPP
#define PLINTH_TENSOR_HPP

#include "plinth_core.hpp"
#include "plinth_memory.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

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

/*! The DLPack type of a C++ type: a bool, an integer, a float, a double, or a std::complex of those. Specialize it for
 *  other types, such as CUDA's: `template <> struct plinth::DataType<__half> { static constexpr DLDataType value{2, 16,
 *  1}; };`, with 4 in place of 2 for bfloat16. Floating point in 8 bits is {10, 8, 1} (e4m3fn) or {12, 8, 1} (e5m2). */
template <class T>
struct DataType {
  static_assert(std::is_arithmetic<T>::value || detail::IsComplex<T>::value,
                "specialize plinth::DataType for this type");
  static constexpr std::uint8_t code = std::is_same<T, bool>::value       ? 6
                                       : detail::IsComplex<T>::value      ? 5
                                       : std::is_floating_point<T>::value ? 2
                                       : std::is_unsigned<T>::value       ? 1
                                                                          : 0;
  static constexpr DLDataType value{code, static_cast<std::uint8_t>(8 * sizeof(T)), 1};
};

template <class T>
constexpr DLDataType data_type() noexcept {
  return DataType<std::remove_cv_t<T>>::value;
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

namespace detail {
/*! The number of elements of these sizes; throws if one is negative, or if their bytes are more than addresses. */
inline std::size_t checked_count(const std::int64_t *sizes, std::size_t rank, std::size_t element_bytes) {
  std::size_t count = 1;
  bool empty = false;
  for (std::size_t dimension = 0; dimension < rank; dimension++) {
    if (sizes[dimension] < 0) throw std::invalid_argument("plinth: a size of a tensor is negative");
    empty = empty || sizes[dimension] == 0;
  }
  if (empty) return 0;
  for (std::size_t dimension = 0; dimension < rank; dimension++) {
    if (static_cast<std::size_t>(sizes[dimension]) > SIZE_MAX / element_bytes / count) {
      throw std::invalid_argument("plinth: the shape of a tensor has more bytes than there are addresses");
    }
    count *= static_cast<std::size_t>(sizes[dimension]);
  }
  return count;
}
}  // namespace detail

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

/*! A tensor that owns its memory on a device, from the caching allocator: contiguous in row-major order, of any number of
 *  dimensions. It converts to a DLTensor, which every function here takes. Movable, not copyable; clone() copies it. */
template <class T>
class Tensor {
 public:
  using Sizes = std::vector<std::int64_t>;

  /*! No elements, and no memory. */
  Tensor() : shape_{0} { describe(0); }
  /*! Allocates for a stream of the device, by default for the thread's current one. The elements are not initialized. A
   *  device of -1 is the current device. Throws std::invalid_argument for a negative size, or more bytes than there are
   *  addresses. */
  explicit Tensor(Sizes shape, std::int32_t device = -1, StreamView stream = StreamView::current())
      : shape_(std::move(shape)), count_(count(shape_)) {
    device = device >= 0 ? device : current_device();
    buffer_ = DeviceBuffer(count_ * sizeof(T), stream, device);
    describe(device);
  }
  /*! Allocates a tensor and fills it with a value of 1, 2 or 4 bytes, in the stream. */
  static Tensor full(Sizes shape, const T &value, std::int32_t device = -1, StreamView stream = StreamView::current()) {
    Tensor made(std::move(shape), device, stream);
    made.fill(value, stream);
    return made;
  }
  /*! Allocates a tensor of zeros. */
  static Tensor zeros(Sizes shape, std::int32_t device = -1, StreamView stream = StreamView::current()) {
    Tensor made(std::move(shape), device, stream);
    if (made.count_ > 0) plinth::memset(made.data(), 0, made.bytes(), stream);
    return made;
  }
  /*! Allocates a tensor in the current stream, and copies elements of the host to it. Throws std::invalid_argument if
   *  their number is not that of the shape. */
  template <class Values>
  static Tensor from_host(const Values &values, Sizes shape, std::int32_t device = -1) {
    Tensor made(std::move(shape), device);
    if (std::size(values) != made.count_) {
      throw std::invalid_argument("plinth::Tensor::from_host: the shape needs another number of values");
    }
    made.copy_from(std::data(values));
    return made;
  }
  /*! The same for a tensor of one dimension. */
  static Tensor from_host(std::initializer_list<T> values, std::int32_t device = -1) {
    return from_host(values, Sizes{static_cast<std::int64_t>(values.size())}, device);
  }

  /*! A tensor that was moved from can only be assigned to and destroyed. */
  Tensor(Tensor &&other) noexcept
      : shape_(std::move(other.shape_)),
        count_(std::exchange(other.count_, 0)),
        buffer_(std::move(other.buffer_)),
        tensor_(std::exchange(other.tensor_, DLTensor{})) {}
  Tensor &operator=(Tensor &&other) noexcept {
    std::swap(shape_, other.shape_);
    std::swap(count_, other.count_);
    std::swap(buffer_, other.buffer_);
    std::swap(tensor_, other.tensor_);
    return *this;
  }
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;

  /*! The address of the first element, for access by devices only; NULL without elements. */
  T *data() const noexcept { return buffer_.template as<T>(); }
  const Sizes &shape() const noexcept { return shape_; }
  std::int64_t size(std::size_t dimension) const { return shape_.at(dimension); }
  /*! The number of dimensions. */
  std::size_t rank() const noexcept { return shape_.size(); }
  /*! The number of elements. */
  std::size_t numel() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * sizeof(T); }
  std::int32_t device() const noexcept { return tensor_.device.device_id; }

  /*! The description of the tensor, which is valid as long as the tensor is not moved, reshaped or destroyed. */
  DLTensor &dl() noexcept { return tensor_; }
  const DLTensor &dl() const noexcept { return tensor_; }
  operator DLTensor &() & noexcept { return tensor_; }
  operator const DLTensor &() const & noexcept { return tensor_; }

  /*! Copies all elements from host memory in the device's current stream, and waits. */
  void copy_from(const T *host) { plinth::copy(data(), host, bytes()); }
  /*! Copies all elements to host memory in the device's current stream, and waits. */
  void copy_to(T *host) const { plinth::copy(host, data(), bytes()); }
  /*! Returns a copy of the elements in host memory. Use copy_to for bool, because a std::vector<bool> has no array. */
  std::vector<T> to_host() const {
    static_assert(!std::is_same<T, bool>::value, "use copy_to");
    std::vector<T> host(count_);
    copy_to(host.data());
    return host;
  }
  /*! Sets all elements to a value of 1, 2 or 4 bytes. */
  void fill(const T &value, StreamView stream = StreamView::current()) {
    if (count_ > 0) plinth::fill(data(), value, count_, stream);
  }
  /*! Returns a copy on the same device, made in the stream. */
  Tensor clone(StreamView stream = StreamView::current()) const {
    Tensor made(shape_, device(), stream);
    if (count_ > 0) plinth::memcpy(made.data(), data(), bytes(), stream);
    return made;
  }
  /*! Changes the shape. Throws std::invalid_argument if it has another number of elements. */
  void reshape(Sizes shape) {
    if (count(shape) != count_) {
      throw std::invalid_argument("plinth::Tensor::reshape: the shape has another number of elements");
    }
    shape_ = std::move(shape);
    describe(device());
  }
  /*! Records that work in another stream uses the memory. */
  void record_stream(StreamView stream) { buffer_.record_stream(stream); }

 private:
  static std::size_t count(const Sizes &shape) { return detail::checked_count(shape.data(), shape.size(), sizeof(T)); }
  void describe(std::int32_t device) noexcept {
    tensor_.data = buffer_.get();
    tensor_.device = detail::on_device(device);
    tensor_.ndim = static_cast<std::int32_t>(shape_.size());
    tensor_.dtype = data_type<T>();
    tensor_.shape = shape_.data();
  }

  Sizes shape_;
  std::size_t count_ = 0;
  DeviceBuffer buffer_;
  DLTensor tensor_{};
};

}  // namespace plinth

#endif

#endif /* PLINTH_TENSOR_HPP */
