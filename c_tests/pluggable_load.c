/* Allocators of the program's own: loaded by name, put in the place of the caching one, told of everything.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: pluggable_helper */
/* alone: all; changes the allocator of the process */
#include "plugging.h"

static void use_helper(void) {
  plinth_pluggable_allocator_t allocator = load_helper();
  CHECK_OK(plinth_change_current_allocator(allocator));
  /* What is in use needs no handle. */
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

static const char *backend(void) {
  const char *name = NULL;
  CHECK_OK(plinth_get_allocator_backend(&name));
  return name;
}

TEST(arguments_are_checked) {
  plinth_pluggable_allocator_t allocator = (plinth_pluggable_allocator_t)UNTOUCHED_POINTER;
  const char *path = beside("pluggable_helper.so");
  CHECK_STATUS(plinth_pluggable_allocator_create(path, NULL, "helper_free", &allocator), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pluggable_allocator_create(path, "helper_alloc", NULL, &allocator), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pluggable_allocator_create(path, "helper_alloc", "helper_free", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_pluggable_allocator_create(path, "helper_aloc", "helper_free", &allocator),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("helper_aloc");
  CHECK_STATUS(plinth_pluggable_allocator_create("/nowhere/at/all.so", "a", "b", &allocator), PLINTH_ERROR_SYSTEM);
  CHECK_MESSAGE("/nowhere/at/all.so");
  CHECK_SAME(allocator, UNTOUCHED_POINTER);
  CHECK_STATUS(plinth_change_current_allocator(allocator), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_pluggable_allocator_destroy(allocator), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_pluggable_allocator_destroy(NULL));
  allocator = load_helper();
  CHECK_STATUS(plinth_pluggable_allocator_set_hooks(allocator, NULL), PLINTH_ERROR_NULL_POINTER);
  plinth_allocator_hooks_t hooks;
  memset(&hooks, 0, sizeof hooks);
  CHECK_STATUS(plinth_pluggable_allocator_set_hooks(allocator, &hooks), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
  CHECK_STATUS(plinth_pluggable_allocator_destroy(allocator), PLINTH_ERROR_INVALID_HANDLE);
}

TEST(its_path_may_be_no_text) {
  char path[] = "/tmp/plinth-\xff-XXXXXX";
  plinth_pluggable_allocator_t allocator = NULL;
  const int file = mkstemp(path);
  CHECK(file >= 0 && close(file) == 0 && unlink(path) == 0);
  CHECK(symlink(beside("pluggable_helper.so"), path) == 0);
  const plinth_status_t made = plinth_pluggable_allocator_create(path, "helper_alloc", "helper_free", &allocator);
  CHECK(unlink(path) == 0);
  CHECK_OK(made);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

TEST(it_is_asked_and_given_back_to) {
  use_helper();
  CHECK_TEXT(backend(), "pluggable");
  plinth_stream_t stream = stream_on(0);
  const helper_book *seen = book();
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(1000, 0, stream, &memory));
  CHECK_EQ(seen->allocated, 1);
  CHECK_EQ(seen->last_size, 1000);
  CHECK_EQ(seen->last_device, 0);
  CHECK_SAME(seen->last_stream, stream);
  CHECK_SAME(seen->last_pointer, memory);
  CHECK_EQ(allocated(0), 1024);
  CHECK_OK(plinth_memset(memory, 7, 1000, stream));
  release(memory);
  CHECK_EQ(seen->freed, 1);
  CHECK_EQ(seen->last_size, 1000);
  CHECK_SAME(seen->last_stream, stream);
  CHECK_SAME(seen->last_pointer, memory);
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(max_allocated(0), 1024);
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_EQ(seen->freed, 1);
  expect_nothing_left();
}

TEST(a_null_is_out_of_memory) {
  use_helper();
  void *memory = UNTOUCHED_POINTER;
  book()->fail = 100;
  CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("1.00 MiB");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  /* One failure is met by trying once more. */
  book()->fail = 1;
  release(alloc_on(MIB, 0, NULL));
  expect_nothing_left();
}

TEST(it_comes_too_late) {
  plinth_pluggable_allocator_t allocator = load_helper();
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_STATUS(plinth_change_current_allocator(allocator), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_MESSAGE("Can't swap an already initialized allocator");
  CHECK_TEXT(backend(), "native");
  release(memory);
  CHECK_EQ(book()->freed, 0);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
  expect_nothing_left();
}

TEST(it_is_changed_once) {
  use_helper();
  plinth_pluggable_allocator_t other = load_helper();
  CHECK_STATUS(plinth_change_current_allocator(other), PLINTH_ERROR_ALREADY_INITIALIZED);
  release(alloc_on(MIB, 0, NULL));
  CHECK_EQ(book()->allocated, 1);
}

static struct {
  int init, reset, fraction, base, recorded, begun, ended, released;
  int devices;
  double part;
  void *pointer;
  plinth_stream_t stream;
  plinth_pool_id_t pool;
} heard;

static void on_init(int devices) { heard.init++, heard.devices = devices; }
static void on_reset(void) { heard.reset++; }
static void on_fraction(double part, int device) { heard.fraction += device + 1, heard.part = part; }
static void *on_base(void *pointer, size_t *size) {
  heard.base++;
  *size = 4711;
  return pointer;
}
static void on_record(void *pointer, plinth_stream_t stream) {
  heard.recorded++, heard.pointer = pointer, heard.stream = stream;
}
static void on_begin(int device, plinth_pool_id_t pool, void *filter) {
  heard.begun += device + 1, heard.pool = pool;
  CHECK(filter != NULL);
}
static void on_end(int device, plinth_pool_id_t pool) {
  heard.ended += device + 1;
  CHECK_EQ(pool.index, heard.pool.index);
}
static void on_release(int device, plinth_pool_id_t pool) {
  heard.released += device + 1;
  CHECK_EQ(pool.index, heard.pool.index);
}

TEST(hooks_are_called) {
  plinth_pluggable_allocator_t allocator = load_helper();
  plinth_allocator_hooks_t hooks = PLINTH_ALLOCATOR_HOOKS_INIT;
  hooks.init = on_init;
  hooks.reset = on_reset;
  hooks.memory_fraction = on_fraction;
  hooks.base_alloc = on_base;
  hooks.record_stream = on_record;
  hooks.begin_allocate_to_pool = on_begin;
  hooks.end_allocate_to_pool = on_end;
  hooks.release_pool = on_release;
  CHECK_OK(plinth_pluggable_allocator_set_hooks(allocator, &hooks));
  CHECK_OK(plinth_change_current_allocator(allocator));
  CHECK_EQ(heard.init, 0);
  plinth_stream_t stream = stream_on(0);
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(heard.init, 1);
  CHECK_EQ(heard.devices, device_count());
  CHECK_OK(plinth_record_stream(memory, stream));
  CHECK_EQ(heard.recorded, 1);
  CHECK_SAME(heard.pointer, memory);
  CHECK_SAME(heard.stream, stream);
  size_t size = 0;
  CHECK_SAME(plinth_pluggable_base_alloc(memory, &size), memory);
  CHECK_EQ(size, 4711);
  CHECK_EQ(heard.base, 1);
  CHECK_OK(plinth_set_per_process_memory_fraction(0.5, 0));
  CHECK_EQ(heard.fraction, 1);
  CHECK(heard.part == 0.5);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(heard.reset, 1);
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  CHECK_EQ(heard.begun, 1);
  CHECK_EQ(heard.pool.index, pool.index);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_EQ(heard.ended, 1);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_EQ(heard.released, 1);
  release(memory);
  CHECK_OK(plinth_mem_pool_destroy(pool));
}

static int ready;

static void begin_slowly(int devices) {
  void *memory = NULL;
  CHECK_EQ(devices, device_count());
  /* The hook itself may ask for memory. */
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, NULL, &memory));
  release(memory);
  CHECK_EQ(__atomic_exchange_n(&ready, 1, __ATOMIC_SEQ_CST), 0);
  sleep_milliseconds(200);
  CHECK_EQ(__atomic_exchange_n(&ready, 2, __ATOMIC_SEQ_CST), 1);
}

static void *ask_when_it_begins(void *context) {
  if (*(int *)context != 0) {
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) == 0) {
      sleep_milliseconds(1);
    }
  }
  void *memory = alloc_on(KIB, 0, NULL);
  CHECK_EQ(__atomic_load_n(&ready, __ATOMIC_SEQ_CST), 2);
  release(memory);
  return NULL;
}

TEST(requests_of_all_threads_come_after_the_beginning) {
  plinth_allocator_hooks_t hooks;
  plinth_pluggable_allocator_t allocator = load_helper();
  memset(&hooks, 0, sizeof hooks);
  hooks.struct_size = sizeof hooks;
  hooks.init = begin_slowly;
  CHECK_OK(plinth_pluggable_allocator_set_hooks(allocator, &hooks));
  CHECK_OK(plinth_change_current_allocator(allocator));
  run_threads(4, ask_when_it_begins);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

TEST(hooks_of_an_older_program_are_fewer) {
  plinth_pluggable_allocator_t allocator = load_helper();
  plinth_allocator_hooks_t hooks;
  memset(&hooks, 0xFF, sizeof hooks);
  hooks.struct_size = 2 * sizeof(void *);
  hooks.init = on_init;
  CHECK_OK(plinth_pluggable_allocator_set_hooks(allocator, &hooks));
  CHECK_OK(plinth_change_current_allocator(allocator));
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(heard.init, 1);
  CHECK_OK(plinth_record_stream(memory, stream_on(0)));
  CHECK_OK(plinth_empty_cache());
  release(memory);
  CHECK_EQ(book()->freed, 1);
}

static void *churn(void *context) {
  (void)context;
  for (int round = 0; round < 50; round++) {
    release(alloc_on(4 * KIB, 0, NULL));
  }
  return NULL;
}

TEST(threads_may_share_it) {
  use_helper();
  run_threads(4, churn);
  expect_nothing_left();
}

/* ---- Pools whose memory comes from such an allocator. */

static plinth_pool_id_t pool_of_helper(void) {
  plinth_pool_id_t pool = {0, 0};
  plinth_pluggable_allocator_t allocator = load_helper();
  CHECK_STATUS(plinth_mem_pool_create_with_allocator(allocator, false, false, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_create_with_allocator(NULL, false, false, &pool), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_mem_pool_create_with_allocator(allocator, false, false, &pool));
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
  return pool;
}

TEST(a_pool_has_its_segments_from_it) {
  plinth_pool_id_t pool = pool_of_helper();
  plinth_stream_t stream = stream_on(0);
  CHECK_TEXT(backend(), "native");
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *small = alloc_on(1000, 0, stream);
  CHECK_EQ(book()->last_size, 2 * MIB);
  CHECK_SAME(book()->last_stream, stream);
  void *large = alloc_on(3 * MIB, 0, stream);
  CHECK_EQ(book()->last_size, 20 * MIB);
  void *more = alloc_on(5 * MIB, 0, stream);
  void *huge = alloc_on(31 * MIB, 0, stream);
  CHECK_EQ(book()->last_size, 32 * MIB);
  CHECK_EQ(book()->allocated, 3);
  CHECK_EQ(reserved(0), 54 * MIB);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
  release(alloc_on(MIB, 0, stream));
  CHECK_EQ(book()->allocated, 3);
  expect_sound();
  release(small);
  release(large);
  release(more);
  release(huge);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(book()->freed, 3);
  expect_nothing_left();
}

/* Its memory has no other addresses to stay at, so it stays itself. */
TEST(a_graph_with_memory_of_it_does_not_sleep) {
  plinth_pool_id_t pool = pool_of_helper();
  plinth_stream_t stream = stream_on(0);
  plinth_graph_t graph = NULL;
  bool asleep = true;
  size_t used = 0, held = 0;
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, &pool, PLINTH_CAPTURE_RELAXED));
  void *memory = alloc_on(MIB, 0, stream);
  CHECK_OK(plinth_memset(memory, 1, MIB, stream));
  release(memory);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_STATUS(plinth_graph_sleep(graph), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_OK(plinth_graph_is_asleep(graph, &asleep));
  CHECK(!asleep);
  CHECK_OK(plinth_graph_memory(graph, &used, &held));
  CHECK(held >= MIB);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(a_pools_allocator_may_have_none) {
  plinth_pool_id_t pool = pool_of_helper();
  void *memory = UNTOUCHED_POINTER;
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  book()->fail = 1000;
  CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  CHECK_EQ(reserved(0), 0);
  book()->fail = 0;
  release(alloc_on(MIB, 0, NULL));
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}
