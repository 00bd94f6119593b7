/* The driver's results for each call in each capture mode, and first uses of plinth during a capture. The table was measured
 * on an H200 (driver 580, CUDA 13.0). The host device returns the same codes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; leaves a graph */
#include "driver.h"
#include "support.h"

/* The result of ending the capture after a call: it is still valid, or the driver's code for the error. */
enum { VALID = 0, INVALID = 901, UNJOINED = 904 };
enum { UNSUPPORTED = 900, ISOLATION = 905, IMPLICIT = 906, CAPTURED = 907, INVALID_HANDLE = 400, ILLEGAL_STATE = 401, INVALID_VALUE = 1 };

typedef int (*event_call)(void *event);
typedef int (*stream_call)(plinth_stream_t stream);
typedef int (*no_call)(void);
typedef int (*alloc_call)(unsigned long long *memory, size_t bytes);
typedef int (*pinned_call)(void **memory, size_t bytes, unsigned flags);
typedef int (*info_call)(size_t *available, size_t *total);
typedef int (*pool_alloc_call)(unsigned long long *memory, size_t bytes, plinth_stream_t stream);
typedef int (*launch_call)(void *executable, plinth_stream_t stream);
typedef int (*id_call)(plinth_stream_t stream, unsigned long long *id);
typedef int (*flags_call)(plinth_stream_t stream, unsigned *flags);
typedef int (*priority_call)(plinth_stream_t stream, int *priority);
typedef int (*context_call)(plinth_stream_t stream, void **context);

/* The capturing stream, another stream, an event recorded in that stream, and memory. */
static plinth_stream_t capturing, other;
static void *event;
static void *memory;

static int record_in(plinth_stream_t stream) {
  DRIVER(driver_event_record, record, "cuEventRecord");
  return record(event, stream);
}

static int fill_in(plinth_stream_t stream) {
  DRIVER(driver_fill, fill, "cuMemsetD8Async");
  return fill((unsigned long long)(uintptr_t)memory, 1, 64, stream);
}

static int wait_in(plinth_stream_t stream) {
  DRIVER(driver_stream_wait_event, wait, "cuStreamWaitEvent");
  return wait(stream, event, 0);
}

static int query_event(void) {
  DRIVER(event_call, query, "cuEventQuery");
  return query(event);
}

static int synchronize_event(void) {
  DRIVER(event_call, synchronize, "cuEventSynchronize");
  return synchronize(event);
}

static int query_captured_event(void) {
  CHECK_EQ(record_in(capturing), CUDA_SUCCESS);
  return query_event();
}

static int synchronize_captured_event(void) {
  CHECK_EQ(record_in(capturing), CUDA_SUCCESS);
  return synchronize_event();
}

static int query_capturing(void) {
  DRIVER(stream_call, query, "cuStreamQuery");
  return query(capturing);
}

static int query_other(void) {
  DRIVER(stream_call, query, "cuStreamQuery");
  return query(other);
}

static int query_default(void) {
  DRIVER(stream_call, query, "cuStreamQuery");
  return query(NULL);
}

static int synchronize_capturing(void) {
  DRIVER(stream_call, synchronize, "cuStreamSynchronize");
  return synchronize(capturing);
}

static int synchronize_other(void) {
  DRIVER(stream_call, synchronize, "cuStreamSynchronize");
  return synchronize(other);
}

static int synchronize_context(void) {
  DRIVER(no_call, synchronize, "cuCtxSynchronize");
  return synchronize();
}

static int allocate(void) {
  unsigned long long result = 0;
  DRIVER(alloc_call, alloc, "cuMemAlloc");
  return alloc(&result, 1024);
}

static int allocate_pinned(void) {
  void *result = NULL;
  DRIVER(pinned_call, alloc, "cuMemHostAlloc");
  return alloc(&result, 4096, 1);
}

static int query_memory(void) {
  size_t available, total;
  DRIVER(info_call, info, "cuMemGetInfo");
  return info(&available, &total);
}

