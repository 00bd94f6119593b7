/* The history of the allocator: entries, stacks, tags, annotations, trackers. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "memory_history.h"

#include <sys/syscall.h>

static uint64_t microseconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

TEST(entries_describe_allocations_and_frees) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_memory_metadata("not kept"));
  release(alloc_on(77, 0, stream));
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  const uint64_t before = microseconds_now();
  CHECK_OK(plinth_set_memory_metadata("step 1"));
  void *one = alloc_on(1000, 0, stream);
  CHECK_OK(plinth_set_memory_metadata(""));
  void *other = alloc_on(3 * MIB + 1, 0, NULL);
  release(one);
  release(other);
  const uint64_t after = microseconds_now();
  CHECK_EQ(read_history(0), 6);
  expect_entry(0, PLINTH_MEMORY_ACTION_ALLOC, one, 1000);
  expect_entry(1, PLINTH_MEMORY_ACTION_ALLOC, other, 3 * MIB + 1);
  expect_entry(2, PLINTH_MEMORY_ACTION_FREE_REQUESTED, one, 1000);
  expect_entry(3, PLINTH_MEMORY_ACTION_FREE_COMPLETED, one, 1000);
  expect_entry(4, PLINTH_MEMORY_ACTION_FREE_REQUESTED, other, 3 * MIB + 1);
  expect_entry(5, PLINTH_MEMORY_ACTION_FREE_COMPLETED, other, 3 * MIB + 1);
  for (int index = 0; index < 6; index++) {
    const plinth_memory_history_entry_t *raw = &entries[index].raw;
    CHECK_SAME(raw->stream, index == 0 || index == 2 || index == 3 ? stream : NULL);
    CHECK_EQ(raw->device, 0);
    CHECK_EQ(raw->pool.owner + raw->pool.index, 0);
    CHECK_EQ(raw->thread, syscall(SYS_gettid));
    CHECK_EQ(raw->stack, 0);
    /* The two clocks are read one after the other, and times are rounded to microseconds. */
    CHECK(raw->time_us + 1000 >= before && raw->time_us <= after + 1000);
    CHECK_TEXT(entries[index].metadata, index == 0 ? "step 1" : "");
  }
  stop_recording();
  CHECK_EQ(read_history(0), 0);
  expect_nothing_left();
}

static int inner_line;
static int outer_line;
static int free_line;

__attribute__((noinline)) static void *an_inner_function(size_t bytes) {
  void *pointer = NULL;
  inner_line = __LINE__ + 1;
  const plinth_status_t status = plinth_caching_allocator_alloc(bytes, 0, NULL, &pointer);
  CHECK(status == PLINTH_OK);
  return pointer;
}

__attribute__((noinline)) static void *an_outer_function(size_t bytes) {
  outer_line = __LINE__ + 1;
  void *memory = an_inner_function(bytes);
  CHECK_EQ((uintptr_t)memory % UNIT, 0);
  return memory;
}

__attribute__((noinline)) static void a_function_that_frees(void *memory) {
  free_line = __LINE__ + 1;
  const plinth_status_t status = plinth_caching_allocator_delete(memory);
  CHECK(status == PLINTH_OK);
}

TEST(stacks_have_functions_files_and_lines) {
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  a_function_that_frees(an_outer_function(KIB));
  CHECK_EQ(read_history(0), 3);
  CHECK(read_stack(entries[0].raw.stack) >= 3);
  CHECK_EQ(frame_of("an_inner_function"), 0);
  CHECK_EQ(frame_of("an_outer_function"), 1);
  expect_frame("an_inner_function", "memory_history.c", inner_line);
  expect_frame("an_outer_function", "memory_history.c", outer_line);
  CHECK(frame_of("test_stacks_have_functions_files_and_lines") > 1);
  CHECK(frame_of("main") > 2);
  read_stack(entries[1].raw.stack);
  CHECK_EQ(frame_of("a_function_that_frees"), 0);
  expect_frame("a_function_that_frees", "memory_history.c", free_line);
  CHECK_EQ(entries[1].raw.stack, entries[2].raw.stack);
  CHECK_EQ(read_stack(0), 0);
  CHECK_EQ(read_stack(UINT32_MAX), 0);
  stop_recording();
}

