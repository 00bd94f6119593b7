/* Events: creation, recording, queries, timing, destruction. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_SANITIZER=error */
/* alone: ten_thousand_events_need_one_driver_event; enables fault injection before the first call */
#include "driver.h"
#include "support.h"

#define EVERY_FLAG (PLINTH_EVENT_TIMING | PLINTH_EVENT_BLOCKING | PLINTH_EVENT_INTERPROCESS | PLINTH_EVENT_EXTERNAL)

static bool is_valid(uint32_t flags) {
  return (flags & ~(uint32_t)EVERY_FLAG) == 0 &&
         !((flags & PLINTH_EVENT_TIMING) != 0 && (flags & PLINTH_EVENT_INTERPROCESS) != 0);
}

static void *native_of(plinth_event_t event) {
  void *native = UNTOUCHED_POINTER;
  CHECK_OK(plinth_event_native(event, &native));
  return native;
}

static int32_t device_of_event(plinth_event_t event) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_event_device(event, &device));
  return device;
}

static void expect_working(plinth_event_t event) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_synchronize(event));
  CHECK(event_done(event));
  CHECK_OK(plinth_event_wait(event, stream_on(0)));
}

TEST(events_with_valid_flags_work) {
  for (uint32_t flags = 0; flags <= EVERY_FLAG; flags++) {
    if (is_valid(flags)) {
      plinth_event_t event = new_event(flags);
      expect_working(event);
      CHECK_OK(plinth_event_destroy(event));
    }
  }
}

