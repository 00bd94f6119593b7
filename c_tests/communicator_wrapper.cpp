// plinth_communicator.hpp: ranks, their collectives over tensors, stores, and torch.cuda.nccl.
//
// env: PLINTH_HOST_DEVICES=4
// library: fake_nccl
// SPDX-License-Identifier: MIT OR Apache-2.0

#include "ranks.h"

#include "wrapping.h"

#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

using std::chrono::milliseconds;

static_assert(owns<plinth::Communicator>() && owns<plinth::Store>(), "a communicator and a store");
static_assert(is_block<plinth::CommunicatorGroup>(), "a block");
static_assert(std::is_nothrow_default_constructible<plinth::Communicator>::value, "no communicator");

using Numbers = std::vector<float>;

// Two ranks of this process, a device each.
static std::vector<plinth::Communicator> two_ranks() {
  need_devices(2);
  plinth::CommunicatorOptions options;
  options.timeout = milliseconds(20000);
  options.engine = plinth::Engine::local;
  return plinth::Communicator::init_all({0, 1}, options);
}

// Runs a call of both ranks in a group, from one thread.
template <class Work>
static void in_group(Work &&work) {
  plinth::CommunicatorGroup group;
  work(0);
  work(1);
  group.end();
}

TEST(communicators_have_rank_size_device_and_engine) {
  std::vector<plinth::Communicator> all = two_ranks();
  CHECK_EQ(all.size(), 2);
  for (std::int32_t rank = 0; rank < 2; rank++) {
    const plinth::Communicator &one = all[static_cast<std::size_t>(rank)];
    CHECK(one && one.rank() == rank && one.size() == 2 && one.device() == rank);
    CHECK(one.engine() == plinth::Engine::local);
    CHECK(one.query());
  }
  const plinth_communicator_t handle = all[0].get();
  plinth::Communicator moved(std::move(all[0]));
  CHECK(!all[0] && moved.get() == handle);
  move_to_itself(moved);
  CHECK(moved.get() == handle);
  plinth::Communicator adopted = plinth::Communicator::adopt(moved.release());
  CHECK(!moved && adopted.rank() == 0);
  adopted.destroy();
  CHECK(!adopted);
  CHECK_STATUS(plinth_communicator_destroy(handle), PLINTH_ERROR_INVALID_HANDLE);
  THROWS(moved.rank(), PLINTH_ERROR_NULL_POINTER);
  THROWS(plinth::Communicator::init_all({0, 0}), PLINTH_ERROR_INVALID_VALUE);
  THROWS_TYPE(all[1].set_timeout(milliseconds(-1)), std::invalid_argument);
}

TEST(communicators_sleep_and_wake) {
  need_devices(2);
  plinth::CommunicatorOptions options;
  options.timeout = milliseconds(20000);
  options.engine = plinth::Engine::shared;
  plinth::UniqueId id{};
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "shared");
  CHECK_OK(plinth_nccl_unique_id(id.data()));
  const auto rank = [&](std::int32_t number) {
    plinth::Communicator one = plinth::Communicator::init_rank(2, id, number, number, options);
    Row<float> row({1, 2, 3, 4}, number), sum({0, 0, 0, 0}, number);
    one.sleep();
    THROWS(one.all_reduce(row.tensor, sum.tensor), PLINTH_ERROR_GRAPH_ASLEEP);
    one.wake();
    one.all_reduce(row.tensor, sum.tensor);
    one.wait();
    CHECK(sum.read() == Numbers({2, 4, 6, 8}));
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  THROWS(plinth::Communicator().sleep(), PLINTH_ERROR_NULL_POINTER);
}

