/* Pinned memory of the cache in use by streams and graphs. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=pinned_use_cuda_host_register:True,pinned_num_register_threads:4 */
/* also: PLINTH_ALLOC_CONF=pinned_reserve_segment_size_mb:64 */
/* also: PLINTH_ALLOC_CONF=pinned_use_background_threads:True */
/* also: PLINTH_ALLOC_CONF=pinned_max_cached_size_mb:2 */
/* also: PLINTH_SANITIZER=error */
/* alone: memory_of_completed_work_is_reused_at_once; expects what only a fresh process has */
#include "graphing.h"
#include "pinning.h"

/* While a gate is shut, no driver function may be called that may wait for the GPU, such as pinning: so the cache always
 * has enough free blocks. */
enum { TRIES = 6 };

/* Allocates a few blocks, none of which may be `old`, and frees them. */
static void expect_not_reused(const void *old, size_t bytes) {
  void *blocks[TRIES];
  for (int index = 0; index < TRIES; index++) {
    blocks[index] = pin(bytes);
    CHECK(!overlap(blocks[index], bytes, old, bytes));
  }
  for (int index = 0; index < TRIES; index++) {
    unpin(blocks[index]);
  }
  expect_sound();
}

static const size_t sizes[] = {100, 5000, 300 * KIB, 3 * MIB};

