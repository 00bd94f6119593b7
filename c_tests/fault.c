/* Each driver call fails once, in each function for devices, streams, events and plain memory.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"

static void expect_current(int32_t expected) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, expected);
}

SCENARIO(set_device) { expect_current(ATTEMPT(plinth_set_device(last_device)) ? last_device : 0); }

SCENARIO(exchange_device) {
  int32_t previous = UNTOUCHED;
  if (!ATTEMPT(plinth_exchange_device(last_device, &previous))) {
    CHECK_EQ(previous, UNTOUCHED);
    expect_current(0);
    return;
  }
  CHECK_EQ(previous, 0);
  RETRY(plinth_maybe_exchange_device(previous, &previous));
}

SCENARIO(maybe_exchange_device) {
  int32_t previous = UNTOUCHED;
  if (!ATTEMPT(plinth_maybe_exchange_device(last_device, &previous))) {
    CHECK_EQ(previous, UNTOUCHED);
    expect_current(0);
    return;
  }
  RETRY(plinth_exchange_device(0, &previous));
}

SCENARIO(device_of) {
  int32_t device = UNTOUCHED;
  if (!ATTEMPT(plinth_device_of(&device, &device))) {
    CHECK_EQ(device, UNTOUCHED);
  }
}

SCENARIO(exchange_device_of) {
  int32_t previous = UNTOUCHED;
  void *memory = NULL;
  if (ATTEMPT(plinth_device_malloc(KIB, last_device, &memory))) {
    if (!ATTEMPT(plinth_exchange_device_of(memory, &previous))) {
      CHECK_EQ(previous, UNTOUCHED);
    } else {
      CHECK_EQ(previous, 0);
      RETRY(plinth_exchange_device(0, &previous));
    }
  }
  RETRY(plinth_device_free(memory));
}

SCENARIO(synchronize) {
  if (ATTEMPT(plinth_synchronize(last_device))) {
    (void)ATTEMPT(plinth_synchronize(-1));
  }
}

SCENARIO(mem_get_info) {
  size_t free_bytes = UNTOUCHED;
  size_t total_bytes = UNTOUCHED;
  if (!ATTEMPT(plinth_mem_get_info(last_device, &free_bytes, &total_bytes))) {
    CHECK_EQ(free_bytes, UNTOUCHED);
    CHECK_EQ(total_bytes, UNTOUCHED);
  }
}

SCENARIO(descriptions) {
  char name[256] = "before";
  int32_t major = UNTOUCHED;
  int32_t minor = UNTOUCHED;
  int32_t version = UNTOUCHED;
  bool can_access = true;
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  if (!ATTEMPT(plinth_driver_version(&version))) {
    CHECK_EQ(version, UNTOUCHED);
  } else if (!ATTEMPT(plinth_get_device_name(last_device, name, sizeof name))) {
    CHECK_TEXT(name, "before");
  } else if (!ATTEMPT(plinth_get_device_capability(last_device, &major, &minor))) {
    CHECK_EQ(major, UNTOUCHED);
    CHECK_EQ(minor, UNTOUCHED);
  } else if (!ATTEMPT(plinth_get_device_properties(last_device, &properties))) {
    CHECK_EQ(properties.total_memory, 0);
  } else if (!ATTEMPT(plinth_can_device_access_peer(0, 0, &can_access))) {
    CHECK(can_access);
  }
}

SCENARIO(peer_access) {
  bool can_access = false;
  if (ATTEMPT(plinth_can_device_access_peer(0, last_device, &can_access)) && can_access &&
      ATTEMPT(plinth_enable_peer_access(0, last_device))) {
    RETRY(plinth_disable_peer_access(0, last_device));
  }
}

static const fault_plan plan_of_blocks = {.report = FAULT_MAY_MEAN_NO_MEMORY, .kinds = EVERY_CODE_ONCE, .warm_up = 2};

/* Access that cannot be ended remains, and the next call ends it. */
SCENARIO_OF(plan_of_blocks, peer_access_of_blocks) {
  enum { BLOCKS = 3, BLOCK_BYTES = 24 * MIB };
  void *blocks[BLOCKS] = {NULL};
  plinth_stream_t stream = NULL;
  bool allocates = false;
  if (ATTEMPT(plinth_can_device_access_peer(0, last_device, &allocates))) {
    allocates = allocates && ATTEMPT(plinth_stream_create(0, 0, &stream));
  }
  for (int index = 0; index < BLOCKS; index++) {
    allocates = allocates && ATTEMPT(plinth_caching_allocator_alloc(BLOCK_BYTES, last_device, NULL, &blocks[index]));
  }
  if (allocates && ATTEMPT(plinth_enable_peer_access(0, last_device)) &&
      !ATTEMPT(plinth_disable_peer_access(0, last_device))) {
    for (int index = 0; index < BLOCKS; index++) {
      CHECK_OK(plinth_memset(blocks[index], 1, KIB, stream));
    }
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_OK(plinth_enable_peer_access(0, last_device));
    CHECK_OK(plinth_disable_peer_access(0, last_device));
  }
  for (int index = 0; index < BLOCKS; index++) {
    RETRY(plinth_caching_allocator_delete(blocks[index]));
  }
}

