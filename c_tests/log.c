/* The log. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* A forked child lacks its parent's threads, so their memory looks leaked to a sanitizer: disable leak detection. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: without_a_gpu_the_use_of_the_host_device_is_logged; chooses the device */
/* alone: a_release_that_fails_is_logged; enables fault injection */
/* alone: a_forked_child_logs_nothing messages_end_with_the_process; forks */
/* alone: a_deprecated_variable_is_named; sets the environment */
#include "graphing.h"
#include "logging.h"
#include "process.h"

static plinth_graph_t capture_nothing(void) {
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

TEST(an_empty_capture_is_a_valid_graph_and_a_warning) {
  plinth_stream_t stream = on_new_stream(0);
  char name[64];
  snprintf(name, sizeof name, "captured in stream %#zx of device 0 is empty", (size_t)stream);
  log_collect(PLINTH_LOG_DEBUG);
  plinth_graph_t graph = capture_nothing();
  CHECK_EQ(logged.count, 1);
  CHECK_LOGGED(PLINTH_LOG_WARNING, "plinth_graph_capture_end: the graph");
  CHECK_LOGGED(PLINTH_LOG_WARNING, name);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_graph_reset(graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_sleep(1, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_EQ(logged.count, 1);
  CHECK_OK(plinth_graph_destroy(graph));
}

TEST(only_the_levels_that_were_asked_for_are_received) {
  on_new_stream(0);
  for (int32_t level = PLINTH_LOG_DEBUG; level <= PLINTH_LOG_ERROR; level++) {
    log_collect(level);
    CHECK_OK(plinth_graph_destroy(capture_nothing()));
    CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_EQ(logged.count, (level <= PLINTH_LOG_WARNING) + (level <= PLINTH_LOG_DEBUG));
  }
  log_collect(PLINTH_LOG_DEBUG);
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_DEBUG, NULL, NULL));
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(logged.count, 0);
}

TEST(wrong_levels_are_refused) {
  const int32_t wrong[] = {-1, 4, INT32_MAX, INT32_MIN};
  log_collect(PLINTH_LOG_DEBUG);
  for (int index = 0; index < 4; index++) {
    CHECK_STATUS(plinth_set_log_callback(wrong[index], NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("is not a level of the log");
  }
  CHECK_EQ(logged.count, 4); /* the callback is still set */
}

TEST(each_failed_call_is_logged_for_debugging) {
  log_collect(PLINTH_LOG_DEBUG);
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_EQ(logged.count, 1);
  CHECK_EQ(logged.messages[0].level, PLINTH_LOG_DEBUG);
  CHECK(strstr(logged.messages[0].text, "plinth_set_device: failed with PLINTH_ERROR_INVALID_DEVICE: ") != NULL);
  CHECK(strstr(logged.messages[0].text, plinth_last_error()) != NULL);
  CHECK_STATUS(plinth_trace_stop(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_LOGGED(PLINTH_LOG_DEBUG, "plinth_trace_stop: failed with PLINTH_ERROR_INVALID_VALUE: ");
}

static plinth_graph_t reentered;
static int reentries;

/* Uses the graph whose capture has just ended, and fails. */
static void reenter(int32_t level, const char *message, void *context) {
  (void)context;
  CHECK_EQ(level, PLINTH_LOG_WARNING);
  CHECK(strstr(message, "is empty") != NULL);
  reentries++;
  CHECK_OK(plinth_graph_replay(reentered));
  CHECK_OK(plinth_graph_reset(reentered));
  CHECK_OK(plinth_graph_capture_begin(reentered, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_capture_end(reentered)); /* empty again: dropped */
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_WARNING, log_add, &logged));
}

TEST(the_callback_may_call_the_library) {
  on_new_stream(0);
  reentered = new_graph(0);
  logged.count = 0;
  CHECK_OK(plinth_set_log_callback(PLINTH_LOG_WARNING, reenter, NULL));
  CHECK_OK(plinth_graph_capture_begin(reentered, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_graph_capture_end(reentered)); /* and leaves no message of a failure in the callback */
  CHECK_EQ(reentries, 1);
  CHECK_EQ(logged.count, 0);
  CHECK_OK(plinth_graph_destroy(capture_nothing())); /* the callback that was set in the callback */
  CHECK_EQ(logged.count, 1);
  CHECK_OK(plinth_graph_destroy(reentered));
}

TEST(a_call_that_waits_is_a_warning) {
  plinth_stream_t stream = stream_on(0);
  log_collect(PLINTH_LOG_WARNING);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(logged.count, 0);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_EQ(logged.count, 1);
  CHECK_LOGGED(PLINTH_LOG_WARNING, "plinth_stream_synchronize called a synchronizing CUDA operation");
}

TEST(a_setting_without_effect_is_a_warning) {
  log_collect(PLINTH_LOG_WARNING);
  CHECK_OK(plinth_set_allocator_settings("throw_on_cudamalloc_oom:False"));
  CHECK_EQ(logged.count, 0);
  CHECK_OK(plinth_set_allocator_settings("throw_on_cudamalloc_oom:True"));
  CHECK_EQ(logged.count, 1);
  CHECK_LOGGED(PLINTH_LOG_WARNING, "the setting throw_on_cudamalloc_oom has no effect");
  /* A later change of other settings does not log it again. */
  CHECK_OK(plinth_set_allocator_settings("max_non_split_rounding_mb:20"));
  CHECK_EQ(logged.count, 1);
  CHECK_OK(plinth_set_allocator_settings("throw_on_cudamalloc_oom:False"));
}

TEST(a_deprecated_variable_is_named) {
  CHECK_EQ(setenv("PLINTH_USE_PYTORCH_ALLOC_CONF", "1", 1), 0);
  CHECK_EQ(setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:100", 1), 0);
  CHECK_EQ(unsetenv("PLINTH_ALLOC_CONF"), 0);
  log_collect(PLINTH_LOG_WARNING);
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(KIB, 0, NULL, &memory));
  CHECK_OK(plinth_caching_allocator_delete(memory));
  CHECK_EQ(logged.count, 1);
  CHECK_LOGGED(PLINTH_LOG_WARNING, "PYTORCH_CUDA_ALLOC_CONF is deprecated; set PYTORCH_ALLOC_CONF instead");
}

TEST(a_pool_that_is_destroyed_in_use_is_a_warning) {
  plinth_pool_id_t pool = {0, 0};
  log_collect(PLINTH_LOG_WARNING);
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_EQ(logged.count, 0);
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  CHECK_LOGGED(PLINTH_LOG_WARNING, "is destroyed while requests or graphs use it on devices [0]");
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
}

TEST(a_finding_of_the_sanitizer_is_an_error) {
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(0);
  void *memory = device_memory(KIB, 0);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_COLLECT));
  log_collect(PLINTH_LOG_ERROR);
  CHECK_OK(plinth_memset(memory, 1, KIB, first));
  CHECK_EQ(logged.count, 0);
  CHECK_OK(plinth_memset(memory, 2, KIB, second));
  CHECK_EQ(logged.count, 1);
  CHECK_LOGGED(PLINTH_LOG_ERROR, "plinth_memset: race: \"plinth_memset\"");
  CHECK_OK(plinth_sanitizer_disable());
  CHECK_OK(plinth_sanitizer_clear());
  CHECK_OK(plinth_device_free(memory));
}

static void *fail_once(void *context) {
  (void)context;
  CHECK_STATUS(plinth_set_device(99), PLINTH_ERROR_INVALID_DEVICE);
  return NULL;
}

TEST(a_thread_receives_what_its_own_calls_log) {
  enum { THREADS = 8 };
  log_collect(PLINTH_LOG_DEBUG);
  run_threads(THREADS, fail_once);
  CHECK_EQ(logged.count, THREADS);
  for (int index = 0; index < THREADS; index++) {
    CHECK(!pthread_equal(logged.messages[index].thread, pthread_self()));
    for (int other = 0; other < index; other++) {
      CHECK_STATUS(plinth_set_device(0), PLINTH_OK);
    }
  }
  CHECK_EQ(logged.count, THREADS);
}

/* A capture destroys the driver's graph once it is instantiated, and succeeds even if the driver refuses that. */
TEST(a_release_that_fails_is_logged) {
  CHECK_OK(plinth_enable_fault_injection());
  on_new_stream(0);
  log_collect(PLINTH_LOG_ERROR);
  bool tripped = false;
  for (uint64_t nth = 1; !tripped && nth < 100; nth++) {
    plinth_graph_t graph = new_graph(0);
    CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
    CHECK_OK(plinth_sleep(1, current_on(0)));
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = plinth_graph_capture_end(graph);
    const char *call = plinth_tripped_fault();
    CHECK(call != NULL);
    tripped = strcmp(call, "cuGraphDestroy") == 0;
    CHECK_OK(plinth_inject_fault(0, 0));
    if (tripped) {
      CHECK_STATUS(status, PLINTH_OK);
      CHECK_OK(plinth_graph_replay(graph));
    }
    CHECK_OK(plinth_graph_destroy(graph));
  }
  CHECK(tripped);
  CHECK_LOGGED(PLINTH_LOG_ERROR, "plinth_graph_capture_end: destroying a captured graph");
  CHECK_LOGGED(PLINTH_LOG_ERROR, "cuGraphDestroy failed with CUDA_ERROR_UNKNOWN (999)");
}

TEST(without_a_gpu_the_use_of_the_host_device_is_logged) {
  CHECK_EQ(setenv("PLINTH_DEVICE", "auto", 1), 0);
  log_collect(PLINTH_LOG_INFO);
  CHECK_OK(plinth_init());
  if (on_host_device()) {
    CHECK_LOGGED(PLINTH_LOG_INFO, "plinth_init: the host device is used, because no GPU can be: ");
  } else {
    CHECK_EQ(logged.count, 0);
  }
}

static void fail_in_child(void) {
  logged.count = 0;
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_FORKED_CHILD);
  CHECK_EQ(logged.count, 0);
}

TEST(a_forked_child_logs_nothing) {
  CHECK_OK(plinth_init());
  log_collect(PLINTH_LOG_DEBUG);
  in_child(fail_in_child);
  fail_once(NULL);
  CHECK_EQ(logged.count, 1);
}

static void fail_at_exit(void) {
  logged.count = 0;
  plinth_stream_t stream = NULL;
  CHECK_STATUS(plinth_stream_create(0, 0, &stream), PLINTH_ERROR_SHUTTING_DOWN);
  CHECK_EQ(logged.count, 0);
}

static void exit_with_a_late_failure(void) {
  CHECK_EQ(atexit(fail_at_exit), 0); /* runs after the library's own handler, which is registered later */
  log_collect(PLINTH_LOG_DEBUG);
  CHECK_OK(plinth_init());
  exit(0);
}

TEST(messages_end_with_the_process) { in_child(exit_with_a_late_failure); }
