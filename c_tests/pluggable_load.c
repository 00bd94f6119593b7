/* Pluggable allocators: loaded by name, used instead of the caching allocator, with hooks, and in pools.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: pluggable_helper */
/* alone: all; changes the allocator of the process */
#include "plugging.h"

static void use_helper(void) {
  plinth_pluggable_allocator_t allocator = load_helper();
  CHECK_OK(plinth_change_current_allocator(allocator));
  /* An allocator in use needs no handle. */
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

static const char *backend_name(void) {
  const char *name = NULL;
  CHECK_OK(plinth_get_allocator_backend(&name));
  return name;
}

TEST(arguments_are_checked) {
  plinth_pluggable_allocator_t allocator = (plinth_pluggable_allocator_t)UNTOUCHED_POINTER;
  const char *path = path_of("pluggable_helper.so");
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

TEST(a_path_may_be_invalid_utf8) {
  char path[] = "/tmp/plinth-\xff-XXXXXX";
  plinth_pluggable_allocator_t allocator = NULL;
  const int file = mkstemp(path);
  CHECK(file >= 0 && close(file) == 0 && unlink(path) == 0);
  CHECK(symlink(path_of("pluggable_helper.so"), path) == 0);
  const plinth_status_t made = plinth_pluggable_allocator_create(path, "helper_alloc", "helper_free", &allocator);
  CHECK(unlink(path) == 0);
  CHECK_OK(made);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

TEST(allocations_and_frees_are_forwarded) {
  use_helper();
  CHECK_TEXT(backend_name(), "pluggable");
  plinth_stream_t stream = stream_on(0);
  const helper_state *recorded_state = state();
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(1000, 0, stream, &memory));
  CHECK_EQ(recorded_state->allocated, 1);
  CHECK_EQ(recorded_state->last_size, 1000);
  CHECK_EQ(recorded_state->last_device, 0);
  CHECK_SAME(recorded_state->last_stream, stream);
  CHECK_SAME(recorded_state->last_pointer, memory);
  CHECK_EQ(allocated(0), 1024);
  CHECK_OK(plinth_memset(memory, 7, 1000, stream));
  release(memory);
  CHECK_EQ(recorded_state->freed, 1);
  CHECK_EQ(recorded_state->last_size, 1000);
  CHECK_SAME(recorded_state->last_stream, stream);
  CHECK_SAME(recorded_state->last_pointer, memory);
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(max_allocated(0), 1024);
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_EQ(recorded_state->freed, 1);
  expect_nothing_left();
}

TEST(a_null_is_out_of_memory) {
  use_helper();
  void *memory = UNTOUCHED_POINTER;
  state()->fail = 100;
  CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("the program's own allocator, which returned NULL");
  CHECK_MESSAGE("1.00 MiB");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  /* The allocator retries once after a failure. */
  state()->fail = 1;
  release(alloc_on(MIB, 0, NULL));
  expect_nothing_left();
}

TEST(it_cannot_be_changed_after_an_allocation) {
  plinth_pluggable_allocator_t allocator = load_helper();
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_STATUS(plinth_change_current_allocator(allocator), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK_MESSAGE("Can't swap an already initialized allocator");
  CHECK_TEXT(backend_name(), "native");
  release(memory);
  CHECK_EQ(state()->freed, 0);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
  expect_nothing_left();
}

TEST(it_can_be_changed_only_once) {
  use_helper();
  plinth_pluggable_allocator_t other = load_helper();
  CHECK_STATUS(plinth_change_current_allocator(other), PLINTH_ERROR_ALREADY_INITIALIZED);
  release(alloc_on(MIB, 0, NULL));
  CHECK_EQ(state()->allocated, 1);
}

static struct {
  int init, reset, fraction, base, recorded, begun, ended, released;
  int devices;
  double fraction_value;
  void *pointer;
  plinth_stream_t stream;
  plinth_pool_id_t pool;
} hook_calls;

static void on_init(int devices) { hook_calls.init++, hook_calls.devices = devices; }
static void on_reset(void) { hook_calls.reset++; }
static void on_fraction(double value, int device) {
  hook_calls.fraction += device + 1, hook_calls.fraction_value = value;
}
static void *on_base(void *pointer, size_t *size) {
  hook_calls.base++;
  *size = 4711;
  return pointer;
}
static void on_record(void *pointer, plinth_stream_t stream) {
  hook_calls.recorded++, hook_calls.pointer = pointer, hook_calls.stream = stream;
}
static void on_begin(int device, plinth_pool_id_t pool, void *filter) {
  hook_calls.begun += device + 1, hook_calls.pool = pool;
  CHECK(filter != NULL);
}
static void on_end(int device, plinth_pool_id_t pool) {
  hook_calls.ended += device + 1;
  CHECK_EQ(pool.index, hook_calls.pool.index);
}
static void on_release(int device, plinth_pool_id_t pool) {
  hook_calls.released += device + 1;
  CHECK_EQ(pool.index, hook_calls.pool.index);
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
  CHECK_EQ(hook_calls.init, 0);
  plinth_stream_t stream = stream_on(0);
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(hook_calls.init, 1);
  CHECK_EQ(hook_calls.devices, device_count());
  CHECK_OK(plinth_record_stream(memory, stream));
  CHECK_EQ(hook_calls.recorded, 1);
  CHECK_SAME(hook_calls.pointer, memory);
  CHECK_SAME(hook_calls.stream, stream);
  size_t size = 0;
  CHECK_SAME(plinth_pluggable_base_alloc(memory, &size), memory);
  CHECK_EQ(size, 4711);
  CHECK_EQ(hook_calls.base, 1);
  CHECK_OK(plinth_set_per_process_memory_fraction(0.5, 0));
  CHECK_EQ(hook_calls.fraction, 1);
  CHECK(hook_calls.fraction_value == 0.5);
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(hook_calls.reset, 1);
  plinth_pool_id_t pool = {0, 0};
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  CHECK_EQ(hook_calls.begun, 1);
  CHECK_EQ(hook_calls.pool.index, pool.index);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_EQ(hook_calls.ended, 1);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_EQ(hook_calls.released, 1);
  release(memory);
  CHECK_OK(plinth_mem_pool_destroy(pool));
}

static int init_progress;

static void init_slowly(int devices) {
  void *memory = NULL;
  CHECK_EQ(devices, device_count());
  /* The hook itself may allocate. */
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, NULL, &memory));
  release(memory);
  CHECK_EQ(__atomic_exchange_n(&init_progress, 1, __ATOMIC_SEQ_CST), 0);
  sleep_milliseconds(200);
  CHECK_EQ(__atomic_exchange_n(&init_progress, 2, __ATOMIC_SEQ_CST), 1);
}

static void *allocate_during_init(void *context) {
  if (*(int *)context != 0) {
    while (__atomic_load_n(&init_progress, __ATOMIC_SEQ_CST) == 0) {
      sleep_milliseconds(1);
    }
  }
  void *memory = alloc_on(KIB, 0, NULL);
  CHECK_EQ(__atomic_load_n(&init_progress, __ATOMIC_SEQ_CST), 2);
  release(memory);
  return NULL;
}

TEST(requests_of_all_threads_wait_for_the_init_hook) {
  plinth_allocator_hooks_t hooks;
  plinth_pluggable_allocator_t allocator = load_helper();
  memset(&hooks, 0, sizeof hooks);
  hooks.struct_size = sizeof hooks;
  hooks.init = init_slowly;
  CHECK_OK(plinth_pluggable_allocator_set_hooks(allocator, &hooks));
  CHECK_OK(plinth_change_current_allocator(allocator));
  run_threads(4, allocate_during_init);
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
}

TEST(a_smaller_hooks_struct_is_accepted) {
  plinth_pluggable_allocator_t allocator = load_helper();
  plinth_allocator_hooks_t hooks;
  memset(&hooks, 0xFF, sizeof hooks);
  hooks.struct_size = 2 * sizeof(void *);
  hooks.init = on_init;
  CHECK_OK(plinth_pluggable_allocator_set_hooks(allocator, &hooks));
  CHECK_OK(plinth_change_current_allocator(allocator));
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_EQ(hook_calls.init, 1);
  CHECK_OK(plinth_record_stream(memory, stream_on(0)));
  CHECK_OK(plinth_empty_cache());
  release(memory);
  CHECK_EQ(state()->freed, 1);
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

/* ---- pools whose memory comes from a pluggable allocator */

static plinth_pool_id_t pool_of_helper(void) {
  plinth_pool_id_t pool = {0, 0};
  plinth_pluggable_allocator_t allocator = load_helper();
  CHECK_STATUS(plinth_mem_pool_create_with_allocator(allocator, false, false, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_mem_pool_create_with_allocator(NULL, false, false, &pool), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_mem_pool_create_with_allocator(allocator, false, false, &pool));
  CHECK_OK(plinth_pluggable_allocator_destroy(allocator));
  return pool;
}

TEST(a_pool_gets_its_segments_from_it) {
  plinth_pool_id_t pool = pool_of_helper();
  plinth_stream_t stream = stream_on(0);
  CHECK_TEXT(backend_name(), "native");
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *small = alloc_on(1000, 0, stream);
  CHECK_EQ(state()->last_size, 2 * MIB);
  CHECK_SAME(state()->last_stream, stream);
  void *large = alloc_on(3 * MIB, 0, stream);
  CHECK_EQ(state()->last_size, 20 * MIB);
  void *more = alloc_on(5 * MIB, 0, stream);
  void *huge = alloc_on(31 * MIB, 0, stream);
  CHECK_EQ(state()->last_size, 32 * MIB);
  CHECK_EQ(state()->allocated, 3);
  CHECK_EQ(reserved(0), 54 * MIB);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
  release(alloc_on(MIB, 0, stream));
  CHECK_EQ(state()->allocated, 3);
  expect_sound();
  release(small);
  release(large);
  release(more);
  release(huge);
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(state()->freed, 3);
  expect_nothing_left();
}

/* Memory of a pluggable allocator cannot be unmapped, so it cannot sleep. */
TEST(a_graph_with_its_memory_cannot_sleep) {
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

TEST(a_pools_allocator_may_fail) {
  plinth_pool_id_t pool = pool_of_helper();
  void *memory = UNTOUCHED_POINTER;
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  state()->fail = 1000;
  CHECK_STATUS(plinth_caching_allocator_alloc(MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("the program's own allocator, which returned NULL");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  CHECK_EQ(reserved(0), 0);
  state()->fail = 0;
  release(alloc_on(MIB, 0, NULL));
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}