TEST(invalid_flags_are_refused) {
  const uint32_t beyond[] = {16, 17, 32, 0x80000000u, UINT32_MAX};
  plinth_event_t event = (plinth_event_t)UNTOUCHED_POINTER;
  for (uint32_t flags = 0; flags <= EVERY_FLAG; flags++) {
    if (!is_valid(flags)) {
      CHECK_STATUS(plinth_event_create(flags, &event), PLINTH_ERROR_INVALID_VALUE);
      CHECK_MESSAGE("PLINTH_EVENT_INTERPROCESS");
    }
  }
  for (size_t index = 0; index < sizeof beyond / sizeof beyond[0]; index++) {
    CHECK_STATUS(plinth_event_create(beyond[index], &event), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_SAME(event, UNTOUCHED_POINTER);
}

TEST(an_event_never_recorded_is_complete) {
  plinth_event_t event = new_event(0);
  void *memory = device_memory(KIB, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK(event_done(event));
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_wait(event, stream));
  CHECK_OK(plinth_stream_wait_event(stream, event));
  CHECK_OK(plinth_memset(memory, 1, KIB, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_device_free(memory));
}

TEST(the_first_record_creates_the_driver_event) {
  const int32_t device = device_count() - 1;
  plinth_event_t event = new_event(0);
  CHECK(native_of(event) == NULL);
  CHECK_EQ(device_of_event(event), -1);
  CHECK_OK(plinth_event_wait(event, NULL));
  CHECK(native_of(event) == NULL);
  CHECK_OK(plinth_event_record(event, stream_on(device)));
  void *native = native_of(event);
  CHECK(native != NULL);
  CHECK_EQ(device_of_event(event), device);
  CHECK_OK(plinth_event_record(event, stream_on(device)));
  CHECK_SAME(native_of(event), native);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(an_event_stays_on_its_device) {
  need_devices(2);
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_STATUS(plinth_event_record(event, stream_on(1)), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("event device 0 does not match recording stream's device 1");
  CHECK_EQ(plinth_last_driver_error(), 0);
  CHECK_STATUS(plinth_stream_record_event(stream_on(1), event), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_EQ(device_of_event(event), 0);
  CHECK(!event_done(event));
  gate_open(held);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(query_reports_the_last_record) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_OK(plinth_event_synchronize(event));
  gate *held = gate_shut(stream);
  CHECK(event_done(event));
  CHECK_OK(plinth_event_record(event, stream));
  CHECK(!event_done(event));
  CHECK_OK(plinth_event_record(event, stream_on(0)));
  EVENTUALLY(event_done(event));
  CHECK(!stream_done(stream));
  gate_open(held);
  CHECK_OK(plinth_event_destroy(event));
}

static void expect_synchronize(uint32_t flags) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(flags);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(event, stream));
  pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK(gate_is_open(held));
  CHECK(event_done(event));
  pthread_join(opener, NULL);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(synchronize_waits_for_the_event) {
  expect_synchronize(0);
  expect_synchronize(PLINTH_EVENT_TIMING);
  expect_synchronize(PLINTH_EVENT_BLOCKING);
  expect_synchronize(PLINTH_EVENT_INTERPROCESS);
}

TEST(synchronize_does_not_wait_for_later_work) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK(!stream_done(stream));
  gate_open(held);
  CHECK_OK(plinth_event_destroy(event));
}

/* Work in `waiting` runs after an event recorded in `recorded`, with either pair of calls. */
static void expect_order(plinth_stream_t waiting, plinth_stream_t recorded, void *memory, bool stream_first) {
  plinth_event_t event = new_event(0);
  gate *held = gate_shut(recorded);
  CHECK_OK(stream_first ? plinth_stream_record_event(recorded, event) : plinth_event_record(event, recorded));
  CHECK_OK(stream_first ? plinth_stream_wait_event(waiting, event) : plinth_event_wait(event, waiting));
  CHECK_OK(plinth_memset(memory, 1, KIB, waiting));
  CHECK(stays_undone(waiting));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK(event_done(event));
  CHECK_OK(plinth_event_destroy(event));
}

TEST(wait_orders_two_streams) {
  void *memory = device_memory(KIB, 0);
  expect_order(stream_on(0), stream_on(0), memory, false);
  expect_order(stream_on(0), stream_on(0), memory, true);
  expect_order(stream_on(0), NULL, memory, false);
  expect_order(NULL, stream_on(0), memory, true);
  CHECK_OK(plinth_device_free(memory));
}

TEST(wait_orders_streams_of_two_devices) {
  need_devices(2);
  void *memory = device_memory(KIB, 1);
  expect_order(stream_on(1), stream_on(0), memory, false);
  expect_order(stream_on(1), NULL, memory, true);
  CHECK_OK(plinth_device_free(memory));
}

/* The driver crashes if it waits directly for such an event. */
static void expect_interprocess_order(plinth_stream_t recording, plinth_stream_t waiting) {
  void *memory = device_memory(KIB, 0);
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  for (int round = 0; round < 3; round++) {
    gate *held = gate_shut(recording);
    CHECK_OK(plinth_event_record(event, recording));
    CHECK_OK(plinth_event_wait(event, waiting));
    CHECK_OK(plinth_memset(memory, 1, KIB, waiting));
    CHECK(stays_undone(waiting));
    gate_open(held);
    CHECK_OK(plinth_stream_synchronize(waiting));
    CHECK(event_done(event));
  }
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_device_free(memory));
}

TEST(an_interprocess_event_orders_streams_of_two_devices) {
  need_devices(2);
  expect_interprocess_order(stream_on(1), stream_on(0));
  expect_interprocess_order(stream_on(1), NULL);
}

TEST(wait_ignores_later_records) {
  plinth_stream_t shut = stream_on(0);
  plinth_stream_t waiting = stream_on(0);
  void *memory = device_memory(KIB, 0);
  plinth_event_t event = new_event(0);
  CHECK_OK(plinth_event_record(event, stream_on(0)));
  CHECK_OK(plinth_event_wait(event, waiting));
  gate *held = gate_shut(shut);
  CHECK_OK(plinth_event_record(event, shut));
  CHECK_OK(plinth_memset(memory, 1, KIB, waiting));
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK(!event_done(event));
  gate_open(held);
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_event_destroy(event));
  CHECK_OK(plinth_device_free(memory));
}

TEST(a_stream_keeps_waiting_for_a_destroyed_event) {
  plinth_stream_t shut = stream_on(0);
  plinth_stream_t waiting = stream_on(0);
  plinth_stream_t idle = stream_on(0);
  void *memory = device_memory(KIB, 0);
  plinth_event_t event = new_event(0);
  gate *held = gate_shut(shut);
  CHECK_OK(plinth_event_record(event, shut));
  CHECK_OK(plinth_event_wait(event, waiting));
  CHECK_OK(plinth_event_destroy(event));
  /* The next event may reuse the driver's event. Recording it elsewhere must not end the wait. */
  plinth_event_t next = new_event(0);
  CHECK_OK(plinth_event_record(next, idle));
  CHECK_OK(plinth_event_synchronize(next));
  CHECK_OK(plinth_memset(memory, 1, KIB, waiting));
  CHECK(stays_undone(waiting));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(waiting));
  CHECK(stream_done(shut));
  CHECK_OK(plinth_event_destroy(next));
  CHECK_OK(plinth_device_free(memory));
}

TEST(elapsed_time_between_two_events) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t start = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t end = new_event(PLINTH_EVENT_TIMING);
  float forward = -1;
  float backward = 1;
  float none = 1;
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_event_record(start, stream));
  CHECK_OK(plinth_sleep(200000000, stream));
  CHECK_OK(plinth_event_record(end, stream));
  CHECK_OK(plinth_event_synchronize(end));
  CHECK_OK(plinth_event_elapsed_time(start, end, &forward));
  CHECK_OK(plinth_event_elapsed_time(end, start, &backward));
  CHECK_OK(plinth_event_elapsed_time(start, start, &none));
  CHECK(forward > 50 && forward < 5000);
  CHECK(backward == -forward);
  CHECK(none == 0);
  CHECK_OK(plinth_event_destroy(start));
  CHECK_OK(plinth_event_destroy(end));
}

