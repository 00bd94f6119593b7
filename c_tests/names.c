/* Names of streams, memory and kernels in messages, reports and snapshots. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "driver.h"
#include "graphing.h"
#include "logging.h"
#include "memory_history.h"
#include "sanitizing.h"

static void expect_stream_name(plinth_stream_t stream, const char *expected) {
  char *name = NULL;
  CHECK_OK(plinth_stream_get_name(stream, &name));
  CHECK_TEXT(name, expected);
  plinth_string_free(name);
}

static void expect_memory_name(const void *pointer, const char *expected) {
  char *name = NULL;
  CHECK_OK(plinth_memory_get_name(pointer, &name));
  CHECK_TEXT(name, expected);
  plinth_string_free(name);
}

TEST(a_stream_has_the_name_that_was_set) {
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  expect_stream_name(stream, "");
  CHECK_OK(plinth_stream_set_name(stream, "copies"));
  expect_stream_name(stream, "copies");
  expect_stream_name(other, "");
  CHECK_OK(plinth_stream_set_name(NULL, "main"));
  expect_stream_name(NULL, "main");
  CHECK_OK(plinth_stream_set_name(stream, "uploads"));
  expect_stream_name(stream, "uploads");
  CHECK_OK(plinth_stream_set_name(stream, NULL));
  expect_stream_name(stream, "");
  CHECK_OK(plinth_stream_set_name(NULL, ""));
  expect_stream_name(NULL, "");
  CHECK_STATUS(plinth_stream_set_name((plinth_stream_t)&stream, "wrong"), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_stream_get_name(stream, NULL), PLINTH_ERROR_NULL_POINTER);
}

TEST(messages_name_the_stream) {
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  char expected[96];
  snprintf(expected, sizeof expected, "synchronizing stream \"compute\" %#zx of device 0", (size_t)stream);
  CHECK_OK(plinth_stream_set_name(stream, "compute"));
  log_collect(PLINTH_LOG_WARNING);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_LOGGED(PLINTH_LOG_WARNING, "captured in stream \"compute\" 0x");
  CHECK_OK(plinth_graph_reset(graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_MESSAGE(expected);
  CHECK_STATUS(plinth_graph_capture_end(graph), PLINTH_ERROR_CAPTURE_INVALIDATED);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_stream_set_name(stream, NULL));
}

/* Each kind of memory, with its allocation and its free. */
static void *cached_alloc(void) { return alloc_on(4 * KIB, 0, NULL); }
static void cached_free(void *memory) { CHECK_OK(plinth_caching_allocator_delete(memory)); }
static void *host_alloc(void) {
  void *memory = NULL;
  CHECK_OK(plinth_host_alloc(4 * KIB, &memory));
  return memory;
}
static void host_free(void *memory) { CHECK_OK(plinth_host_free(memory)); }
static void *driver_alloc(void) { return device_memory(4 * KIB, 0); }
static void driver_free(void *memory) { CHECK_OK(plinth_device_free(memory)); }
static void *driver_pinned_alloc(void) { return pinned_memory(4 * KIB); }
static void driver_pinned_free(void *memory) { CHECK_OK(plinth_pinned_free(memory)); }

static const struct {
  void *(*alloc)(void);
  void (*free)(void *memory);
} kinds[] = {
    {cached_alloc, cached_free},
    {host_alloc, host_free},
    {driver_alloc, driver_free},
    {driver_pinned_alloc, driver_pinned_free},
};

TEST(the_name_of_memory_ends_with_its_block) {
  for (int kind = 0; kind < 4; kind++) {
    for (int round = 0; round < 3; round++) {
      unsigned char *memory = (unsigned char *)kinds[kind].alloc();
      expect_memory_name(memory, "");
      CHECK_OK(plinth_memory_set_name(memory + 100, "weights"));
      expect_memory_name(memory, "weights");
      expect_memory_name(memory + 4 * KIB - 1, "weights");
      if (round == 1) {
        CHECK_OK(plinth_memory_set_name(memory, "biases"));
        expect_memory_name(memory, "biases");
      } else if (round == 2) {
        CHECK_OK(plinth_memory_set_name(memory, NULL));
        expect_memory_name(memory, "");
      }
      kinds[kind].free(memory);
    }
  }
  /* A block that is freed is reused at once, although it had a name. */
  void *memory = cached_alloc();
  CHECK_OK(plinth_memory_set_name(memory, "first"));
  cached_free(memory);
  CHECK_SAME(cached_alloc(), memory);
  expect_memory_name(memory, "");
  cached_free(memory);
  expect_nothing_left();
}

