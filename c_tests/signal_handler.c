/* Signal handlers that allocate and free, while their thread does.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; sends itself signals */
/* timeout: 120 */
#include "allocating.h"

#define SLOTS 64

static plinth_stream_t shared_stream;
static int is_over;
static uint64_t refused_requests;
static uint64_t refused_frees;
static uint64_t served_requests;
static uint64_t served_frees;
/* The blocks that handlers hold. */
static void *slots[SLOTS];
static __thread uint64_t handler_state;

static void count(uint64_t *counter) { __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST); }

static uint64_t read_count(uint64_t *counter) { return __atomic_load_n(counter, __ATOMIC_SEQ_CST); }

static bool over(void) { return __atomic_load_n(&is_over, __ATOMIC_SEQ_CST) != 0; }

static void handler_fails(const char *text) {
  const ssize_t written = write(STDERR_FILENO, text, strlen(text));
  _exit(written < 0 ? 2 : 1);
}

/* Frees the block in one slot, or allocates one for it. The harness may not be used here. */
static void allocate_in_handler(int number) {
  const int error = errno;
  (void)number;
  const int index = (int)(random_next(&handler_state) % SLOTS);
  void *block = __atomic_exchange_n(&slots[index], NULL, __ATOMIC_SEQ_CST);
  if (block != NULL) {
    const plinth_status_t status = plinth_caching_allocator_delete(block);
    if (status == PLINTH_OK) {
      count(&served_frees);
      block = NULL;
    } else if (status == PLINTH_ERROR_NOT_SUPPORTED) {
      if (strstr(plinth_last_error(), "signal handler") == NULL) {
        handler_fails("the refused free has another message\n");
      }
      count(&refused_frees);
    } else {
      handler_fails("a free in a handler failed\n");
    }
  } else {
    const plinth_status_t status = plinth_caching_allocator_alloc(KIB, 0, shared_stream, &block);
    if (status == PLINTH_OK) {
      count(&served_requests);
    } else if (status == PLINTH_ERROR_NOT_SUPPORTED && block == NULL) {
      count(&refused_requests);
    } else {
      handler_fails("a request in a handler failed\n");
    }
  }
  if (block != NULL) {
    void *empty = NULL;
    if (!__atomic_compare_exchange_n(&slots[index], &empty, block, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
      /* Another handler has filled the slot. */
      for (int other = 0; block != NULL; other = (other + 1) % SLOTS) {
        empty = NULL;
        if (__atomic_compare_exchange_n(&slots[other], &empty, block, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
          block = NULL;
        }
      }
    }
  }
  errno = error;
}

/* Allocates and frees blocks of various sizes. Never calls malloc, because a handler that interrupts malloc may not call
 * it. CHECK_OK would read the last error, which the handlers change. */
static void *allocate(void *context) {
  void *blocks[32] = {0};
  uint64_t state = (uint64_t)(uintptr_t)context;
  while (!over()) {
    const int index = (int)(random_next(&state) % 32);
    if (blocks[index] == NULL) {
      const size_t size = (size_t)512 << random_next(&state) % 6;
      CHECK(plinth_caching_allocator_alloc(size, 0, shared_stream, &blocks[index]) == PLINTH_OK);
      CHECK(blocks[index] != NULL);
    } else {
      CHECK(plinth_caching_allocator_delete(blocks[index]) == PLINTH_OK);
      blocks[index] = NULL;
    }
  }
  for (int index = 0; index < 32; index++) {
    CHECK(plinth_caching_allocator_delete(blocks[index]) == PLINTH_OK);
  }
  return NULL;
}

/* Sends signals to `count` threads until the handlers have made enough calls of each kind. */
static void send_signals(int threads_count) {
  pthread_t threads[4];
  size_t before = 0;
  size_t after = 0;
  struct sigaction action = {0};
  action.sa_handler = allocate_in_handler;
  action.sa_flags = SA_RESTART;
  shared_stream = stream_on(0);
  CHECK_OK(plinth_memory_allocated(0, &before));
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  for (int index = 0; index < threads_count; index++) {
    CHECK(pthread_create(&threads[index], NULL, allocate, (void *)(uintptr_t)(index + 1)) == 0);
  }
  const uint64_t enough = (uint64_t)some_rounds(2000);
  const double end = seconds_now() + 110;
  while (read_count(&refused_requests) < enough || read_count(&refused_frees) < enough ||
         read_count(&served_requests) < enough || read_count(&served_frees) < enough) {
    CHECK(seconds_now() < end);
    for (int index = 0; index < threads_count; index++) {
      CHECK(pthread_kill(threads[index], SIGUSR1) == 0);
    }
    sleep_a_little();
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < threads_count; index++) {
    CHECK(pthread_join(threads[index], NULL) == 0);
  }
  for (int index = 0; index < SLOTS; index++) {
    CHECK_OK(plinth_caching_allocator_delete(slots[index]));
  }
  CHECK_OK(plinth_memory_allocated(0, &after));
  CHECK_EQ(after, before);
  expect_sound();
}

TEST(a_handler_allocates_while_its_thread_owns_the_arena) { send_signals(1); }

TEST(handlers_allocate_while_threads_share_an_arena) { send_signals(3); }

static int tracker_calls;

static void allocate_in_callback(const plinth_memory_history_entry_t *entry, void *context) {
  void *block = NULL;
  (void)entry;
  (void)context;
  CHECK_OK(plinth_caching_allocator_alloc(MIB, 0, NULL, &block));
  CHECK_OK(plinth_caching_allocator_delete(block));
  tracker_calls++;
}

/* A callback is part of a call, but no handler interrupted that call. */
TEST(a_callback_may_allocate) {
  void *block = NULL;
  CHECK_OK(plinth_attach_allocator_trace_tracker(allocate_in_callback, NULL));
  CHECK_OK(plinth_caching_allocator_alloc(MIB, 0, NULL, &block));
  CHECK_OK(plinth_caching_allocator_delete(block));
  CHECK_OK(plinth_detach_allocator_trace_tracker(allocate_in_callback, NULL));
  CHECK(tracker_calls > 0);
  expect_sound();
}
