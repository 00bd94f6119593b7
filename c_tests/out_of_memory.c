/* Not enough memory: the attempts, the callbacks and the messages. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* alone: a_full_host_device_uses_its_cache; expects what only a fresh process has */
#include "graphing.h"

enum { LIMIT = 128 * MIB };

static void expect_out_of_memory(size_t bytes, int32_t device, plinth_stream_t stream) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(bytes, device, stream, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
}

TEST(the_message_contains_request_usage_and_limit) {
  const int32_t last = device_count() - 1;
  char place[32];
  limit_memory(LIMIT, last);
  void *memory = alloc_on(64 * MIB, last, NULL);
  snprintf(place, sizeof place, "device %d", (int)last);
  expect_out_of_memory(100 * MIB, last, NULL);
  CHECK_MESSAGE("100.00 MiB");
  CHECK_MESSAGE(place);
  CHECK_MESSAGE("64.00 MiB");
  CHECK_MESSAGE("128.50 MiB");
  CHECK_MESSAGE("free");
  release(memory);
  expect_nothing_left();
}

TEST(a_message_without_a_limit_contains_the_total) {
  char total[32];
  snprintf(total, sizeof total, "%.2f GiB", (double)total_memory(0) / (double)GIB);
  expect_out_of_memory((size_t)3 << 40, 0, NULL);
  CHECK_MESSAGE("3.00 TiB");
  CHECK_MESSAGE(total);
}

TEST(cached_memory_of_other_sizes_is_reused) {
  limit_memory(LIMIT, 0);
  for (int round = 0; round < 3; round++) {
    void *memory[12];
    for (int index = 0; index < 12; index++) {
      memory[index] = alloc_on(8 * MIB, 0, NULL);
    }
    for (int index = 0; index < 12; index++) {
      release(memory[index]);
    }
    void *large = alloc_on(100 * MIB, 0, NULL);
    CHECK_OK(plinth_memset(large, 1, 100 * MIB, NULL));
    release(large);
    void *small[64];
    for (int index = 0; index < 64; index++) {
      small[index] = alloc_on(500 * KIB, 0, NULL);
    }
    for (int index = 0; index < 64; index++) {
      release(small[index]);
    }
  }
  expect_nothing_left();
}

TEST(cached_memory_of_other_streams_is_reused) {
  void *pinned = pinned_memory(100 * MIB);
  limit_memory(LIMIT, 0);
  for (int round = 0; round < 6; round++) {
    plinth_stream_t stream = round % 3 == 0 ? NULL : stream_on(0);
    void *memory = alloc_on(100 * MIB, 0, stream);
    fill_words(memory, (uint32_t)round, 100 * MIB, stream);
    CHECK(has_words(memory, (uint32_t)round, 100 * MIB, stream, pinned));
    release(memory);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* The memory is reused only when the stream that freed it has finished with it. */
TEST(memory_of_a_busy_stream_is_waited_for) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  void *pinned = pinned_memory(100 * MIB);
  limit_memory(LIMIT, 0);
  void *memory = alloc_on(100 * MIB, 0, first);
  gate *shut = gate_shut(first);
  fill_words(memory, 1, 100 * MIB, first);
  release(memory);
  pthread_t opener = gate_open_soon(shut);
  void *next = alloc_on(100 * MIB, 0, second);
  fill_words(next, 2, 100 * MIB, second);
  CHECK_OK(plinth_stream_synchronize(first));
  CHECK(has_words(next, 2, 100 * MIB, second, pinned));
  pthread_join(opener, NULL);
  release(next);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* ---- several threads that wait */

/* Requests more than the limit in a stream, which fails only after all work of the device. */
static void *request_too_much(void *stream) {
  expect_out_of_memory(2 * LIMIT, 0, (plinth_stream_t)stream);
  return NULL;
}

static int64_t waits(void) {
  plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
  CHECK_OK(plinth_memory_stats(0, &stats));
  return stats.num_sync_all_streams;
}

/* Returns when the thread has begun to wait. */
static pthread_t request_too_much_in(plinth_stream_t stream) {
  const int64_t before = waits();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, request_too_much, stream) == 0);
  EVENTUALLY(waits() > before);
  sleep_milliseconds(20);
  return thread;
}