TEST(elapsed_time_needs_events_with_timing) {
  plinth_event_t timed = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t plain = new_event(0);
  float time = (float)UNTOUCHED;
  CHECK_STATUS(plinth_event_elapsed_time(plain, timed, &time), PLINTH_ERROR_EVENT_TIMING_DISABLED);
  CHECK_MESSAGE("PLINTH_EVENT_TIMING");
  CHECK_STATUS(plinth_event_elapsed_time(timed, plain, &time), PLINTH_ERROR_EVENT_TIMING_DISABLED);
  expect_working(timed);
  expect_working(plain);
  CHECK_STATUS(plinth_event_elapsed_time(timed, plain, &time), PLINTH_ERROR_EVENT_TIMING_DISABLED);
  CHECK_STATUS(plinth_event_elapsed_time(plain, plain, &time), PLINTH_ERROR_EVENT_TIMING_DISABLED);
  CHECK(time == (float)UNTOUCHED);
}

TEST(elapsed_time_needs_recorded_events) {
  plinth_event_t recorded = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t fresh = new_event(PLINTH_EVENT_TIMING);
  float time = (float)UNTOUCHED;
  expect_working(recorded);
  CHECK_STATUS(plinth_event_elapsed_time(recorded, fresh, &time), PLINTH_ERROR_EVENT_NOT_RECORDED);
  CHECK_MESSAGE("recorded");
  CHECK_STATUS(plinth_event_elapsed_time(fresh, recorded, &time), PLINTH_ERROR_EVENT_NOT_RECORDED);
  CHECK_STATUS(plinth_event_elapsed_time(fresh, fresh, &time), PLINTH_ERROR_EVENT_NOT_RECORDED);
  CHECK(time == (float)UNTOUCHED);
}

TEST(elapsed_time_needs_complete_events) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t start = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t end = new_event(PLINTH_EVENT_TIMING);
  float time = (float)UNTOUCHED;
  expect_working(start);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_event_record(end, stream));
  CHECK_STATUS(plinth_event_elapsed_time(start, end, &time), PLINTH_ERROR_EVENT_NOT_COMPLETE);
  CHECK_MESSAGE("complete");
  CHECK_STATUS(plinth_event_elapsed_time(end, start, &time), PLINTH_ERROR_EVENT_NOT_COMPLETE);
  CHECK(time == (float)UNTOUCHED);
  gate_open(held);
  CHECK_OK(plinth_event_synchronize(end));
  CHECK_OK(plinth_event_elapsed_time(start, end, &time));
  CHECK(time >= 0 && time < 60000);
}

TEST(elapsed_time_needs_events_of_one_device) {
  need_devices(2);
  plinth_event_t zero = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t one = new_event(PLINTH_EVENT_TIMING);
  float time = (float)UNTOUCHED;
  CHECK_OK(plinth_event_record(zero, stream_on(0)));
  CHECK_OK(plinth_event_record(one, stream_on(1)));
  CHECK_OK(plinth_event_synchronize(zero));
  CHECK_OK(plinth_event_synchronize(one));
  CHECK_STATUS(plinth_event_elapsed_time(zero, one, &time), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK(time == (float)UNTOUCHED);
}

static void expect_event_refused(plinth_event_t event, plinth_status_t status) {
  plinth_event_t timed = new_event(PLINTH_EVENT_TIMING);
  bool done = true;
  int32_t device = UNTOUCHED;
  void *native = UNTOUCHED_POINTER;
  float time = (float)UNTOUCHED;
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE] = {7};
  expect_working(timed);
  CHECK_STATUS(plinth_event_record(event, NULL), status);
  CHECK_STATUS(plinth_stream_record_event(NULL, event), status);
  CHECK_STATUS(plinth_event_wait(event, NULL), status);
  CHECK_STATUS(plinth_stream_wait_event(NULL, event), status);
  CHECK_STATUS(plinth_event_query(event, &done), status);
  CHECK_STATUS(plinth_event_synchronize(event), status);
  CHECK_STATUS(plinth_event_elapsed_time(event, timed, &time), status);
  CHECK_STATUS(plinth_event_elapsed_time(timed, event, &time), status);
  CHECK_STATUS(plinth_event_device(event, &device), status);
  CHECK_STATUS(plinth_event_native(event, &native), status);
  CHECK_STATUS(plinth_event_ipc_handle(event, ipc_handle), status);
  if (event != NULL) {
    CHECK_STATUS(plinth_event_destroy(event), status);
  }
  CHECK(done);
  CHECK(time == (float)UNTOUCHED);
  CHECK_EQ(device, UNTOUCHED);
  CHECK_SAME(native, UNTOUCHED_POINTER);
  CHECK_EQ(ipc_handle[0], 7);
  CHECK_OK(plinth_event_destroy(timed));
}