TEST(equal_stacks_have_one_id) {
  void *memory[20];
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  for (int index = 0; index < 20; index++) {
    memory[index] = an_outer_function(KIB);
  }
  void *other = an_outer_function(MIB);
  CHECK_EQ(read_history(0), 21);
  for (int index = 1; index < 20; index++) {
    CHECK_EQ(entries[index].raw.stack, entries[0].raw.stack);
  }
  CHECK(entries[20].raw.stack != entries[0].raw.stack);
  for (int index = 0; index < 20; index++) {
    release(memory[index]);
  }
  release(other);
  stop_recording();
  expect_nothing_left();
}

__attribute__((noinline)) static int recurse(int depth, void **memory) {
  if (depth == 0) {
    *memory = an_inner_function(KIB);
    return 1;
  }
  const int deeper = recurse(depth - 1, memory);
  CHECK(*memory != NULL);
  return deeper + 1;
}

TEST(deep_stacks_are_truncated) {
  void *memory[3];
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  CHECK_EQ(recurse(20, &memory[0]), 21);
  CHECK_EQ(recurse(21, &memory[1]), 22);
  CHECK_EQ(recurse(5000, &memory[2]), 5001);
  CHECK_EQ(read_history(0), 3);
  const int shallow = read_stack(entries[0].raw.stack);
  CHECK(shallow > 21);
  CHECK_EQ(read_stack(entries[1].raw.stack), shallow + 1);
  CHECK_EQ(read_stack(entries[2].raw.stack), 128);
  CHECK_EQ(frame_of("an_inner_function"), 0);
  for (int index = 0; index < 3; index++) {
    release(memory[index]);
  }
}

TEST(the_context_selects_which_actions_have_stacks) {
  static const bool expected[][2] = {{false, false}, {false, false}, {true, false}, {true, true}};
  for (int32_t context = PLINTH_MEMORY_CONTEXT_NONE; context <= PLINTH_MEMORY_CONTEXT_ALL; context++) {
    plinth_memory_history_options_t options = history_options();
    options.context = context;
    options.clear_history = 1;
    options.skip_actions = SEGMENTS;
    CHECK_OK(plinth_record_memory_history(&options));
    release(alloc_on(KIB, 0, NULL));
    CHECK_EQ(read_history(0), 3);
    CHECK_EQ(entries[0].raw.stack != 0, expected[context][0]);
    CHECK_EQ(entries[1].raw.stack != 0, expected[context][1]);
  }
  stop_recording();
}

TEST(the_context_alloc_records_stacks_of_allocations) {
  const uint32_t allocating = BIT(ALLOC) | BIT(SEGMENT_ALLOC) | BIT(SEGMENT_MAP) | BIT(OOM);
  const uint32_t others = BIT(FREE_REQUESTED) | BIT(FREE_COMPLETED) | BIT(SNAPSHOT);
  plinth_memory_history_options_t options = history_options();
  uint32_t seen = 0;
  void *pointer = NULL;
  char *snapshot = NULL;
  options.context = PLINTH_MEMORY_CONTEXT_ALLOC;
  CHECK_OK(plinth_record_memory_history(&options));
  release(alloc_on(KIB, 0, NULL));
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_memory_snapshot(false, &snapshot));
  plinth_string_free(snapshot);
  read_history(0);
  for (int index = 0; index < entry_count; index++) {
    const uint32_t bit = 1U << entries[index].raw.action;
    seen |= bit;
    CHECK_EQ(entries[index].raw.stack != 0, (bit & allocating) != 0);
  }
  CHECK_EQ(seen & (BIT(ALLOC) | BIT(OOM) | others), BIT(ALLOC) | BIT(OOM) | others);
  CHECK(seen & (BIT(SEGMENT_ALLOC) | BIT(SEGMENT_MAP)));
  CHECK(seen & (BIT(SEGMENT_FREE) | BIT(SEGMENT_UNMAP)));
  stop_recording();
}

