/*
 * The tests of PyTorch's CUDA sanitizer (test_cuda_sanitizer.py), with operations of the program as kernels and byte ranges
 * as tensors.
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; its programs must not see the accesses of others */
#include "collecting.h"
#include "sanitizing.h"

#define SIZE (4 * KIB)
enum { ROUNDS = 10 };

/* Streams and tensors by number. The pool has 32 streams, so all are different. */
static plinth_stream_t streams[ROUNDS + 2];
static unsigned char *tensors[ROUNDS + 2];
static plinth_event_t event;

static void begin(void) {
  enable_sanitizer();
  event = new_event(0);
  for (int index = 0; index < ROUNDS + 2; index++) {
    streams[index] = stream_on(0);
    tensors[index] = (unsigned char *)device_memory(SIZE, 0);
  }
}

static size_t reports(void) {
  size_t count = UNTOUCHED;
  CHECK_OK(plinth_sanitizer_count(&count, NULL));
  return count;
}

/* Launches a kernel on one tensor in a stream, which must or must not be reported. */
static void expect_clean_kernel(int stream, uint32_t kind, int tensor) {
  const size_t before = reports();
  kernel("kernel", kind, tensors[tensor], SIZE, streams[stream]);
  CHECK_EQ(reports(), before);
}

static void expect_race(int stream, uint32_t kind, int tensor, int earlier, uint32_t earlier_kind, int32_t missing) {
  CLEAN();
  kernel("kernel", kind, tensors[tensor], SIZE, streams[stream]);
  RACE(missing, tensors[tensor], SIZE, in_stream("kernel", kind, streams[stream], 0),
       in_stream("kernel", earlier_kind, streams[earlier], 0));
}

#define UPDATE (READ | WRITE)

static void record(plinth_event_t recorded, int stream) { CHECK_OK(plinth_event_record(recorded, streams[stream])); }
static void wait_event(plinth_event_t recorded, int stream) { CHECK_OK(plinth_event_wait(recorded, streams[stream])); }

TEST(empty_kernel_launch) {
  begin();
  CHECK_OK(plinth_sanitizer_operation("kernel", NULL, 0, streams[0]));
  CLEAN();
}

TEST(simple_passing) {
  begin();
  expect_clean_kernel(1, READ, 1);
  expect_clean_kernel(2, READ, 1);
}

TEST(simple_error) {
  begin();
  expect_clean_kernel(1, READ, 1);
  expect_race(2, UPDATE, 1, 1, READ, MISSING_WAIT);
}

TEST(simple_sync) {
  begin();
  expect_clean_kernel(1, READ, 1);
  record(event, 1);
  wait_event(event, 2);
  expect_clean_kernel(2, UPDATE, 1);
}

TEST(reads_check_last_write) {
  begin();
  expect_clean_kernel(1, UPDATE, 1);
  record(event, 1);
  wait_event(event, 2);
  expect_clean_kernel(2, READ, 1);
  expect_race(3, READ, 1, 1, UPDATE, MISSING_WAIT);
}

TEST(branch_sync) {
  begin();
  expect_clean_kernel(1, UPDATE, 1);
  record(event, 1);
  wait_event(event, 2);
  wait_event(event, 3);
  expect_clean_kernel(2, READ, 1);
  expect_clean_kernel(3, READ, 1);
  expect_race(2, UPDATE, 1, 3, READ, MISSING_WAIT);
}

TEST(chain_sync) {
  begin();
  expect_clean_kernel(0, READ, 1);
  for (int index = 0; index < ROUNDS; index++) {
    event = new_event(0);
    record(event, index);
    wait_event(event, index + 1);
  }
  expect_clean_kernel(ROUNDS, UPDATE, 1);
}

TEST(expired_record) {
  begin();
  expect_clean_kernel(1, READ, 1);
  record(event, 1);
  expect_clean_kernel(1, READ, 1);
  wait_event(event, 2);
  expect_race(2, UPDATE, 1, 1, READ, LATER_WAIT);
}

TEST(deleted_record) {
  begin();
  expect_clean_kernel(1, READ, 1);
  record(event, 1);
  /* The new event reuses the driver's event of the old one, and is not recorded. */
  CHECK_OK(plinth_event_destroy(event));
  event = new_event(0);
  wait_event(event, 2);
  expect_race(2, UPDATE, 1, 1, READ, MISSING_WAIT);
}

TEST(deleted_record_with_a_new_event_elsewhere) {
  begin();
  expect_clean_kernel(1, READ, 1);
  record(event, 1);
  CHECK_OK(plinth_event_destroy(event));
  event = new_event(0);
  record(event, 3);
  wait_event(event, 2);
  expect_race(2, UPDATE, 1, 1, READ, MISSING_WAIT);
}