TEST(a_thread_finds_its_freed_memory_while_another_one_waits_for_it) {
  plinth_stream_t first = stream_on(0), second = stream_on(0), other = stream_on(0);
  limit_memory(LIMIT, 0);
  release(alloc_on(MIB, 0, first));
  void *memory = alloc_on(100 * MIB, 0, second);
  CHECK_OK(plinth_record_stream(memory, other));
  gate *shut = gate_shut(other);
  release(memory);
  pthread_t waiting = request_too_much_in(first);
  pthread_t opener = gate_open_soon(shut);
  release(alloc_on(100 * MIB, 0, second));
  pthread_join(opener, NULL);
  pthread_join(waiting, NULL);
  expect_nothing_left();
}

TEST(the_cache_can_be_emptied_while_a_thread_waits) {
  plinth_stream_t first = stream_on(0), second = stream_on(0);
  limit_memory(LIMIT, 0);
  /* Nothing is free: the driver waits for the device when it frees a segment. */
  void *memory[] = {alloc_on(MIB, 0, first), alloc_on(MIB, 0, second)};
  gate *shut = hold(second);
  pthread_t waiting = request_too_much_in(first);
  CHECK_OK(plinth_empty_cache());
  expect_held(shut);
  gate_open(shut);
  pthread_join(waiting, NULL);
  release(memory[0]);
  release(memory[1]);
  expect_nothing_left();
}

TEST(memory_that_the_driver_refuses_was_never_reserved) {
  if (!on_host_device()) {
    SKIP("takes most of the device's memory");
  }
  const size_t most = total_memory(0) / 10 * 6;
  void *memory = device_memory(most, 0);
  expect_out_of_memory(most, 0, NULL);
  CHECK(max_reserved(0) < most);
  CHECK_OK(plinth_device_free(memory));
  expect_nothing_left();
}

/* As above, for another thread's per-thread default stream, whose handle means a different stream in this thread. */
static void *allocate_from_another_stream(void *context) {
  plinth_stream_t stream = stream_on(0);
  void *next = alloc_on(100 * MIB, 0, stream);
  fill_words(next, 2, KIB, stream);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(gate_is_open((gate *)context));
  release(next);
  return NULL;
}

