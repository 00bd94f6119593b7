/* Snapshots of the allocator: callback, text and files. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forked child has none of its parent's threads, so a leak sanitizer would report their memory. Disable it. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* alone: an_exiting_process_is_refused the_json_has_the_settings; forks a child that uses the device; changes settings */
#include "allocating.h"
#include "graphing.h"
#include "process.h"

#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>

/* ---- the callback */

typedef struct totals {
  uint64_t allocated[2];
  uint64_t held[2];
  uint64_t asleep;
  int segments;
  int blocks;
  int live;
  int pending;
  uint64_t last_address;
  uint64_t expected_address;
  plinth_memory_segment_t segment;
  uint64_t sums[3];
  /* An address, and the block that contains it. */
  uint64_t address_to_find;
  plinth_memory_block_t found;
  plinth_memory_segment_t found_in;
} totals;

static void expect_complete(const totals *all_so_far) {
  if (all_so_far->segments > 0) {
    CHECK_EQ(all_so_far->expected_address, all_so_far->segment.address + all_so_far->segment.total_size);
    CHECK_EQ(all_so_far->sums[PLINTH_BLOCK_ALLOCATED], all_so_far->segment.allocated_size);
    CHECK_EQ(all_so_far->sums[PLINTH_BLOCK_ALLOCATED] + all_so_far->sums[PLINTH_BLOCK_PENDING_FREE],
             all_so_far->segment.active_size);
  }
}

static bool expandable(void) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen == NULL || strstr(chosen, "False") == NULL;
}

static bool add(const plinth_memory_segment_t *segment, const plinth_memory_block_t *block, void *context) {
  totals *all = (totals *)context;
  CHECK(segment->struct_size >= sizeof *segment);
  if (block == NULL) {
    expect_complete(all);
    CHECK(segment->address >= all->last_address);
    CHECK(segment->total_size > 0 && segment->block_count > 0);
    CHECK(segment->device >= 0 && segment->device < device_count());
    CHECK(expandable() || !segment->is_expandable);
    all->last_address = segment->address;
    all->expected_address = segment->address;
    all->segment = *segment;
    memset(all->sums, 0, sizeof all->sums);
    all->segments++;
    if (segment->device < 2) {
      all->allocated[segment->device] += segment->allocated_size;
      all->held[segment->device] += segment->total_size - segment->asleep_size;
    }
    all->asleep += segment->asleep_size;
    return true;
  }
  CHECK(block->struct_size >= sizeof *block);
  CHECK_EQ(segment->address, all->segment.address);
  CHECK_EQ(block->address, all->expected_address);
  CHECK(block->size > 0 && block->size % UNIT == 0 && block->requested_size <= block->size);
  CHECK(block->state >= PLINTH_BLOCK_INACTIVE && block->state <= PLINTH_BLOCK_ALLOCATED);
  CHECK((block->requested_size > 0) == (block->state != PLINTH_BLOCK_INACTIVE));
  all->expected_address += block->size;
  all->sums[block->state] += block->size;
  all->blocks++;
  all->live += block->state == PLINTH_BLOCK_ALLOCATED;
  all->pending += block->state == PLINTH_BLOCK_PENDING_FREE;
  if (block->address <= all->address_to_find && all->address_to_find < block->address + block->size) {
    all->found = *block;
    all->found_in = *segment;
  }
  return true;
}

/* Iterates over a snapshot, checks its invariants, and finds the block at an address. */
static totals inspect(const void *address_to_find) {
  totals all;
  memset(&all, 0, sizeof all);
  all.address_to_find = (uint64_t)(uintptr_t)address_to_find;
  CHECK_OK(plinth_memory_snapshot_each(add, &all));
  expect_complete(&all);
  return all;
}

TEST(without_memory_a_snapshot_is_empty) {
  const totals all = inspect(NULL);
  CHECK_EQ(all.segments, 0);
  CHECK_EQ(all.blocks, 0);
}

