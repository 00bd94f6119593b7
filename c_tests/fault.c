/* Every driver call made to fail, once, in every call of the library. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* timeout: 240 */
#include "driver.h"
#include "process.h"

/* What the first failed call of a scenario said; a scenario must not fail twice, for the fault happens once. */
static struct {
  bool failed;
  plinth_status_t status;
  int32_t driver_code;
  char message[1024];
} failure;

/* The device that the scenarios work on; device 0 is current, so that they go from one context to the other. */
static int32_t last;

static bool attempt(plinth_status_t status, const char *text) {
  if (status == PLINTH_OK) {
    return true;
  }
  if (failure.failed) {
    fprintf(stderr, "%s fails too: \"%s\", after \"%s\"\n", text, plinth_last_error(), failure.message);
    CHECK_OK(status);
  }
  failure.failed = true;
  failure.status = status;
  failure.driver_code = plinth_last_driver_error();
  snprintf(failure.message, sizeof failure.message, "%s", plinth_last_error());
  return false;
}

/* A call that may meet the fault. */
#define ATTEMPT(call) attempt((call), #call)

/* The same for one that gives something back: if it fails it did nothing, and can be made again. */
#define GIVE_BACK(call)  \
  do {                   \
    if (!ATTEMPT(call)) { \
      CHECK_OK(call);    \
    }                    \
  } while (0)

/* The test's own driver calls can meet the fault too, and say no more than its code. */
static bool attempt_driver(const char *name, int code) {
  if (code != CUDA_SUCCESS) {
    failure.failed = true;
    failure.status = code == CUDA_ERROR_OUT_OF_MEMORY ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_ERROR_DRIVER;
    failure.driver_code = code;
    snprintf(failure.message, sizeof failure.message, "%s %d", name, code);
  }
  return code == CUDA_SUCCESS;
}

/* The driver call that met the fault in the last run of a scenario; NULL if none did. */
static const char *tripped;

static void expect_the_fault_was_reported(int32_t code) {
  char digits[16];
  const char *call = tripped;
  snprintf(digits, sizeof digits, "%d", (int)code);
  if (!failure.failed || failure.driver_code != code || strstr(failure.message, call) == NULL ||
      strstr(failure.message, digits) == NULL) {
    fprintf(stderr, "%s failed with %d, and was reported as: failed %d, driver code %d, \"%s\"\n", call, (int)code,
            failure.failed, (int)failure.driver_code, failure.message);
  }
  CHECK(failure.failed);
  CHECK_EQ(failure.driver_code, code);
  CHECK(strstr(failure.message, call) != NULL);
  CHECK(strstr(failure.message, digits) != NULL);
  CHECK_EQ(failure.status, code == CUDA_ERROR_OUT_OF_MEMORY ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_ERROR_DRIVER);
}

static void (*current_scenario)(void);

/* What to arm, and whether the thread has device 0's context already or its first call finds none. */
static uint64_t armed_nth;
static int32_t armed_code;
static bool attached;

static void *run_in_thread(void *context) {
  (void)context;
  if (attached) {
    CHECK_OK(plinth_set_device(0));
  }
  CHECK_OK(plinth_inject_fault(armed_nth, armed_code));
  current_scenario();
  tripped = plinth_tripped_fault();
  CHECK_OK(plinth_inject_fault(0, 0));
  CHECK_OK(plinth_set_device(0));
  return NULL;
}

/* Runs a scenario in a thread of its own. */
static void run_scenario(void (*scenario)(void), uint64_t nth, int32_t code) {
  current_scenario = scenario;
  armed_nth = nth;
  armed_code = code;
  failure.failed = false;
  run_threads(1, run_in_thread);
}

static void run_without_fault(void (*scenario)(void)) {
  run_scenario(scenario, 0, 0);
  if (failure.failed) {
    fprintf(stderr, "without a fault: \"%s\"\n", failure.message);
  }
  CHECK(!failure.failed);
}

/* Going back to what was current may be tried again: then nothing went wrong that a caller could see. */
static bool may_be_tried_again(const char *call) {
  return strcmp(call, "cuCtxSetCurrent") == 0 || strcmp(call, "cuThreadExchangeStreamCaptureMode") == 0;
}

/* Runs a scenario with its nth driver call failing; returns whether there was an nth. */
static bool run_with_fault(void (*scenario)(void), uint64_t nth, int32_t code) {
  run_scenario(scenario, nth, code);
  const bool met = tripped != NULL;
  if (met && (failure.failed || !may_be_tried_again(tripped))) {
    expect_the_fault_was_reported(code);
  } else {
    CHECK(!failure.failed);
  }
  run_without_fault(scenario);
  return met;
}