TEST(tensors_are_reduced_and_gathered) {
  const std::vector<plinth::Communicator> all = two_ranks();
  Row<float> first({1, 2, 3, 4}, 0), second({10, 20, 30, 40}, 1);
  Row<float> *const rows[] = {&first, &second};
  Row<float> sum({0, 0, 0, 0}, 0), other_sum({0, 0, 0, 0}, 1);
  Row<float> *const out[] = {&sum, &other_sum};
  in_group([&](std::size_t rank) { all[rank].all_reduce(rows[rank]->tensor, out[rank]->tensor); });
  CHECK(sum.read() == Numbers({11, 22, 33, 44}) && other_sum.read() == sum.read());
  in_group([&](std::size_t rank) {
    all[rank].all_reduce(rows[rank]->tensor, out[rank]->tensor, plinth::ReduceOp::max);
  });
  CHECK(sum.read() == Numbers({10, 20, 30, 40}));
  // Only the root uses the output.
  in_group([&](std::size_t rank) {
    all[rank].reduce(rows[rank]->tensor, rank == 1 ? out[1]->tensor : DLTensor{}, 1, plinth::ReduceOp::product);
  });
  CHECK(other_sum.read() == Numbers({10, 40, 90, 160}) && sum.read() == Numbers({10, 20, 30, 40}));
  in_group([&](std::size_t rank) { all[rank].broadcast(out[rank]->tensor, 1); });
  CHECK(sum.read() == other_sum.read());

  Row<float> wide(Numbers(8, 0), 0), other_wide(Numbers(8, 0), 1);
  Row<float> *const wides[] = {&wide, &other_wide};
  in_group([&](std::size_t rank) { all[rank].all_gather(rows[rank]->tensor, wides[rank]->tensor); });
  CHECK(other_wide.read() == Numbers({1, 2, 3, 4, 10, 20, 30, 40}) && wide.read() == other_wide.read());
  in_group([&](std::size_t rank) { all[rank].reduce_scatter(wides[rank]->tensor, out[rank]->tensor); });
  CHECK(sum.read() == Numbers({2, 4, 6, 8}) && other_sum.read() == Numbers({20, 40, 60, 80}));
  in_group([&](std::size_t rank) { all[rank].all_to_all(rows[rank]->tensor, out[rank]->tensor); });
  CHECK(sum.read() == Numbers({1, 2, 10, 20}) && other_sum.read() == Numbers({3, 4, 30, 40}));
  in_group([&](std::size_t rank) {
    const std::int32_t peer = rank == 0 ? 1 : 0;
    all[rank].send(rows[rank]->tensor, peer);
    all[rank].recv(out[rank]->tensor, peer);
  });
  CHECK(sum.read() == second.read() && other_sum.read() == first.read());
}

TEST(mismatched_tensors_throw) {
  const std::vector<plinth::Communicator> all = two_ranks();
  Row<float> four({1, 2, 3, 4}, 0), three({1, 2, 3}, 0);
  Row<std::int32_t> whole({1, 2, 3, 4}, 0);
  THROWS_TYPE(all[0].all_reduce(four.tensor, three.tensor), std::invalid_argument);
  THROWS_TYPE(all[0].all_reduce(four.tensor, whole.tensor), std::invalid_argument);
  THROWS_TYPE(all[0].all_gather(three.tensor, four.tensor), std::invalid_argument);
  THROWS_TYPE(all[0].all_to_all(three.tensor, three.tensor), std::invalid_argument);
  std::int64_t apart[] = {2};
  DLTensor sparse = three.tensor;
  sparse.strides = apart;
  THROWS_TYPE(all[0].send(sparse, 1), std::invalid_argument);
  std::int64_t negative[] = {-1, -2}, huge[] = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  for (std::int64_t *const shape : {negative, huge}) {
    DLTensor wrong = three.tensor;
    wrong.ndim = 2;
    wrong.shape = shape;
    THROWS_TYPE(all[0].all_reduce(wrong, wrong), std::invalid_argument);
  }
  const plinth::Stream elsewhere(1);
  THROWS(all[0].all_reduce(four.tensor, four.tensor, plinth::ReduceOp::sum, elsewhere), PLINTH_ERROR_DEVICE_MISMATCH);
}