TEST(memory_of_another_threads_default_stream_is_waited_for) {
  plinth_stream_t own = (plinth_stream_t)(uintptr_t)2;
  pthread_t thread;
  limit_memory(LIMIT, 0);
  void *memory = alloc_on(100 * MIB, 0, own);
  gate *shut = gate_shut(own);
  fill_words(memory, 1, 100 * MIB, own);
  release(memory);
  pthread_t opener = gate_open_soon(shut);
  CHECK(pthread_create(&thread, NULL, allocate_from_another_stream, shut) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(pthread_join(opener, NULL) == 0);
  expect_nothing_left();
}

TEST(scattered_free_memory_is_reused) {
  /* Every second block is live, so that the free memory is scattered over two streams. */
  plinth_stream_t streams[2] = {stream_on(0), stream_on(0)};
  void *memory[12];
  limit_memory(LIMIT, 0);
  for (int index = 0; index < 12; index++) {
    memory[index] = alloc_on(8 * MIB, 0, streams[index / 2 % 2]);
    fill_words(memory[index], (uint32_t)index, 8 * MIB, streams[index / 2 % 2]);
  }
  for (int index = 0; index < 12; index += 2) {
    release(memory[index]);
  }
  void *pinned = pinned_memory(40 * MIB);
  void *pointer = NULL;
  /* Mapped pages can be combined to one block; segments cannot. */
  if (getenv("PLINTH_ALLOC_CONF") == NULL) {
    pointer = alloc_on(40 * MIB, 0, streams[0]);
    fill_words(pointer, 99, 40 * MIB, streams[0]);
    CHECK(has_words(pointer, 99, 40 * MIB, streams[0], pinned));
  }
  for (int index = 1; index < 12; index += 2) {
    CHECK(has_words(memory[index], (uint32_t)index, 8 * MIB, streams[index / 2 % 2], pinned));
    release(memory[index]);
  }
  release(pointer);
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(the_allocator_works_after_a_failure) {
  limit_memory(LIMIT, 0);
  for (int round = 0; round < 50; round++) {
    void *memory = alloc_on((size_t)(round % 7 + 1) * 10 * MIB, 0, NULL);
    expect_out_of_memory(LIMIT + MIB, 0, NULL);
    expect_out_of_memory((size_t)1 << 62, 0, stream_on(0));
    expect_sound();
    CHECK_EQ(allocated(0), (size_t)(round % 7 + 1) * 10 * MIB);
    release(memory);
  }
  expect_nothing_left();
}

/* The allocator finally waits for streams, but not for those that capture, because waiting invalidates a capture. */
TEST(a_capture_continues_after_out_of_memory) {
  const int32_t modes[] = {PLINTH_CAPTURE_GLOBAL, PLINTH_CAPTURE_THREAD_LOCAL, PLINTH_CAPTURE_RELAXED};
  plinth_stream_t stream = on_new_stream(0);
  plinth_stream_t other = stream_on(0);
  limit_memory(LIMIT, 0);
  for (int index = 0; index < 3; index++) {
    plinth_graph_t graph = new_graph(0);
    release(alloc_on(8 * MIB, 0, stream));
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, modes[index]));
    void *memory = alloc_on(MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, 1, MIB, stream));
    expect_out_of_memory(2 * LIMIT, 0, other);
    expect_out_of_memory(2 * LIMIT, 0, stream);
    CHECK_OK(plinth_memset(memory, 2, MIB, stream));
    release(memory);
    CHECK_OK(plinth_graph_capture_end(graph));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_graph_destroy(graph));
  }
  expect_nothing_left();
}

TEST(a_full_host_device_uses_its_cache) {
  setenv("PLINTH_DEVICE", "host", 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  setenv("PLINTH_HOST_MEMORY", "64MiB", 1);
  for (int round = 0; round < 4; round++) {
    plinth_stream_t stream = stream_on(0);
    void *memory[20];
    int count = 0;
    while (count < 20 && plinth_caching_allocator_alloc(4 * MIB, 0, stream, &memory[count]) == PLINTH_OK) {
      count++;
    }
    CHECK(count >= 12 && count <= 16);
    expect_out_of_memory(4 * MIB, 0, stream);
    CHECK_MESSAGE("64.00 MiB");
    for (int index = 0; index < count; index++) {
      release(memory[index]);
    }
    /* The other device has its own memory. */
    void *elsewhere = alloc_on(40 * MIB, 1, NULL);
    release(elsewhere);
  }
  expect_nothing_left();
  CHECK_EQ(free_memory(0), 64 * MIB);
}

/* ---- callbacks */

typedef struct callback_state {
  void *memory;
  int calls;
  int32_t device;
  size_t size;
} callback_state;

static bool free_reserved(int32_t device, size_t size, void *context) {
  callback_state *own = (callback_state *)context;
  own->calls++;
  own->device = device;
  own->size = size;
  if (own->memory == NULL) {
    return false;
  }
  release(own->memory);
  own->memory = NULL;
  return true;
}

TEST(a_callback_can_free_something) {
  const int32_t last = device_count() - 1;
  callback_state state = {NULL, 0, UNTOUCHED, UNTOUCHED};
  limit_memory(LIMIT, last);
  CHECK_OK(plinth_add_free_memory_callback(free_reserved, &state));
  state.memory = alloc_on(80 * MIB, last, NULL);
  CHECK_EQ(state.calls, 0);
  void *memory = alloc_on(90 * MIB, last, NULL);
  CHECK(state.memory == NULL);
  CHECK(state.calls >= 1);
  CHECK_EQ(state.device, last);
  CHECK(state.size >= 90 * MIB && state.size < 92 * MIB);
  /* The callback is called, but has nothing more to free, and the call fails. */
  const int calls = state.calls;
  expect_out_of_memory(90 * MIB, last, NULL);
  CHECK(state.calls > calls);
  CHECK_OK(plinth_remove_free_memory_callback(free_reserved, &state));
  const int at_removal = state.calls;
  expect_out_of_memory(90 * MIB, last, NULL);
  CHECK_EQ(state.calls, at_removal);
  release(memory);
  expect_nothing_left();
}

TEST(all_callbacks_are_called) {
  callback_state state[3] = {{NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}};
  limit_memory(LIMIT, 0);
  for (int index = 0; index < 3; index++) {
    CHECK_OK(plinth_add_free_memory_callback(free_reserved, &state[index]));
    state[index].memory = alloc_on(36 * MIB, 0, NULL);
  }
  void *memory = alloc_on(100 * MIB, 0, NULL);
  for (int index = 0; index < 3; index++) {
    CHECK(state[index].memory == NULL);
    CHECK_OK(plinth_remove_free_memory_callback(free_reserved, &state[index]));
  }
  release(memory);
  expect_nothing_left();
}

static bool claim_without_freeing(int32_t device, size_t size, void *context) {
  (void)device;
  (void)size;
  (*(int *)context)++;
  return true;
}

TEST(a_callback_that_frees_nothing_does_not_hang) {
  int calls = 0;
  limit_memory(LIMIT, 0);
  CHECK_OK(plinth_add_free_memory_callback(claim_without_freeing, &calls));
  expect_out_of_memory(2 * LIMIT, 0, NULL);
  CHECK(calls >= 1 && calls < 100);
  CHECK_OK(plinth_remove_free_memory_callback(claim_without_freeing, &calls));
  expect_nothing_left();
}

static bool allocate_in_callback(int32_t device, size_t size, void *context) {
  int *const calls = (int *)context;
  void *pointer = NULL;
  (void)size;
  (*calls)++;
  CHECK(*calls < 100);
  /* A callback may allocate. A failure in it does not call the callback again. */
  const int before = *calls;
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, device, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(*calls, before);
  release(alloc_on(MIB, device, NULL));
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(device) <= LIMIT + MIB);
  expect_sound();
  return false;
}

