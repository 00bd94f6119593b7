/* The names of streams: NULL, the current stream, and the default stream of a device. A call resolves them on the device
 * that it is about. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "drawing.h"
#include "graphing.h"

#define CURRENT PLINTH_STREAM_CURRENT

static int32_t device_of(plinth_stream_t stream) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_stream_device(stream, &device));
  return device;
}

TEST(names_are_no_handles) {
  CHECK((uintptr_t)CURRENT > 2);
  CHECK((uintptr_t)PLINTH_STREAM_DEFAULT_OF(0) > 2);
  CHECK(PLINTH_STREAM_DEFAULT_OF(0) != PLINTH_STREAM_DEFAULT_OF(1));
  CHECK(PLINTH_STREAM_DEFAULT_OF(-1) != CURRENT);
  CHECK_EQ(device_of(CURRENT), 0);
  CHECK_EQ(device_of(PLINTH_STREAM_DEFAULT_OF(-1)), 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_set_stream(CURRENT));
  CHECK_SAME(current_on(0), stream);
  CHECK_OK(plinth_set_stream(PLINTH_STREAM_DEFAULT_OF(0)));
  CHECK(current_on(0) == NULL);
}

TEST(the_name_of_a_device_that_does_not_exist_is_refused) {
  const int32_t devices[] = {device_count(), 64, 255, INT32_MAX, -2, INT32_MIN};
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  void *pointer = UNTOUCHED_POINTER;
  for (int index = 0; index < 6; index++) {
    plinth_stream_t name = PLINTH_STREAM_DEFAULT_OF(devices[index]);
    CHECK_STATUS(plinth_stream_synchronize(name), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_set_stream(name), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_memset(memory, 1, MIB, name), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, name, &pointer), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_record_stream(memory, name), PLINTH_ERROR_INVALID_DEVICE);
  }
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  release(memory);
  expect_nothing_left();
}

TEST(memory_of_the_current_stream_is_reused_in_its_order) {
  /* With NULL in place of the name, the second block is in another stream and must not be the first one. */
  plinth_stream_t stream = stream_on(0);
  plinth_stream_context_t saved;
  CHECK_OK(plinth_stream_context_enter(stream, &saved));
  unsigned char *first = alloc_on(MIB, 0, CURRENT);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memset(first, 0x11, MIB, CURRENT));
  release(first);
  unsigned char *second = alloc_on(MIB, 0, CURRENT);
  CHECK_SAME(second, first);
  CHECK_OK(plinth_memset(second, 0x22, MIB, CURRENT));
  CHECK(!stream_done(CURRENT));
  unsigned char *other = alloc_on(MIB, 0, NULL);
  CHECK(!overlap(other, MIB, first, MIB));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(CURRENT));
  unsigned char host[4] = {0};
  CHECK_OK(plinth_copy(host, second, 4, false));
  CHECK_EQ(host[0], 0x22);
  CHECK_OK(plinth_stream_context_exit(&saved));
  release(second);
  release(other);
  expect_nothing_left();
}

