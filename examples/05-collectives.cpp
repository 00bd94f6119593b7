// Collectives: over tensors of several devices, by one thread; and between ranks with a common unique id, which are
// threads here, and processes or machines in other programs.
//
//   g++ -std=c++17 05-collectives.cpp -lplinth -lpthread && PLINTH_DEVICE=host ./a.out
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#include <plinth.hpp>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace {

// Three numbers on a device.
struct Numbers {
  Numbers(std::int32_t device, const std::vector<float> &values)
      : memory(12, plinth::StreamView(), device), view(plinth::tensor_view(memory.as<float>(), shape, device)) {
    plinth::copy(memory.get(), values.data(), 12);
  }
  Numbers(const Numbers &) = delete;

  void print(const char *what) const {
    float values[3];
    plinth::copy(values, memory.get(), sizeof values);
    std::printf("%s %g %g %g\n", what, static_cast<double>(values[0]), static_cast<double>(values[1]),
                static_cast<double>(values[2]));
  }

  plinth::DeviceBuffer memory;
  plinth::Shape<1> shape{3};
  DLTensor view;
};

// 1. One thread has tensors on all devices; a call takes all of them.
void run_over_devices(std::int32_t devices) {
  std::vector<std::unique_ptr<Numbers>> parts;
  std::vector<DLTensor> views;
  for (std::int32_t device = 0; device < devices; device++) {
    const float number = static_cast<float>(device + 1);
    parts.push_back(std::make_unique<Numbers>(device, std::vector<float>{number, 10 * number, 100 * number}));
    views.push_back(parts.back()->view);
  }
  Numbers sum(0, {0, 0, 0});
  plinth::comm::reduce_add(views, sum.view);
  sum.print("sum over all devices:                  ");
  plinth::nccl::all_reduce(views, plinth::ReduceOp::max);
  parts[0]->print("maximum over all devices, on device 0: ");
  plinth::nccl::broadcast(views, devices - 1);
}

// 2. Each rank calls for itself, and the calls of all ranks form one operation. Only `wait` and `synchronize` block.
void run_rank(std::int32_t rank, std::int32_t ranks, const plinth::UniqueId &id) {
  plinth::CommunicatorOptions options;
  options.timeout = std::chrono::seconds(20);  // for ranks that do not join
  const plinth::Communicator all = plinth::Communicator::init_rank(ranks, id, rank, rank, options);
  const plinth::Stream stream(rank);
  const float number = static_cast<float>(rank + 1);
  Numbers mine(rank, {number, 1, number * number});
  all.all_reduce(mine.view, mine.view, plinth::ReduceOp::sum, stream);
  all.wait(stream);
  if (rank == 0) mine.print("sum over all ranks:                    ");

  // Ranks of the same color form a communicator: here the even ones and the odd ones.
  const plinth::Communicator half = all.split(rank % 2, rank);
  Numbers other(rank, {number, number, number});
  half.all_reduce(other.view, other.view, plinth::ReduceOp::average, stream);
  half.wait(stream);
  if (rank == 0) other.print("mean over the even ranks:              ");

  // A ring exchange: the group makes the send and the receive concurrent, so that the ranks do not deadlock.
  Numbers from(rank, {0, 0, 0});
  plinth::CommunicatorGroup group;
  all.send(mine.view, (rank + 1) % ranks, stream);
  all.recv(from.view, (rank + ranks - 1) % ranks, stream);
  group.end();
  all.wait(stream);
  if (rank == 0) from.print("received by rank 0 from the last rank: ");
}

void run_between_ranks(std::int32_t ranks) {
  // One rank creates the id, and the others receive it through any channel, for example a plinth::Store.
  const plinth::UniqueId id = plinth::nccl::unique_id();
  std::vector<std::thread> threads;
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(ranks));
  for (std::int32_t rank = 0; rank < ranks; rank++) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(rank, ranks, id);
      } catch (...) {
        failures[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread &thread : threads) thread.join();
  for (const std::exception_ptr &failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

int main() try {
  const std::int32_t devices = plinth::device_count();
  std::printf("%d devices\n", static_cast<int>(devices));
  run_over_devices(devices);
  run_between_ranks(devices);
  return 0;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
