/* A thousand rounds of most functions leak nothing. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* timeout: 120 */
/* alone: idle_threads_end; expects what only a fresh process has */
#include "driver.h"
#include "support.h"

#include <fcntl.h>

static void do_nothing(void *context) { (void)context; }

static void copies_and_fills(void) {
  static unsigned char pageable[KIB];
  for (int32_t device = 0; device < device_count(); device++) {
    plinth_stream_t stream = stream_on(device);
    void *memory = device_memory(100 * KIB, device);
    void *pinned = pinned_memory(10 * KIB);
    CHECK_OK(plinth_memset(memory, 1, 100 * KIB, stream));
    CHECK_OK(plinth_memcpy(pinned, memory, KIB, stream));
    CHECK_OK(plinth_memcpy(memory, pageable, KIB, stream));
    CHECK_OK(plinth_copy(pageable, memory, KIB, false));
    CHECK_OK(plinth_device_free(memory));
    CHECK_OK(plinth_pinned_free(pinned));
  }
}

static void copies_across_devices(void) {
  if (device_count() > 1) {
    void *from = device_memory(KIB, 0);
    void *to = device_memory(KIB, 1);
    CHECK_OK(plinth_copy(to, from, KIB, true));
    CHECK_OK(plinth_stream_wait_stream(stream_on(1), stream_on(0)));
    CHECK_OK(plinth_device_free(from));
    CHECK_OK(plinth_device_free(to));
  }
}

static void events_of_every_kind(void) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  for (uint32_t flags = 0; flags < 16; flags++) {
    plinth_event_t event = NULL;
    if (plinth_event_create(flags, &event) == PLINTH_OK) {
      CHECK_OK(plinth_event_record(event, stream_on(0)));
      CHECK_OK(plinth_event_wait(event, stream_on(0)));
      if ((flags & PLINTH_EVENT_INTERPROCESS) != 0) {
        CHECK_OK(plinth_event_ipc_handle(event, ipc_handle));
      }
      CHECK_OK(plinth_event_synchronize(event));
      CHECK_OK(plinth_event_destroy(event));
    }
  }
}

static void captures(void) {
  plinth_stream_t stream = stream_on(0);
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  void *executable = NULL;
  DRIVER(driver_graph_instantiate, instantiate, "cuGraphInstantiateWithFlags");
  DRIVER(driver_graph_launch, launch, "cuGraphLaunch");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  DRIVER(driver_graph_destroy, destroy_executable, "cuGraphExecDestroy");
  begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_OK(plinth_launch_host_function(stream, do_nothing, NULL));
  CHECK_OK(plinth_event_record(event, stream));
  CHECK_EQ(end_capture(stream, &graph), CUDA_SUCCESS);
  CHECK_EQ(instantiate(&executable, graph, 0), CUDA_SUCCESS);
  CHECK_EQ(launch(executable, stream), CUDA_SUCCESS);
  CHECK_EQ(destroy(graph), CUDA_SUCCESS);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(destroy_executable(executable), CUDA_SUCCESS);
  CHECK_OK(plinth_event_destroy(event));
}

static void external_streams(void) {
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  plinth_stream_t stream = known_foreign_stream(0, CU_STREAM_NON_BLOCKING);
  CHECK_OK(plinth_launch_host_function(stream, do_nothing, NULL));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(destroy(stream), CUDA_SUCCESS);
}

static void errors(void) {
  void *pointer = NULL;
  CHECK_STATUS(plinth_device_malloc(SIZE_MAX / 2, 0, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_pinned_malloc(SIZE_MAX / 2, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_STATUS(plinth_device_free(&pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_memset(&pointer, 1, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
}

static void use_everything_but_captures(void) {
  copies_and_fills();
  copies_across_devices();
  events_of_every_kind();
  external_streams();
  errors();
  CHECK_OK(plinth_sleep(100, stream_on(0)));
}

static void use_everything(void) {
  use_everything_but_captures();
  /* Threads share the pools of streams, so one thread's capture would invalidate another's calls on the same stream. */
  captures();
}

static void synchronize_all(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
}

static void expect_same(const plinth_host_usage_t *now, const plinth_host_usage_t *before) {
  CHECK_EQ(now->device_bytes, before->device_bytes);
  CHECK_EQ(now->pinned_bytes, before->pinned_bytes);
  CHECK_EQ(now->streams, before->streams);
  CHECK_EQ(now->events, before->events);
  CHECK_EQ(now->graphs, before->graphs);
  CHECK_EQ(now->executable_graphs, before->executable_graphs);
  CHECK_EQ(now->modules, before->modules);
  CHECK_EQ(now->memory_handles, before->memory_handles);
  CHECK_EQ(now->mappings, before->mappings);
  CHECK_EQ(now->reservations, before->reservations);
}

static int open_files(void) {
  int count = 0;
  for (int file = 0; file < 1024; file++) {
    count += fcntl(file, F_GETFD) != -1;
  }
  return count;
}

TEST(a_thousand_rounds_leak_nothing) {
  need_host_device();
  /* Fill the pools first: their objects stay by design. */
  for (int round = 0; round < 64; round++) {
    use_everything();
  }
  synchronize_all();
  const plinth_host_usage_t before = host_usage();
  const long pages = resident_pages();
  const int files = open_files();
  for (int round = 0; round < 1000; round++) {
    use_everything();
  }
  synchronize_all();
  const plinth_host_usage_t after = host_usage();
  expect_same(&after, &before);
  CHECK_EQ(open_files(), files);
#if !HARNESS_SANITIZED
  /* One leaked page per round would be a thousand. Sanitizers keep freed memory for a while. */
  CHECK(resident_pages() - pages < 500);
#else
  (void)pages;
#endif
}

static void *run_short_lived_thread(void *context) {
  (void)context;
  use_everything_but_captures();
  return NULL;
}

TEST(short_lived_threads_leak_nothing) {
  need_host_device();
  for (int round = 0; round < 20; round++) {
    run_threads(8, run_short_lived_thread);
  }
  synchronize_all();
  const plinth_host_usage_t before = host_usage();
  for (int round = 0; round < 20; round++) {
    run_threads(8, run_short_lived_thread);
  }
  synchronize_all();
  const plinth_host_usage_t after = host_usage();
  CHECK_EQ(after.device_bytes, before.device_bytes);
  CHECK_EQ(after.pinned_bytes, before.pinned_bytes);
  CHECK_EQ(after.streams, before.streams);
  CHECK_EQ(after.graphs, before.graphs);
  CHECK_EQ(after.executable_graphs, before.executable_graphs);
  CHECK_EQ(after.reservations, before.reservations);
  /* The pool keeps as many events of a kind as were in use at once. A few more of some kinds may be in use by chance; one leaked
   * event for each thread would be 160. */
  CHECK(after.events <= before.events + 64);
}

TEST(idle_threads_end) {
  need_host_device();
  const uint64_t before = host_usage().threads;
  for (int index = 0; index < 640; index++) {
    CHECK_OK(plinth_launch_host_function(stream_on(0), do_nothing, NULL));
  }
  CHECK(host_usage().threads > before);
  synchronize_all();
  EVENTUALLY(host_usage().threads <= before);
}