static const int32_t codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, 12345};

#define MOST_CALLS 500

static void expect_nothing_lost(const plinth_host_usage_t *before) {
  const plinth_host_usage_t after = host_usage();
  CHECK_EQ(after.device_bytes, before->device_bytes);
  CHECK_EQ(after.pinned_bytes, before->pinned_bytes);
  CHECK_EQ(after.streams, before->streams);
  CHECK_EQ(after.events, before->events);
  CHECK_EQ(after.graphs, before->graphs);
  CHECK_EQ(after.modules, before->modules);
}

/* In one process, where everything that the scenario makes once is made. */
static void survive_in_one_process(void (*scenario)(void)) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
  for (int round = 0; round < 70; round++) {
    run_without_fault(scenario);
  }
  const bool counted = on_host_device();
  const plinth_host_usage_t nothing = PLINTH_HOST_USAGE_INIT;
  for (int index = 0; index < 6; index++) {
    uint64_t nth = 0;
    attached = index >= 3;
    do {
      const plinth_host_usage_t before = counted ? host_usage() : nothing;
      CHECK(++nth < MOST_CALLS);
      if (!run_with_fault(scenario, nth, codes[index % 3])) {
        break;
      }
      if (counted) {
        expect_nothing_lost(&before);
      }
    } while (true);
  }
}

static void (*cold_scenario)(void);
static uint64_t cold_nth;
static int32_t cold_code;

enum { NOT_TRIPPED = 3 };

static void survive_in_a_new_process(void) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
  _exit(run_with_fault(cold_scenario, cold_nth, cold_code) ? 0 : NOT_TRIPPED);
}

/* Each fault in a process of its own, so that it meets what is done only once. Too slow where making a context is. */
static void survive_in_new_processes(void (*scenario)(void)) {
  const char *kind = getenv("PLINTH_DEVICE");
  if (kind == NULL || strcmp(kind, "host") != 0) {
    return;
  }
  cold_scenario = scenario;
  for (int index = 0; index < 6; index++) {
    cold_code = codes[index % 3];
    attached = index >= 3;
    int status = 0;
    for (cold_nth = 1; status == 0; cold_nth++) {
      CHECK(cold_nth < MOST_CALLS);
      const pid_t child = start_child(survive_in_a_new_process);
      CHECK_EQ(waitpid(child, &status, 0), child);
      if (WIFSIGNALED(status)) {
        fprintf(stderr, "killed with the fault %d in call %d\n", (int)cold_code, (int)cold_nth);
      }
      CHECK(WIFEXITED(status));
      status = WEXITSTATUS(status);
    }
    CHECK_EQ(status, NOT_TRIPPED);
    /* The first call may be made in vain, but a scenario without any would test nothing. */
    CHECK(cold_nth > 2);
  }
}

/* A scenario: calls that it ATTEMPTs, and GIVE_BACK for whatever it holds at its end. */
#define SCENARIO(name)             \
  static void name(void);          \
  TEST(name##_survives_faults) {   \
    survive_in_new_processes(name); \
    survive_in_one_process(name);  \
  }                                \
  static void name(void)

static void expect_current(int32_t expected) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, expected);
}

SCENARIO(set_device) { expect_current(ATTEMPT(plinth_set_device(last)) ? last : 0); }

SCENARIO(exchange_device) {
  int32_t previous = UNTOUCHED;
  if (!ATTEMPT(plinth_exchange_device(last, &previous))) {
    CHECK_EQ(previous, UNTOUCHED);
    expect_current(0);
    return;
  }
  CHECK_EQ(previous, 0);
  GIVE_BACK(plinth_maybe_exchange_device(previous, &previous));
}

SCENARIO(maybe_exchange_device) {
  int32_t previous = UNTOUCHED;
  if (!ATTEMPT(plinth_maybe_exchange_device(last, &previous))) {
    CHECK_EQ(previous, UNTOUCHED);
    expect_current(0);
    return;
  }
  GIVE_BACK(plinth_exchange_device(0, &previous));
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
  if (ATTEMPT(plinth_device_malloc(KIB, last, &memory))) {
    if (!ATTEMPT(plinth_exchange_device_of(memory, &previous))) {
      CHECK_EQ(previous, UNTOUCHED);
    } else {
      CHECK_EQ(previous, 0);
      GIVE_BACK(plinth_exchange_device(0, &previous));
    }
  }
  GIVE_BACK(plinth_device_free(memory));
}