TEST(a_callback_may_allocate) {
  int calls = 0;
  limit_memory(LIMIT, 0);
  CHECK_OK(plinth_add_free_memory_callback(allocate_in_callback, &calls));
  void *memory = alloc_on(64 * MIB, 0, NULL);
  expect_out_of_memory(100 * MIB, 0, NULL);
  CHECK(calls >= 1);
  CHECK_OK(plinth_remove_free_memory_callback(allocate_in_callback, &calls));
  release(memory);
  expect_nothing_left();
}

static bool remove_itself(int32_t device, size_t size, void *context) {
  (void)device;
  (void)size;
  (*(int *)context)++;
  CHECK_OK(plinth_remove_free_memory_callback(remove_itself, context));
  return false;
}

TEST(a_callback_may_remove_itself) {
  int calls = 0;
  limit_memory(LIMIT, 0);
  CHECK_OK(plinth_add_free_memory_callback(remove_itself, &calls));
  expect_out_of_memory(2 * LIMIT, 0, NULL);
  expect_out_of_memory(2 * LIMIT, 0, NULL);
  CHECK_EQ(calls, 1);
}

TEST(only_what_was_added_is_removed) {
  callback_state one = {NULL, 0, 0, 0};
  callback_state other = {NULL, 0, 0, 0};
  CHECK_STATUS(plinth_remove_free_memory_callback(free_reserved, &one), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_add_free_memory_callback(free_reserved, &one));
  CHECK_STATUS(plinth_remove_free_memory_callback(free_reserved, &other), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_remove_free_memory_callback(remove_itself, &one), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_remove_free_memory_callback(free_reserved, &one));
  CHECK_STATUS(plinth_remove_free_memory_callback(free_reserved, &one), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_add_free_memory_callback(NULL, &one), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_attach_out_of_memory_observer(NULL, &one), PLINTH_ERROR_NULL_POINTER);
}

/* ---- observers */

typedef struct observed {
  int calls;
  int32_t device;
  size_t requested, total, available;
} observed;