TEST(blocks_have_their_sizes_and_states) {
  plinth_stream_t stream = stream_on(0);
  void *small = alloc_on(1000, 0, NULL);
  void *large = alloc_on(5 * MIB + 1, 0, stream);
  totals all = inspect(small);
  CHECK_EQ(all.live, 2);
  CHECK_EQ(all.found.address, (uintptr_t)small);
  CHECK_EQ(all.found.size, 1024);
  CHECK_EQ(all.found.requested_size, 1000);
  CHECK_EQ(all.found.state, PLINTH_BLOCK_ALLOCATED);
  CHECK(!all.found_in.is_large && all.found_in.is_expandable == expandable());
  CHECK_EQ(all.found_in.stream, 0);
  CHECK_EQ(all.found_in.pool.owner, 0);
  CHECK_EQ(all.found_in.pool.index, 0);
  all = inspect(large);
  CHECK_EQ(all.found.requested_size, 5 * MIB + 1);
  CHECK_EQ(all.found.size, 5 * MIB + UNIT);
  CHECK_EQ(all.found_in.stream, (uintptr_t)stream);
  CHECK(all.found_in.is_large);
  CHECK_EQ(all.allocated[0], allocated(0));
  CHECK_EQ(all.held[0], reserved(0));
  release(small);
  release(large);
  all = inspect(large);
  CHECK_EQ(all.live, 0);
  CHECK_EQ(all.found.state, PLINTH_BLOCK_INACTIVE);
  CHECK_EQ(all.held[0], reserved(0));
  expect_nothing_left();
  CHECK_EQ(inspect(NULL).segments, 0);
}

TEST(memory_that_a_stream_still_uses_is_pending) {
  plinth_stream_t other = stream_on(0);
  void *memory = alloc_on(3 * MIB, 0, NULL);
  warm_up();
  gate *shut = gate_shut(other);
  CHECK_OK(plinth_record_stream(memory, other));
  release(memory);
  totals all = inspect(memory);
  CHECK_EQ(all.pending, 1);
  CHECK_EQ(all.found.state, PLINTH_BLOCK_PENDING_FREE);
  CHECK_EQ(all.found.requested_size, 3 * MIB);
  CHECK_EQ(all.found_in.allocated_size, 0);
  CHECK_EQ(all.found_in.active_size, 3 * MIB);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  expect_nothing_left();
}

TEST(devices_have_their_own_segments) {
  need_devices(2);
  void *zero = alloc_on(MIB, 0, NULL);
  void *one = alloc_on(2 * MIB, 1, NULL);
  totals all = inspect(one);
  CHECK_EQ(all.found_in.device, 1);
  CHECK_EQ(all.allocated[0], MIB);
  CHECK_EQ(all.allocated[1], 2 * MIB);
  CHECK_EQ(all.held[1], reserved(1));
  release(zero);
  release(one);
  expect_nothing_left();
}

static bool stop_at_first(const plinth_memory_segment_t *segment, const plinth_memory_block_t *block, void *context) {
  (void)segment;
  CHECK(block == NULL);
  ++*(int *)context;
  return false;
}

