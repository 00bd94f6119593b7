/* Streams: pools, the current stream, properties, external streams. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: each_priority_has_its_own_pool ids_are_those_of_pytorch; expects what only a fresh process has */
/* alone: known_streams_may_be_registered_again; expects what only a fresh process has */
#include "driver.h"
#include "support.h"

#define POOL 32

static int32_t device_of_stream(plinth_stream_t stream) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_stream_device(stream, &device));
  return device;
}

static int32_t priority_of(plinth_stream_t stream) {
  int32_t priority = UNTOUCHED;
  CHECK_OK(plinth_stream_priority(stream, &priority));
  return priority;
}

static uint64_t id_of(plinth_stream_t stream) {
  uint64_t id = UNTOUCHED;
  CHECK_OK(plinth_stream_id(stream, &id));
  return id;
}

TEST(the_33rd_stream_is_the_first_again) {
  plinth_stream_t streams[POOL];
  for (int index = 0; index < POOL; index++) {
    streams[index] = stream_on(0);
    CHECK(streams[index] != NULL);
    for (int other = 0; other < index; other++) {
      CHECK(streams[index] != streams[other]);
    }
  }
  for (int index = 0; index < 2 * POOL; index++) {
    CHECK_SAME(stream_on(0), streams[index % POOL]);
  }
}

TEST(each_device_has_its_own_pool) {
  need_devices(2);
  plinth_stream_t on_zero = stream_on(0);
  plinth_stream_t on_one = stream_on(1);
  CHECK(on_zero != on_one);
  CHECK_EQ(device_of_stream(on_zero), 0);
  CHECK_EQ(device_of_stream(on_one), 1);
  CHECK_EQ(current_device(), 0);
}

TEST(each_priority_has_its_own_pool) {
  int32_t least = UNTOUCHED;
  int32_t greatest = UNTOUCHED;
  plinth_stream_t streams[64];
  int count = 0;
  CHECK_OK(plinth_stream_priority_range(0, &least, &greatest));
  CHECK_EQ(least, 0);
  CHECK(greatest < 0);
  for (int32_t priority = greatest; priority <= least; priority++, count++) {
    CHECK_OK(plinth_stream_create(0, priority, &streams[count]));
    CHECK_EQ(priority_of(streams[count]), priority);
    CHECK_EQ(id_of(streams[count]), (uint64_t)(1 - priority) * 2 + 1);
    for (int other = 0; other < count; other++) {
      CHECK(streams[count] != streams[other]);
    }
  }
}

TEST(a_priority_out_of_range_is_clamped) {
  int32_t least = 0;
  int32_t greatest = 0;
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_stream_priority_range(0, &least, &greatest));
  const int32_t low[] = {1, 5, INT32_MAX};
  const int32_t high[] = {greatest - 1, -1000, INT32_MIN};
  for (int index = 0; index < 3; index++) {
    CHECK_OK(plinth_stream_create(0, low[index], &stream));
    CHECK_EQ(priority_of(stream), 0);
    CHECK_OK(plinth_stream_create(0, high[index], &stream));
    CHECK_EQ(priority_of(stream), greatest);
  }
}

TEST(ids_are_those_of_pytorch) {
  for (uint64_t index = 0; index < POOL; index++) {
    CHECK_EQ(id_of(stream_on(0)), index * 32 + 3);
  }
  CHECK_EQ(id_of(NULL), 0);
}

static plinth_stream_t created[16][POOL];

static void *create_pool_streams(void *context) {
  for (int index = 0; index < POOL; index++) {
    created[*(int *)context][index] = stream_on(0);
  }
  return NULL;
}

TEST(sixteen_threads_share_one_pool_evenly) {
  int uses[POOL] = {0};
  run_threads(16, create_pool_streams);
  for (int thread = 0; thread < 16; thread++) {
    for (int index = 0; index < POOL; index++) {
      const uint64_t index_in_pool = id_of(created[thread][index]) / 32;
      CHECK(index_in_pool < POOL);
      uses[index_in_pool]++;
    }
  }
  for (int index_in_pool = 0; index_in_pool < POOL; index_in_pool++) {
    CHECK_EQ(uses[index_in_pool], 16);
  }
}

TEST(the_default_stream_is_null_on_every_device) {
  for (int32_t device = -1; device < device_count(); device++) {
    plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
    CHECK_OK(plinth_default_stream(device, &stream));
    CHECK(stream == NULL);
    CHECK(current_on(device) == NULL);
  }
  CHECK_EQ(priority_of(NULL), 0);
}

TEST(null_is_the_current_devices_default_stream) {
  need_devices(2);
  CHECK_EQ(device_of_stream(NULL), 0);
  CHECK_OK(plinth_set_device(1));
  CHECK_EQ(device_of_stream(NULL), 1);
}