TEST(work_in_the_current_stream_is_captured) {
  float *numbers = (float *)(void *)alloc_on(256 * sizeof(float), 0, NULL);
  unsigned char *bytes = alloc_on(MIB, 0, NULL);
  tensor filled;
  row(&filled, numbers, F32, 256);
  CHECK_OK(plinth_memset(numbers, 0, sizeof(float) * 256, NULL));
  CHECK_OK(plinth_memset(bytes, 0, MIB, NULL));
  CHECK_OK(plinth_synchronize(0));
  plinth_graph_t graph = new_graph(PLINTH_GRAPH_KEEP_GRAPH);
  plinth_graph_context_t context;
  CHECK_OK(plinth_graph_begin(graph, NULL, NULL, PLINTH_CAPTURE_GLOBAL, &context));
  CHECK(capturing_here());
  CHECK_OK(plinth_uniform(&filled.dl, 1.0, 2.0, NULL, CURRENT));
  CHECK_OK(plinth_memset(bytes, 7, MIB, CURRENT));
  CHECK_OK(plinth_graph_end(&context, PLINTH_OK));
  size_t count = 0;
  CHECK_OK(plinth_graph_nodes(graph, NULL, 0, &count));
  /* The third one advances the generator's offset. */
  CHECK_EQ(count, 3);
  float drawn_numbers[256];
  unsigned char host[4] = {1, 1, 1, 1};
  CHECK_OK(plinth_copy(drawn_numbers, numbers, sizeof(drawn_numbers), false));
  CHECK_OK(plinth_copy(host, bytes, 4, false));
  CHECK(drawn_numbers[0] == 0 && host[0] == 0);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_copy(drawn_numbers, numbers, sizeof(drawn_numbers), false));
  CHECK_OK(plinth_copy(host, bytes, 4, false));
  CHECK(drawn_numbers[0] >= 1 && drawn_numbers[255] >= 1 && host[3] == 7);
  CHECK_OK(plinth_graph_destroy(graph));
  release(numbers);
  release(bytes);
  expect_nothing_left();
}

TEST(a_device_can_be_named_without_its_being_current) {
  need_devices(2);
  plinth_stream_t on_one = stream_on(1);
  CHECK_EQ(device_of(PLINTH_STREAM_DEFAULT_OF(1)), 1);
  CHECK_OK(plinth_set_stream_of(1, on_one));
  CHECK_EQ(current_device(), 0);
  CHECK_SAME(current_on(1), on_one);
  CHECK(current_on(0) == NULL);
  CHECK_STATUS(plinth_set_stream_of(0, on_one), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_set_stream_of(0, PLINTH_STREAM_DEFAULT_OF(1)), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_set_stream_of(device_count(), NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_OK(plinth_set_stream_of(1, CURRENT));
  CHECK_SAME(current_on(1), on_one);
  CHECK_OK(plinth_set_stream_of(1, NULL));
  CHECK(current_on(1) == NULL);
  CHECK_OK(plinth_set_stream(PLINTH_STREAM_DEFAULT_OF(1)));
  CHECK_EQ(current_device(), 1);
  /* No call returns a name. */
  CHECK(current_on(1) == NULL);
  plinth_stream_context_t saved;
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_set_stream_of(1, on_one));
  CHECK_OK(plinth_stream_context_enter(PLINTH_STREAM_DEFAULT_OF(1), &saved));
  CHECK_EQ(current_device(), 1);
  CHECK(current_on(1) == NULL);
  CHECK_OK(plinth_stream_context_exit(&saved));
  CHECK_EQ(current_device(), 0);
  CHECK_SAME(current_on(1), on_one);
}

/* Whether memory of device 0 that device 1 reads is protected, when `name` is recorded with `current` as current device. */
static void expect_use_by_device_one_recorded(plinth_stream_t name, int32_t current) {
  unsigned char *memory = alloc_on(4 * MIB, 0, NULL);
  plinth_stream_t of_one = PLINTH_STREAM_DEFAULT_OF(1);
  gate *shut = hold(of_one);
  CHECK_OK(plinth_set_device(current));
  CHECK_OK(plinth_record_stream(memory, name));
  CHECK_OK(plinth_set_device(0));
  release(memory);
  void *later = alloc_on(4 * MIB, 0, NULL);
  CHECK(!overlap(later, 4 * MIB, memory, 4 * MIB));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(of_one));
  release(later);
  expect_nothing_left();
}

TEST(a_use_by_another_devices_default_stream_is_recorded) {
  need_devices(2);
  plinth_stream_t default_stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_default_stream(1, &default_stream));
  expect_use_by_device_one_recorded(default_stream, 1);
  expect_use_by_device_one_recorded(PLINTH_STREAM_DEFAULT_OF(1), 0);
  expect_use_by_device_one_recorded(CURRENT, 1);
}

