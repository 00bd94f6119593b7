/* Tensors and streams that own what they stand for, out of memory as a type of its own, and exceptions of callbacks, in C++.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "wrapping.h"

#include <atomic>
#include <complex>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

using plinth::Tensor;

/* A 2-byte type of a program's own. */
struct own_half {
  std::uint16_t bits;
};
template <>
struct plinth::DataType<own_half> {
  static constexpr DLDataType value{2, 16, 1};
};

TEST(a_tensor_owns_its_memory_and_shape) {
  const std::size_t before = plinth::memory_allocated();
  {
    Tensor<float> tensor({3, 4});
    CHECK_EQ(tensor.numel(), 12);
    CHECK_EQ(tensor.bytes(), 48);
    CHECK_EQ(tensor.rank(), 2);
    CHECK_EQ(tensor.size(1), 4);
    CHECK_EQ(tensor.device(), 0);
    CHECK(plinth::memory_allocated() > before);
    const DLTensor &dl = tensor;
    CHECK(dl.data == tensor.data() && dl.ndim == 2 && dl.shape[0] == 3 && dl.strides == nullptr);
    CHECK(dl.dtype.code == 2 && dl.dtype.bits == 32 && dl.dtype.lanes == 1);
    Tensor<float> moved(std::move(tensor));
    CHECK(tensor.data() == nullptr);
    CHECK_EQ(moved.dl().shape[1], 4);
    tensor = std::move(moved);
    CHECK_EQ(tensor.numel(), 12);
    tensor = Tensor<float>({2});
    CHECK_EQ(tensor.dl().shape[0], 2);
  }
  CHECK_EQ(plinth::memory_allocated(), before);
  static_assert(!std::is_copy_constructible<Tensor<int>>::value, "copies are explicit");
  static_assert(std::is_nothrow_move_constructible<Tensor<int>>::value, "for containers");
}

TEST(elements_go_to_a_tensor_and_back) {
  auto tensor = Tensor<std::int32_t>::from_host({1, 2, 3, 4, 5, 6});
  tensor.reshape({2, 3});
  CHECK_EQ(tensor.size(0), 2);
  CHECK(tensor.to_host() == std::vector<std::int32_t>({1, 2, 3, 4, 5, 6}));
  const Tensor<std::int32_t> copy = tensor.clone();
  tensor.fill(7);
  plinth::synchronize();
  CHECK(copy.to_host() == std::vector<std::int32_t>({1, 2, 3, 4, 5, 6}));
  CHECK(tensor.to_host() == std::vector<std::int32_t>(6, 7));
  CHECK(Tensor<double>::zeros({5}).to_host() == std::vector<double>(5, 0.0));
  CHECK(Tensor<std::uint8_t>::full({2, 2}, 9).to_host() == std::vector<std::uint8_t>(4, 9));
  CHECK(Tensor<std::complex<float>>::zeros({2}).to_host()[1] == std::complex<float>());
  const bool flags[] = {true, false, true};
  bool back[3] = {};
  Tensor<bool>::from_host(flags, {3}).copy_to(back);
  CHECK(back[0] && !back[1] && back[2]);
  CHECK_EQ(Tensor<own_half>({4}).dl().dtype.bits, 16);
}

TEST(a_tensor_is_an_argument_of_every_function) {
  Tensor<float> numbers({1000});
  plinth::uniform(numbers, 1.0, 2.0);
  for (const float number : numbers.to_host()) {
    CHECK(number >= 1 && number < 2);
  }
}

TEST(tensors_may_be_empty_or_scalars) {
  Tensor<float> none;
  CHECK_EQ(none.numel(), 0);
  CHECK(none.to_host().empty());
  none.fill(1);
  Tensor<float> empty({3, 0, 2});
  CHECK(empty.data() == nullptr && empty.clone().numel() == 0);
  plinth::uniform(empty);
  auto scalar = Tensor<float>::full({}, 2.5f);
  CHECK(scalar.numel() == 1 && scalar.rank() == 0 && scalar.to_host()[0] == 2.5f);
}