TEST(the_default_stream_handles_of_cuda_are_known) {
  for (uintptr_t handle = 1; handle <= 2; handle++) {
    plinth_stream_t stream = (plinth_stream_t)handle;
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK(stream_done(stream));
    CHECK_EQ(device_of_stream(stream), 0);
    CHECK_EQ(id_of(stream), 0);
  }
}

TEST(set_stream_makes_the_stream_and_its_device_current) {
  need_devices(2);
  plinth_stream_t on_zero = stream_on(0);
  plinth_stream_t on_one = stream_on(1);
  CHECK_OK(plinth_set_stream(on_zero));
  CHECK_SAME(current_on(0), on_zero);
  CHECK(current_on(1) == NULL);
  CHECK_OK(plinth_set_stream(on_one));
  CHECK_EQ(current_device(), 1);
  CHECK_SAME(current_on(-1), on_one);
  CHECK_SAME(current_on(0), on_zero);
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_EQ(current_device(), 1);
  CHECK(current_on(1) == NULL);
  CHECK_SAME(current_on(0), on_zero);
}

TEST(an_unknown_stream_does_not_become_current) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_STATUS(plinth_set_stream((plinth_stream_t)UNTOUCHED_POINTER), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_SAME(current_on(0), stream);
}

static void *set_current_stream(void *context) {
  (void)context;
  CHECK(current_on(0) == NULL);
  plinth_stream_t own_stream = stream_on(0);
  CHECK_OK(plinth_set_stream(own_stream));
  for (int round = 0; round < 1000; round++) {
    CHECK_SAME(current_on(0), own_stream);
  }
  return NULL;
}

TEST(each_thread_has_its_own_current_stream) {
  plinth_stream_t own_stream = stream_on(0);
  CHECK_OK(plinth_set_stream(own_stream));
  run_threads(8, set_current_stream);
  CHECK_SAME(current_on(0), own_stream);
}

TEST(stream_contexts_nest) {
  plinth_stream_t outer = stream_on(0);
  plinth_stream_t inner = stream_on(0);
  plinth_stream_context_t outside;
  plinth_stream_context_t between;
  plinth_stream_context_t inside;
  CHECK_OK(plinth_stream_context_enter(outer, &outside));
  CHECK_OK(plinth_stream_context_enter(inner, &between));
  CHECK_SAME(current_on(0), inner);
  CHECK_OK(plinth_stream_context_enter(NULL, &inside));
  CHECK(current_on(0) == NULL);
  CHECK_OK(plinth_stream_context_exit(&inside));
  CHECK_SAME(current_on(0), inner);
  CHECK_OK(plinth_stream_context_exit(&between));
  CHECK_SAME(current_on(0), outer);
  CHECK_OK(plinth_stream_context_exit(&outside));
  CHECK(current_on(0) == NULL);
}

TEST(stream_contexts_across_devices) {
  need_devices(2);
  plinth_stream_t before_zero = stream_on(0);
  plinth_stream_t before_one = stream_on(1);
  plinth_stream_t entered = stream_on(1);
  plinth_stream_context_t saved;
  CHECK_OK(plinth_set_stream(before_one));
  CHECK_OK(plinth_set_stream(before_zero));
  CHECK_OK(plinth_stream_context_enter(entered, &saved));
  CHECK_EQ(current_device(), 1);
  CHECK_SAME(current_on(1), entered);
  CHECK_SAME(current_on(0), before_zero);
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_stream_context_exit(&saved));
  CHECK_EQ(current_device(), 0);
  CHECK_SAME(current_on(0), before_zero);
  CHECK_SAME(current_on(1), before_one);
}

TEST(a_context_that_was_not_entered_is_refused) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_context_t saved;
  CHECK_STATUS(plinth_stream_context_enter(stream, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_context_exit(NULL), PLINTH_ERROR_NULL_POINTER);
  memset(&saved, 0xA5, sizeof saved);
  CHECK_STATUS(plinth_stream_context_enter((plinth_stream_t)UNTOUCHED_POINTER, &saved), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_EQ((uint32_t)saved.device, 0xA5A5A5A5u);
  CHECK(current_on(0) == NULL);
  CHECK_OK(plinth_stream_context_enter(stream, &saved));
  plinth_stream_context_t wrong = saved;
  wrong.device = -5;
  CHECK_STATUS(plinth_stream_context_exit(&wrong), PLINTH_ERROR_INVALID_DEVICE);
  wrong = saved;
  wrong.entered_device = 1000;
  CHECK_STATUS(plinth_stream_context_exit(&wrong), PLINTH_ERROR_INVALID_DEVICE);
  wrong = saved;
  wrong.stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_stream_context_exit(&wrong), PLINTH_ERROR_INVALID_HANDLE);
  wrong = saved;
  wrong.entered_stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_stream_context_exit(&wrong), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_SAME(current_on(0), stream);
  CHECK_OK(plinth_stream_context_exit(&saved));
  CHECK(current_on(0) == NULL);
}