TEST(null_also_records_the_default_stream_of_the_memorys_device) {
  need_devices(2);
  unsigned char *memory = alloc_on(4 * MIB, 0, stream_on(0));
  gate *shut = hold(NULL);
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_record_stream(memory, NULL));
  release(memory);
  CHECK_OK(plinth_set_device(0));
  void *later = alloc_on(4 * MIB, 0, stream_on(0));
  CHECK(!overlap(later, 4 * MIB, memory, 4 * MIB));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(NULL));
  release(later);
  expect_nothing_left();
}

TEST(an_event_is_recorded_on_its_own_device) {
  need_devices(2);
  plinth_event_t event = new_event(0);
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_event_record(event, PLINTH_STREAM_DEFAULT_OF(1)));
  gate *shut = gate_shut(PLINTH_STREAM_DEFAULT_OF(1));
  CHECK_OK(plinth_event_record(event, NULL));
  CHECK_OK(plinth_event_device(event, &device));
  CHECK_EQ(device, 1);
  CHECK(!event_done(event));
  /* A wait is in the current device's stream: it may wait for another device. */
  CHECK_OK(plinth_event_wait(event, NULL));
  CHECK(!stream_done(PLINTH_STREAM_DEFAULT_OF(0)));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(NULL));
  CHECK_STATUS(plinth_event_record(event, PLINTH_STREAM_DEFAULT_OF(0)), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_OK(plinth_event_destroy(event));
}

/* Fills and copies memory of device 1 while device 0 is current, with a name as the stream. */
static void expect_work_on_device_one(plinth_stream_t name, plinth_stream_t expected) {
  unsigned char *memory = alloc_on(MIB, 1, name);
  unsigned char host[16] = {0};
  CHECK_EQ(current_device(), 0);
  gate *shut = gate_shut(expected);
  CHECK_OK(plinth_memset(memory, 0x5A, MIB, name));
  CHECK(!stream_done(expected));
  CHECK(stream_done(NULL));
  gate_open(shut);
  CHECK_OK(plinth_memcpy(host, memory, 16, name));
  CHECK_OK(plinth_stream_synchronize(expected));
  CHECK_EQ(host[15], 0x5A);
  const uint16_t pattern = 0x1234;
  CHECK_OK(plinth_memset_pattern(memory, &pattern, 2, MIB, name));
  CHECK_OK(plinth_memcpy(host, memory, 16, name));
  CHECK_OK(plinth_stream_synchronize(expected));
  CHECK_EQ(host[1], 0x12);
  host[0] = 3;
  CHECK_OK(plinth_memcpy(memory, host, 16, name));
  tensor filled;
  float number = 0;
  row(&filled, memory, F32, MIB / 4)->device.device_id = 1;
  CHECK_OK(plinth_uniform(&filled.dl, 1.0, 2.0, NULL, name));
  CHECK_OK(plinth_memcpy(&number, memory, 4, name));
  CHECK_OK(plinth_stream_synchronize(expected));
  CHECK(number >= 1 && number < 2);
  /* A stream of another device is refused before anything is drawn or enqueued. */
  CHECK_STATUS(plinth_uniform(&filled.dl, 0.0, 1.0, NULL, stream_on(0)), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_uniform(&filled.dl, 0.0, 1.0, NULL, PLINTH_STREAM_DEFAULT_OF(0)), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("the call works on device 1");
  CHECK_EQ(current_device(), 0);
  release(memory);
}

TEST(work_runs_on_the_device_of_its_memory) {
  need_devices(2);
  expect_work_on_device_one(NULL, PLINTH_STREAM_DEFAULT_OF(1));
  expect_work_on_device_one(CURRENT, PLINTH_STREAM_DEFAULT_OF(1));
  plinth_stream_t on_one = stream_on(1);
  CHECK_OK(plinth_set_stream_of(1, on_one));
  expect_work_on_device_one(CURRENT, on_one);
  expect_nothing_left();
}