SCENARIO(stream_create) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  int32_t least = UNTOUCHED;
  int32_t greatest = UNTOUCHED;
  if (!ATTEMPT(plinth_stream_create(last_device, -1, &stream))) {
    CHECK_SAME(stream, UNTOUCHED_POINTER);
  } else if (!ATTEMPT(plinth_stream_priority_range(last_device, &least, &greatest))) {
    CHECK_EQ(least, UNTOUCHED);
    CHECK_EQ(greatest, UNTOUCHED);
  }
}

SCENARIO(stream_current) {
  plinth_stream_t stream = NULL;
  plinth_stream_context_t saved;
  saved.device = UNTOUCHED;
  if (!ATTEMPT(plinth_stream_create(last_device, 0, &stream))) {
    return;
  }
  if (!ATTEMPT(plinth_stream_context_enter(stream, &saved))) {
    CHECK_EQ(saved.device, UNTOUCHED);
    expect_current(0);
    return;
  }
  RETRY(plinth_stream_context_exit(&saved));
  expect_current(0);
  (void)ATTEMPT(plinth_set_stream(stream));
}

SCENARIO(stream_wait) {
  plinth_stream_t stream = NULL;
  bool done = true;
  if (ATTEMPT(plinth_stream_create(last_device, 0, &stream)) && ATTEMPT(plinth_stream_wait_stream(stream, NULL)) &&
      ATTEMPT(plinth_stream_wait_stream(NULL, stream)) && ATTEMPT(plinth_stream_synchronize(stream)) &&
      ATTEMPT(plinth_stream_synchronize(NULL))) {
    (void)ATTEMPT(plinth_stream_query(stream, &done));
    CHECK(done);
  }
}

static void nothing(void *context) { (void)context; }

SCENARIO(stream_work) {
  plinth_stream_t stream = NULL;
  bool capturing = true;
  if (ATTEMPT(plinth_stream_create(last_device, 0, &stream)) &&
      ATTEMPT(plinth_launch_host_function(stream, nothing, NULL)) && ATTEMPT(plinth_sleep(10, stream)) &&
      ATTEMPT(plinth_sleep(10, NULL)) && ATTEMPT(plinth_stream_synchronize(stream))) {
    if (!ATTEMPT(plinth_stream_is_capturing(stream, &capturing))) {
      CHECK(capturing);
    }
  }
}