TEST(an_exception_discards_the_group) {
  const std::vector<plinth::Communicator> all = two_ranks();
  Row<float> first({1, 2}, 0), second({3, 4}, 1);
  plinth::Communicator part;
  try {
    const plinth::CommunicatorGroup group;
    all[0].all_reduce(first.tensor, first.tensor);
    all[1].all_reduce(second.tensor, second.tensor);
    all[0].split(0, 0, part);
    throw 1;
  } catch (int) {
  }
  CHECK(first.read() == Numbers({1, 2}) && second.read() == Numbers({3, 4}) && !part);
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  THROWS(([] {
           plinth::CommunicatorGroup outer, group;
           group.end();
           group.end();
         }()),
         PLINTH_ERROR_INVALID_VALUE);
}

TEST(a_split_in_a_group_needs_a_place_that_stays) {
  const std::vector<plinth::Communicator> all = two_ranks();
  const plinth::CommunicatorGroup group;
  THROWS_TYPE(all[0].split(0), std::logic_error);
  THROWS_TYPE(all[0].shrink({1}), std::logic_error);
}

TEST(ranks_in_threads_are_initialized_and_split) {
  need_devices(2);
  // The other engines need NCCL.
  std::atomic<int> arrived(0);
  const plinth::UniqueId id = plinth::nccl::unique_id();
  const auto work = [&](std::int32_t rank) {
    plinth::CommunicatorOptions options;
    options.timeout = milliseconds(20000);
    options.engine = on_host_device() ? plinth::Engine::shared : plinth::Engine::automatic;
    plinth::Communicator communicator = plinth::Communicator::init_rank(2, id, rank, rank, options);
    CHECK(communicator.rank() == rank && communicator.size() == 2);
    const plinth::Stream stream(rank);
    Row<std::int32_t> numbers({rank, 1, 2}, rank);
    communicator.all_reduce(numbers.tensor, numbers.tensor, plinth::ReduceOp::sum, stream);
    communicator.wait(stream, milliseconds(20000));
    CHECK(numbers.read() == std::vector<std::int32_t>({1, 2, 4}));
    if (communicator.engine() == plinth::Engine::shared) {
      void *block = nullptr;
      CHECK_OK(plinth_caching_allocator_alloc(1000, rank, nullptr, &block));
      communicator.register_memory(block, 1000);
      communicator.deregister_memory(block);
      CHECK_OK(plinth_caching_allocator_delete(block));
    }
    const plinth::Communicator alone = communicator.split(rank);
    CHECK(alone.size() == 1 && alone.rank() == 0);
    const plinth::Communicator maybe = communicator.split(rank == 0 ? 0 : -1);
    CHECK(static_cast<bool>(maybe) == (rank == 0));
    plinth::Communicator later;
    plinth::CommunicatorGroup group;
    communicator.split(0, -rank, later);
    group.end();
    CHECK(later && later.rank() == 1 - rank);
    THROWS_TYPE(communicator.split(0, 0, later), std::invalid_argument);
    const plinth::Communicator left = communicator.shrink({1 - rank});
    CHECK(left.size() == 1 && left.rank() == 0);
    plinth::Communicator last;
    // One rank's abort ends the other's calls.
    arrived++;
    while (arrived < 2) std::this_thread::yield();
    plinth::CommunicatorGroup shrinks;
    communicator.shrink(std::vector<std::int32_t>{1 - rank}, true, last);
    shrinks.end();
    CHECK(last && last.size() == 1);
    THROWS_TYPE(communicator.shrink(std::vector<std::int32_t>{1 - rank}, true, last), std::invalid_argument);
    THROWS(communicator.shrink({rank}), PLINTH_ERROR_INVALID_VALUE);
    THROWS(communicator.query(), PLINTH_ERROR_ABORTED);
  };
  std::thread other([&] { work(1); });
  work(0);
  other.join();
}