TEST(an_external_stream_is_unknown_until_it_is_registered) {
  plinth_stream_t stream = foreign_stream(0, CU_STREAM_NON_BLOCKING, -1);
  plinth_stream_t known = NULL;
  bool done = false;
  CHECK_STATUS(plinth_stream_query(stream, &done), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("plinth_stream_from_external");
  CHECK_OK(plinth_stream_from_external(stream, 0, &known));
  CHECK_SAME(known, stream);
  CHECK_OK(plinth_stream_from_external(stream, -1, &known));
  CHECK(stream_done(stream));
  CHECK_EQ(device_of_stream(stream), 0);
  CHECK_EQ(priority_of(stream), -1);
  CHECK_EQ(id_of(stream), (uintptr_t)stream);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_SAME(current_on(0), stream);
  CHECK_OK(plinth_set_stream(NULL));
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  CHECK_EQ(destroy(stream), CUDA_SUCCESS);
}

TEST(an_external_stream_must_match_its_device) {
  need_devices(2);
  plinth_stream_t stream = foreign_stream(1, CU_STREAM_NON_BLOCKING, 0);
  plinth_stream_t known = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_stream_from_external(stream, 0, &known), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_stream_from_external(stream, -1, &known), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_stream_from_external(stream_on(1), 0, &known), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_SAME(known, UNTOUCHED_POINTER);
  CHECK_OK(plinth_stream_from_external(stream, 1, &known));
  CHECK_EQ(device_of_stream(stream), 1);
}

TEST(known_streams_may_be_registered_again) {
  plinth_stream_t pooled = stream_on(0);
  plinth_stream_t known = NULL;
  CHECK_OK(plinth_stream_from_external(pooled, 0, &known));
  CHECK_SAME(known, pooled);
  CHECK_EQ(id_of(pooled), 3);
  for (uintptr_t handle = 0; handle <= 2; handle++) {
    CHECK_OK(plinth_stream_from_external((void *)handle, 0, &known));
    CHECK_SAME(known, handle);
  }
  CHECK_STATUS(plinth_stream_from_external(NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
}

static void do_nothing(void *context) { (void)context; }

static void expect_unknown(plinth_stream_t stream) {
  plinth_event_t event = new_event(0);
  plinth_stream_context_t saved;
  bool flag = true;
  int32_t number = UNTOUCHED;
  uint64_t id = UNTOUCHED;
  unsigned char host[4] = {0};
  CHECK_STATUS(plinth_set_stream(stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_context_enter(stream, &saved), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_query(stream, &flag), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_wait_stream(stream, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_wait_stream(NULL, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_wait_stream(stream, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_priority(stream, &number), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_id(stream, &id), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_device(stream, &number), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_is_capturing(stream, &flag), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_launch_host_function(stream, do_nothing, NULL), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_sleep(1, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_event_record(event, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_record_event(stream, event), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_event_wait(event, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_wait_event(stream, event), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_memcpy(host, host + 2, 2, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_memset(host, 1, 2, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_memset_pattern(host, host, 1, 2, stream), PLINTH_ERROR_INVALID_HANDLE);
  CHECK(flag);
  CHECK_EQ(number, UNTOUCHED);
  CHECK_EQ(id, UNTOUCHED);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(invalid_stream_handles_are_refused) {
  const plinth_event_t event = new_event(0);
  int on_stack = 0;
  uint64_t state = 1;
  expect_unknown((plinth_stream_t)(void *)event);
  expect_unknown((plinth_stream_t)(void *)&on_stack);
  expect_unknown((plinth_stream_t)(uintptr_t)3);
  expect_unknown((plinth_stream_t)UINTPTR_MAX);
  expect_unknown((plinth_stream_t)((char *)stream_on(0) + 1));
  for (int round = 0; round < 100; round++) {
    expect_unknown((plinth_stream_t)(uintptr_t)(random_next(&state) | 4));
  }
}

TEST(outputs_must_not_be_null) {
  int32_t number = UNTOUCHED;
  CHECK_STATUS(plinth_stream_create(0, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_current_stream(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_default_stream(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_query(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_priority_range(0, NULL, &number), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_priority_range(0, &number, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_priority(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_id(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_device(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_stream_is_capturing(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_is_current_stream_capturing(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_launch_host_function(NULL, NULL, &number), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(number, UNTOUCHED);
}