SCENARIO(synchronize) {
  if (ATTEMPT(plinth_synchronize(last))) {
    (void)ATTEMPT(plinth_synchronize(-1));
  }
}

SCENARIO(mem_get_info) {
  size_t free_bytes = UNTOUCHED;
  size_t total_bytes = UNTOUCHED;
  if (!ATTEMPT(plinth_mem_get_info(last, &free_bytes, &total_bytes))) {
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
  } else if (!ATTEMPT(plinth_get_device_name(last, name, sizeof name))) {
    CHECK_TEXT(name, "before");
  } else if (!ATTEMPT(plinth_get_device_capability(last, &major, &minor))) {
    CHECK_EQ(major, UNTOUCHED);
    CHECK_EQ(minor, UNTOUCHED);
  } else if (!ATTEMPT(plinth_get_device_properties(last, &properties))) {
    CHECK_EQ(properties.total_memory, 0);
  } else if (!ATTEMPT(plinth_can_device_access_peer(0, 0, &can_access))) {
    CHECK(can_access);
  }
}

SCENARIO(peer_access) {
  bool can_access = false;
  if (ATTEMPT(plinth_can_device_access_peer(0, last, &can_access)) && can_access &&
      ATTEMPT(plinth_enable_peer_access(0, last))) {
    GIVE_BACK(plinth_disable_peer_access(0, last));
  }
}

SCENARIO(stream_create) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  int32_t least = UNTOUCHED;
  int32_t greatest = UNTOUCHED;
  if (!ATTEMPT(plinth_stream_create(last, -1, &stream))) {
    CHECK_SAME(stream, UNTOUCHED_POINTER);
  } else if (!ATTEMPT(plinth_stream_priority_range(last, &least, &greatest))) {
    CHECK_EQ(least, UNTOUCHED);
    CHECK_EQ(greatest, UNTOUCHED);
  }
}

SCENARIO(stream_current) {
  plinth_stream_t stream = NULL;
  plinth_stream_context_t saved;
  saved.device = UNTOUCHED;
  if (!ATTEMPT(plinth_stream_create(last, 0, &stream))) {
    return;
  }
  if (!ATTEMPT(plinth_stream_context_enter(stream, &saved))) {
    CHECK_EQ(saved.device, UNTOUCHED);
    expect_current(0);
    return;
  }
  GIVE_BACK(plinth_stream_context_exit(&saved));
  expect_current(0);
  (void)ATTEMPT(plinth_set_stream(stream));
}

