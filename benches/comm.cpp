// Measures collectives over the devices of one process: the time from a call to the completion on all devices, and the
// CPU time of the call. SPDX-License-Identifier: MIT OR Apache-2.0
//
//     benches/comm [--largest BYTES] [--split] [--graph]
//
// Prints one line for each case: operation, bytes, median and minimum of the microseconds to completion, median of the
// microseconds of the call. With --split each operation that has a threshold is measured both below and above it. With
// --graph, the first device captures graphs of 20 calls, and the times are divided by 20: how long its kernels take.

#include "measure.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace {

std::int32_t devices = 0;
bool uses_graph = false;

void finish() {
  for (std::int32_t device = 0; device < devices; ++device) MUST(plinth_synchronize(device));
}

struct Floats {
  explicit Floats(std::int32_t device, std::int64_t count) : shape(new std::int64_t[1]{count}) {
    tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(2);
    tensor.device.device_id = device;
    tensor.dtype.code = 2;
    tensor.dtype.bits = 32;
    tensor.dtype.lanes = 1;
    tensor.ndim = 1;
    tensor.shape = shape;
    plinth_stream_t stream = nullptr;
    MUST(plinth_current_stream(device, &stream));
    MUST(plinth_caching_allocator_alloc(static_cast<std::size_t>(count) * 4, device, stream, &tensor.data));
    MUST(plinth_set_device(device));
    MUST(plinth_memset(tensor.data, 0, static_cast<std::size_t>(count) * 4, stream));
    MUST(plinth_set_device(0));
  }

  std::int64_t *shape;
  DLTensor tensor{};
};

// Tensors that are freed after all work on them completed.
class Tensors {
 public:
  DLTensor &add(std::int32_t device, std::int64_t count) {
    Floats floats(device, count);
    shapes_.push_back(floats.shape);
    list.push_back(floats.tensor);
    return list.back();
  }

  ~Tensors() {
    finish();
    for (DLTensor &tensor : list) MUST(plinth_caching_allocator_delete(tensor.data));
    for (std::int64_t *shape : shapes_) delete[] shape;
  }

  std::vector<DLTensor> list;

 private:
  std::vector<std::int64_t *> shapes_;
};

constexpr int kCallsInGraph = 20;

// Prints the time of each of `calls` that `call` makes.
template <class Call>
void measure_calls(const std::string &name, std::size_t bytes, int calls, Call call) {
  const int rounds = bytes >= (std::size_t{64} << 20) ? 10 : 100;
  std::vector<double> whole, issued;
  for (int round = -5; round < rounds; ++round) {
    finish();
    const double begin = now_ns();
    call();
    const double returned = now_ns();
    finish();
    if (round < 0) continue;
    whole.push_back((now_ns() - begin) / 1e3 / calls);
    issued.push_back((returned - begin) / 1e3 / calls);
  }
  std::sort(whole.begin(), whole.end());
  std::sort(issued.begin(), issued.end());
  std::printf("%s %zu %.2f %.2f %.2f\n", name.c_str(), bytes, whole[whole.size() / 2], whole.front(),
              issued[issued.size() / 2]);
  std::fflush(stdout);
}

template <class Call>
void measure(const std::string &name, std::size_t bytes, Call call) {
  if (uses_graph) {
    plinth_graph_t graph = nullptr;
    MUST(plinth_graph_create(&graph));
    MUST(plinth_graph_capture_begin(graph, nullptr, PLINTH_CAPTURE_THREAD_LOCAL));
    for (int index = 0; index < kCallsInGraph; ++index) call();
    MUST(plinth_graph_capture_end(graph));
    measure_calls(name, bytes, kCallsInGraph, [&] { MUST(plinth_graph_replay(graph)); });
    MUST(plinth_graph_destroy(graph));
  } else {
    measure_calls(name, bytes, 1, call);
  }
}

// With `split`, measures the message both divided among the devices and whole; otherwise with the default threshold.
template <class Call>
void measure_split(const std::string &name, std::size_t bytes, std::int32_t which, bool split, Call call) {
  if (!split) return measure(name, bytes, call);
  std::size_t before = 0;
  MUST(plinth_comm_get_threshold(which, &before));
  MUST(plinth_comm_set_threshold(which, 1));
  measure(name + "/shared", bytes, call);
  MUST(plinth_comm_set_threshold(which, SIZE_MAX));
  measure(name + "/alone", bytes, call);
  MUST(plinth_comm_set_threshold(which, before));
}

void measure_size(std::size_t bytes, bool split) {
  const std::int64_t count = static_cast<std::int64_t>(bytes / 4);
  const std::size_t others = static_cast<std::size_t>(devices) - 1;
  {
    Tensors copies;
    for (std::int32_t device = 0; device < devices; ++device) copies.add(device, count);
    DLTensor &source = copies.list[0];
    measure_split("broadcast", bytes, PLINTH_COMM_BROADCAST_SPLIT, split,
                  [&] { MUST(plinth_comm_broadcast(&source, &copies.list[1], others)); });
    Tensors sum;
    DLTensor &out = sum.add(0, count);
    measure_split("reduce_add", bytes, PLINTH_COMM_REDUCE_SPLIT, split,
                  [&] { MUST(plinth_comm_reduce_add(copies.list.data(), copies.list.size(), &out)); });
  }
  {
    // `bytes` is the size of the whole tensor; each input of gather, and each output of scatter, is a part of it.
    Tensors whole, parts;
    const std::int64_t part = (count + devices - 1) / devices;
    DLTensor &all = whole.add(0, part * devices);
    for (std::int32_t device = 0; device < devices; ++device) parts.add(device, part);
    measure_split("gather", bytes, PLINTH_COMM_COPY_ENGINE, split,
                  [&] { MUST(plinth_comm_gather(parts.list.data(), parts.list.size(), 0, &all)); });
    measure_split("scatter", bytes, PLINTH_COMM_COPY_ENGINE, split,
                  [&] { MUST(plinth_comm_scatter(&all, parts.list.data(), parts.list.size(), nullptr, 0, nullptr)); });
  }
}