SCENARIO(stream_from_external) {
  plinth_stream_t stream = NULL;
  plinth_stream_t known = (plinth_stream_t)UNTOUCHED_POINTER;
  int32_t priority = UNTOUCHED;
  DRIVER(driver_stream_create, create, "cuStreamCreateWithPriority");
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  if (ATTEMPT(plinth_set_device(0)) &&
      attempt_driver("cuStreamCreateWithPriority", create(&stream, CU_STREAM_NON_BLOCKING, 0))) {
    if (!ATTEMPT(plinth_stream_from_external(stream, 0, &known))) {
      CHECK_SAME(known, UNTOUCHED_POINTER);
    } else if (!ATTEMPT(plinth_stream_priority(stream, &priority))) {
      CHECK_EQ(priority, UNTOUCHED);
    }
    if (!attempt_driver("cuStreamDestroy_v2", destroy(stream))) {
      CHECK_EQ(destroy(stream), CUDA_SUCCESS);
    }
  }
}

static void use_event(uint32_t flags) {
  plinth_stream_t stream = NULL;
  plinth_event_t event = new_event(flags);
  bool done = true;
  if (ATTEMPT(plinth_stream_create(last_device, 0, &stream)) && ATTEMPT(plinth_event_record(event, stream)) &&
      ATTEMPT(plinth_event_wait(event, NULL)) && ATTEMPT(plinth_event_query(event, &done))) {
    (void)ATTEMPT(plinth_event_synchronize(event));
  }
  RETRY(plinth_event_destroy(event));
}

SCENARIO(event) { use_event(0); }

SCENARIO(interprocess_event) { use_event(PLINTH_EVENT_INTERPROCESS); }

SCENARIO(external_event) { use_event(PLINTH_EVENT_EXTERNAL); }

SCENARIO(event_on_the_default_stream) {
  plinth_event_t event = new_event(0);
  if (ATTEMPT(plinth_event_record(event, NULL))) {
    (void)ATTEMPT(plinth_event_synchronize(event));
  }
  RETRY(plinth_event_destroy(event));
}

SCENARIO(elapsed_time) {
  plinth_stream_t stream = NULL;
  plinth_event_t start = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t end = new_event(PLINTH_EVENT_TIMING);
  float time = (float)UNTOUCHED;
  if (ATTEMPT(plinth_stream_create(last_device, 0, &stream)) && ATTEMPT(plinth_event_record(start, stream)) &&
      ATTEMPT(plinth_event_record(end, stream)) && ATTEMPT(plinth_event_synchronize(end)) &&
      !ATTEMPT(plinth_event_elapsed_time(start, end, &time))) {
    CHECK(time == (float)UNTOUCHED);
  }
  RETRY(plinth_event_destroy(start));
  RETRY(plinth_event_destroy(end));
}

SCENARIO(event_ipc_handle) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  memset(ipc_handle, 7, sizeof ipc_handle);
  if (!ATTEMPT(plinth_event_ipc_handle(event, ipc_handle))) {
    CHECK_EQ(ipc_handle[0] & ipc_handle[20] & ipc_handle[63], 7);
  }
  RETRY(plinth_event_destroy(event));
}

SCENARIO(captured_external_event) {
  plinth_stream_t stream = NULL;
  plinth_event_t event = new_event(PLINTH_EVENT_EXTERNAL);
  void *graph = NULL;
  DRIVER(driver_begin_capture, begin, "cuStreamBeginCapture");
  DRIVER(driver_end_capture, end, "cuStreamEndCapture");
  DRIVER(driver_graph_destroy, destroy, "cuGraphDestroy");
  if (ATTEMPT(plinth_stream_create(0, 0, &stream)) && ATTEMPT(plinth_event_record(event, stream)) &&
      attempt_driver("cuStreamBeginCapture_v2", begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED))) {
    if (ATTEMPT(plinth_event_record(event, stream))) {
      (void)ATTEMPT(plinth_event_wait(event, stream));
    }
    if (!attempt_driver("cuStreamEndCapture", end(stream, &graph))) {
      CHECK_EQ(end(stream, &graph), CUDA_SUCCESS);
    }
    if (!attempt_driver("cuGraphDestroy", destroy(graph))) {
      CHECK_EQ(destroy(graph), CUDA_SUCCESS);
    }
  }
  RETRY(plinth_event_destroy(event));
}

