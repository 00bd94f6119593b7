// What the tests of the bridge share.
//
// SPDX-License-Identifier: MIT OR Apache-2.0

#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <plinth.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace caching = c10::cuda::CUDACachingAllocator;

// Ends the test with a message, unless a condition holds.
#define EXPECT(condition)                                                          \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

// The same with a call of plinth.
#define OK(call)                                                                                            \
  do {                                                                                                      \
    const plinth_status_t status_ = (call);                                                                 \
    if (status_ != PLINTH_OK) {                                                                             \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, plinth_status_name(status_), plinth_last_error()); \
      std::exit(1);                                                                                         \
    }                                                                                                       \
  } while (0)

constexpr size_t kMiB = size_t{1} << 20;

// Returns the message of the exception that an action throws; fails if there is none.
template <typename Exception = c10::Error>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what_without_backtrace();
  }
  EXPECT(!"an exception was expected");
  return {};
}

inline bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::fprintf(stderr, "not in the text: %s\ntext: %s\n", part.c_str(), text.c_str());
  return false;
}

inline size_t allocated(int device) {
  size_t bytes = 0;
  OK(plinth_memory_allocated(device, &bytes));
  return bytes;
}

// Routes all requests of the calling thread, as torch.cuda.use_mem_pool does.
inline std::function<bool(cudaStream_t)> every_stream() {
  return [](cudaStream_t) { return true; };
}

void test_pools();
void test_checkpoints();
void test_external_pool();
void test_uncached();
void test_always_uncached();
void test_history();
void test_history_stacks();
void test_trackers();
void test_gpu_trace();
void test_sharing(const char* program);
int receive_memory(int descriptor);