TEST(wrong_shapes_are_refused) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  THROWS_TYPE(Tensor<float>({-1}), std::invalid_argument);
  THROWS_TYPE(Tensor<float>({0, -1}), std::invalid_argument);
  THROWS_TYPE(Tensor<float>({huge, 4}), std::invalid_argument);
  CHECK_EQ(Tensor<float>({huge, 4, 0}).numel(), 0);
  Tensor<float> tensor({6});
  THROWS_TYPE(tensor.reshape({5}), std::invalid_argument);
  CHECK_EQ(tensor.size(0), 6);
  THROWS_TYPE(Tensor<float>::from_host(std::vector<float>(3), {4}), std::invalid_argument);
  THROWS_TYPE(plinth::fill(tensor.data(), 1.0f, SIZE_MAX / sizeof(float) + 2), std::invalid_argument);
}

TEST(a_tensor_of_another_device_works_there) {
  need_devices(2);
  auto tensor = Tensor<std::int32_t>::full({1000}, 5, 1);
  CHECK_EQ(tensor.device(), 1);
  CHECK_EQ(tensor.clone().device(), 1);
  CHECK(tensor.to_host() == std::vector<std::int32_t>(1000, 5));
  CHECK(Tensor<float>::full({10}, 1, 1, plinth::StreamView()).to_host() == std::vector<float>(10, 1));
  CHECK_EQ(plinth::current_device(), 0);
}

