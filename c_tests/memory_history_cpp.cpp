/* Stacks of C++ callers. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "memory_history.h"

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace outer {
namespace {

int line_of_the_call;

struct Allocator {
  template <typename T>
  __attribute__((noinline)) void *allocate(T count) const {
    void *pointer = nullptr;
    line_of_the_call = __LINE__ + 1;
    const plinth_status_t status = plinth_caching_allocator_alloc(static_cast<size_t>(count), 0, nullptr, &pointer);
    CHECK(status == PLINTH_OK);
    return pointer;
  }
};

}  // namespace
}  // namespace outer

TEST(names_are_demangled) {
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  const outer::Allocator allocator;
  release(allocator.allocate<long>(1000));
  CHECK_EQ(read_history(0), 3);
  CHECK(read_stack(entries[0].raw.stack) > 1);
  const std::string name = frames[0].name;
  CHECK(name.find("outer::(anonymous namespace)::Allocator::allocate<long>(long)") != std::string::npos);
  CHECK_EQ(frames[0].line, outer::line_of_the_call);
  CHECK(frame_of("main") > 1);
  stop_recording();
}

TEST(lambdas_have_frames) {
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  const outer::Allocator allocator;
  const std::function<void(int)> function = [&](int count) { release(allocator.allocate<int>(count)); };
  const std::vector<int> counts = {1000, 2000};
  for (const int count : counts) {
    function(count);
  }
  CHECK_EQ(read_history(0), 6);
  CHECK(read_stack(entries[3].raw.stack) > 3);
  bool lambda = false;
  for (int index = 0; index < frame_count; index++) {
    /* The names that g++ and clang give it. */
    const std::string name = frames[index].name;
    lambda = lambda || name.find("{lambda(int)") != std::string::npos || name.find("$_0") != std::string::npos;
  }
  CHECK(lambda);
  stop_recording();
}

/* Throws an exception, whose unwinding uses the same tables as the recorded stacks. */
__attribute__((noinline)) static void throw_after(const outer::Allocator &allocator) {
  release(allocator.allocate<short>(500));
  throw std::runtime_error("on purpose");
}

TEST(exceptions_do_not_disturb) {
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  int caught = 0;
  for (int round = 0; round < 100; round++) {
    try {
      throw_after(outer::Allocator());
    } catch (const std::runtime_error &) {
      release(outer::Allocator().allocate<int>(700));
      caught++;
    }
  }
  CHECK_EQ(caught, 100);
  CHECK_EQ(read_history(0), 600);
  read_stack(entries[0].raw.stack);
  CHECK(frame_of("throw_after(outer::(anonymous namespace)::Allocator const&)") > 0);
  stop_recording();
  expect_nothing_left();
}
