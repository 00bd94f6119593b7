// plinth_comm.hpp: torch.cuda.comm over containers of tensors.
//
// env: PLINTH_HOST_DEVICES=4
// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: all; leaves memory

#include "support.h"

#include <plinth.hpp>

#include <array>
#include <vector>

namespace {

// A one-dimensional tensor of floats on a device; with count 0, an output that the library allocates.
struct Row {
  explicit Row(std::int32_t device, std::int64_t count = 0) : shape{count} {
    tensor.device = {kDLCUDA, device};
    tensor.ndim = 1;
    tensor.dtype = {2, 32, 1};
    tensor.shape = shape.data();
    if (count > 0) {
      CHECK_OK(plinth_caching_allocator_alloc(static_cast<std::size_t>(count) * 4, device, nullptr, &tensor.data));
    }
  }

  static constexpr auto kDLCUDA = static_cast<decltype(DLDevice::device_type)>(2);
  std::array<std::int64_t, 1> shape;
  DLTensor tensor{};
};

std::vector<float> read(const DLTensor &tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape[0]));
  for (std::int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  fetch(values.data(), tensor.data, values.size() * 4);
  return values;
}

}  // namespace

TEST(scatter_gather_reduce_and_broadcast) {
  const std::int32_t last = device_count() - 1;
  Row source(0, 6), first(last), second(0), sum(0), whole(last);
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  put(source.tensor.data, values.data(), 24);
  std::vector<DLTensor> parts{first.tensor, second.tensor};
  plinth::comm::scatter(source.tensor, parts, std::array<std::int64_t, 2>{4, 2});
  CHECK(read(parts[0]) == std::vector<float>({1, 2, 3, 4}));
  CHECK(read(parts[1]) == std::vector<float>({5, 6}));
  CHECK_SAME(parts[1].data, static_cast<float *>(source.tensor.data) + 4);
  plinth::comm::gather(parts, whole.tensor);
  CHECK(read(whole.tensor) == values);
  const std::array<DLTensor, 2> both{source.tensor, whole.tensor};
  plinth::comm::reduce_add(both, sum.tensor);
  CHECK(read(sum.tensor) == std::vector<float>({2, 4, 6, 8, 10, 12}));
  std::vector<DLTensor> copies{Row(0).tensor, Row(last, 6).tensor};
  std::array<std::int64_t, 1> shape{};
  copies[0].shape = shape.data();
  copies[1].shape = whole.shape.data();
  plinth::comm::broadcast(sum.tensor, copies);
  CHECK_SAME(copies[0].data, sum.tensor.data);
  CHECK(read(copies[1]) == read(sum.tensor));
}

TEST(coalesced_collectives) {
  const std::int32_t last = device_count() - 1;
  const std::array<std::int32_t, 2> devices{0, last};
  const std::vector<float> values{1, 2, 3};
  Row one(0, 3), two(0, 2);
  put(one.tensor.data, values.data(), 12);
  put(two.tensor.data, values.data(), 8);
  const std::vector<DLTensor> tensors{one.tensor, two.tensor};
  std::array<Row, 4> rows{Row(0), Row(0), Row(last), Row(last)};
  std::vector<DLTensor> outputs;
  for (Row &row : rows) {
    outputs.push_back(row.tensor);
    outputs.back().shape = row.shape.data();
  }
  plinth::comm::broadcast_coalesced(tensors, devices, outputs);
  CHECK(read(outputs[2]) == values);
  std::array<Row, 2> made{Row(0), Row(0)};
  std::vector<DLTensor> sums{made[0].tensor, made[1].tensor};
  sums[0].shape = made[0].shape.data();
  sums[1].shape = made[1].shape.data();
  plinth::comm::reduce_add_coalesced(outputs, sums);
  CHECK(read(sums[0]) == std::vector<float>({2, 4, 6}));
  CHECK(read(sums[1]) == std::vector<float>({2, 4}));
}

TEST(invalid_arguments_throw) {
  Row source(0, 6);
  std::vector<DLTensor> none;
  int caught = 0;
  try {
    plinth::comm::scatter(source.tensor, none);
  } catch (const plinth::Error &error) {
    caught += error.status() == PLINTH_ERROR_INVALID_VALUE;
  }
  try {
    const std::vector<DLTensor> three(3, source.tensor);
    std::vector<DLTensor> two(2, source.tensor);
    plinth::comm::reduce_add_coalesced(three, two);
  } catch (const std::invalid_argument &) {
    caught++;
  }
  CHECK_EQ(caught, 2);
}

TEST(reduction_order_and_thresholds_can_be_set) {
  CHECK(plinth::comm::reduction_order() == plinth::comm::Order::list);
  plinth::comm::set_reduction_order(plinth::comm::Order::torch);
  CHECK(plinth::comm::reduction_order() == plinth::comm::Order::torch);
  plinth::comm::set_threshold(plinth::comm::Threshold::copy_engine, 12345);
  CHECK_EQ(plinth::comm::threshold(plinth::comm::Threshold::copy_engine), 12345);
  CHECK(plinth::comm::threshold(plinth::comm::Threshold::reduce_split) != 12345);
}