// Measures the driver's own minimum: waiting for idle devices, a kernel on one device, and a kernel that is ordered after
// the earlier and before the later work of the streams of all devices, with the fewest calls possible.
void measure_floor() {
  unsigned (*create)(void **, unsigned) = nullptr;
  unsigned (*destroy)(void *) = nullptr;
  unsigned (*record)(void *, void *) = nullptr;
  unsigned (*wait)(void *, void *, unsigned) = nullptr;
  ENTRY(create, "cuEventCreate");
  ENTRY(destroy, "cuEventDestroy");
  ENTRY(record, "cuEventRecord");
  ENTRY(wait, "cuStreamWaitEvent");
  std::vector<plinth_stream_t> streams(static_cast<std::size_t>(devices));
  std::vector<void *> events(streams.size());
  for (std::int32_t device = 0; device < devices; ++device) {
    MUST(plinth_set_device(device));
    MUST(plinth_current_stream(device, &streams[static_cast<std::size_t>(device)]));
    DRIVER(create(&events[static_cast<std::size_t>(device)], 2));
  }
  MUST(plinth_set_device(0));
  measure("driver/idle", 0, [] {});
  measure("driver/kernel", 0, [&] { MUST(plinth_sleep(1, streams[0])); });
  measure("driver/ordered_kernel", 0, [&] {
    for (std::size_t other = 1; other < streams.size(); ++other) {
      MUST(plinth_set_device(static_cast<std::int32_t>(other)));
      DRIVER(record(events[other], streams[other]));
      MUST(plinth_set_device(0));
      DRIVER(wait(streams[0], events[other], 0));
    }
    MUST(plinth_sleep(1, streams[0]));
    DRIVER(record(events[0], streams[0]));
    for (std::size_t other = 1; other < streams.size(); ++other) {
      MUST(plinth_set_device(static_cast<std::int32_t>(other)));
      DRIVER(wait(streams[other], events[0], 0));
    }
    MUST(plinth_set_device(0));
  });
  finish();
  for (void *event : events) DRIVER(destroy(event));
}

// Returns element counts like those of a model's parameters: many small ones, some large.
std::vector<std::int64_t> parameter_counts(std::size_t tensors, std::size_t bytes) {
  std::vector<std::int64_t> counts(tensors, 256);
  const std::size_t large = tensors / 4;
  for (std::size_t index = 0; index < large; ++index) {
    counts[index * 4] = static_cast<std::int64_t>((bytes - (tensors - large) * 1024) / 4 / large);
  }
  return counts;
}

void measure_coalesced() {
  std::vector<std::int32_t> numbers;
  for (std::int32_t device = 0; device < devices; ++device) numbers.push_back(device);
  {
    const std::size_t bytes = 85000000;
    Tensors all;
    for (std::int32_t device = 0; device < devices; ++device) {
      for (const std::int64_t count : parameter_counts(254, bytes)) all.add(device, count);
    }
    measure("broadcast_coalesced", bytes, [&] {
      MUST(plinth_comm_broadcast_coalesced(all.list.data(), 254, numbers.data(), numbers.size(), 10485760,
                                           all.list.data()));
    });
  }
  const std::size_t bytes = 21000000;
  Tensors all, sums;
  for (std::int32_t device = 0; device < devices; ++device) {
    for (const std::int64_t count : parameter_counts(250, bytes)) all.add(device, count);
  }
  for (const std::int64_t count : parameter_counts(250, bytes)) sums.add(0, count);
  measure("reduce_add_coalesced", bytes, [&] {
    MUST(plinth_comm_reduce_add_coalesced(all.list.data(), 250, numbers.size(), 10485760, sums.list.data()));
  });
}

}  // namespace

int main(int argc, char **argv) {
  std::size_t largest = std::size_t{1} << 30;
  bool split = false;
  for (int index = 1; index < argc; ++index) {
    if (std::string(argv[index]) == "--split") {
      split = true;
    } else if (std::string(argv[index]) == "--graph") {
      uses_graph = true;
    } else if (std::string(argv[index]) == "--largest" && index + 1 < argc) {
      largest = std::strtoull(argv[++index], nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: %s [--largest BYTES] [--split] [--graph]\n", argv[0]);
      return 2;
    }
  }
  MUST(plinth_device_count(&devices));
  if (devices < 2) {
    std::fprintf(stderr, "needs two devices\n");
    return 77;
  }
  std::printf("# %d devices: operation, bytes, median us to completion, minimum, median us of the call\n", devices);
  if (uses_graph) {
    plinth_stream_t stream = nullptr;
    MUST(plinth_stream_create(0, 0, &stream));
    MUST(plinth_set_stream(stream));
  } else {
    measure_floor();
  }
  for (std::size_t bytes = 1024; bytes <= largest; bytes *= 4) measure_size(bytes, split);
  if (!split) measure_coalesced();
  return 0;
}