TEST(the_callback_can_stop_the_iteration) {
  int calls = 0;
  void *small = alloc_on(KIB, 0, NULL);
  void *large = alloc_on(5 * MIB, 0, NULL);
  CHECK_OK(plinth_memory_snapshot_each(stop_at_first, &calls));
  CHECK_EQ(calls, 1);
  CHECK_STATUS(plinth_memory_snapshot_each(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  release(small);
  release(large);
  expect_nothing_left();
}

TEST(a_sleeping_pool_keeps_its_addresses) {
  if (!expandable()) {
    harness_skip("only memory of handles can sleep");
  }
  plinth_graph_t graph = new_graph(0);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  unsigned char *inside = alloc_on(16 * MIB, 0, stream);
  fill_words(inside, 1, 16 * MIB, stream);
  CHECK_OK(plinth_graph_capture_end(graph));
  totals all = inspect(inside);
  CHECK_EQ(all.asleep, 0);
  CHECK_EQ(all.found.state, PLINTH_BLOCK_ALLOCATED);
  CHECK(all.found_in.pool.owner != 0 || all.found_in.pool.index != 0);
  CHECK_OK(plinth_graph_sleep(graph));
  all = inspect(inside);
  CHECK(all.asleep >= 16 * MIB);
  CHECK_EQ(all.asleep, all.found_in.asleep_size);
  CHECK_EQ(all.found.state, PLINTH_BLOCK_ALLOCATED);
  CHECK_EQ(all.held[0], reserved(0));
  release(inside);
  CHECK_OK(plinth_graph_destroy(graph));
}

static int stop;

static void *allocate_at_random(void *context) {
  plinth_stream_t stream = stream_on(0);
  uint64_t state = (uint64_t)*(int *)context + 1;
  void *blocks[32] = {NULL};
  while (!__atomic_load_n(&stop, __ATOMIC_SEQ_CST)) {
    const uint64_t random = random_next(&state);
    void **slot = &blocks[random % 32];
    if (*slot != NULL) {
      release(*slot);
      *slot = NULL;
    } else {
      *slot = alloc_on(1 + (size_t)(random >> 32) % (random & 64 ? 3 * MIB : 5000), 0, stream);
    }
    if ((random >> 8) % 4096 == 0) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int index = 0; index < 32; index++) {
    if (blocks[index] != NULL) {
      release(blocks[index]);
    }
  }
  return NULL;
}

static void *inspect_repeatedly(void *context) {
  (void)context;
  for (int round = 0; round < 200; round++) {
    char *json = NULL;
    (void)inspect(NULL);
    if (round % 20 == 0) {
      CHECK_OK(plinth_memory_snapshot(true, &json));
      plinth_string_free(json);
    }
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static void *inspect_or_allocate(void *context) {
  return *(int *)context == 0 ? inspect_repeatedly(context) : allocate_at_random(context);
}

TEST(snapshots_are_consistent_while_threads_allocate) {
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  options.max_entries = 10000;
  CHECK_OK(plinth_record_memory_history(&options));
  run_threads(5, inspect_or_allocate);
  options.enabled = PLINTH_MEMORY_HISTORY_OFF;
  CHECK_OK(plinth_record_memory_history(&options));
  expect_nothing_left();
}

/* ---- JSON */

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
    count++;
  }
  return count;
}

TEST(the_json_has_the_keys_of_pytorch) {
  char *json = NULL;
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  CHECK_OK(plinth_record_memory_history(&options));
  void *memory = alloc_on(1000, 0, NULL);
  CHECK_OK(plinth_memory_snapshot(true, &json));
  const char *const keys[] = {"\"segments\":[", "\"device_traces\":[[", "\"allocator_settings\":{", "\"external_annotations\":[",
                              "\"state\":\"active_allocated\"", "\"requested_size\":1000,", "\"action\":\"alloc\"",
                              "\"segment_type\":\"small\"", "the_json_has_the_keys_of_pytorch", "snapshot.c"};
  for (size_t index = 0; index < sizeof keys / sizeof *keys; index++) {
    CHECK_EQ(strstr(json, keys[index]) != NULL ? 0 : (long long)index + 1, 0);
  }
  plinth_string_free(json);
  CHECK_OK(plinth_memory_snapshot(false, &json));
  CHECK_EQ(count_of(json, "\"action\""), 0);
  CHECK_EQ(count_of(json, "\"active_allocated\""), 1);
  plinth_string_free(json);
  json = (char *)UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_memory_snapshot(true, NULL), PLINTH_ERROR_NULL_POINTER);
  release(memory);
}

TEST(the_json_has_the_settings) {
  char *json = NULL, *settings = NULL;
  CHECK_OK(plinth_set_allocator_settings("max_split_size_mb:100,garbage_collection_threshold:0.5,"
                                         "roundup_power2_divisions:[1:0,2:4,>:8],pinned_num_register_threads:8,"
                                         "release_lock_on_cudamalloc:True,pinned_use_cuda_host_register:True,"
                                         "graph_capture_record_stream_reuse:True"));
  CHECK_OK(plinth_memory_snapshot(false, &json));
  const char *const values[] = {"\"max_split_size\":104857600,", "\"garbage_collection_threshold\":0.5,",
                                "\"pinned_num_register_threads\":8,", "\"release_lock_on_cudamalloc\":true,",
                                "\"pinned_use_cuda_host_register\":true,", "\"graph_capture_record_stream_reuse\":true,",
                                "\"roundup_power2_divisions\":{\"1\":0,\"2\":4,\"4\":8,", "\"32768\":8}"};
  for (size_t index = 0; index < sizeof values / sizeof *values; index++) {
    CHECK_EQ(strstr(json, values[index]) != NULL ? 0 : (long long)index + 1, 0);
  }
  CHECK_OK(plinth_get_allocator_settings(&settings));
  CHECK(strstr(json, settings) != NULL);
  plinth_string_free(settings);
  plinth_string_free(json);
}

TEST(a_pools_snapshot_has_only_its_memory) {
  char *json = NULL;
  plinth_pool_id_t pool;
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  void *outside = alloc_on(4321, 0, NULL);
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *inside = alloc_on(1234, 0, NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_mem_pool_snapshot(pool, true, &json));
  CHECK_EQ(count_of(json, "\"action\":\"alloc\""), 1);
  CHECK_EQ(count_of(json, "\"requested_size\":1234,"), 2);
  CHECK_EQ(count_of(json, ":4321,"), 0);
  plinth_string_free(json);
  const plinth_pool_id_t shared = {0, 0};
  CHECK_OK(plinth_mem_pool_snapshot(shared, true, &json));
  CHECK(strstr(json, "\"requested_size\":4321,") != NULL);
  CHECK_EQ(count_of(json, ":1234,"), 0);
  plinth_string_free(json);
  const plinth_pool_id_t unknown = {77, 77};
  CHECK_STATUS(plinth_mem_pool_snapshot(unknown, false, &json), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_snapshot(pool, true, NULL), PLINTH_ERROR_NULL_POINTER);
  release(inside);
  release(outside);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
}

/* ---- files */

static char folder[PATH_MAX - 64];
static char path[PATH_MAX];

static const char *in_folder(const char *name) {
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void make_folder(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/plinth-snapshot-XXXXXX", temporary != NULL ? temporary : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
}

/* Removes the folder with its files, and returns how many it had. */
static int remove_folder(void) {
  int count = 0;
  DIR *listing = opendir(folder);
  CHECK(listing != NULL);
  for (const struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      unlink(in_folder(entry->d_name));
      count++;
    }
  }
  closedir(listing);
  CHECK_EQ(rmdir(folder), 0);
  return count;
}

static void expect_start(const char *name, const char *expected, size_t length) {
  char start[16] = "";
  FILE *file = fopen(in_folder(name), "rb");
  CHECK(file != NULL);
  CHECK_EQ(fread(start, 1, length, file), length);
  CHECK(memcmp(start, expected, length) == 0);
  fclose(file);
}

TEST(the_file_name_selects_the_format) {
  void *memory = alloc_on(KIB, 0, NULL);
  make_folder();
  CHECK_OK(plinth_dump_snapshot(in_folder("a.pickle")));
  expect_start("a.pickle", "\x80\x04}", 3);
  CHECK_OK(plinth_dump_snapshot(in_folder("a.json")));
  expect_start("a.json", "{\"stacks\":", 10);
  CHECK_OK(plinth_dump_snapshot(in_folder("a.html")));
  expect_start("a.html", "<!DOCTYPE html>", 15);
  CHECK_OK(plinth_dump_snapshot(in_folder("a.htm")));
  expect_start("a.htm", "<!DOCTYPE html>", 15);
  CHECK_OK(plinth_dump_snapshot(in_folder("b")));
  expect_start("b", "\x80\x04}", 3);
  CHECK_EQ(remove_folder(), 5);
  release(memory);
}

/* A path is a byte string, which need not be UTF-8. */
TEST(a_path_may_be_invalid_utf8) {
  make_folder();
  CHECK_OK(plinth_dump_snapshot(in_folder("\xff\xfe.json")));
  expect_start("\xff\xfe.json", "{\"stacks\":", 10);
  CHECK_OK(plinth_dump_snapshot(in_folder("\xff.html")));
  expect_start("\xff.html", "<!DOCTYPE html>", 15);
  CHECK_OK(plinth_trace_start(in_folder("\x80")));
  CHECK_OK(plinth_trace_stop());
  CHECK_STATUS(plinth_dump_snapshot(in_folder("\xff/no")), PLINTH_ERROR_SYSTEM);
  (void)unlink(in_folder("\x80"));
  CHECK_EQ(remove_folder(), 2);
}

TEST(errors_name_files_that_cannot_be_written) {
  make_folder();
  CHECK_STATUS(plinth_dump_snapshot(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_dump_snapshot(""), PLINTH_ERROR_SYSTEM);
  CHECK_STATUS(plinth_dump_snapshot(folder), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE(folder);
  CHECK_STATUS(plinth_dump_snapshot(in_folder("no/such")), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE(path);
  CHECK_MESSAGE("No such file or directory");
  CHECK_STATUS(plinth_dump_snapshot("/dev/full"), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("No space left on device");
  CHECK_OK(plinth_dump_snapshot("/dev/null"));
  CHECK_EQ(remove_folder(), 0);
}

static int observed;

static void dump_when_out_of_memory(int32_t device, size_t requested, size_t total, size_t available, void *context) {
  (void)device;
  (void)requested;
  (void)total;
  (void)available;
  CHECK_OK(plinth_dump_snapshot((const char *)context));
  observed++;
}

TEST(an_out_of_memory_observer_may_write_a_snapshot) {
  void *pointer = NULL;
  void *memory = alloc_on(KIB, 0, NULL);
  char target[PATH_MAX];
  make_folder();
  snprintf(target, sizeof target, "%s", in_folder("oom.pickle"));
  CHECK_OK(plinth_attach_out_of_memory_observer(dump_when_out_of_memory, target));
  CHECK_STATUS(plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(observed, 1);
  CHECK_OK(plinth_detach_out_of_memory_observer(dump_when_out_of_memory, target));
  expect_start("oom.pickle", "\x80\x04}", 3);
  CHECK_EQ(remove_folder(), 1);
  release(memory);
}

/* ---- forked children and exit */

static void expect_refused(plinth_status_t expected) {
  char *json = (char *)UNTOUCHED_POINTER;
  const plinth_pool_id_t pool = {0, 0};
  int calls = 0;
  CHECK_STATUS(plinth_dump_snapshot(in_folder("a.pickle")), expected);
  CHECK_STATUS(plinth_dump_snapshot(in_folder("a.json")), expected);
  CHECK_STATUS(plinth_memory_snapshot(true, &json), expected);
  CHECK_STATUS(plinth_mem_pool_snapshot(pool, true, &json), expected);
  CHECK_STATUS(plinth_memory_snapshot_each(stop_at_first, &calls), expected);
  CHECK_SAME(json, UNTOUCHED_POINTER);
  CHECK_EQ(calls, 0);
}

static void refused_as_forked(void) { expect_refused(PLINTH_ERROR_FORKED_CHILD); }

TEST(a_forked_child_is_refused) {
  void *memory = alloc_on(KIB, 0, NULL);
  make_folder();
  in_child(refused_as_forked);
  CHECK_EQ(remove_folder(), 0);
  release(memory);
}

static void refused_as_exiting(void) { expect_refused(PLINTH_ERROR_SHUTTING_DOWN); }

/* This handler is registered before the library's, and so called after it. */
static void exit_with_an_early_handler(void) {
  CHECK(atexit(refused_as_exiting) == 0);
  (void)alloc_on(KIB, 0, NULL);
  exit(7);
}

TEST(an_exiting_process_is_refused) {
  make_folder();
  expect_child(start_child(exit_with_an_early_handler), 7);
  CHECK_EQ(remove_folder(), 0);
}