TEST(memory_of_a_copy_is_not_reused_before_the_copy_is_done) {
  /* Sizes that are not cached would be pinned while the gate is shut, which may wait for the device. */
  for (int index = 0; index < 4 && is_cached(sizes[index]); index++) {
    const size_t bytes = sizes[index];
    plinth_stream_t stream = stream_on(0);
    unsigned char *device = (unsigned char *)device_memory(bytes, 0);
    unsigned char *back = pin(bytes);
    fill_cache(bytes, TRIES + 2);
    unsigned char *memory = pin(bytes);
    pattern_fill(memory, bytes, (unsigned)index);
    gate *shut = hold(stream);
    CHECK_OK(plinth_memcpy(device, memory, bytes, stream));
    unpin(memory);
    expect_not_reused(memory, bytes);
    expect_held(shut);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK(pinned_is_reused(memory, bytes));
    CHECK_OK(plinth_memcpy(back, device, bytes, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_EQ(pattern_mismatch(back, bytes, (unsigned)index), bytes);
    unpin(back);
    CHECK_OK(plinth_device_free(device));
    expect_nothing_pinned();
  }
}

static void copy_to_part(unsigned char *memory, void *device, plinth_stream_t stream) {
  CHECK_OK(plinth_memcpy(memory + 1000, device, 100, stream));
}

static void copy_without_blocking(unsigned char *memory, void *device, plinth_stream_t stream) {
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_copy(device, memory, 2000, true));
}

static void fill(unsigned char *memory, void *device, plinth_stream_t stream) {
  (void)device;
  CHECK_OK(plinth_memset(memory, 3, 2000, stream));
}

static void fill_with_pattern(unsigned char *memory, void *device, plinth_stream_t stream) {
  const uint16_t pattern = 0x1234;
  (void)device;
  CHECK_OK(plinth_memset_pattern(memory + 500, &pattern, sizeof pattern, 1500, stream));
}

static void record_use(unsigned char *memory, void *device, plinth_stream_t stream) {
  (void)device;
  CHECK_OK(plinth_host_record_stream(memory + 1999, stream));
}

TEST(every_use_is_recorded) {
  void (*const uses[])(unsigned char *, void *, plinth_stream_t) = {copy_to_part, copy_without_blocking, fill,
                                                                    fill_with_pattern, record_use};
  void *device = device_memory(2000, 0);
  for (int index = 0; index < 5; index++) {
    plinth_stream_t stream = stream_on(0);
    fill_cache(2000, TRIES + 1);
    unsigned char *memory = pin(2000);
    gate *shut = hold(stream);
    uses[index](memory, device, stream);
    unpin(memory);
    expect_not_reused(memory, 2000);
    CHECK_EQ(host_stats().active_requests.current, 1);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK(pinned_is_reused(memory, 2000));
    CHECK_EQ(host_stats().active_requests.current, 0);
  }
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(a_use_lasts_for_work_submitted_before_the_free) {
  plinth_stream_t stream = stream_on(0);
  fill_cache(2000, TRIES + 1);
  unsigned char *memory = pin(2000);
  CHECK_OK(plinth_host_record_stream(memory, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  gate *shut = hold(stream);
  unpin(memory);
  expect_not_reused(memory, 2000);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(pinned_is_reused(memory, 2000));
  expect_nothing_pinned();
}

TEST(memory_waits_for_all_its_streams) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(device_count() - 1);
  fill_cache(5000, TRIES + 1);
  unsigned char *memory = pin(5000);
  gate *const first_shut = hold(first);
  gate *const second_shut = hold(second);
  CHECK_OK(plinth_host_record_stream(memory, first));
  CHECK_OK(plinth_host_record_stream(memory, second));
  CHECK_OK(plinth_host_record_stream(memory, first));
  unpin(memory);
  expect_not_reused(memory, 5000);
  gate_open(first_shut);
  CHECK_OK(plinth_stream_synchronize(first));
  expect_not_reused(memory, 5000);
  gate_open(second_shut);
  CHECK_OK(plinth_stream_synchronize(second));
  CHECK(pinned_is_reused(memory, 5000));
  expect_nothing_pinned();
}

TEST(memory_of_completed_work_is_reused_at_once) {
  plinth_stream_t stream = stream_on(0);
  void *device = device_memory(MIB, 0);
  unsigned char *memory = pin(MIB);
  for (int round = 0; round < 50; round++) {
    CHECK_OK(plinth_memcpy(device, memory, MIB, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    unpin(memory);
    unsigned char *again = pin(MIB);
    CHECK_SAME(again, memory);
  }
  CHECK_EQ(host_stats().num_host_alloc, 1);
  unpin(memory);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(a_blocking_copy_leaves_nothing_to_wait_for) {
  void *device = device_memory(MIB, 0);
  unsigned char *memory = pin(MIB);
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_copy(device, memory, MIB, false));
  unpin(memory);
  CHECK_EQ(pinned_active(), 0);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(emptying_the_cache_keeps_memory_in_use) {
  plinth_stream_t stream = stream_on(0);
  void *device = device_memory(3 * MIB, 0);
  unsigned char *memory = pin(3 * MIB);
  pattern_fill(memory, 3 * MIB, 4);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memcpy(device, memory, 3 * MIB, stream));
  unpin(memory);
  CHECK_STATUS(plinth_host_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_host_empty_cache());
  CHECK(is_pinned(memory));
  CHECK_EQ(pinned_held(), reserve_bytes() != 0 ? reserve_bytes() : 3 * MIB);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_nothing_pinned();
  CHECK_OK(plinth_device_free(device));
}

TEST(uses_of_default_streams_are_recorded) {
  const plinth_stream_t streams[] = {NULL, (plinth_stream_t)1, (plinth_stream_t)2};
  void *device = device_memory(5000, 0);
  for (int index = 0; index < 3; index++) {
    fill_cache(5000, TRIES + 1);
    unsigned char *memory = pin(5000);
    gate *shut = hold(streams[index]);
    CHECK_OK(plinth_memcpy(device, memory, 5000, streams[index]));
    unpin(memory);
    expect_not_reused(memory, 5000);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(streams[index]));
    CHECK(pinned_is_reused(memory, 5000));
  }
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

static unsigned char *shared_block;

static void *free_block(void *context) {
  (void)context;
  unpin(shared_block);
  return NULL;
}

TEST(another_thread_may_free_memory_of_a_per_thread_default_stream) {
  fill_cache(5000, TRIES + 1);
  void *device = device_memory(5000, 0);
  shared_block = pin(5000);
  gate *shut = hold((plinth_stream_t)2);
  CHECK_OK(plinth_memcpy(device, shared_block, 5000, (plinth_stream_t)2));
  run_threads(1, free_block);
  expect_not_reused(shared_block, 5000);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize((plinth_stream_t)2));
  CHECK_OK(plinth_synchronize(0));
  CHECK(pinned_is_reused(shared_block, 5000));
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

/* A graph that copies pinned memory to a device, captured in a new stream. */
static plinth_graph_t graph_of_copy(void *device, const void *memory, size_t bytes, uint32_t flags) {
  plinth_graph_t graph = new_graph(flags);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memcpy(device, memory, bytes, stream));
  CHECK_OK(plinth_memcpy(device, memory, bytes, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

/* The driver calls the destructors of a graph's objects some time after the graph's destruction. */
#define EXPECT_REUSABLE(memory, bytes) EVENTUALLY(pinned_is_reused(memory, bytes))

TEST(memory_of_a_graph_is_not_reused_while_the_graph_exists) {
  const uint32_t flags[] = {0, PLINTH_GRAPH_KEEP_GRAPH};
  for (int index = 0; index < 2; index++) {
    const size_t bytes = 50000;
    unsigned char *device = (unsigned char *)device_memory(bytes, 0);
    unsigned char *back = pin(bytes);
    unsigned char *memory = pin(bytes);
    pattern_fill(memory, bytes, 9);
    plinth_graph_t graph = graph_of_copy(device, memory, bytes, flags[index]);
    if (flags[index] != 0) {
      CHECK_OK(plinth_graph_instantiate(graph));
    }
    unpin(memory);
    CHECK_STATUS(plinth_host_free(memory), PLINTH_ERROR_INVALID_POINTER);
    expect_not_reused(memory, bytes);
    for (int round = 0; round < 3; round++) {
      plinth_stream_t stream = NULL;
      CHECK_OK(plinth_current_stream(0, &stream));
      CHECK_OK(plinth_memset(device, 0, bytes, stream));
      CHECK_OK(plinth_graph_replay(graph));
      CHECK_OK(plinth_memcpy(back, device, bytes, stream));
      CHECK_OK(plinth_stream_synchronize(stream));
      CHECK_EQ(pattern_mismatch(back, bytes, 9), bytes);
      expect_not_reused(memory, bytes);
    }
    CHECK_OK(plinth_graph_destroy(graph));
    EXPECT_REUSABLE(memory, bytes);
    unpin(back);
    CHECK_OK(plinth_device_free(device));
    expect_nothing_pinned();
  }
}

TEST(memory_of_two_graphs_waits_for_both) {
  void *device = device_memory(KIB, 0);
  unsigned char *memory = pin(KIB);
  plinth_graph_t first = graph_of_copy(device, memory, KIB, 0);
  plinth_graph_t second = graph_of_copy(device, memory, KIB, 0);
  unpin(memory);
  CHECK_OK(plinth_graph_destroy(first));
  sleep_milliseconds(20);
  expect_not_reused(memory, KIB);
  CHECK_OK(plinth_graph_destroy(second));
  EXPECT_REUSABLE(memory, KIB);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(an_updated_graph_uses_the_other_graphs_memory) {
  void *device = device_memory(KIB, 0);
  unsigned char *first_memory = pin(KIB);
  unsigned char *second_memory = pin(KIB);
  unsigned char *back = pin(KIB);
  pattern_fill(second_memory, KIB, 2);
  plinth_graph_t graph = graph_of_copy(device, first_memory, KIB, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_instantiate(graph));
  plinth_graph_t second = graph_of_copy(device, second_memory, KIB, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_update(graph, second));
  CHECK_OK(plinth_graph_destroy(second));
  unpin(second_memory);
  sleep_milliseconds(20);
  expect_not_reused(second_memory, KIB);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_synchronize(0));
  fetch(back, device, KIB);
  CHECK_EQ(pattern_mismatch(back, KIB, 2), KIB);
  CHECK_OK(plinth_graph_destroy(graph));
  unpin(first_memory);
  EXPECT_REUSABLE(second_memory, KIB);
  EXPECT_REUSABLE(first_memory, KIB);
  unpin(back);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(a_clone_of_a_graph_keeps_its_memory) {
  void *device = device_memory(KIB, 0);
  unsigned char *memory = pin(KIB);
  plinth_graph_t copy = NULL;
  plinth_graph_t graph = graph_of_copy(device, memory, KIB, PLINTH_GRAPH_KEEP_GRAPH);
  CHECK_OK(plinth_graph_clone(graph, &copy));
  CHECK_OK(plinth_graph_destroy(graph));
  unpin(memory);
  sleep_milliseconds(20);
  expect_not_reused(memory, KIB);
  CHECK_OK(plinth_graph_destroy(copy));
  EXPECT_REUSABLE(memory, KIB);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(a_destroyed_graph_leaves_no_pending_use) {
  void *device = device_memory(KIB, 0);
  unsigned char *memory = pin(KIB);
  plinth_graph_t graph = graph_of_copy(device, memory, KIB, 0);
  CHECK_OK(plinth_graph_destroy(graph));
  unpin(memory);
  EVENTUALLY(pinned_active() == 0);
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(a_reset_capture_frees_its_memory) {
  void *device = device_memory(KIB, 0);
  unsigned char *memory = pin(KIB);
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memcpy(device, memory, KIB, stream));
  unpin(memory);
  expect_not_reused(memory, KIB);
  CHECK_OK(plinth_graph_reset(graph));
  EXPECT_REUSABLE(memory, KIB);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

TEST(memory_used_before_a_capture_is_reusable_after_it) {
  void *device = device_memory(KIB, 0);
  unsigned char *memory = pin(KIB);
  fill_cache(KIB, TRIES + 1);
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_memcpy(device, memory, KIB, stream));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_memset(device, 1, KIB, stream));
  unpin(memory);
  expect_not_reused(memory, KIB);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  EXPECT_REUSABLE(memory, KIB);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(device));
  expect_nothing_pinned();
}

enum { THREADS = 6 };

/* Copies numbers to a device and back, through memory that is freed at once. */
static void *copy_and_free(void *context) {
  const unsigned own = (unsigned)*(int *)context;
  uint64_t state = own + 5;
  const int32_t device = (int32_t)own % device_count();
  CHECK_OK(plinth_set_device(device));
  plinth_stream_t stream = stream_on(device);
  unsigned char *buffer = (unsigned char *)device_memory(64 * KIB, device);
  for (unsigned round = 0; round < 300; round++) {
    const size_t bytes = 1 + random_next(&state) % (64 * KIB);
    unsigned char *out = pin(bytes);
    unsigned char *back = pin(bytes);
    pattern_fill(out, bytes, own * 1000 + round);
    CHECK_OK(plinth_memcpy(buffer, out, bytes, stream));
    unpin(out);
    CHECK_OK(plinth_memcpy(back, buffer, bytes, stream));
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_EQ(pattern_mismatch(back, bytes, own * 1000 + round), bytes);
    unpin(back);
  }
  CHECK_OK(plinth_device_free(buffer));
  return NULL;
}

TEST(threads_copy_and_free_at_once) {
  run_threads(THREADS, copy_and_free);
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  expect_nothing_pinned();
}