TEST(only_live_memory_has_a_name) {
  int local = 0;
  char *name = NULL;
  void *memory = cached_alloc();
  CHECK_STATUS(plinth_memory_set_name(NULL, "nothing"), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_memory_set_name(&local, "local"), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("host memory that is not pinned");
  CHECK_OK(plinth_memory_set_name(memory, "freed"));
  cached_free(memory);
  CHECK_STATUS(plinth_memory_set_name(memory, "again"), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("its block was freed already");
  CHECK_STATUS(plinth_memory_get_name(memory, &name), PLINTH_ERROR_INVALID_POINTER);
  CHECK(name == NULL);
}

TEST(a_named_block_with_recorded_streams_waits_for_them) {
  plinth_stream_t stream = stream_on(0);
  void *memory = cached_alloc();
  CHECK_OK(plinth_memory_set_name(memory, "shared"));
  gate *shut = gate_shut(stream);
  CHECK_OK(plinth_record_stream(memory, stream));
  cached_free(memory);
  void *other = cached_alloc();
  CHECK(other != memory);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  cached_free(other);
  CHECK_OK(plinth_empty_cache());
}

TEST(wrong_pointers_are_described_by_name) {
  unsigned char *memory = (unsigned char *)cached_alloc();
  CHECK_OK(plinth_memory_set_name(memory, "weights"));
  CHECK_STATUS(plinth_caching_allocator_delete(memory + 8), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("it is byte 8 of a live block \"weights\" of 4.00 KiB at ");
  CHECK_STATUS(plinth_host_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("it is a live block \"weights\" of 4.00 KiB of the caching allocator");
  cached_free(memory);
}

typedef int (*driver_memory_alloc)(uint64_t *address, size_t bytes);
typedef int (*driver_memory_free)(uint64_t address);

static bool contains(plinth_status_t (*get)(char **text), const char *part) {
  char *text = NULL;
  CHECK_OK(get(&text));
  const bool found = strstr(text, part) != NULL;
  if (!found) {
    fprintf(stderr, "\"%s\" is not in\n%s\n", part, text);
  }
  plinth_string_free(text);
  return found;
}

TEST(reports_of_the_sanitizer_have_names) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  void *memory = alloc_on(4 * KIB, 0, first);
  CHECK_OK(plinth_stream_set_name(first, "loader"));
  CHECK_OK(plinth_stream_set_name(second, "trainer"));
  CHECK_OK(plinth_memory_set_name(memory, "batch"));
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  CHECK_OK(plinth_memset(memory, 1, 4 * KIB, first));
  CHECK_OK(plinth_memset(memory, 2, 4 * KIB, second));
  CHECK(contains(plinth_sanitizer_text, "in stream \"trainer\" 0x"));
  CHECK(contains(plinth_sanitizer_text, "in stream \"loader\" 0x"));
  CHECK(contains(plinth_sanitizer_text, "the block: \"batch\", 4.00 KiB from "));
  CHECK(contains(plinth_sanitizer_json, "\"stream_name\":\"trainer\""));
  CHECK(contains(plinth_sanitizer_json, "\"name\":\"batch\""));
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_stream_synchronize(first));
  CHECK_OK(plinth_stream_synchronize(second));
  release(memory);
  CHECK_OK(plinth_memset(memory, 3, KIB, first)); /* freed */
  CHECK(contains(plinth_sanitizer_text, "the block: \"batch\", 4.00 KiB from "));
  CHECK_OK(plinth_stream_synchronize(first));
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_stream_set_name(first, NULL));
  CHECK_OK(plinth_stream_set_name(second, NULL));
}

static char snapshot_path[128];

static bool file_contains(const char *path, const char *part) {
  FILE *file = fopen(path, "rb");
  CHECK(file != NULL);
  static char text[1 << 20];
  const size_t bytes = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[bytes] = '\0';
  return memmem(text, bytes, part, strlen(part)) != NULL;
}

TEST(snapshots_have_names) {
  static const char *const endings[] = {"json", "pickle"};
  plinth_stream_t stream = stream_on(0);
  void *memory = alloc_on(4 * KIB, 0, stream);
  void *other = alloc_on(4 * KIB, 0, stream);
  CHECK_OK(plinth_stream_set_name(stream, "snapshot stream"));
  CHECK_OK(plinth_memory_set_name(memory, "snapshot block"));
  CHECK_OK(plinth_memory_set_name(other, "freed block"));
  release(other);
  for (int index = 0; index < 2; index++) {
    snprintf(snapshot_path, sizeof snapshot_path, "/tmp/plinth-names-%d.%s", (int)getpid(), endings[index]);
    CHECK_OK(plinth_dump_snapshot(snapshot_path));
    CHECK(file_contains(snapshot_path, "snapshot stream"));
    CHECK(file_contains(snapshot_path, "snapshot block"));
    CHECK(!file_contains(snapshot_path, "freed block"));
    CHECK_EQ(unlink(snapshot_path), 0);
  }
  release(memory);
  CHECK_OK(plinth_stream_set_name(stream, NULL));
}

/* The names in an entry of the history, or in a block of a snapshot. */
typedef struct named {
  uint64_t address;
  int32_t action;
  char name[32];
  char stream_name[32];
} named;

static named seen[64];
static int seen_count;

static void see(uint64_t address, int32_t action, const char *name, const char *stream_name) {
  CHECK(seen_count < 64);
  seen[seen_count].address = address;
  seen[seen_count].action = action;
  snprintf(seen[seen_count].name, sizeof seen[0].name, "%s", name);
  snprintf(seen[seen_count].stream_name, sizeof seen[0].stream_name, "%s", stream_name);
  seen_count++;
}

static void see_entry(const plinth_memory_history_entry_t *entry, void *context) {
  (void)context;
  CHECK_EQ(entry->struct_size, sizeof *entry);
  /* A tracker receives all actions. */
  if ((1U << entry->action & SEGMENTS) != 0) {
    return;
  }
  see(entry->address, entry->action, entry->name, entry->stream_name);
}

static bool see_block(const plinth_memory_segment_t *segment, const plinth_memory_block_t *block, void *context) {
  (void)context;
  CHECK_EQ(segment->struct_size, sizeof *segment);
  if (block != NULL && block->state != PLINTH_BLOCK_INACTIVE) {
    CHECK_EQ(block->struct_size, sizeof *block);
    see(block->address, block->state, block->name, segment->stream_name);
  }
  return true;
}

static void expect_seen(int index, const void *memory, int32_t action, const char *name, const char *stream_name) {
  CHECK(index < seen_count);
  CHECK_EQ(seen[index].address, (uint64_t)(uintptr_t)memory);
  CHECK_EQ(seen[index].action, action);
  CHECK_TEXT(seen[index].name, name);
  CHECK_TEXT(seen[index].stream_name, stream_name);
}

TEST(the_history_has_names) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_stream_set_name(stream, "steps"));
  record_blocks(PLINTH_MEMORY_CONTEXT_NONE, 0);
  seen_count = 0;
  CHECK_OK(plinth_attach_allocator_trace_tracker(see_entry, NULL));
  CHECK_OK(plinth_set_memory_metadata("tag"));
  void *memory = alloc_on(4 * KIB, 0, stream);
  CHECK_OK(plinth_memory_set_name(memory, "loss"));
  CHECK_OK(plinth_memory_set_name(memory, "gradient"));
  release(memory);
  CHECK_OK(plinth_set_memory_metadata(""));
  CHECK_SAME(alloc_on(4 * KIB, 0, stream), memory);
  release(memory);
  CHECK_SAME(alloc_on(4 * KIB, 0, stream), memory);
  CHECK_OK(plinth_memory_set_name(memory, "live"));
  CHECK_OK(plinth_detach_allocator_trace_tracker(see_entry, NULL));
  /* A tracker cannot know the name that a block gets later. */
  expect_seen(0, memory, PLINTH_MEMORY_ACTION_ALLOC, "", "steps");
  expect_seen(1, memory, PLINTH_MEMORY_ACTION_FREE_REQUESTED, "gradient", "steps");
  expect_seen(2, memory, PLINTH_MEMORY_ACTION_FREE_COMPLETED, "", "steps");

  CHECK_OK(plinth_stream_set_name(stream, "training"));
  seen_count = 0;
  CHECK_OK(plinth_memory_history_each(0, see_entry, NULL));
  CHECK_EQ(seen_count, 7);
  expect_seen(0, memory, PLINTH_MEMORY_ACTION_ALLOC, "gradient", "training");
  expect_seen(1, memory, PLINTH_MEMORY_ACTION_FREE_REQUESTED, "gradient", "training");
  expect_seen(2, memory, PLINTH_MEMORY_ACTION_FREE_COMPLETED, "gradient", "training");
  for (int index = 3; index < 6; index++) {
    CHECK_TEXT(seen[index].name, "");
  }
  expect_seen(6, memory, PLINTH_MEMORY_ACTION_ALLOC, "live", "training");
  CHECK_EQ(read_history(0), 7);
  for (int index = 0; index < 7; index++) {
    CHECK_TEXT(entries[index].metadata, index < 3 ? "tag" : "");
  }
  release(memory);

  /* The freed block's name is in a file, too. */
  static const char *const endings[] = {"json", "pickle", "html"};
  for (int index = 0; index < 3; index++) {
    snprintf(snapshot_path, sizeof snapshot_path, "/tmp/plinth-names-%d.%s", (int)getpid(), endings[index]);
    CHECK_OK(plinth_dump_snapshot(snapshot_path));
    CHECK(file_contains(snapshot_path, "gradient"));
    CHECK_EQ(unlink(snapshot_path), 0);
  }
  plinth_memory_history_options_t off = history_options();
  off.enabled = PLINTH_MEMORY_HISTORY_OFF;
  CHECK_OK(plinth_record_memory_history(&off));
  CHECK_OK(plinth_stream_set_name(stream, NULL));
}

