/*
 * The functions of the stream sanitizer: modes, the callback, reports as text and JSON, argument errors, threads, the
 * environment. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; leaves memory */
/* library: pluggable_helper */
#include "drawing.h"
#include "graphing.h"
#include "plugging.h"
#include "process.h"
#include "sanitizing.h"

#define SIZE (64 * KIB)

static plinth_stream_t a, b;
static unsigned char *memory;

static void begin(int32_t mode) {
  CHECK_OK(plinth_sanitizer_enable(mode));
  a = stream_on(0);
  b = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
}

static int32_t mode(void) {
  int32_t mode = UNTOUCHED;
  CHECK_OK(plinth_sanitizer_mode(&mode));
  return mode;
}

static uint64_t findings_in_all(void) {
  size_t count = 0;
  uint64_t all = UNTOUCHED;
  CHECK_OK(plinth_sanitizer_count(&count, &all));
  return all;
}

static plinth_status_t set(plinth_stream_t stream) { return plinth_memset(memory, 7, SIZE, stream); }

TEST(it_is_off_until_it_is_enabled) {
  CHECK_EQ(mode(), PLINTH_SANITIZER_OFF);
  a = stream_on(0);
  b = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  CHECK_OK(set(a));
  CHECK_OK(set(b));
  kernel("one", WRITE, memory, SIZE, a);
  on_cpu("two", WRITE, memory, SIZE);
  CLEAN();
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_WARN));
  CHECK_EQ(mode(), PLINTH_SANITIZER_WARN);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  CHECK_EQ(mode(), PLINTH_SANITIZER_COLLECT);
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_EQ(mode(), PLINTH_SANITIZER_OFF);
  CHECK_OK(plinth_sanitizer_disable());
}