SCENARIO(stream_wait) {
  plinth_stream_t stream = NULL;
  bool done = true;
  if (ATTEMPT(plinth_stream_create(last, 0, &stream)) && ATTEMPT(plinth_stream_wait_stream(stream, NULL)) &&
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
  if (ATTEMPT(plinth_stream_create(last, 0, &stream)) &&
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
  if (ATTEMPT(plinth_stream_create(last, 0, &stream)) && ATTEMPT(plinth_event_record(event, stream)) &&
      ATTEMPT(plinth_event_wait(event, NULL)) && ATTEMPT(plinth_event_query(event, &done))) {
    (void)ATTEMPT(plinth_event_synchronize(event));
  }
  GIVE_BACK(plinth_event_destroy(event));
}

SCENARIO(event) { use_event(0); }

SCENARIO(interprocess_event) { use_event(PLINTH_EVENT_INTERPROCESS); }

SCENARIO(external_event) { use_event(PLINTH_EVENT_EXTERNAL); }

SCENARIO(event_on_the_default_stream) {
  plinth_event_t event = new_event(0);
  if (ATTEMPT(plinth_event_record(event, NULL))) {
    (void)ATTEMPT(plinth_event_synchronize(event));
  }
  GIVE_BACK(plinth_event_destroy(event));
}

SCENARIO(elapsed_time) {
  plinth_stream_t stream = NULL;
  plinth_event_t start = new_event(PLINTH_EVENT_TIMING);
  plinth_event_t end = new_event(PLINTH_EVENT_TIMING);
  float time = (float)UNTOUCHED;
  if (ATTEMPT(plinth_stream_create(last, 0, &stream)) && ATTEMPT(plinth_event_record(start, stream)) &&
      ATTEMPT(plinth_event_record(end, stream)) && ATTEMPT(plinth_event_synchronize(end)) &&
      !ATTEMPT(plinth_event_elapsed_time(start, end, &time))) {
    CHECK(time == (float)UNTOUCHED);
  }
  GIVE_BACK(plinth_event_destroy(start));
  GIVE_BACK(plinth_event_destroy(end));
}

SCENARIO(event_ipc_handle) {
  uint8_t ipc_handle[PLINTH_IPC_EVENT_HANDLE_SIZE];
  plinth_event_t event = new_event(PLINTH_EVENT_INTERPROCESS);
  memset(ipc_handle, 7, sizeof ipc_handle);
  if (!ATTEMPT(plinth_event_ipc_handle(event, ipc_handle))) {
    CHECK_EQ(ipc_handle[0] & ipc_handle[20] & ipc_handle[63], 7);
  }
  GIVE_BACK(plinth_event_destroy(event));
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
  GIVE_BACK(plinth_event_destroy(event));
}

SCENARIO(device_memory_of_another_device) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_device_malloc(KIB, last, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  GIVE_BACK(plinth_device_free(memory));
}

SCENARIO(device_memory_of_the_current_device) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_device_malloc(KIB, -1, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  GIVE_BACK(plinth_device_free(memory));
}

SCENARIO(pinned_memory_and_back) {
  void *memory = UNTOUCHED_POINTER;
  if (!ATTEMPT(plinth_pinned_malloc(KIB, &memory))) {
    CHECK_SAME(memory, UNTOUCHED_POINTER);
    return;
  }
  GIVE_BACK(plinth_pinned_free(memory));
}

SCENARIO(fills) {
  const uint32_t pattern = 7;
  void *memory = NULL;
  if (ATTEMPT(plinth_device_malloc(KIB, 0, &memory)) && ATTEMPT(plinth_memset(memory, 1, KIB, NULL)) &&
      ATTEMPT(plinth_memset_pattern(memory, &pattern, 2, KIB, NULL))) {
    (void)ATTEMPT(plinth_memset_pattern(memory, &pattern, 4, KIB, NULL));
  }
  GIVE_BACK(plinth_device_free(memory));
}

SCENARIO(copies) {
  static unsigned char host[2 * KIB];
  void *memory = NULL;
  void *pinned = NULL;
  plinth_stream_t stream = NULL;
  /* In a stream of the memory's device, for whose work the free below waits. */
  if (ATTEMPT(plinth_device_malloc(KIB, last, &memory)) && ATTEMPT(plinth_pinned_malloc(KIB, &pinned)) &&
      ATTEMPT(plinth_stream_create(last, 0, &stream)) && ATTEMPT(plinth_memcpy(memory, host, KIB, stream)) && ATTEMPT(plinth_copy(memory, pinned, KIB, true)) &&
      ATTEMPT(plinth_copy(host, memory, KIB, false)) && ATTEMPT(plinth_copy(host, pinned, KIB, false))) {
    (void)ATTEMPT(plinth_copy(host + KIB, host, KIB, true));
  }
  GIVE_BACK(plinth_device_free(memory));
  GIVE_BACK(plinth_pinned_free(pinned));
}

SCENARIO(copy_across_devices) {
  void *from = NULL;
  void *to = NULL;
  if (ATTEMPT(plinth_device_malloc(KIB, 0, &from)) && ATTEMPT(plinth_device_malloc(KIB, last, &to))) {
    (void)ATTEMPT(plinth_copy(to, from, KIB, false));
  }
  GIVE_BACK(plinth_device_free(from));
  GIVE_BACK(plinth_device_free(to));
}

SCENARIO(copies_in_sync_debug_mode) {
  static unsigned char host[KIB];
  void *memory = NULL;
  plinth_stream_t stream = NULL;
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_WARN));
  if (ATTEMPT(plinth_device_malloc(KIB, last, &memory)) && ATTEMPT(plinth_stream_create(last, 0, &stream)) &&
      ATTEMPT(plinth_memcpy(memory, host, KIB, stream))) {
    (void)ATTEMPT(plinth_copy(memory, host, KIB, true));
  }
  GIVE_BACK(plinth_device_free(memory));
}

TEST(faults_must_be_asked_for) {
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("plinth_enable_fault_injection");
  CHECK_OK(plinth_init());
  CHECK_STATUS(plinth_inject_fault(1, 2), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_STATUS(plinth_enable_fault_injection(), PLINTH_ERROR_ALREADY_INITIALIZED);
  CHECK(plinth_tripped_fault() == NULL);
}

TEST(the_environment_may_ask_for_faults) {
  setenv("PLINTH_FAULT_INJECTION", "1", 1);
  CHECK_OK(plinth_inject_fault(1, 2));
  CHECK_STATUS(plinth_synchronize(0), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK(plinth_tripped_fault() != NULL);
  CHECK_OK(plinth_synchronize(0));
}

TEST(a_fault_happens_once_and_can_be_called_off) {
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