TEST(the_structs_of_a_snapshot_have_names) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_empty_cache());
  void *memory = alloc_on(4 * KIB, 0, stream);
  void *other = alloc_on(4 * KIB, 0, NULL);
  CHECK_OK(plinth_stream_set_name(stream, "steps"));
  CHECK_OK(plinth_stream_set_name(NULL, "main"));
  CHECK_OK(plinth_memory_set_name(memory, "loss"));
  seen_count = 0;
  CHECK_OK(plinth_memory_snapshot_each(see_block, NULL));
  CHECK_EQ(seen_count, 2);
  const int first = seen[0].address == (uint64_t)(uintptr_t)memory ? 0 : 1;
  expect_seen(first, memory, PLINTH_BLOCK_ALLOCATED, "loss", "steps");
  expect_seen(1 - first, other, PLINTH_BLOCK_ALLOCATED, "", "main");
  release(memory);
  release(other);
  CHECK_OK(plinth_stream_set_name(stream, NULL));
  CHECK_OK(plinth_stream_set_name(NULL, NULL));
}

static bool in_snapshot(const char *part) {
  char *text = NULL;
  CHECK_OK(plinth_memory_snapshot(false, &text));
  const bool is_in = strstr(text, part) != NULL;
  plinth_string_free(text);
  return is_in;
}