static void all_reads(int last_awaited) {
  plinth_event_t events[ROUNDS + 1];
  begin();
  for (int index = 1; index <= last_awaited; index++) {
    events[index] = new_event(0);
    expect_clean_kernel(index, READ, 1);
    record(events[index], index);
  }
  for (int index = 1; index < ROUNDS; index++) {
    wait_event(events[index], 0);
  }
}

TEST(all_reads_checked_failing) {
  all_reads(ROUNDS);
  expect_race(0, UPDATE, 1, ROUNDS, READ, MISSING_WAIT);
}

TEST(all_reads_checked_passing) {
  all_reads(ROUNDS - 1);
  expect_clean_kernel(0, UPDATE, 1);
}

TEST(multiple_errors) {
  plinth_sanitizer_access_t all[ROUNDS];
  uint64_t findings_in_all = 0;
  size_t count = 0;
  begin();
  memset(all, 0, sizeof all);
  for (int index = 0; index < ROUNDS; index++) {
    all[index].struct_size = sizeof all[index];
    all[index].pointer = tensors[index];
    all[index].bytes = SIZE;
    all[index].kind = UPDATE;
  }
  CHECK_OK(plinth_sanitizer_operation("kernel", all, ROUNDS, streams[0]));
  CHECK_OK(plinth_sanitizer_operation("kernel", all, ROUNDS, streams[1]));
  /* The two launches have two call sites: one report, with a finding for each tensor. */
  CHECK_OK(plinth_sanitizer_count(&count, &findings_in_all));
  CHECK_EQ(findings_in_all, ROUNDS);
  CHECK_EQ(count, 1);
  read_findings();
  CHECK_EQ(findings[0].times, ROUNDS);
}

TEST(correct_state_merging) {
  begin();
  plinth_event_t events[4];
  for (int index = 1; index < 4; index++) {
    events[index] = new_event(0);
  }
  expect_clean_kernel(1, UPDATE, 1);
  expect_clean_kernel(2, UPDATE, 2);
  record(events[1], 1);
  record(events[2], 2);
  expect_clean_kernel(1, UPDATE, 1);
  expect_clean_kernel(2, UPDATE, 2);
  wait_event(events[1], 2);
  wait_event(events[2], 1);
  record(events[3], 2);
  wait_event(events[3], 1);
  expect_clean_kernel(1, UPDATE, 1);
  expect_clean_kernel(1, UPDATE, 2);
}

TEST(record_override) {
  begin();
  expect_clean_kernel(1, READ, 1);
  expect_clean_kernel(2, READ, 2);
  record(event, 1);
  record(event, 2);
  wait_event(event, 3);
  expect_race(3, UPDATE, 1, 1, READ, MISSING_WAIT);
}

TEST(multiple_wait) {
  begin();
  expect_clean_kernel(1, UPDATE, 1);
  record(event, 1);
  wait_event(event, 2);
  wait_event(event, 3);
  expect_clean_kernel(2, READ, 1);
  expect_clean_kernel(3, READ, 1);
}

TEST(device_synchronize) {
  begin();
  for (int index = 1; index <= ROUNDS; index++) {
    expect_clean_kernel(index, UPDATE, index);
  }
  CHECK_OK(plinth_synchronize(0));
  for (int index = 1; index <= ROUNDS; index++) {
    expect_clean_kernel(0, UPDATE, index);
  }
}

TEST(device_synchronization_expired) {
  begin();
  expect_clean_kernel(1, UPDATE, 1);
  CHECK_OK(plinth_synchronize(0));
  expect_clean_kernel(1, UPDATE, 1);
  expect_race(2, UPDATE, 1, 1, UPDATE, MISSING_WAIT);
}

TEST(new_stream_is_synchronized) {
  begin();
  expect_clean_kernel(1, UPDATE, 1);
  CHECK_OK(plinth_synchronize(0));
  streams[2] = stream_on(0);
  expect_clean_kernel(2, UPDATE, 1);
}

TEST(stream_synchronize) {
  begin();
  expect_clean_kernel(0, UPDATE, 1);
  expect_clean_kernel(1, UPDATE, 2);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  expect_clean_kernel(2, READ, 1);
  expect_race(3, READ, 2, 1, UPDATE, MISSING_WAIT);
}

TEST(event_synchronize) {
  begin();
  expect_clean_kernel(1, READ, 1);
  record(event, 1);
  CHECK_OK(plinth_event_synchronize(event));
  expect_clean_kernel(2, UPDATE, 1);
}