TEST(a_dedicated_stream_ends_with_its_owner) {
  plinth_stream_t handle = nullptr;
  {
    plinth::DedicatedStream stream(0, -1);
    handle = stream.get();
    CHECK_EQ(stream.priority(), -1);
    plinth::DedicatedStream other(std::move(stream));
    CHECK(other.get() == handle && stream.get() == nullptr);
    Tensor<float> tensor({1000}, 0, other);
    tensor.fill(1.0f, other);
    other.synchronize();
  }
  THROWS(plinth::StreamView(handle).synchronize(), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(names_of_streams_are_views) {
  plinth::Stream stream(0);
  plinth::StreamGuard guard(stream);
  CHECK(plinth::StreamView::current().device() == 0);
  CHECK_EQ(plinth::StreamView::current().id(), stream.id());
  CHECK_EQ(plinth::StreamView::default_of(0).id(), 0);
  plinth::set_stream(0, plinth::StreamView());
  CHECK_EQ(plinth::StreamView::current().id(), 0);
}

TEST(out_of_memory_is_a_type) {
  THROWS_TYPE(plinth::DeviceBuffer(std::size_t(1) << 50), plinth::OutOfMemoryError);
  THROWS(plinth::DeviceBuffer(std::size_t(1) << 50), PLINTH_ERROR_OUT_OF_MEMORY);
}

struct own_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST(an_exception_of_a_callback_reaches_the_caller) {
  const std::size_t before = plinth::memory_allocated();
  plinth::FreeMemoryCallback callback([](std::int32_t, std::size_t) -> bool { throw own_error("cannot free"); });
  THROWS_TYPE(plinth::DeviceBuffer(std::size_t(1) << 50), own_error);
  /* It is thrown once; the next failure calls the callback again. */
  plinth::synchronize();
  THROWS_TYPE(plinth::DeviceBuffer(std::size_t(1) << 50), own_error);
  CHECK_EQ(plinth::memory_allocated(), before);
}

TEST(an_exception_stays_in_its_thread) {
  plinth::OutOfMemoryObserver observer(
      [](std::int32_t, std::size_t, std::size_t, std::size_t) { throw own_error("observed"); });
  void *memory = nullptr;
  /* The C function itself reports its status only. */
  CHECK_STATUS(plinth_caching_allocator_alloc(std::size_t(1) << 50, 0, nullptr, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  std::thread([] { plinth::synchronize(); }).join();
  THROWS_TYPE(plinth::synchronize(), own_error);
  plinth::synchronize();
}

TEST(an_exception_of_a_host_function_reaches_the_thread_that_enqueued_it) {
  plinth::Stream stream(0);
  stream.launch([] { throw own_error("in the stream"); });
  THROWS_TYPE(stream.synchronize(), own_error);
  stream.synchronize();
}

/* Leaves the exception of a host function to the next function of plinth.hpp. */
static void leave_an_exception() {
  const plinth::Stream stream(0);
  stream.launch([] { throw own_error("in the stream"); });
  CHECK_OK(plinth_stream_synchronize(stream.get()));
}

/* An expression that must throw own_error, which a host function left. */
#define THROWS_WHAT_WAS_LEFT(expression)  \
  do {                                    \
    leave_an_exception();                 \
    THROWS_TYPE(expression, own_error);   \
  } while (0)

TEST(a_constructor_that_throws_what_was_left_changes_nothing) {
  need_devices(2);
  const plinth::Stream stream(0);
  const std::size_t before = plinth::memory_allocated();
  const plinth::StreamView current = plinth::current_stream();
  plinth::Graph graph;
  THROWS_WHAT_WAS_LEFT(plinth::DeviceGuard(1));
  CHECK_EQ(plinth::current_device(), 0);
  THROWS_WHAT_WAS_LEFT(plinth::StreamGuard(stream));
  CHECK(plinth::current_stream() == current);
  THROWS_WHAT_WAS_LEFT(plinth::GraphCapture(graph));
  CHECK(!plinth::is_current_stream_capturing());
  THROWS_WHAT_WAS_LEFT(plinth::CommunicatorGroup());
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  THROWS_WHAT_WAS_LEFT(Tensor<float>({1000}));
  const plinth::MemPool pool;
  THROWS_WHAT_WAS_LEFT(plinth::MemPoolGuard(pool));
  CHECK_STATUS(plinth_end_allocate_to_pool(0, pool.id()), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(plinth::memory_allocated(), before);
  plinth::DeviceBuffer buffer(1000);
  THROWS_WHAT_WAS_LEFT(plinth::MemoryRegistration(buffer.get(), 1000));
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  CHECK_OK(plinth_memory_uses(buffer.get(), &uses));
  CHECK_EQ(uses.registrations, 0);
}

TEST(a_host_function_that_is_enqueued_runs) {
  const plinth::Stream stream(0);
  std::atomic<int> runs{0};
  int enqueued = 0;
  for (int attempt = 0; attempt < 5000; attempt++) {
    try {
      stream.launch([&runs, kept = std::vector<int>(16, 7)] {
        CHECK_EQ(kept[15], 7);
        runs++;
        throw own_error("in the stream");
      });
      enqueued++;
    } catch (const own_error &) {
    }
  }
  CHECK_OK(plinth_stream_synchronize(stream.get()));
  CHECK_EQ(runs.load(), enqueued);
  THROWS_TYPE(plinth::synchronize(), own_error);
}

TEST(an_exception_of_a_thread_that_ended_reaches_no_other) {
  const plinth::Stream stream(0);
  gate *const shut = gate_shut(stream.get());
  std::thread([&] { stream.launch([] { throw own_error("too late"); }); }).join();
  /* One of them gets the id of the thread that ended. */
  std::atomic<int> foreign{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  for (int index = 0; index < 16; index++) {
    threads.emplace_back([&] {
      while (!go) std::this_thread::yield();
      try {
        plinth::synchronize();
      } catch (const own_error &) {
        foreign++;
      }
    });
  }
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream.get()));
  go = true;
  for (std::thread &thread : threads) thread.join();
  CHECK_EQ(foreign.load(), 0);
}

/* The allocation at which a thread waits; 0 for none. */
static thread_local int allocation_that_waits = 0;
static std::atomic<bool> waits{false}, go_on{false};

__attribute__((noinline)) void *operator new(std::size_t size) {
  if (allocation_that_waits > 0 && --allocation_that_waits == 0) {
    waits = true;
    while (!go_on) std::this_thread::yield();
  }
  if (void *const memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void *memory) noexcept { std::free(memory); }
__attribute__((noinline)) void operator delete(void *memory, std::size_t) noexcept { std::free(memory); }

TEST(a_forked_child_destroys_an_observer_whatever_other_threads_do) {
  const auto nothing = [](std::int32_t, std::size_t, std::size_t, std::size_t) {};
  auto observer = std::make_unique<plinth::OutOfMemoryObserver>(nothing);
  for (int allocation = 1; allocation <= 4; allocation++) {
    waits = go_on = false;
    std::thread other([&] {
      allocation_that_waits = allocation;
      const plinth::OutOfMemoryObserver another(nothing);
      allocation_that_waits = 0;
      waits = true;
    });
    while (!waits) std::this_thread::yield();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      observer.reset();
      _exit(0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    go_on = true;
    other.join();
    CHECK_EQ(status, 0);
  }
}