TEST(segments_have_entries) {
  const bool expandable = getenv("PLINTH_ALLOC_CONF") == NULL;
  const int32_t map_action = expandable ? PLINTH_MEMORY_ACTION_SEGMENT_MAP : PLINTH_MEMORY_ACTION_SEGMENT_ALLOC;
  const int32_t unmap_action = expandable ? PLINTH_MEMORY_ACTION_SEGMENT_UNMAP : PLINTH_MEMORY_ACTION_SEGMENT_FREE;
  plinth_memory_history_options_t options = history_options();
  CHECK_OK(plinth_record_memory_history(&options));
  void *memory = alloc_on(100 * MIB, 0, NULL);
  const size_t held = reserved(0);
  read_history(0);
  uint64_t bytes = 0;
  for (int index = 0; index + 1 < entry_count; index++) {
    CHECK_EQ(entries[index].raw.action, map_action);
    bytes += entries[index].raw.size;
  }
  CHECK_EQ(bytes, held);
  expect_entry(entry_count - 1, PLINTH_MEMORY_ACTION_ALLOC, memory, 100 * MIB);
  read_stack(entries[0].raw.stack);
  CHECK(frame_of("test_segments_have_entries") >= 0);
  release(memory);
  expect_nothing_left();
  read_history(0);
  int64_t mapped = 0;
  for (int index = 0; index < entry_count; index++) {
    const plinth_memory_history_entry_t *raw = &entries[index].raw;
    mapped += raw->action == map_action ? (int64_t)raw->size : raw->action == unmap_action ? -(int64_t)raw->size : 0;
    CHECK(mapped >= 0 && mapped <= (int64_t)held);
  }
  CHECK_EQ(mapped, 0);
  stop_recording();
}