/* The accesses of calls. Each call is followed by a read and a write of its tensors in other streams: memory that it reads
 * conflicts only with the write, memory that it writes with both. */

static void expect_conflicts(const void *pointer, size_t bytes, uint32_t kind, const char *name, plinth_stream_t done_in) {
  const bool reading[2] = {true, false};
  (void)done_in;
  CHECK_OK(plinth_sanitizer_clear());
  for (int round = 0; round < 2; round++) {
    kernel("probe", reading[round] ? READ : WRITE, pointer, bytes, streams[5 + round]);
  }
  read_findings();
  bool read = false;
  bool written = false;
  for (size_t index = 0; index < found; index++) {
    if (strcmp(findings[index].previous_name, name) == 0) {
      CHECK_EQ(findings[index].bytes, bytes);
      CHECK_SAME(findings[index].address, pointer);
      read = read || findings[index].previous.kind == READ;
      written = written || findings[index].previous.kind == WRITE;
    }
  }
  CHECK_EQ(read, (kind & READ) != 0);
  CHECK_EQ(written, (kind & WRITE) != 0);
}

static int64_t shape[2] = {8, 4};

TEST(arguments_of_a_copy) {
  begin();
  CHECK_OK(plinth_memcpy(tensors[0], tensors[1], SIZE, streams[1]));
  expect_conflicts(tensors[0], SIZE, WRITE, "plinth_memcpy", streams[1]);
  expect_conflicts(tensors[1], SIZE, READ, "plinth_memcpy", streams[1]);
}

TEST(arguments_in_place) {
  test_tensor tensor;
  begin();
  make_tensor(&tensor, 0, F32, 2, shape, NULL, 0);
  CHECK_OK(plinth_uniform(&tensor.dl, 0.0, 1.0, NULL, streams[1]));
  expect_conflicts(tensor.dl.data, 128, WRITE, "plinth_uniform", streams[1]);
}

TEST(arguments_of_a_gather) {
  test_tensor inputs[2];
  test_tensor output;
  DLTensor list[2];
  int64_t whole[2] = {16, 4};
  begin();
  CHECK_OK(plinth_set_stream(streams[1]));
  for (int index = 0; index < 2; index++) {
    make_tensor(&inputs[index], 0, F32, 2, shape, NULL, 0);
    list[index] = inputs[index].dl;
  }
  make_tensor(&output, 0, F32, 2, whole, NULL, 0);
  CHECK_OK(plinth_comm_gather(list, 2, 0, &output.dl));
  expect_conflicts(inputs[0].dl.data, 128, READ, "plinth_comm_gather", streams[1]);
  expect_conflicts(inputs[1].dl.data, 128, READ, "plinth_comm_gather", streams[1]);
  expect_conflicts(output.dl.data, 128, WRITE, "plinth_comm_gather", streams[1]);
}

TEST(arguments_of_a_scatter) {
  test_tensor input;
  test_tensor parts[2];
  DLTensor list[2];
  int64_t half[2] = {4, 4};
  begin();
  CHECK_OK(plinth_set_stream(streams[1]));
  make_tensor(&input, 0, F32, 2, shape, NULL, 0);
  for (int index = 0; index < 2; index++) {
    make_tensor(&parts[index], 0, F32, 2, half, NULL, 0);
    list[index] = parts[index].dl;
  }
  CHECK_OK(plinth_comm_scatter(&input.dl, list, 2, NULL, 0, NULL));
  expect_conflicts(input.dl.data, 64, READ, "plinth_comm_scatter", streams[1]);
  expect_conflicts(parts[0].dl.data, 64, WRITE, "plinth_comm_scatter", streams[1]);
  expect_conflicts(parts[1].dl.data, 64, WRITE, "plinth_comm_scatter", streams[1]);
}

TEST(names_are_in_the_message) {
  begin();
  kernel("schema a", READ, tensors[1], SIZE, streams[0]);
  kernel("schema b", WRITE, tensors[1], SIZE, streams[1]);
  char *text = NULL;
  CHECK_OK(plinth_sanitizer_text(&text));
  CHECK(strstr(text, "race: \"schema b\"") != NULL);
  CHECK(strstr(text, "while \"schema a\"") != NULL);
  CHECK(strstr(text, "writes 4.00 KiB") != NULL);
  CHECK(strstr(text, "called from") != NULL);
  CHECK(strstr(text, "test_names_are_in_the_message") != NULL);
  plinth_string_free(text);
}
