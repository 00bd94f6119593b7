/* The order of work within streams and across them. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_SANITIZER=error */
#include "driver.h"
#include "support.h"

#define SIZE (64 * KIB)

TEST(a_new_stream_is_done) {
  CHECK(stream_done(stream_on(0)));
  CHECK(stream_done(NULL));
}

TEST(query_returns_whether_a_stream_is_done) {
  plinth_stream_t stream = stream_on(0);
  gate *held = gate_shut(stream);
  CHECK(stays_undone(stream));
  gate_open(held);
  EVENTUALLY(stream_done(stream));
}

TEST(synchronize_waits_for_the_stream) {
  plinth_stream_t stream = stream_on(0);
  gate *held = gate_shut(stream);
  pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(gate_is_open(held));
  CHECK(stream_done(stream));
  pthread_join(opener, NULL);
}

TEST(device_synchronize_waits_for_every_stream) {
  plinth_stream_t stream = stream_on(0);
  for (int round = 0; round < 3; round++) {
    gate *held = gate_shut(stream);
    pthread_t opener = gate_open_soon(held);
    CHECK_OK(plinth_synchronize(round == 0 ? 0 : -1));
    CHECK(gate_is_open(held));
    CHECK(stream_done(stream));
    pthread_join(opener, NULL);
  }
}

TEST(device_synchronize_does_not_wait_for_another_device) {
  need_devices(2);
  plinth_stream_t stream = stream_on(1);
  CHECK_OK(plinth_synchronize(0));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_synchronize(0));
  CHECK(!stream_done(stream));
  gate_open(held);
  CHECK_OK(plinth_synchronize(1));
  CHECK(stream_done(stream));
}

TEST(streams_do_not_wait_for_each_other) {
  plinth_stream_t shut = stream_on(0);
  plinth_stream_t free_stream = stream_on(0);
  void *memory = device_memory(SIZE, 0);
  CHECK_OK(plinth_memset(memory, 1, SIZE, free_stream));
  CHECK_OK(plinth_stream_synchronize(free_stream));
  gate *held = gate_shut(shut);
  CHECK_OK(plinth_memset(memory, 2, SIZE, free_stream));
  CHECK_OK(plinth_stream_synchronize(free_stream));
  CHECK(!stream_done(shut));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(shut));
  CHECK_OK(plinth_device_free(memory));
}

static int order_next;
static int order_wrong;

static void expect_position(void *context) {
  if (order_next != (int)(intptr_t)context) {
    order_wrong++;
  }
  order_next++;
}

TEST(host_functions_run_in_the_order_of_the_stream) {
  plinth_stream_t stream = stream_on(0);
  for (intptr_t position = 0; position < 1000; position++) {
    CHECK_OK(plinth_launch_host_function(stream, expect_position, (void *)position));
  }
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(order_next, 1000);
  CHECK_EQ(order_wrong, 0);
}

struct observation {
  const unsigned char *memory;
  size_t mismatch;
};

static void check_pattern(void *context) {
  struct observation *observation = (struct observation *)context;
  observation->mismatch = pattern_mismatch(observation->memory, SIZE, 9);
}

TEST(a_host_function_runs_between_copies) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = (unsigned char *)pinned_memory(2 * SIZE);
  void *memory = device_memory(SIZE, 0);
  struct observation observation = {pinned + SIZE, 0};
  pattern_fill(pinned, SIZE, 9);
  CHECK_OK(plinth_memcpy(memory, pinned, SIZE, stream));
  CHECK_OK(plinth_memcpy(pinned + SIZE, memory, SIZE, stream));
  CHECK_OK(plinth_launch_host_function(stream, check_pattern, &observation));
  CHECK_OK(plinth_memset(pinned + SIZE, 0, SIZE, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(observation.mismatch, SIZE);
  CHECK_EQ(pinned[SIZE] | pinned[2 * SIZE - 1], 0);
  CHECK_OK(plinth_pinned_free(pinned));
  CHECK_OK(plinth_device_free(memory));
}

/* Expects that work in `waiting` after wait_stream waits for the earlier work in `awaited`. */
static void expect_wait_stream(plinth_stream_t waiting, plinth_stream_t awaited, void *memory) {
  gate *held = gate_shut(awaited);
  CHECK_OK(plinth_stream_wait_stream(waiting, awaited));
  CHECK_OK(plinth_memset(memory, 1, SIZE, waiting));
  CHECK(stays_undone(waiting));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK(stream_done(awaited));
}

TEST(wait_stream_orders_two_streams) {
  void *memory = device_memory(SIZE, 0);
  expect_wait_stream(stream_on(0), stream_on(0), memory);
  expect_wait_stream(stream_on(0), NULL, memory);
  expect_wait_stream(NULL, stream_on(0), memory);
  CHECK_OK(plinth_device_free(memory));
}

TEST(wait_stream_orders_streams_of_two_devices) {
  need_devices(2);
  void *memory = device_memory(SIZE, 1);
  expect_wait_stream(stream_on(1), stream_on(0), memory);
  expect_wait_stream(stream_on(1), NULL, memory);
  CHECK_OK(plinth_device_free(memory));
}

TEST(wait_stream_waits_for_earlier_work_only) {
  plinth_stream_t waiting = stream_on(0);
  plinth_stream_t awaited = stream_on(0);
  void *memory = device_memory(SIZE, 0);
  CHECK_OK(plinth_memset(memory, 1, SIZE, awaited));
  CHECK_OK(plinth_stream_wait_stream(waiting, awaited));
  gate *held = gate_shut(awaited);
  CHECK_OK(plinth_memset(memory, 2, SIZE, waiting));
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK(!stream_done(awaited));
  gate_open(held);
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_stream_may_wait_for_itself) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_stream_wait_stream(stream, stream));
  CHECK_OK(plinth_stream_wait_stream(NULL, NULL));
  CHECK_OK(plinth_stream_synchronize(stream));
}