SCENARIO(device_memory_of_another_device) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_device_malloc(KIB, last_device, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  RETRY(plinth_device_free(memory));
}

SCENARIO(device_memory_of_the_current_device) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_device_malloc(KIB, -1, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  RETRY(plinth_device_free(memory));
}

SCENARIO(pinned_memory_allocation) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_pinned_malloc(KIB, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  RETRY(plinth_pinned_free(memory));
}

SCENARIO(fills) {
  const uint32_t pattern = 7;
  void *memory = NULL;
  if (ATTEMPT(plinth_device_malloc(KIB, 0, &memory)) && ATTEMPT(plinth_memset(memory, 1, KIB, NULL)) &&
      ATTEMPT(plinth_memset_pattern(memory, &pattern, 2, KIB, NULL))) {
    (void)ATTEMPT(plinth_memset_pattern(memory, &pattern, 4, KIB, NULL));
  }
  RETRY(plinth_device_free(memory));
}

SCENARIO(copies) {
  static unsigned char host[2 * KIB];
  void *memory = NULL;
  void *pinned = NULL;
  plinth_stream_t stream = NULL;
  /* In a stream of the memory's device, so that freeing the memory waits for the copies. */
  if (ATTEMPT(plinth_device_malloc(KIB, last_device, &memory)) && ATTEMPT(plinth_pinned_malloc(KIB, &pinned)) &&
      ATTEMPT(plinth_stream_create(last_device, 0, &stream)) && ATTEMPT(plinth_memcpy(memory, host, KIB, stream)) &&
      ATTEMPT(plinth_copy(memory, pinned, KIB, true)) && ATTEMPT(plinth_copy(host, memory, KIB, false)) &&
      ATTEMPT(plinth_copy(host, pinned, KIB, false))) {
    (void)ATTEMPT(plinth_copy(host + KIB, host, KIB, true));
  }
  RETRY(plinth_device_free(memory));
  RETRY(plinth_pinned_free(pinned));
}

SCENARIO(copy_across_devices) {
  void *from = NULL;
  void *to = NULL;
  if (ATTEMPT(plinth_device_malloc(KIB, 0, &from)) && ATTEMPT(plinth_device_malloc(KIB, last_device, &to))) {
    (void)ATTEMPT(plinth_copy(to, from, KIB, false));
  }
  RETRY(plinth_device_free(from));
  RETRY(plinth_device_free(to));
}

SCENARIO(copies_in_sync_debug_mode) {
  static unsigned char host[KIB];
  void *memory = NULL;
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  if (ATTEMPT(plinth_device_malloc(KIB, last_device, &memory)) && ATTEMPT(plinth_stream_create(last_device, 0, &stream)) &&
      ATTEMPT(plinth_memcpy(memory, host, KIB, stream))) {
    (void)ATTEMPT(plinth_copy(memory, host, KIB, true));
  }
  RETRY(plinth_device_free(memory));
}

TEST(fault_injection_must_be_enabled) {
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("plinth_enable_fault_injection");
  CHECK_OK(plinth_init());
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_STATUS(plinth_enable_fault_injection(), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK(plinth_tripped_fault() == NULL);
}

TEST(the_environment_enables_fault_injection) {
  setenv("PLINTH_FAULT_INJECTION", "1", 1);
  CHECK_OK(plinth_inject_fault(1, 2));
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(plinth_tripped_fault() != NULL);
  CHECK_OK(plinth_synchronize(0));
}

TEST(a_fault_happens_once_and_can_be_disarmed) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_inject_fault(1, 999));
  CHECK(plinth_tripped_fault() == NULL);
  CHECK_OK(plinth_inject_fault(0, 0));
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_inject_fault(1, 999));
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_DRIVER);
  CHECK(plinth_tripped_fault() != NULL);
  for (int round = 0; round < 10; round++) {
    CHECK_OK(plinth_synchronize(0));
  }
}