TEST(a_wait_times_out) {
  const std::vector<plinth::Communicator> all = two_ranks();
  const plinth::Stream stream(0);
  gate *const shut = gate_shut(stream.get());
  THROWS(all[0].wait(stream, milliseconds(30)), PLINTH_ERROR_TIMED_OUT);
  gate_open(shut);
  all[0].wait(stream, milliseconds(20000));
  all[0].abort();
  Row<float> row({1}, 0);
  THROWS(all[0].all_reduce(row.tensor, row.tensor), PLINTH_ERROR_ABORTED);
}

TEST(stores_keep_values_and_share_ids) {
  char folder[] = "/tmp/plinth-store-test-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  {
    plinth::Store store(folder);
    const std::string large(5000, 'x'), binary("a\0b", 3);
    store.set("large", large);
    store.set("binary", binary);
    store.set("empty", "");
    plinth::Store moved(std::move(store));
    CHECK(store.get() == nullptr);
    move_to_itself(moved);
    CHECK(moved.get("large") == large && moved.get("binary") == binary && moved.get("empty").empty());
    THROWS(moved.set("empty", "again"), PLINTH_ERROR_INVALID_VALUE);
    THROWS(moved.get("absent", milliseconds(30)), PLINTH_ERROR_TIMED_OUT);
    THROWS(moved.get(""), PLINTH_ERROR_INVALID_VALUE);
    THROWS(moved.barrier("alone", 2, milliseconds(30)), PLINTH_ERROR_TIMED_OUT);
    moved.barrier("one", 1);
    plinth::UniqueId theirs{};
    std::thread other([&] { theirs = plinth::Store(folder).unique_id("meeting", 1, 2, milliseconds(20000)); });
    const plinth::UniqueId ours = moved.unique_id("meeting", 0, 2, milliseconds(20000));
    other.join();
    CHECK(ours == theirs && ours != plinth::UniqueId{});
  }
  CHECK_EQ(system((std::string("rm -r ") + folder).c_str()), 0);
  THROWS(plinth::Store("http://x"), PLINTH_ERROR_INVALID_VALUE);
  THROWS(plinth::Store("tcp://127.0.0.1:0"), PLINTH_ERROR_NOT_SUPPORTED);
}

TEST(nccl_functions_take_lists_of_tensors) {
  need_devices(2);
  need_nccl();
  Row<float> first({1, 2}, 0), second({3, 4}, 1), whole(Numbers(4, 0), 0), other_whole(Numbers(4, 0), 1);
  const std::vector<DLTensor> inputs{first.tensor, second.tensor};
  const std::array<DLTensor, 2> wide{whole.tensor, other_whole.tensor};
  CHECK(plinth::nccl::is_available(inputs));
  CHECK(!plinth::nccl::is_available(std::array<DLTensor, 2>{first.tensor, first.tensor}));
  plinth::nccl::all_gather(inputs, wide);
  CHECK(other_whole.read() == Numbers({1, 2, 3, 4}));
  plinth::nccl::all_reduce(wide);
  CHECK(whole.read() == Numbers({2, 4, 6, 8}));
  plinth::nccl::reduce_scatter(wide, inputs, plinth::ReduceOp::max);
  CHECK(first.read() == Numbers({2, 4}) && second.read() == Numbers({6, 8}));
  plinth::nccl::reduce(inputs, second.tensor, 1);
  CHECK(second.read() == Numbers({8, 12}));
  plinth::nccl::broadcast(inputs, 1);
  CHECK(first.read() == Numbers({8, 12}));
  plinth::nccl::all_reduce(inputs, inputs, plinth::ReduceOp::min);
  THROWS_TYPE(plinth::nccl::all_gather(inputs, std::vector<DLTensor>{whole.tensor}), std::invalid_argument);
  if (plinth::nccl::is_available()) CHECK_EQ(plinth::nccl::version().major, 2);
  THROWS_TYPE(plinth::nccl::report(std::chrono::milliseconds(-1)), std::invalid_argument);
}