TEST(a_chain_of_streams_ends_in_order) {
  enum { LINKS = 16 };
  plinth_stream_t streams[LINKS];
  unsigned char *pinned = (unsigned char *)pinned_memory(LINKS);
  unsigned char *memory = (unsigned char *)device_memory(LINKS, 0);
  for (int index = 0; index < LINKS; index++) {
    streams[index] = stream_on(0);
  }
  CHECK_OK(plinth_memset(memory, 0, LINKS, streams[0]));
  CHECK_OK(plinth_memset(memory, 7, 1, streams[0]));
  gate *held = gate_shut(streams[0]);
  for (int index = 1; index < LINKS; index++) {
    CHECK_OK(plinth_stream_wait_stream(streams[index], streams[index - 1]));
    CHECK_OK(plinth_memcpy(memory + index, memory + index - 1, 1, streams[index]));
  }
  CHECK(stays_undone(streams[LINKS - 1]));
  gate_open(held);
  CHECK_OK(plinth_memcpy(pinned, memory, LINKS, streams[LINKS - 1]));
  CHECK_OK(plinth_stream_synchronize(streams[LINKS - 1]));
  for (int index = 0; index < LINKS; index++) {
    CHECK_EQ(pinned[index], 7);
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(the_default_stream_waits_for_blocking_streams) {
  void *memory = device_memory(SIZE, 0);
  plinth_stream_t blocking = known_foreign_stream(0, CU_STREAM_DEFAULT);
  gate *held = gate_shut(blocking);
  CHECK_OK(plinth_memset(memory, 1, SIZE, NULL));
  CHECK(stays_undone(NULL));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK(stream_done(blocking));
  CHECK_OK(plinth_device_free(memory));
}

TEST(blocking_streams_wait_for_the_default_stream) {
  void *memory = device_memory(SIZE, 0);
  plinth_stream_t blocking = known_foreign_stream(0, CU_STREAM_DEFAULT);
  gate *held = gate_shut(NULL);
  CHECK_OK(plinth_memset(memory, 1, SIZE, blocking));
  CHECK(stays_undone(blocking));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(blocking));
  CHECK(stream_done(NULL));
  CHECK_OK(plinth_device_free(memory));
}

TEST(blocking_streams_do_not_wait_for_each_other) {
  void *memory = device_memory(SIZE, 0);
  plinth_stream_t shut = known_foreign_stream(0, CU_STREAM_DEFAULT);
  plinth_stream_t other = known_foreign_stream(0, CU_STREAM_DEFAULT);
  gate *held = gate_shut(shut);
  CHECK_OK(plinth_memset(memory, 1, SIZE, other));
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(!stream_done(shut));
  gate_open(held);
  CHECK_OK(plinth_device_free(memory));
}

TEST(pool_streams_and_the_default_stream_do_not_wait_for_each_other) {
  void *memory = device_memory(SIZE, 0);
  plinth_stream_t pooled = stream_on(0);
  gate *held = gate_shut(pooled);
  CHECK_OK(plinth_memset(memory, 1, SIZE, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK(!stream_done(pooled));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(pooled));
  held = gate_shut(NULL);
  CHECK_OK(plinth_memset(memory, 1, SIZE, pooled));
  CHECK_OK(plinth_stream_synchronize(pooled));
  CHECK(!stream_done(NULL));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK_OK(plinth_device_free(memory));
}

TEST(default_streams_of_two_devices_do_not_wait_for_each_other) {
  need_devices(2);
  void *memory = device_memory(SIZE, 1);
  gate *held = gate_shut(NULL);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_memset(memory, 1, SIZE, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK_OK(plinth_set_device(0));
  CHECK(!stream_done(NULL));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK_OK(plinth_device_free(memory));
}

TEST(sleep_keeps_the_stream_busy_and_the_caller_free) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  const double begin = seconds_now();
  CHECK_OK(plinth_sleep(400000000, stream));
  CHECK(!stream_done(stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  const double taken = seconds_now() - begin;
  CHECK(taken > 0.1);
  CHECK(taken < 5.0);
}

TEST(sleep_is_in_the_order_of_the_stream) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_sleep(200000000, stream));
  CHECK_OK(plinth_stream_wait_stream(other, stream));
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK(stream_done(stream));
  CHECK_OK(plinth_sleep(0, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
}
