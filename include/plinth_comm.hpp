/*!
 * @file plinth_comm.hpp
 * @brief Collectives over the devices of this process in C++17. plinth.hpp includes it.
 *
 * A list of tensors is any contiguous container of DLTensors: a std::vector, a std::array, an array. Outputs whose data
 * is NULL are allocated; plinth_comm_broadcast documents which fields must be set.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLINTH_COMM_HPP
#define PLINTH_COMM_HPP

#include "plinth_core.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>

#if __cplusplus >= 201703L /* plinth_error.hpp has the error */

namespace plinth {

/*! The functions of torch.cuda.comm. */
namespace comm {

/*! The buffer size of torch. It has no effect here: tensors are sent from where they are. */
constexpr std::size_t kBufferSize = 10485760;

namespace detail {

/*! The number of lists of length `each` in a concatenation of `all` elements. */
inline std::size_t lists(std::size_t all, std::size_t each) {
  if (each == 0 || all % each != 0) {
    throw std::invalid_argument("plinth::comm: the lists of tensors must have the same length");
  }
  return all / each;
}

}  // namespace detail

/*! The order in which inputs are summed. */
enum class Order : std::int32_t { list = PLINTH_COMM_ORDER_LIST, torch = PLINTH_COMM_ORDER_TORCH };

inline void set_reduction_order(Order order) {
  check(plinth_comm_set_reduction_order(static_cast<std::int32_t>(order)));
}
inline Order reduction_order() {
  return static_cast<Order>(plinth::detail::output<std::int32_t>(plinth_comm_get_reduction_order));
}

/*! A tensor size at which collectives switch to another algorithm. */
enum class Threshold : std::int32_t {
  broadcast_split = PLINTH_COMM_BROADCAST_SPLIT,
  reduce_split = PLINTH_COMM_REDUCE_SPLIT,
  exchange_split = PLINTH_COMM_EXCHANGE_SPLIT,
  copy_engine = PLINTH_COMM_COPY_ENGINE
};

inline void set_threshold(Threshold which, std::size_t bytes) {
  check(plinth_comm_set_threshold(static_cast<std::int32_t>(which), bytes));
}
inline std::size_t threshold(Threshold which) {
  return plinth::detail::output<std::size_t>(
      [&](std::size_t *out) { return plinth_comm_get_threshold(static_cast<std::int32_t>(which), out); });
}

/*! Copies a tensor to the outputs. */
template <class Outputs>
void broadcast(const DLTensor &tensor, Outputs &outputs) {
  check(plinth_comm_broadcast(&tensor, std::data(outputs), std::size(outputs)));
}

/*! Broadcasts tensors of the first device to all devices: outputs[d * tensors.size() + t] is tensor t on device d. */
template <class Tensors, class Devices, class Outputs>
void broadcast_coalesced(const Tensors &tensors, const Devices &devices, Outputs &outputs,
                         std::size_t buffer_size = kBufferSize) {
  if (std::size(outputs) != std::size(tensors) * std::size(devices)) {
    throw std::invalid_argument("plinth::comm::broadcast_coalesced: pass one output for each tensor on each device");
  }
  check(plinth_comm_broadcast_coalesced(std::data(tensors), std::size(tensors), std::data(devices), std::size(devices),
                                        buffer_size, std::data(outputs)));
}

/*! Sums tensors into the output. */
template <class Inputs>
void reduce_add(const Inputs &inputs, DLTensor &output) {
  check(plinth_comm_reduce_add(std::data(inputs), std::size(inputs), &output));
}

/*! Sums lists of tensors: inputs[d * outputs.size() + t] is tensor t of device d. */
template <class Inputs, class Outputs>
void reduce_add_coalesced(const Inputs &inputs, Outputs &outputs, std::size_t buffer_size = kBufferSize) {
  const std::size_t devices = detail::lists(std::size(inputs), std::size(outputs));
  check(plinth_comm_reduce_add_coalesced(std::data(inputs), std::size(outputs), devices, buffer_size,
                                         std::data(outputs)));
}

/*! Splits a tensor along a dimension: into chunks of equal size, or by the outputs' shapes. */
template <class Outputs>
void scatter(const DLTensor &tensor, Outputs &outputs, std::int32_t dim = 0) {
  check(plinth_comm_scatter(&tensor, std::data(outputs), std::size(outputs), nullptr, dim, nullptr));
}

/*! Splits a tensor into chunks of the given sizes. */
template <class Outputs, class Sizes>
void scatter(const DLTensor &tensor, Outputs &outputs, const Sizes &chunk_sizes, std::int32_t dim = 0) {
  if (std::size(chunk_sizes) != std::size(outputs)) {
    throw std::invalid_argument("plinth::comm::scatter: pass one size for each output");
  }
  check(plinth_comm_scatter(&tensor, std::data(outputs), std::size(outputs), std::data(chunk_sizes), dim, nullptr));
}

/*! Concatenates tensors along a dimension. */
template <class Inputs>
void gather(const Inputs &inputs, DLTensor &output, std::int32_t dim = 0) {
  check(plinth_comm_gather(std::data(inputs), std::size(inputs), dim, &output));
}

}  // namespace comm

}  // namespace plinth

#endif

#endif /* PLINTH_COMM_HPP */
