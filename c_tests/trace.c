/* Traces of allocations and frees, for replays. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "allocating.h"

#include <limits.h>

enum { ALLOC = 0, FREE = 1, MAX_EVENTS = 20000, EVENT_BYTES = 16 };

typedef struct event {
  uint32_t id;
  uint16_t op;
  uint16_t stream;
  uint64_t bytes;
} event;

static event events[MAX_EVENTS];

static uint64_t read_little_endian(const unsigned char *bytes, int count) {
  uint64_t value = 0;
  while (count > 0) {
    value = value << 8 | bytes[--count];
  }
  return value;
}

/* Reads a trace, and checks its invariants: an id is live from its alloc to its free, and sizes agree. */
static int read_trace(const char *path) {
  static int live[MAX_EVENTS];
  unsigned char raw[EVENT_BYTES];
  int count = 0;
  size_t got;
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  memset(live, 0, sizeof live);
  while ((got = fread(raw, 1, sizeof raw, file)) == sizeof raw) {
    event *const read = &events[count];
    CHECK(count < MAX_EVENTS);
    read->id = (uint32_t)read_little_endian(raw, 4);
    read->op = (uint16_t)read_little_endian(raw + 4, 2);
    read->stream = (uint16_t)read_little_endian(raw + 6, 2);
    read->bytes = read_little_endian(raw + 8, 8);
    CHECK(read->op == ALLOC || read->op == FREE);
    CHECK(read->id < MAX_EVENTS);
    if (read->op == ALLOC) {
      CHECK_EQ(live[read->id], 0);
      live[read->id] = count + 1;
    } else {
      CHECK(live[read->id] != 0);
      CHECK_EQ(read->bytes, events[live[read->id] - 1].bytes);
      CHECK_EQ(read->stream, 0);
      live[read->id] = 0;
    }
    count++;
  }
  CHECK_EQ(got, 0);
  fclose(file);
  return count;
}

static char path[PATH_MAX];
static char path_of_device_1[PATH_MAX + 2];

static void start(void) {
  const char *folder = getenv("TMPDIR");
  snprintf(path, sizeof path - 4, "%s/plinth-trace-XXXXXX", folder != NULL ? folder : "/tmp");
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  snprintf(path_of_device_1, sizeof path_of_device_1, "%s.1", path);
  CHECK_OK(plinth_trace_start(path));
}

static void remove_files(void) {
  unlink(path);
  unlink(path_of_device_1);
}

static void expect_event(int index, int op, uint32_t id, int stream, size_t bytes) {
  CHECK_EQ(events[index].op, op);
  CHECK_EQ(events[index].id, id);
  CHECK_EQ(events[index].stream, stream);
  CHECK_EQ(events[index].bytes, bytes);
}

TEST(allocations_and_frees_are_written) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  start();
  void *one = alloc_on(1000, 0, first);
  void *other = alloc_on(3 * MIB + 1, 0, second);
  release(one);
  void *third = alloc_on(1, 0, NULL);
  void *fourth = alloc_on(KIB, 0, first);
  release(other);
  release(third);
  release(fourth);
  CHECK_OK(plinth_caching_allocator_delete(NULL));
  CHECK_OK(plinth_trace_stop());
  release(alloc_on(KIB, 0, first));
  CHECK_EQ(read_trace(path), 8);
  const uint32_t ids[] = {events[0].id, events[1].id, events[3].id, events[4].id};
  expect_event(0, ALLOC, ids[0], 0, 1000);
  expect_event(1, ALLOC, ids[1], 1, 3 * MIB + 1);
  expect_event(2, FREE, ids[0], 0, 1000);
  expect_event(3, ALLOC, ids[2], 2, 1);
  expect_event(4, ALLOC, ids[3], 0, KIB);
  expect_event(5, FREE, ids[1], 0, 3 * MIB + 1);
  expect_event(6, FREE, ids[2], 0, 1);
  expect_event(7, FREE, ids[3], 0, KIB);
  remove_files();
  expect_nothing_left();
}

TEST(live_blocks_are_written_first) {
  void *memory[10];
  size_t sum = 0;
  size_t expected = 0;
  for (int index = 0; index < 10; index++) {
    memory[index] = alloc_on((size_t)(index + 1) * 1000, 0, NULL);
    expected += (size_t)(index + 1) * 1000;
  }
  start();
  for (int index = 0; index < 10; index++) {
    release(memory[index]);
  }
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 20);
  for (int index = 0; index < 20; index++) {
    CHECK_EQ(events[index].op, index < 10 ? ALLOC : FREE);
    sum += index < 10 ? events[index].bytes : 0;
  }
  CHECK_EQ(sum, expected);
  remove_files();
  expect_nothing_left();
}

TEST(each_device_has_its_own_file) {
  need_devices(2);
  start();
  void *on_zero = alloc_on(MIB, 0, NULL);
  void *on_one = alloc_on(2 * MIB, 1, stream_on(1));
  release(on_zero);
  release(on_one);
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 2);
  CHECK_EQ(events[0].bytes, MIB);
  CHECK_EQ(read_trace(path_of_device_1), 2);
  CHECK_EQ(events[0].bytes, 2 * MIB);
  CHECK_EQ(events[0].stream, 0);
  remove_files();
  expect_nothing_left();
}

TEST(failures_are_not_written) {
  void *pointer = NULL;
  start();
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_caching_allocator_delete(&pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_caching_allocator_alloc(0, 0, NULL, &pointer));
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 0);
  remove_files();
}

TEST(only_one_trace_at_a_time) {
  CHECK_STATUS(plinth_trace_stop(), PLINTH_ERROR_INVALID_VALUE);
  start();
  CHECK_STATUS(plinth_trace_start(path), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_trace_stop());
  CHECK_STATUS(plinth_trace_stop(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_trace_start(path));
  CHECK_OK(plinth_trace_stop());
  CHECK_STATUS(plinth_trace_start(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_trace_start("/nowhere/at/all"), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("/nowhere/at/all");
  CHECK_STATUS(plinth_trace_stop(), PLINTH_ERROR_INVALID_VALUE);
  release(alloc_on(KIB, 0, NULL));
  remove_files();
}

TEST(a_new_trace_replaces_the_old) {
  start();
  release(alloc_on(KIB, 0, NULL));
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 2);
  CHECK_OK(plinth_trace_start(path));
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 0);
  remove_files();
}

static void *allocate_and_free(void *context) {
  plinth_stream_t stream = stream_on(0);
  for (int round = 0; round < 200; round++) {
    void *memory = alloc_on((size_t)(*(int *)context + 1) * 700, 0, stream);
    CHECK_OK(plinth_record_stream(memory, NULL));
    release(memory);
  }
  return NULL;
}

TEST(events_of_threads_are_in_a_valid_order) {
  start();
  run_threads(8, allocate_and_free);
  CHECK_OK(plinth_trace_stop());
  CHECK_EQ(read_trace(path), 8 * 200 * 2);
  remove_files();
  expect_nothing_left();
}