TEST(entries_have_the_pool) {
  plinth_pool_id_t pool;
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *memory = alloc_on(KIB, 0, NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  release(memory);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  /* The pool's memory is freed, but its entries remain. */
  release(alloc_on(2 * KIB, 0, NULL));
  CHECK_EQ(read_history(0), 6);
  for (int index = 0; index < 6; index++) {
    CHECK_EQ(entries[index].raw.pool.index, index < 3 ? pool.index : 0);
    CHECK_EQ(entries[index].raw.size, index < 3 ? KIB : 2 * KIB);
  }
  stop_recording();
  expect_nothing_left();
}

/* Another stream gets the memory of a stream that ends, but not its events. */
TEST(an_ended_streams_entries_keep_their_stream) {
  plinth_stream_t stream = NULL;
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  CHECK_OK(plinth_stream_create_dedicated(0, 0, &stream));
  void *freed = alloc_on(4 * MIB, 0, stream);
  void *kept = alloc_on(KIB, 0, stream);
  release(freed);
  CHECK_OK(plinth_stream_destroy(stream));
  CHECK_EQ(read_history(0), 4);
  for (int index = 0; index < 4; index++) {
    CHECK_SAME(entries[index].raw.stream, stream);
  }
  expect_entry(1, PLINTH_MEMORY_ACTION_ALLOC, kept, KIB);
  release(kept);
  CHECK_EQ(read_history(0), 6);
  for (int index = 0; index < 6; index++) {
    CHECK_EQ(entries[index].raw.stream == stream, index < 4);
  }
  expect_entry(4, PLINTH_MEMORY_ACTION_FREE_REQUESTED, kept, KIB);
  stop_recording();
  expect_nothing_left();
}

TEST(a_failed_request_has_an_entry) {
  void *pointer = UNTOUCHED_POINTER;
  record_blocks(PLINTH_MEMORY_CONTEXT_ALL, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, stream, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(read_history(0), 1);
  CHECK_EQ(entries[0].raw.action, PLINTH_MEMORY_ACTION_OOM);
  CHECK_EQ(entries[0].raw.size, (size_t)1 << 50);
  CHECK_SAME(entries[0].raw.stream, stream);
  CHECK(!on_host_device() || entries[0].raw.address == free_memory(0));
  read_stack(entries[0].raw.stack);
  CHECK_EQ(frame_of("test_a_failed_request_has_an_entry"), 0);
  stop_recording();
}

TEST(a_pending_free_has_two_entries) {
  plinth_stream_t other = stream_on(0);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  void *memory = alloc_on(4 * MIB, 0, NULL);
  gate *shut = hold(other);
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  CHECK_EQ(read_history(0), 2);
  expect_entry(1, PLINTH_MEMORY_ACTION_FREE_REQUESTED, memory, 4 * MIB);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(read_history(0), 3);
  expect_entry(2, PLINTH_MEMORY_ACTION_FREE_COMPLETED, memory, 4 * MIB);
  stop_recording();
}

TEST(devices_have_histories_of_their_own) {
  need_devices(2);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  release(alloc_on(KIB, 0, NULL));
  release(alloc_on(MIB, 1, stream_on(1)));
  CHECK_EQ(read_history(1), 3);
  CHECK_EQ(entries[0].raw.device, 1);
  CHECK_EQ(entries[0].raw.size, MIB);
  CHECK_EQ(read_history(-1), 3);
  CHECK_EQ(entries[0].raw.size, KIB);
  stop_recording();
}

TEST(a_tag_belongs_to_its_thread) {
  char *text = NULL;
  CHECK_OK(plinth_get_memory_metadata(&text));
  CHECK_TEXT(text, "");
  plinth_string_free(text);
  CHECK_OK(plinth_set_memory_metadata("one \"tag\""));
  CHECK_OK(plinth_get_memory_metadata(&text));
  CHECK_TEXT(text, "one \"tag\"");
  plinth_string_free(text);
  CHECK_STATUS(plinth_set_memory_metadata(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_memory_metadata(NULL), PLINTH_ERROR_NULL_POINTER);
}

static char annotations[16][64];
static int annotation_count;

static void collect_annotation(int32_t device, uint64_t time_us, const char *name, bool begin, void *context) {
  CHECK_SAME(context, annotations);
  CHECK(time_us + 1000000 > microseconds_now());
  CHECK(annotation_count < 16);
  snprintf(annotations[annotation_count++], sizeof annotations[0], "%d %s %s", (int)device, begin ? "begin" : "end", name);
}

static int read_annotations(void) {
  annotation_count = 0;
  CHECK_OK(plinth_memory_annotations_each(collect_annotation, annotations));
  return annotation_count;
}

TEST(annotations_are_recorded_on_request) {
  plinth_memory_history_options_t options = history_options();
  CHECK_OK(plinth_memory_annotation_begin("before"));
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_OK(plinth_memory_annotation_begin("not asked for"));
  CHECK_EQ(read_annotations(), 0);
  options.record_annotations = 1;
  options.max_entries = 3;
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_OK(plinth_memory_annotation_begin("step"));
  CHECK_OK(plinth_memory_annotation_begin("layer"));
  CHECK_OK(plinth_memory_annotation_end("layer"));
  CHECK_OK(plinth_memory_annotation_end("step"));
  CHECK_EQ(read_annotations(), 3);
  CHECK_TEXT(annotations[0], "0 begin layer");
  CHECK_TEXT(annotations[1], "0 end layer");
  CHECK_TEXT(annotations[2], "0 end step");
  CHECK_STATUS(plinth_memory_annotation_begin(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_annotation_end(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_annotations_each(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  stop_recording();
  CHECK_EQ(read_annotations(), 0);
}

TEST(trackers_are_called_before_the_call_returns) {
  clear_entries();
  CHECK_OK(plinth_attach_allocator_trace_tracker(collect_entry, &entry_count));
  void *first = alloc_on(KIB, 0, NULL);
  CHECK(entry_count >= 2);
  CHECK_TEXT(plinth_memory_action_name(entries[0].raw.action),
             getenv("PLINTH_ALLOC_CONF") == NULL ? "segment_map" : "segment_alloc");
  expect_entry(entry_count - 1, PLINTH_MEMORY_ACTION_ALLOC, first, KIB);
  entry_count = 0;
  CHECK_OK(plinth_set_memory_metadata("tracked"));
  void *memory = alloc_on(700, 0, NULL);
  CHECK_EQ(entry_count, 1);
  expect_entry(0, PLINTH_MEMORY_ACTION_ALLOC, memory, 700);
  CHECK_TEXT(entries[0].metadata, "tracked");
  CHECK(entries[0].raw.time_us + 1000000 > microseconds_now());
  CHECK_EQ(entries[0].raw.stack, 0);
  release(memory);
  CHECK_EQ(entry_count, 3);
  expect_entry(2, PLINTH_MEMORY_ACTION_FREE_COMPLETED, memory, 700);
  /* Trackers also get actions that the history skips, and have stacks if the history records them. */
  plinth_memory_history_options_t options = history_options();
  options.skip_actions = BIT(ALLOC);
  CHECK_OK(plinth_record_memory_history(&options));
  memory = alloc_on(700, 0, NULL);
  CHECK_EQ(entry_count, 4);
  CHECK(entries[3].raw.stack != 0);
  stop_recording();
  void *pointer = NULL;
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(entries[entry_count - 1].raw.action, PLINTH_MEMORY_ACTION_OOM);
  release(first);
  release(memory);
  CHECK_OK(plinth_empty_cache());
  CHECK_TEXT(plinth_memory_action_name(entries[entry_count - 1].raw.action),
             getenv("PLINTH_ALLOC_CONF") == NULL ? "segment_unmap" : "segment_free");
  CHECK_OK(plinth_detach_allocator_trace_tracker(collect_entry, &entry_count));
  const int count_at_detach = entry_count;
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(entry_count, count_at_detach);
  expect_nothing_left();
}

static const char *last_action(void) {
  return entry_count == 0 ? "" : plinth_memory_action_name(entries[entry_count - 1].raw.action);
}

/* Calls that find that the last user of a freed block is done complete its free. */
TEST(trackers_are_called_before_a_call_that_completes_a_free_returns) {
  plinth_pool_id_t pool;
  plinth_pool_checkpoint_t checkpoint = NULL;
  plinth_stream_t other = stream_on(0);
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *blocks[2] = {alloc_on(4 * MIB, 0, NULL), alloc_on(4 * MIB, 0, NULL)};
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  clear_entries();
  CHECK_OK(plinth_attach_allocator_trace_tracker(collect_entry, &entry_count));
  for (int index = 0; index < 2; index++) {
    gate *shut = hold(other);
    CHECK_OK(plinth_record_stream(blocks[index], other));
    release(blocks[index]);
    CHECK_TEXT(last_action(), "free_requested");
    expect_held(shut);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(other));
    if (index == 0) {
      CHECK_OK(plinth_pool_checkpoint_create(0, pool, &checkpoint));
    } else {
      /* Even if it fails: the first block is free. */
      CHECK_STATUS(plinth_pool_checkpoint_restore(checkpoint, blocks, 1, NULL, NULL), PLINTH_ERROR_INVALID_POINTER);
    }
    CHECK_TEXT(last_action(), "free_completed");
  }
  CHECK_OK(plinth_detach_allocator_trace_tracker(collect_entry, &entry_count));
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

static int tracker_calls;

static void allocate_in_a_tracker(const plinth_memory_history_entry_t *reported, void *context) {
  CHECK(reported != NULL && context == NULL);
  tracker_calls++;
  release(alloc_on(2 * KIB, 0, NULL));
  release(alloc_on(2 * MIB, 0, stream_on(0)));
}

TEST(a_tracker_may_allocate) {
  CHECK_OK(plinth_attach_allocator_trace_tracker(allocate_in_a_tracker, NULL));
  void *memory = alloc_on(KIB, 0, NULL);
  CHECK(tracker_calls >= 2);
  tracker_calls = 0;
  release(memory);
  CHECK_EQ(tracker_calls, 2);
  CHECK_OK(plinth_detach_allocator_trace_tracker(allocate_in_a_tracker, NULL));
  expect_nothing_left();
}

/* Trackers are called for a snapshot after its arena locks are released. */
TEST(a_tracker_may_allocate_when_a_snapshot_is_taken) {
  char *text = NULL;
  void *memory = alloc_on(MIB, 0, NULL);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  CHECK_OK(plinth_attach_allocator_trace_tracker(allocate_in_a_tracker, NULL));
  tracker_calls = 0;
  CHECK_OK(plinth_memory_snapshot(true, &text));
  CHECK_EQ(tracker_calls, device_count());
  CHECK(text != NULL && strstr(text, "\"snapshot\"") != NULL);
  plinth_string_free(text);
  CHECK_OK(plinth_detach_allocator_trace_tracker(allocate_in_a_tracker, NULL));
  stop_recording();
  release(memory);
  expect_nothing_left();
}

TEST(a_trace_and_a_history_can_be_recorded_together) {
  char path[] = "/tmp/plinth-history-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  CHECK_OK(plinth_trace_start(path));
  release(alloc_on(KIB, 0, NULL));
  CHECK_OK(plinth_trace_stop());
  release(alloc_on(KIB, 0, NULL));
  CHECK_EQ(read_history(0), 6);
  unlink(path);
  stop_recording();
}

TEST(invalid_arguments_are_errors) {
  plinth_memory_history_options_t options = history_options();
  CHECK_STATUS(plinth_record_memory_history(NULL), PLINTH_ERROR_NULL_POINTER);
  options.struct_size = 3;
  CHECK_STATUS(plinth_record_memory_history(&options), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("struct_size");
  options = history_options();
  options.enabled = 3;
  CHECK_STATUS(plinth_record_memory_history(&options), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("enabled");
  options = history_options();
  options.context = -1;
  CHECK_STATUS(plinth_record_memory_history(&options), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("context");
  options = history_options();
  options.skip_actions = 1U << 9;
  CHECK_STATUS(plinth_record_memory_history(&options), PLINTH_ERROR_INVALID_VALUE);
  bool enabled = true;
  CHECK_OK(plinth_memory_history_is_enabled(&enabled));
  CHECK(!enabled);
  /* An older program with a smaller struct gets defaults for the other fields. */
  options = history_options();
  options.struct_size = offsetof(plinth_memory_history_options_t, max_entries);
  options.max_entries = 1;
  options.skip_actions = 1U << 9;
  CHECK_OK(plinth_record_memory_history(&options));
  release(alloc_on(KIB, 0, NULL));
  CHECK(read_history(0) >= 4);
  stop_recording();
  CHECK_STATUS(plinth_memory_history_is_enabled(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_history_each(0, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_history_each(device_count(), collect_entry, NULL), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_memory_stack_each(1, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_attach_allocator_trace_tracker(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_detach_allocator_trace_tracker(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_detach_allocator_trace_tracker(collect_entry, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_TEXT(plinth_memory_action_name(PLINTH_MEMORY_ACTION_SNAPSHOT), "snapshot");
  CHECK_TEXT(plinth_memory_action_name(-1), "unknown");
}