static void record_call(int32_t device, size_t requested, size_t total, size_t available, void *context) {
  observed *const record = (observed *)context;
  record->calls++;
  record->device = device;
  record->requested = requested;
  record->total = total;
  record->available = available;
}

TEST(observers_get_device_and_sizes) {
  const int32_t last = device_count() - 1;
  observed one = {0, UNTOUCHED, 0, 0, 0};
  observed other = {0, UNTOUCHED, 0, 0, 0};
  CHECK_OK(plinth_attach_out_of_memory_observer(record_call, &one));
  CHECK_OK(plinth_attach_out_of_memory_observer(record_call, &other));
  void *memory = alloc_on(MIB, last, NULL);
  CHECK_EQ(one.calls, 0);
  expect_out_of_memory((size_t)1 << 45, last, NULL);
  CHECK_EQ(one.calls, 1);
  CHECK_EQ(other.calls, 1);
  CHECK_EQ(one.device, last);
  CHECK_EQ(one.requested, (size_t)1 << 45);
  CHECK_EQ(one.total, total_memory(last));
  CHECK(one.available > 0 && one.available <= total_memory(last));
  CHECK_OK(plinth_detach_out_of_memory_observer(record_call, &one));
  CHECK_STATUS(plinth_detach_out_of_memory_observer(record_call, &one), PLINTH_ERROR_INVALID_VALUE);
  expect_out_of_memory((size_t)1 << 45, last, NULL);
  CHECK_EQ(one.calls, 1);
  CHECK_EQ(other.calls, 2);
  CHECK_OK(plinth_detach_out_of_memory_observer(record_call, &other));
  release(memory);
  expect_nothing_left();
}

TEST(observers_are_not_called_after_recovery) {
  observed record = {0, UNTOUCHED, 0, 0, 0};
  callback_state state = {NULL, 0, 0, 0};
  limit_memory(LIMIT, 0);
  CHECK_OK(plinth_attach_out_of_memory_observer(record_call, &record));
  CHECK_OK(plinth_add_free_memory_callback(free_reserved, &state));
  state.memory = alloc_on(100 * MIB, 0, NULL);
  release(alloc_on(100 * MIB, 0, stream_on(0)));
  release(alloc_on(100 * MIB, 0, stream_on(0)));
  CHECK_EQ(record.calls, 0);
  CHECK_OK(plinth_detach_out_of_memory_observer(record_call, &record));
  CHECK_OK(plinth_remove_free_memory_callback(free_reserved, &state));
  expect_nothing_left();
}

static void call_plinth(int32_t device, size_t requested, size_t total, size_t available, void *context) {
  char *text = NULL;
  (void)requested;
  (void)total;
  (void)available;
  release(alloc_on(KIB, device, NULL));
  CHECK_OK(plinth_memory_summary(device, true, &text));
  plinth_string_free(text);
  CHECK_OK(plinth_detach_out_of_memory_observer(call_plinth, context));
}

TEST(an_observer_may_call_the_library) {
  int nothing = 0;
  CHECK_OK(plinth_attach_out_of_memory_observer(call_plinth, &nothing));
  expect_out_of_memory((size_t)1 << 50, 0, NULL);
  /* The calls of the observer do not replace the message. */
  CHECK_MESSAGE("1024.00 TiB");
  expect_nothing_left();
}

static void *allocate_under_pressure(void *context) {
  plinth_stream_t stream = stream_on(0);
  (void)context;
  for (int round = 0; round < 40; round++) {
    void *pointer = NULL;
    const plinth_status_t status = plinth_caching_allocator_alloc(30 * MIB, 0, stream, &pointer);
    if (status == PLINTH_OK) {
      CHECK_OK(plinth_memset(pointer, 1, 30 * MIB, stream));
      release(pointer);
    } else {
      CHECK_STATUS(status, PLINTH_ERROR_OUT_OF_MEMORY);
    }
    CHECK(reserved(0) <= LIMIT + MIB);
  }
  return NULL;
}

TEST(threads_request_more_than_the_limit) {
  limit_memory(LIMIT, 0);
  run_threads(8, allocate_under_pressure);
  expect_nothing_left();
}