static int create_stream(void) {
  plinth_stream_t result = NULL;
  DRIVER(driver_stream_create, create, "cuStreamCreateWithPriority");
  return create(&result, CU_STREAM_NON_BLOCKING, 0);
}

static int create_event(void) {
  void *result = NULL;
  DRIVER(driver_event_create, create, "cuEventCreate");
  return create(&result, 2);
}

static int record_in_other(void) { return record_in(other); }
static int record_in_default(void) { return record_in(NULL); }
static int fill_in_other(void) { return fill_in(other); }
static int fill_in_default(void) { return fill_in(NULL); }

static int begin_again(void) {
  DRIVER(driver_begin_capture, begin, "cuStreamBeginCapture");
  return begin(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static int id_of(plinth_stream_t stream) {
  unsigned long long id;
  DRIVER(id_call, query, "cuStreamGetId");
  return query(stream, &id);
}

static int flags_of(plinth_stream_t stream) {
  unsigned flags;
  DRIVER(flags_call, query, "cuStreamGetFlags");
  return query(stream, &flags);
}

static int query_id(void) { return id_of(capturing); }
static int query_id_of_other(void) { return id_of(other); }
static int query_flags(void) { return flags_of(capturing); }
static int query_flags_of_other(void) { return flags_of(other); }

static int query_priority(void) {
  int priority;
  DRIVER(priority_call, query, "cuStreamGetPriority");
  return query(capturing, &priority);
}

static int query_context(void) {
  void *context;
  DRIVER(context_call, query, "cuStreamGetCtx");
  return query(capturing, &context);
}

static int wait_for_outside_event(void) { return wait_in(capturing); }

static int wait_for_null_event(void) {
  DRIVER(driver_stream_wait_event, wait, "cuStreamWaitEvent");
  return wait(capturing, NULL, 0);
}

static int wait_with_wrong_flags(void) {
  DRIVER(driver_stream_wait_event, wait, "cuStreamWaitEvent");
  return wait(capturing, event, 2);
}

static int wait_externally_in_other(void) {
  DRIVER(driver_stream_wait_event, wait, "cuStreamWaitEvent");
  return wait(other, event, 1);
}

static int record_null_event(void) {
  DRIVER(driver_event_record, record, "cuEventRecord");
  return record(NULL, capturing);
}

static int query_twice(void) {
  CHECK_EQ(query_capturing(), UNSUPPORTED);
  return query_capturing();
}

static int query_priority_after_failure(void) {
  CHECK_EQ(query_capturing(), UNSUPPORTED);
  return query_priority();
}

static int allocate_in_other(void) {
  unsigned long long address = 0;
  DRIVER(pool_alloc_call, alloc, "cuMemAllocAsync");
  const int code = alloc(&address, 0, other);
  CHECK_EQ(address, 0);
  return code;
}

static int launch_null_graph(void) {
  DRIVER(launch_call, launch, "cuGraphLaunch");
  return launch(NULL, capturing);
}

static int fork_without_work(void) {
  CHECK_EQ(record_in(capturing), CUDA_SUCCESS);
  return wait_in(other);
}

static int fork_with_work(void) {
  CHECK_EQ(record_in(capturing), CUDA_SUCCESS);
  CHECK_EQ(wait_in(other), CUDA_SUCCESS);
  return fill_in(other);
}

static int end_in_other(void) {
  void *graph = NULL;
  CHECK_EQ(fork_without_work(), CUDA_SUCCESS);
  return end_capture(other, &graph);
}

/* For each mode (global, thread-local, relaxed): the code of the call, and that of ending the capture. */
static const struct rule {
  const char *name;
  int (*call)(void);
  int codes[3];
  int ends[3];
} rules[] = {
    {"query an event", query_event, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"synchronize an event", synchronize_event, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"query a captured event", query_captured_event, {CAPTURED, CAPTURED, CAPTURED}, {INVALID, INVALID, INVALID}},
    {"synchronize a captured event", synchronize_captured_event, {CAPTURED, CAPTURED, CAPTURED},
     {INVALID, INVALID, INVALID}},
    {"query the stream", query_capturing, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"query another stream", query_other, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"query the default stream", query_default, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"synchronize the stream", synchronize_capturing, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"synchronize another stream", synchronize_other, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"synchronize the context", synchronize_context, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED},
     {INVALID, INVALID, INVALID}},
    {"allocate", allocate, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"allocate pinned memory", allocate_pinned, {UNSUPPORTED, UNSUPPORTED, 0}, {INVALID, INVALID, VALID}},
    {"query free memory", query_memory, {0, 0, 0}, {VALID, VALID, VALID}},
    {"create a stream", create_stream, {0, 0, 0}, {VALID, VALID, VALID}},
    {"create an event", create_event, {0, 0, 0}, {VALID, VALID, VALID}},
    {"record in another stream", record_in_other, {0, 0, 0}, {VALID, VALID, VALID}},
    {"record in the default stream", record_in_default, {0, 0, 0}, {VALID, VALID, VALID}},
    {"fill in another stream", fill_in_other, {0, 0, 0}, {VALID, VALID, VALID}},
    {"fill in the default stream", fill_in_default, {0, 0, 0}, {VALID, VALID, VALID}},
    {"begin a second capture", begin_again, {ILLEGAL_STATE, ILLEGAL_STATE, ILLEGAL_STATE}, {VALID, VALID, VALID}},
    {"launch a NULL graph", launch_null_graph, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"query the stream's id", query_id, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"query another stream's id", query_id_of_other, {0, 0, 0}, {VALID, VALID, VALID}},
    {"query the stream's flags", query_flags, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"query another stream's flags", query_flags_of_other, {0, 0, 0}, {VALID, VALID, VALID}},
    {"query the stream's priority", query_priority, {0, 0, 0}, {VALID, VALID, VALID}},
    {"query the stream's context", query_context, {0, 0, 0}, {VALID, VALID, VALID}},
    {"wait for an event from outside of the capture", wait_for_outside_event, {ISOLATION, ISOLATION, ISOLATION},
     {INVALID, INVALID, INVALID}},
    {"wait for a NULL event", wait_for_null_event, {INVALID_HANDLE, INVALID_HANDLE, INVALID_HANDLE},
     {INVALID, INVALID, INVALID}},
    {"wait with wrong flags", wait_with_wrong_flags, {INVALID_VALUE, INVALID_VALUE, INVALID_VALUE},
     {VALID, VALID, VALID}},
    {"wait with the external flag in another stream", wait_externally_in_other, {ILLEGAL_STATE, ILLEGAL_STATE, ILLEGAL_STATE},
     {VALID, VALID, VALID}},
    {"record a NULL event", record_null_event, {INVALID_HANDLE, INVALID_HANDLE, INVALID_HANDLE}, {VALID, VALID, VALID}},
    {"query the stream twice", query_twice, {UNSUPPORTED, UNSUPPORTED, UNSUPPORTED}, {INVALID, INVALID, INVALID}},
    {"query the priority after a failure", query_priority_after_failure, {INVALID, INVALID, INVALID},
     {INVALID, INVALID, INVALID}},
    {"allocate in another stream's order", allocate_in_other, {UNSUPPORTED, UNSUPPORTED, 0},
     {INVALID, INVALID, VALID}},
    {"fork without work", fork_without_work, {0, 0, 0}, {VALID, VALID, VALID}},
    {"fork with work", fork_with_work, {0, 0, 0}, {UNJOINED, UNJOINED, UNJOINED}},
    {"end the capture in the forked stream", end_in_other, {903, 903, 903}, {INVALID, INVALID, INVALID}},
};

static void set_up(void) {
  plinth_event_t made = new_event(0);
  CHECK_OK(plinth_set_device(0));
  capturing = stream_on(0);
  other = stream_on(0);
  memory = device_memory(KIB, 0);
  CHECK_OK(plinth_event_record(made, other));
  CHECK_OK(plinth_event_native(made, &event));
}

static void check_rules(unsigned mode) {
  set_up();
  for (size_t index = 0; index < sizeof rules / sizeof *rules; index++) {
    const struct rule *rule = &rules[index];
    void *graph = NULL;
    CHECK_EQ(record_in(other), CUDA_SUCCESS);
    CHECK_OK(plinth_synchronize(0));
    begin_capture(capturing, mode);
    const int code = rule->call();
    const int end = end_capture(capturing, &graph);
    if (code != rule->codes[mode] || end != rule->ends[mode]) {
      printf("%s: %d and then %d\n", rule->name, code, end);
    }
    CHECK_EQ(code, rule->codes[mode]);
    CHECK_EQ(end, rule->ends[mode]);
  }
}

TEST(rules_of_a_global_capture) { check_rules(CU_STREAM_CAPTURE_MODE_GLOBAL); }
TEST(rules_of_a_thread_local_capture) { check_rules(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); }
TEST(rules_of_a_relaxed_capture) { check_rules(CU_STREAM_CAPTURE_MODE_RELAXED); }

TEST(an_event_of_an_ended_capture_must_be_recorded_again) {
  void *graph = NULL;
  set_up();
  begin_capture(capturing, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_EQ(record_in(capturing), CUDA_SUCCESS);
  CHECK_EQ(end_capture(capturing, &graph), CUDA_SUCCESS);
  CHECK_EQ(query_event(), INVALID_VALUE);
  CHECK_EQ(synchronize_event(), INVALID_VALUE);
  CHECK_EQ(wait_in(other), INVALID_VALUE);
  CHECK_EQ(record_in(other), CUDA_SUCCESS);
  CHECK_EQ(wait_in(capturing), CUDA_SUCCESS);
  CHECK_EQ(synchronize_event(), CUDA_SUCCESS);
}

TEST(work_in_the_default_stream_invalidates_a_blocking_capture) {
  plinth_stream_t blocking;
  void *graph = NULL;
  set_up();
  blocking = known_foreign_stream(0, CU_STREAM_DEFAULT);
  begin_capture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_EQ(fill_in(NULL), IMPLICIT);
  CHECK_EQ(end_capture(blocking, &graph), INVALID);
}

/* What plinth creates at first use can be created during a capture in any mode, and the capture stays valid. */
TEST(first_uses_do_not_invalidate_a_capture) {
  for (unsigned mode = 0; mode < 3; mode++) {
    plinth_stream_t first, other_stream;
    plinth_event_t made;
    void *graph = NULL;
    void *nodes[16];
    size_t count = 16;
    DRIVER(driver_graph_nodes, list, "cuGraphGetNodes");
    CHECK_OK(plinth_stream_create(0, 0, &first));
    begin_capture(first, mode);
    CHECK_OK(plinth_sleep(1000, first));
    CHECK_OK(plinth_stream_create(0, -1 - (int32_t)mode, &other_stream));
    CHECK_OK(plinth_event_create(PLINTH_EVENT_BLOCKING, &made));
    CHECK_OK(plinth_event_record(made, first));
    CHECK_OK(plinth_event_wait(made, other_stream));
    CHECK_OK(plinth_sleep(1000, other_stream));
    CHECK_OK(plinth_stream_wait_stream(first, other_stream));
    CHECK_EQ(end_capture(first, &graph), CUDA_SUCCESS);
    CHECK_EQ(list(graph, nodes, &count), CUDA_SUCCESS);
    CHECK_EQ(count, 2);
    CHECK_OK(plinth_event_destroy(made));
  }
}

TEST(first_use_of_another_device_does_not_invalidate_a_capture) {
  plinth_stream_t first, other_stream;
  void *graph = NULL;
  need_devices(2);
  CHECK_OK(plinth_stream_create(0, 0, &first));
  begin_capture(first, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK(!has_context(1));
  CHECK_OK(plinth_stream_create(1, 0, &other_stream));
  CHECK_EQ(end_capture(first, &graph), CUDA_SUCCESS);
}