TEST(invalid_arguments_are_errors) {
  size_t count = UNTOUCHED;
  plinth_sanitizer_access_t access = {sizeof access, memory, 16, READ, 0};
  begin(PLINTH_SANITIZER_COLLECT);
  CHECK_STATUS(plinth_sanitizer_enable(4), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("4 is not a mode");
  CHECK_STATUS(plinth_sanitizer_enable(-1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(mode(), PLINTH_SANITIZER_COLLECT);
  CHECK_STATUS(plinth_sanitizer_mode(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_count(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_sanitizer_count(&count, NULL));
  CHECK_STATUS(plinth_sanitizer_each(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_text(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_json(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_access(memory, 16, 0, a), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_sanitizer_access(memory, 16, 4, a), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("kind is 4");
  CHECK_STATUS(plinth_sanitizer_access(NULL, 16, READ, a), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_sanitizer_access(NULL, 0, READ, a));
  CHECK_STATUS(plinth_sanitizer_access(memory, SIZE_MAX, READ, a), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_sanitizer_access(memory, 16, READ, (plinth_stream_t)(uintptr_t)0xABC0),
               PLINTH_ERROR_INVALID_HANDLE);
  access.pointer = memory;
  CHECK_STATUS(plinth_sanitizer_operation(NULL, &access, 1, a), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_operation("kernel", NULL, 1, a), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_operation("kernel", &access, SIZE_MAX, a), PLINTH_ERROR_INVALID_VALUE);
  access.kind = 9;
  CHECK_STATUS(plinth_sanitizer_operation("kernel", &access, 1, a), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("accesses[0]");
  CHECK_STATUS(plinth_sanitizer_host_operation("kernel", &access, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_sanitizer_host_operation(NULL, NULL, 0), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_sanitizer_wait_stream(a, (plinth_stream_t)(uintptr_t)0xABC0), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_sanitizer_stream_done((plinth_stream_t)(uintptr_t)0xABC0), PLINTH_ERROR_INVALID_HANDLE);
  CLEAN();
}

static int callback_calls;
static plinth_sanitizer_report_t last;

static void note(const plinth_sanitizer_report_t *report, void *context) {
  CHECK_SAME(context, &callback_calls);
  last = *report;
  callback_calls++;
}

TEST(the_collect_mode_calls_no_callback) {
  CHECK_OK(plinth_sanitizer_set_callback(note, &callback_calls));
  begin(PLINTH_SANITIZER_COLLECT);
  CHECK_OK(set(a));
  CHECK_OK(set(b));
  CHECK_EQ(callback_calls, 0);
  CHECK_EQ(findings_in_all(), 1);
}

TEST(the_warn_mode_calls_back_once_and_does_the_work) {
  unsigned char host[4] = {0, 0, 0, 0};
  CHECK_OK(plinth_sanitizer_set_callback(note, &callback_calls));
  begin(PLINTH_SANITIZER_WARN);
  CHECK_OK(plinth_memset(memory, 1, SIZE, a));
  CHECK_OK(plinth_synchronize(0));
  for (int round = 0; round < 5; round++) {
    CHECK_OK(plinth_memset(memory, 2, SIZE, a));
    CHECK_OK(plinth_memset(memory, 2, SIZE, b));
    CHECK_OK(plinth_synchronize(0));
  }
  CHECK_EQ(callback_calls, 1);
  CHECK_EQ(findings_in_all(), 5);
  CHECK_OK(plinth_memcpy(host, memory, sizeof host, NULL));
  CHECK_EQ(host[0], 2);
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_EQ(findings[0].times, 5);
  /* After a clear it is a new finding. */
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_EQ(findings_in_all(), 0);
  CHECK_OK(plinth_sanitizer_set_callback(NULL, NULL));
  CHECK_OK(set(a));
  CHECK_OK(set(b));
  CHECK_EQ(callback_calls, 1);
  CHECK_EQ(findings_in_all(), 1);
}

TEST(the_error_mode_refuses_the_work) {
  unsigned char host[4] = {0, 0, 0, 0};
  CHECK_OK(plinth_sanitizer_set_callback(note, &callback_calls));
  begin(PLINTH_SANITIZER_ERROR);
  CHECK_OK(plinth_memset(memory, 1, SIZE, a));
  for (int round = 0; round < 3; round++) {
    CHECK_STATUS(plinth_memset(memory, 2, SIZE, b), PLINTH_ERROR_RACE);
    CHECK_MESSAGE("race: \"plinth_memset\" in stream");
    CHECK_MESSAGE("must wait for");
  }
  CHECK_EQ(callback_calls, 1);
  CHECK_EQ(last.times, 1);
  CHECK_STATUS(plinth_sanitizer_access(memory, 4, READ, b), PLINTH_ERROR_RACE);
  CHECK_EQ(callback_calls, 2);
  /* A refused access is not recorded: accesses in the memory's own stream are correct. */
  CHECK_OK(plinth_memcpy(host, memory, sizeof host, a));
  CHECK_OK(plinth_stream_synchronize(a));
  CHECK_EQ(host[0], 1);
  CHECK_OK(plinth_memset(memory, 2, SIZE, b));
}

/* A call that fails for another reason has no accesses. */
TEST(a_fill_that_is_refused_is_no_access) {
  plinth_graph_t graph = NULL;
  plinth_generator_t generator = 0;
  tensor x;
  begin(PLINTH_SANITIZER_ERROR);
  CHECK_OK(plinth_generator_create(0, &generator));
  CHECK_OK(plinth_set_stream(a));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  DLTensor *const target = row(&x, memory, F32, SIZE / 4);
  CHECK_STATUS(plinth_uniform(target, 0, 1, generator, a), PLINTH_ERROR_GENERATOR_NOT_REGISTERED);
  CHECK_STATUS(plinth_randperm(row(&x, memory, I64, 100), generator, a), PLINTH_ERROR_GENERATOR_NOT_REGISTERED);
  CHECK_OK(plinth_memset(memory + SIZE - 4, 1, 4, a));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_memset(memory, 2, SIZE - 4, b));
  CHECK_OK(plinth_stream_synchronize(a));
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(a_replay_is_refused_as_a_whole) {
  unsigned char host[4] = {0, 0, 0, 0};
  begin(PLINTH_SANITIZER_ERROR);
  CHECK_OK(plinth_set_stream(a));
  plinth_graph_t graph = graph_of_fill(memory, 0x05050505, SIZE, a, 0);
  CHECK_OK(plinth_memset(memory, 1, SIZE, b));
  CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_memcpy(host, memory, sizeof host, b));
  CHECK_OK(plinth_stream_synchronize(b));
  CHECK_EQ(host[0], 1);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_memcpy(host, memory, sizeof host, a));
  CHECK_OK(plinth_stream_synchronize(a));
  CHECK_EQ(host[0], 5);
  CHECK_EQ(findings_in_all(), 1);
}

TEST(a_refused_fill_does_not_advance_the_offset) {
  uint64_t before = 0;
  uint64_t after = 1;
  int64_t shape[1] = {64};
  DLTensor tensor;
  begin(PLINTH_SANITIZER_ERROR);
  memset(&tensor, 0, sizeof tensor);
  tensor.data = memory;
  tensor.device.device_type = 2;
  tensor.ndim = 1;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  CHECK_OK(set(a));
  CHECK_OK(plinth_generator_get_offset(NULL, &before));
  CHECK_STATUS(plinth_uniform(&tensor, 0.0, 1.0, NULL, b), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_generator_get_offset(NULL, &after));
  CHECK_EQ(before, after);
}

static void call_library(const plinth_sanitizer_report_t *report, void *context) {
  (void)report;
  (void)context;
  callback_calls++;
  /* A callback may call the library. A race of these calls is recorded without another callback. */
  CHECK_OK(plinth_memset(memory, 1, SIZE, stream_on(0)));
  CHECK_OK(plinth_sanitizer_set_callback(call_library, NULL));
  CHECK(findings_in_all() > 0);
  read_findings();
}

TEST(a_callback_may_call_the_library) {
  CHECK_OK(plinth_sanitizer_set_callback(call_library, NULL));
  begin(PLINTH_SANITIZER_ERROR);
  CHECK_OK(set(a));
  CHECK_STATUS(set(b), PLINTH_ERROR_RACE);
  CHECK_EQ(callback_calls, 1);
  CHECK_EQ(findings_in_all(), 2);
}

static plinth_graph_t replayed;

static void replay_again(const plinth_sanitizer_report_t *report, void *context) {
  (void)report;
  (void)context;
  callback_calls++;
  /* The library holds no lock of the graph any more. */
  CHECK_OK(plinth_stream_synchronize(b));
  CHECK_OK(plinth_graph_replay(replayed));
  CHECK_OK(plinth_graph_destroy(replayed));
}

TEST(a_callback_may_use_and_destroy_the_graph) {
  CHECK_OK(plinth_sanitizer_set_callback(replay_again, NULL));
  begin(PLINTH_SANITIZER_ERROR);
  CHECK_OK(plinth_set_stream(a));
  replayed = graph_of_fill(memory, 0x05050505, SIZE, a, 0);
  CHECK_OK(set(b));
  CHECK_STATUS(plinth_graph_replay(replayed), PLINTH_ERROR_RACE);
  CHECK_MESSAGE("race: ");
  CHECK_EQ(callback_calls, 1);
  CHECK_STATUS(plinth_graph_replay(replayed), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(blocks_from_before_enabling_are_known) {
  char *text = NULL;
  a = stream_on(0);
  b = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  CHECK_OK(set(a));
  CHECK_OK(set(b));
  CHECK_OK(plinth_sanitizer_text(&text));
  CHECK(strstr(text, "the block: 64.00 KiB from ") != NULL);
  plinth_string_free(text);
  CHECK_OK(plinth_sanitizer_clear());
  release(memory);
  CHECK_OK(plinth_sanitizer_access(memory, 16, READ, b));
  USE_AFTER_FREE(memory, 16, reads("plinth_sanitizer_access", b));
}

static void disable_in_callback(const plinth_sanitizer_report_t *report, void *context) {
  (void)report;
  (void)context;
  callback_calls++;
  CHECK_OK(plinth_sanitizer_disable());
}

TEST(a_callback_may_disable_it) {
  CHECK_OK(plinth_sanitizer_set_callback(disable_in_callback, NULL));
  begin(PLINTH_SANITIZER_WARN);
  plinth_event_t event = new_event(0);
  CHECK_OK(set(a));
  CHECK_OK(set(b));
  CHECK_EQ(callback_calls, 1);
  CHECK_EQ(mode(), PLINTH_SANITIZER_OFF);
  CHECK_OK(set(a));
  CHECK_OK(plinth_event_record(event, a));
  CHECK_OK(plinth_sanitizer_set_callback(NULL, NULL));
  /* Reports stay, but the recorded accesses are dropped. */
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(set(b));
  CLEAN();
  /* The sanitizer learns of a block from before at its free. */
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  CHECK_OK(set(a));
  REUSE(RECORD_STREAM, memory, SIZE, writes("plinth_memset", a), writes("plinth_memset", b));
}

TEST(a_block_from_before_can_have_a_recorded_stream) {
  a = stream_on(0);
  b = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  kernel("sum", READ, memory, SIZE, b);
  CHECK_OK(plinth_record_stream(memory, b));
  release(memory);
  EVENTUALLY(stream_done(b));
  CHECK_OK(plinth_empty_cache());
  memory = alloc_on(SIZE, 0, a);
  CHECK_OK(set(a));
  CLEAN();
}

TEST(a_report_has_all_details) {
  char *json = NULL;
  char *text = NULL;
  begin(PLINTH_SANITIZER_COLLECT);
  CHECK_OK(plinth_sanitizer_json(&json));
  CHECK_TEXT(json, "[]");
  plinth_string_free(json);
  CHECK_OK(plinth_sanitizer_text(&text));
  CHECK_TEXT(text, "");
  plinth_string_free(text);
  kernel("odd \"name\"\n", WRITE, memory, SIZE, a);
  CHECK_OK(set(b));
  CHECK_OK(plinth_sanitizer_json(&json));
  static const char *const parts[] = {
      "[{\"kind\":\"race\",\"message\":\"", "\"missing\":\"wait\"", "\"name\":\"odd \\\"name\\\"\\n\"",
      "\"name\":\"plinth_memset\"", "\"kind\":\"write\"", "\"graph\":null", "\"frames\":[{\"name\":\"set\"",
      "\"name\":\"test_a_report_has_all_details\"", "sanitizer_calls.c", "\"allocation\":{\"name\":\"\",\"address\":",
      "\"freed_frames\":null", "\"former_allocation\":null"};
  for (size_t index = 0; index < sizeof parts / sizeof parts[0]; index++) {
    if (strstr(json, parts[index]) == NULL) {
      fprintf(stderr, "%s is not in %s\n", parts[index], json);
    }
    CHECK(strstr(json, parts[index]) != NULL);
  }
  plinth_string_free(json);
  CHECK_OK(plinth_sanitizer_text(&text));
  CHECK(strstr(text, "the block: 64.00 KiB") != NULL);
  CHECK(strstr(text, "missing: stream ") != NULL);
  CHECK(strstr(text, "sanitizer_calls.c") != NULL);
  plinth_string_free(text);
}

/* Many threads use their own streams and memory without races, and race on one shared block. */

enum { THREADS = 8, THREAD_ROUNDS = 200 };

static void *work(void *argument) {
  const int number = *(int *)argument;
  plinth_stream_t own_stream = stream_on(0);
  plinth_stream_t side_stream = stream_on(0);
  for (int round = 0; round < THREAD_ROUNDS; round++) {
    unsigned char *block = alloc_on(SIZE, 0, own_stream);
    CHECK_OK(plinth_memset(block, number, SIZE, own_stream));
    wait_for(side_stream, own_stream);
    kernel("sum", READ, block, SIZE, side_stream);
    CHECK_OK(plinth_record_stream(block, side_stream));
    release(block);
    if (round % 50 == 0) {
      CHECK_OK(plinth_sanitizer_access(memory, 64, WRITE, own_stream));
    }
  }
  CHECK_OK(plinth_stream_synchronize(own_stream));
  CHECK_OK(plinth_stream_synchronize(side_stream));
  return NULL;
}

TEST(many_threads_race) {
  begin(PLINTH_SANITIZER_COLLECT);
  run_threads(THREADS, work);
  read_findings();
  CHECK(found > 0);
  for (size_t index = 0; index < found; index++) {
    CHECK_EQ(findings[index].kind, PLINTH_SANITIZER_RACE);
    CHECK_SAME(findings[index].address, memory);
    CHECK_TEXT(findings[index].name, "plinth_sanitizer_access");
    CHECK_TEXT(findings[index].previous_name, "plinth_sanitizer_access");
  }
  expect_sound();
}

static void *switch_modes(void *argument) {
  const int number = *(int *)argument;
  plinth_stream_t own_stream = stream_on(0);
  for (int round = 0; round < THREAD_ROUNDS; round++) {
    unsigned char *block = alloc_on(SIZE, 0, own_stream);
    if (number == 0) {
      CHECK_OK(plinth_sanitizer_enable(round % 4));
    }
    CHECK_OK(plinth_memset(block, number, SIZE, own_stream));
    release(block);
  }
  return NULL;
}

TEST(modes_change_while_threads_work) {
  run_threads(THREADS, switch_modes);
  CLEAN();
  expect_sound();
}

/* ---- environment variables */

static void race_by_environment(void) {
  begin(PLINTH_SANITIZER_COLLECT);
  CHECK_OK(set(a));
  CHECK_OK(set(b));
}

static char log_path[64];

static void with_log(void) {
  setenv("PLINTH_SANITIZER", "warn", 1);
  setenv("PLINTH_SANITIZER_LOG", log_path, 1);
  a = stream_on(0);
  b = stream_on(0);
  CHECK_EQ(mode(), PLINTH_SANITIZER_WARN);
  race_by_environment();
}

static void with_error(void) {
  setenv("PLINTH_SANITIZER", "error", 1);
  a = stream_on(0);
  b = stream_on(0);
  memory = alloc_on(SIZE, 0, a);
  CHECK_EQ(mode(), PLINTH_SANITIZER_ERROR);
  CHECK_OK(set(a));
  CHECK_STATUS(set(b), PLINTH_ERROR_RACE);
}

static void with_invalid_variables(void) {
  plinth_stream_t stream = NULL;
  setenv("PLINTH_SANITIZER", "yes", 1);
  CHECK_STATUS(plinth_stream_create(0, 0, &stream), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_SANITIZER is \"yes\"");
  setenv("PLINTH_SANITIZER", "warn", 1);
  setenv("PLINTH_SANITIZER_LOG", "/nowhere/at/all", 1);
  CHECK_STATUS(plinth_stream_create(0, 0, &stream), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("/nowhere/at/all");
  unsetenv("PLINTH_SANITIZER_LOG");
  CHECK_OK(plinth_stream_create(0, 0, &stream));
  CHECK_EQ(mode(), PLINTH_SANITIZER_WARN);
}

static void with_torchs_variable(void) {
  setenv("TORCH_CUDA_SANITIZER", "1", 1);
  stream_on(0);
  CHECK_EQ(mode(), PLINTH_SANITIZER_ERROR);
}

static void with_both_variables(void) {
  setenv("TORCH_CUDA_SANITIZER", "1", 1);
  setenv("PLINTH_SANITIZER", "off", 1);
  stream_on(0);
  CHECK_EQ(mode(), PLINTH_SANITIZER_OFF);
}

TEST(the_environment_enables_it) { in_child(with_error); }

TEST(torchs_variable_enables_it) {
  in_child(with_torchs_variable);
  in_child(with_both_variables);
}

TEST(invalid_variables_are_refused) { in_child(with_invalid_variables); }

TEST(reports_go_to_a_file_that_the_environment_names) {
  char text[4096];
  snprintf(log_path, sizeof log_path, "/tmp/plinth_sanitizer_%d.log", (int)getpid());
  in_child(with_log);
  FILE *file = fopen(log_path, "r");
  CHECK(file != NULL);
  const size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[length] = '\0';
  CHECK(strncmp(text, "plinth: race: \"plinth_memset\"", 29) == 0);
  CHECK(strstr(text, "race_by_environment") != NULL);
  unlink(log_path);
}

static void *wait_for_stream(void *stream) {
  CHECK_OK(plinth_stream_synchronize((plinth_stream_t)stream));
  return NULL;
}

/* A wait that began before the sanitizer was disabled does not order accesses after it was enabled again. */
TEST(a_wait_from_before_disabling_orders_nothing) {
  enum { STREAMS = 8 };
  plinth_stream_t streams[STREAMS];
  pthread_t waiter;
  begin(PLINTH_SANITIZER_COLLECT);
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = stream_on(0);
    CHECK_OK(plinth_memset(memory + 64 * i, 1, 64, streams[i]));
  }
  gate *shut = gate_shut(streams[STREAMS - 1]);
  CHECK(pthread_create(&waiter, NULL, wait_for_stream, streams[STREAMS - 1]) == 0);
  sleep_milliseconds(200);
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  gate_open(shut);
  CHECK(pthread_join(waiter, NULL) == 0);
  CLEAN();
}

/* The program's allocator, which the call requests memory from, calls the library, too. */
TEST(an_access_has_the_name_of_its_call) {
  enum { NUMBERS = 5000 };
  tensor out;
  void *numbers = NULL;
  enable_sanitizer();
  CHECK_OK(plinth_change_current_allocator(load_helper()));
  CHECK_OK(plinth_device_malloc(NUMBERS * sizeof(int64_t), 0, &numbers));
  plinth_stream_t stream = stream_on(0), other = stream_on(0);
  kernel("sum", READ, numbers, NUMBERS * sizeof(int64_t), other);
  CHECK_OK(plinth_randperm(row(&out, numbers, I64, NUMBERS), NULL, stream));
  CHECK(state()->allocated > 0);
  RACE(MISSING_WAIT, numbers, NUMBERS * sizeof(int64_t), writes("plinth_randperm", stream), reads("sum", other));
}

/* A program may name each of its operations, for example with the number of a step. */
TEST(names_without_use_are_dropped) {
  char name[256];
  long pages = 0;
  begin(PLINTH_SANITIZER_COLLECT);
  for (int step = 1; step <= 40000; step++) {
    snprintf(name, sizeof name, "step %d %200d", step, 0);
    kernel(name, WRITE, memory, KIB, a);
    if (step == 10000) {
      pages = resident_pages();
    }
  }
#if !HARNESS_SANITIZED
  /* If each name were kept, they would occupy more than 1600 pages. */
  CHECK(resident_pages() - pages < 500);
#else
  (void)pages;
#endif
  CLEAN();
}