TEST(the_name_of_a_stream_ends_with_it) {
  plinth_stream_t stream = NULL, known = NULL;
  CHECK_OK(plinth_stream_create_dedicated(0, 0, &stream));
  CHECK_OK(plinth_stream_set_name(stream, "dedicated stream"));
  CHECK(in_snapshot("dedicated stream"));
  CHECK_OK(plinth_stream_destroy(stream));
  CHECK(!in_snapshot("dedicated stream"));

  plinth_stream_t foreign = foreign_stream(0, 0, 0);
  CHECK_OK(plinth_stream_from_external(foreign, 0, &known));
  CHECK_OK(plinth_stream_set_name(foreign, "foreign stream"));
  CHECK(in_snapshot("foreign stream"));
  CHECK_OK(plinth_stream_unregister(foreign));
  CHECK(!in_snapshot("foreign stream"));
  CHECK_OK(plinth_stream_from_external(foreign, 0, &known));
  expect_stream_name(foreign, "");
  CHECK_OK(plinth_stream_unregister(foreign));
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  CHECK_EQ(destroy(foreign), CUDA_SUCCESS);
}

/* Memory that the program has from the driver has a name, too. The library does not see the driver's free of it, but new
 * memory does not inherit the name. */
TEST(new_memory_has_no_older_name) {
  DRIVER(driver_memory_alloc, allocate, "cuMemAlloc_v2");
  DRIVER(driver_memory_free, free_memory, "cuMemFree_v2");
  uint64_t address = 0;
  int32_t previous = -1;
  CHECK_OK(plinth_exchange_device(0, &previous)); /* makes its context current, for the driver's calls */
  CHECK_EQ(allocate(&address, 4 * KIB), CUDA_SUCCESS);
  void *memory = (void *)(uintptr_t)address;
  CHECK_OK(plinth_memory_set_name(memory, "of the driver"));
  expect_memory_name(memory, "of the driver");
  CHECK_EQ(free_memory(address), CUDA_SUCCESS);
  void *later = driver_alloc();
  expect_memory_name(later, "");
  driver_free(later);
}
