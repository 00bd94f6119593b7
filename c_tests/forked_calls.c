/* Every exported function in a forked child, while the parent's other threads hold the library's locks.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forked child lacks its parent's threads, so their memory looks leaked to a sanitizer: disable leak detection. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: all; forks */
/* timeout: 240 */
#include "forked_calls.h"
#include "process.h"

static void make_every_call(void) {
  /* A call that waits for ever kills the child. */
  alarm(10);
  call_what_is_refused();
  call_what_releases();
  call_what_works();
}

TEST(each_call_has_its_class) {
  create_objects();
  in_child(make_every_call);
  /* Nothing was freed or changed in the parent. */
  CHECK_OK(plinth_event_synchronize(event));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_caching_allocator_delete(memory));
}

static void make_calls_and_exit(void) {
  make_every_call();
  exit(0);
}

/* The handlers of the exit run, and so do the destructors of the thread's state. */
TEST(a_child_exits_after_every_call) {
  create_objects();
  in_child(make_calls_and_exit);
}

static void make_calls_in_grandchild(void) {
  alarm(20);
  in_child(make_every_call);
  call_what_releases();
}

TEST(a_grandchild_has_the_same_classes) {
  create_objects();
  in_child(make_calls_in_grandchild);
}

static void *initialize(void *context) {
  (void)context;
  CHECK_OK(plinth_init());
  return NULL;
}

/* The child can use the device only if the parent had not begun to load the driver. */
static void initialize_in_child(void) {
  alarm(10);
  const plinth_status_t status = plinth_init();
  CHECK(status == PLINTH_OK || status == PLINTH_ERROR_FORKED_CHILD);
}

static void fork_during_initialization(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, initialize, NULL) == 0);
  for (int child = 0; child < 8; child++) {
    in_child(initialize_in_child);
  }
  CHECK(pthread_join(thread, NULL) == 0);
}

TEST(fork_while_another_thread_initializes_the_library) {
  /* A GPU takes a while to initialize. */
  const int rounds = on_host_device() ? some_rounds(200) : 2;
  for (int round = 0; round < rounds; round++) {
    in_child(fork_during_initialization);
  }
}

static int is_over;
static plinth_stream_t shared_stream;

static bool over(void) { return __atomic_load_n(&is_over, __ATOMIC_SEQ_CST) != 0; }

/* The arena of one stream, whose lock two of these threads share. */
static void *allocate(void *context) {
  (void)context;
  while (!over()) {
    void *blocks[16];
    for (int index = 0; index < 16; index++) {
      CHECK_OK(plinth_caching_allocator_alloc(KIB << index % 8, 0, shared_stream, &blocks[index]));
    }
    for (int index = 0; index < 16; index++) {
      CHECK_OK(plinth_caching_allocator_delete(blocks[index]));
    }
  }
  return NULL;
}

static void on_event(const plinth_memory_history_entry_t *entry, void *context) {
  (void)entry;
  (void)context;
}

/* The history, its trackers, statistics, the cache and names. */
static void *observe_memory(void *context) {
  (void)context;
  const plinth_stream_t own = stream_on(0);
  while (!over()) {
    void *block = NULL;
    char *text = NULL;
    plinth_memory_stats_t stats = PLINTH_MEMORY_STATS_INIT;
    CHECK_OK(plinth_attach_allocator_trace_tracker(on_event, NULL));
    CHECK_OK(plinth_caching_allocator_alloc(4 * MIB, 0, own, &block));
    CHECK_OK(plinth_memory_set_name(block, "block"));
    CHECK_OK(plinth_record_stream(block, shared_stream));
    CHECK_OK(plinth_caching_allocator_delete(block));
    CHECK_OK(plinth_memory_stats(0, &stats));
    CHECK_OK(plinth_memory_summary(0, true, &text));
    plinth_string_free(text);
    CHECK_OK(plinth_detach_allocator_trace_tracker(on_event, NULL));
    CHECK_OK(plinth_empty_cache());
  }
  return NULL;
}

/* Events, streams, pinned memory and pools. */
static void *use_objects(void *context) {
  (void)context;
  const plinth_stream_t own = stream_on(0);
  while (!over()) {
    void *block = NULL;
    plinth_stream_t dedicated = NULL;
    plinth_pool_id_t own_pool;
    const plinth_event_t own_event = new_event(0);
    CHECK_OK(plinth_stream_create_dedicated(0, 0, &dedicated));
    CHECK_OK(plinth_event_record(own_event, dedicated));
    CHECK_OK(plinth_stream_wait_event(own, own_event));
    CHECK_OK(plinth_event_synchronize(own_event));
    CHECK_OK(plinth_event_destroy(own_event));
    CHECK_OK(plinth_host_alloc(KIB, &block));
    CHECK_OK(plinth_host_record_stream(block, own));
    CHECK_OK(plinth_host_free(block));
    CHECK_OK(plinth_mem_pool_create(false, false, &own_pool));
    CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, own_pool));
    CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, own, &block));
    CHECK_OK(plinth_end_allocate_to_pool(0, own_pool));
    CHECK_OK(plinth_release_pool(0, own_pool));
    CHECK_OK(plinth_caching_allocator_delete(block));
    CHECK_OK(plinth_mem_pool_destroy(own_pool));
    CHECK_OK(plinth_stream_destroy(dedicated));
  }
  return NULL;
}

static void on_log(int32_t level, const char *message, void *context) {
  (void)level;
  (void)message;
  (void)context;
}

/* The log, settings, generators and graphs. */
static void *change_settings(void *context) {
  (void)context;
  while (!over()) {
    plinth_generator_t own = NULL;
    plinth_graph_t empty = NULL;
    bool answer = false;
    CHECK_OK(plinth_set_log_callback(PLINTH_LOG_DEBUG, on_log, NULL));
    CHECK_STATUS(plinth_set_device(1000), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_OK(plinth_set_memory_metadata("step"));
    CHECK_OK(plinth_stream_set_name(shared_stream, "shared"));
    CHECK_OK(plinth_set_allocator_settings("garbage_collection_threshold:0.8"));
    CHECK_OK(plinth_generator_create(0, &own));
    CHECK_OK(plinth_generator_manual_seed(own, 5));
    CHECK_OK(plinth_generator_destroy(own));
    CHECK_OK(plinth_graph_create_empty(0, &empty));
    CHECK_OK(plinth_graph_destroy(empty));
    CHECK_OK(plinth_is_pinned(driver_pinned, &answer));
    CHECK_OK(plinth_set_log_callback(PLINTH_LOG_WARNING, NULL, NULL));
  }
  return NULL;
}

static void fork_during_calls(int children) {
  void *(*const functions[])(void *) = {allocate, allocate, observe_memory, use_objects, change_settings};
  pthread_t threads[5];
  create_objects();
  shared_stream = stream_on(0);
  for (int index = 0; index < 5; index++) {
    CHECK(pthread_create(&threads[index], NULL, functions[index], NULL) == 0);
  }
  for (int child = 0; child < children; child++) {
    /* The last children also exit normally. */
    in_child(child % 4 == 3 ? make_calls_and_exit : make_every_call);
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < 5; index++) {
    CHECK(pthread_join(threads[index], NULL) == 0);
  }
  CHECK_OK(plinth_testing_check_allocator());
}

TEST(fork_while_other_threads_hold_locks) { fork_during_calls(some_rounds(400)); }

TEST(fork_while_the_sanitizer_and_a_history_record) {
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  options.max_entries = 1000;
  CHECK_OK(plinth_record_memory_history(&options));
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  fork_during_calls(some_rounds(100));
}