TEST(a_destroyed_event_is_refused) {
  plinth_event_t fresh = new_event(0);
  CHECK_OK(plinth_event_destroy(fresh));
  expect_event_refused(fresh, PLINTH_ERROR_INVALID_HANDLE);
  plinth_event_t recorded = new_event(PLINTH_EVENT_TIMING);
  expect_working(recorded);
  CHECK_OK(plinth_event_destroy(recorded));
  CHECK_STATUS(plinth_event_destroy(recorded), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("destroyed");
  expect_event_refused(recorded, PLINTH_ERROR_INVALID_HANDLE);
}

TEST(a_destroyed_event_is_refused_after_its_slot_is_reused) {
  plinth_event_t old = new_event(0);
  CHECK_OK(plinth_event_destroy(old));
  for (int round = 0; round < 1000; round++) {
    plinth_event_t event = new_event(0);
    CHECK(event != old);
    CHECK_STATUS(plinth_event_record(old, NULL), PLINTH_ERROR_INVALID_HANDLE);
    CHECK_OK(plinth_event_destroy(event));
  }
}

TEST(invalid_handles_are_refused) {
  int on_stack = 0;
  uint64_t state = 2;
  expect_event_refused((plinth_event_t)(void *)stream_on(0), PLINTH_ERROR_INVALID_HANDLE);
  expect_event_refused((plinth_event_t)(void *)&on_stack, PLINTH_ERROR_INVALID_HANDLE);
  expect_event_refused((plinth_event_t)(uintptr_t)1, PLINTH_ERROR_INVALID_HANDLE);
  expect_event_refused((plinth_event_t)UINTPTR_MAX, PLINTH_ERROR_INVALID_HANDLE);
  for (int round = 0; round < 100; round++) {
    expect_event_refused((plinth_event_t)(uintptr_t)(random_next(&state) | 1), PLINTH_ERROR_INVALID_HANDLE);
  }
}

TEST(null_is_refused) {
  float time = (float)UNTOUCHED;
  plinth_event_t event = new_event(PLINTH_EVENT_TIMING);
  expect_event_refused(NULL, PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_event_destroy(NULL));
  CHECK_STATUS(plinth_event_create(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_query(event, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_device(event, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_native(event, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_ipc_handle(event, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_elapsed_time(event, event, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_event_elapsed_time(NULL, event, &time), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_event_destroy(event));
}

TEST(recycled_events_have_their_own_flags) {
  enum { EVENTS = 64 };
  plinth_event_t events[EVENTS];
  uint64_t state = 6;
  DRIVER(driver_elapsed_time, elapsed, "cuEventElapsedTime");
  for (int round = 0; round < 6; round++) {
    for (int index = 0; index < EVENTS; index++) {
      const bool timed = random_next(&state) % 2 == 0;
      float time = -1;
      events[index] = new_event((timed ? PLINTH_EVENT_TIMING : 0) | (index % 3 == 0 ? PLINTH_EVENT_BLOCKING : 0));
      expect_working(events[index]);
      void *native = native_of(events[index]);
      CHECK_EQ(elapsed(&time, native, native) == CUDA_SUCCESS, timed);
    }
    for (int index = 0; index < EVENTS; index++) {
      CHECK_OK(plinth_event_destroy(events[index]));
    }
  }
}

TEST(ten_thousand_events_need_one_driver_event) {
  uint64_t created = 0;
  CHECK_OK(plinth_enable_fault_injection());
  plinth_stream_t stream = stream_on(0);
  for (int round = 0; round < 10000; round++) {
    plinth_event_t event = new_event(0);
    CHECK_OK(plinth_event_record(event, stream));
    CHECK_OK(plinth_event_destroy(event));
  }
  CHECK_OK(plinth_driver_call_count("cuEventCreate", &created));
  CHECK_EQ(created, 1);
  CHECK_OK(plinth_stream_synchronize(stream));
}
