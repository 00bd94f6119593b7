/*
 * The loop of all fault tests. It runs a scenario repeatedly, and each time fails a different driver call once: in one process
 * that has run the scenario before and, on the host device, in new processes too. A test program defines scenarios, and a plan
 * with the checks after each run. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAULTS_H
#define FAULTS_H

#include "allocating.h"
#include "driver.h"
#include "process.h"

/* ---- Plans */

/* How a fault must be reported to the caller. */
typedef enum fault_report {
  /* A call fails with the fault's code and driver call. The library may only retry restoring thread state without an error. */
  FAULT_ALWAYS_REPORTED,
  /* The library may recover. A call that fails reports the fault's code and driver call. */
  FAULT_MAY_BE_AVOIDED,
  /* The same, and a call may also fail with out of memory. */
  FAULT_MAY_MEAN_NO_MEMORY,
} fault_report;

/* A fault: the driver's code, and whether device 0's context is current before the scenario. */
typedef struct fault_kind {
  int32_t code;
  bool attached;
} fault_kind;

static const fault_kind fault_kinds[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, false}, {CUDA_ERROR_UNKNOWN, false}, {12345, false},
    {CUDA_ERROR_OUT_OF_MEMORY, true},  {CUDA_ERROR_UNKNOWN, true},  {12345, true},
};

/* Sets of kinds, as bit masks over fault_kinds. */
enum {
  FAULT_KINDS = 6,
  EVERY_KIND = 0x3F,
  KINDS_WITHOUT_CONTEXT = 0x07,
  KINDS_WITH_CONTEXT = 0x38,
  EVERY_CODE_ONCE = 0x15,
  UNKNOWN_WITH_CONTEXT = 0x10,
};

typedef struct fault_plan {
  /* Called once per process: before the first call of the library, after plinth_init, and at the end of the test. */
  void (*configure)(void);
  void (*set_up)(void);
  void (*tear_down)(void);
  /* Called in the thread of each run of the scenario: before the fault is armed, and after it is disarmed. */
  void (*prepare)(void);
  void (*recover)(void);
  /* Called in the main thread after each run of the scenario. */
  void (*inspect)(void);
  /* Called after each call that the scenario attempts. */
  void (*after_call)(void);
  /* Compares the host device's usage before and after a fault. NULL: no comparison. */
  void (*compare)(const plinth_host_usage_t *before, const plinth_host_usage_t *after);
  fault_report report;
  /* The kinds with which each driver call fails in the shared process, and in new processes. */
  unsigned kinds;
  unsigned kinds_in_new_processes;
  /* The number of runs without a fault before the first fault. */
  int warm_up;
  /* The minimum number of driver calls that fail in each process, and of failed runs in the shared process. */
  int min_faults;
  int min_failures;
  /* Whether to skip the run without a fault after each run with one. */
  bool no_run_between;
  /* Whether the scenario itself initializes the library. New processes are then used on a GPU too. */
  bool initializes;
  /* Whether each call fails with only one kind in new processes. NULL: with all kinds. */
  bool (*one_kind_in_new_processes)(void);
} fault_plan;

static const fault_plan *plan;

/* The device that the scenarios use. Device 0 is current, so that calls have to switch contexts. */
static int32_t last_device;

/* ---- Calls of a scenario */

/* The failed call of a scenario. Only one call may fail, because the fault happens once. */
static struct {
  bool failed;
  plinth_status_t status;
  int32_t driver_code;
  char call[256];
  char message[1024];
} failure;

static inline void fault_after_call(void) {
  if (plan != NULL && plan->after_call != NULL) {
    plan->after_call();
  }
}

static inline bool attempt(plinth_status_t status, const char *call) {
  if (status != PLINTH_OK) {
    const char *tripped_in = plinth_tripped_fault();
    if (tripped_in == NULL || failure.failed) {
      fprintf(stderr, "%s fails: \"%s\"; fault: %s; earlier failure: \"%s\" of %s\n", call, plinth_last_error(),
              tripped_in == NULL ? "none" : tripped_in, failure.message, failure.call);
      CHECK_OK(status);
    }
    failure.failed = true;
    failure.status = status;
    failure.driver_code = plinth_last_driver_error();
    snprintf(failure.message, sizeof failure.message, "%s", plinth_last_error());
    snprintf(failure.call, sizeof failure.call, "%s", call);
    CHECK(failure.message[0] != '\0');
  }
  fault_after_call();
  return status == PLINTH_OK;
}

/* Makes a call that may fail because of the fault. Returns whether it succeeds. */
#define ATTEMPT(call) attempt((call), #call)

/* Makes a call, and repeats it if it fails. The second call must succeed. */
#define RETRY(call)       \
  do {                    \
    if (!ATTEMPT(call)) { \
      CHECK_OK(call);     \
      fault_after_call(); \
    }                     \
  } while (0)

/* The fault can also happen in a driver call of the test itself, which reports only the code. */
static inline bool attempt_driver(const char *name, int code) {
  if (code != CUDA_SUCCESS) {
    CHECK(plinth_tripped_fault() != NULL && !failure.failed);
    failure.failed = true;
    failure.status = code == CUDA_ERROR_OUT_OF_MEMORY ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_ERROR_DRIVER;
    failure.driver_code = code;
    snprintf(failure.message, sizeof failure.message, "%s %d", name, code);
    snprintf(failure.call, sizeof failure.call, "%s", name);
  }
  return code == CUDA_SUCCESS;
}

/* ---- One run */

/* The driver call that failed in the last run of a scenario; NULL if none did. */
static const char *tripped;

static struct {
  void (*scenario)(void);
  uint64_t nth;
  int32_t code;
  bool attached;
} armed;

/* Runs a function, and fails its nth driver call. Returns the name of that call, or NULL if there are fewer calls. */
static inline const char *run_armed(void (*function)(void), uint64_t nth, int32_t code) {
  CHECK_OK(plinth_inject_fault(nth, code));
  function();
  const char *call = plinth_tripped_fault();
  CHECK_OK(plinth_inject_fault(0, 0));
  return call;
}

static inline void *run_in_thread(void *context) {
  (void)context;
  if (plan->prepare != NULL) {
    plan->prepare();
  }
  if (armed.attached) {
    CHECK_OK(plinth_set_device(0));
  }
  tripped = run_armed(armed.scenario, armed.nth, armed.code);
  CHECK_OK(plinth_set_device(0));
  if (plan->recover != NULL) {
    plan->recover();
  }
  return NULL;
}

/* Runs a scenario in a new thread. */
static inline void run_scenario(void (*scenario)(void), uint64_t nth, fault_kind kind) {
  armed.scenario = scenario;
  armed.nth = nth;
  armed.code = kind.code;
  armed.attached = kind.attached;
  memset(&failure, 0, sizeof failure);
  run_threads(1, run_in_thread);
  if (plan->inspect != NULL) {
    plan->inspect();
  }
}

static inline void run_without_fault(void (*scenario)(void), fault_kind kind) {
  const fault_kind none = {0, kind.attached};
  run_scenario(scenario, 0, none);
  if (failure.failed) {
    fprintf(stderr, "without a fault: \"%s\"\n", failure.message);
  }
  CHECK(!failure.failed);
}

/* The library retries calls that restore thread state, and reports no error if the retry succeeds. */
static inline bool library_retries(const char *call) {
  return strcmp(call, "cuCtxSetCurrent") == 0 || strcmp(call, "cuThreadExchangeStreamCaptureMode") == 0;
}

static inline void expect_fault_reported(int32_t code) {
  char digits[16];
  snprintf(digits, sizeof digits, "%d", (int)code);
  if (!failure.failed || failure.driver_code != code || strstr(failure.message, tripped) == NULL ||
      strstr(failure.message, digits) == NULL) {
    fprintf(stderr, "%s failed with %d, but the report is: failed %d, driver code %d, \"%s\"\n", tripped, (int)code,
            failure.failed, (int)failure.driver_code, failure.message);
  }
  CHECK(failure.failed);
  CHECK_EQ(failure.driver_code, code);
  CHECK(strstr(failure.message, tripped) != NULL);
  CHECK(strstr(failure.message, digits) != NULL);
  CHECK_EQ(failure.status, code == CUDA_ERROR_OUT_OF_MEMORY ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_ERROR_DRIVER);
}

/* Runs a scenario, and fails its nth driver call. Returns whether there is an nth call. */
static inline bool run_with_fault(void (*scenario)(void), uint64_t nth, fault_kind kind) {
  run_scenario(scenario, nth, kind);
  if (tripped == NULL) {
    CHECK(!failure.failed);
    return false;
  }
  const bool no_memory = plan->report == FAULT_MAY_MEAN_NO_MEMORY && failure.status == PLINTH_ERROR_OUT_OF_MEMORY;
  if (failure.failed ? !no_memory : plan->report == FAULT_ALWAYS_REPORTED && !library_retries(tripped)) {
    expect_fault_reported(kind.code);
  }
  return true;
}

/* ---- Selection of the faults */

/* The value of PLINTH_TEST_FAULTS. */
typedef enum fault_depth {
  /* Unset: each driver call fails with every kind of the plan. */
  FAULTS_ALL,
  /* `each`: each driver call fails once in a new process and once in the shared one, with alternating kinds. */
  FAULTS_EACH,
  /* `sampled`, for the fast tier: the same for the first calls, and for one in seven of the later ones. */
  FAULTS_SAMPLED,
} fault_depth;

static inline fault_depth chosen_depth(void) {
  const char *chosen = getenv("PLINTH_TEST_FAULTS");
  if (chosen == NULL) {
    return FAULTS_ALL;
  }
  if (strcmp(chosen, "each") == 0) {
    return FAULTS_EACH;
  }
  CHECK_TEXT(chosen, "sampled");
  return FAULTS_SAMPLED;
}

/* A long scenario is split into several tests that can run in parallel. */
static int part, parts = 1;

enum { SAMPLED_FROM = 32, SAMPLED_STEP = 7, MAX_CALLS = 2000 };

/* Calls `visit` for each driver call of a scenario, until there are no more, and returns the minimum number of faults in a
 * round. With FAULTS_ALL there is a round for each kind; otherwise there is one round with alternating kinds. */
static inline int for_each_fault(unsigned set, fault_depth depth, bool (*visit)(uint64_t nth, fault_kind kind)) {
  const bool all = depth == FAULTS_ALL;
  int kinds[FAULT_KINDS];
  int count = 0;
  int minimum = MAX_CALLS;
  for (int kind = 0; kind < FAULT_KINDS; kind++) {
    if ((set >> kind & 1) != 0) {
      kinds[count++] = kind;
    }
  }
  for (int round = all ? part : 0; round < (all ? count : 1); round += parts) {
    int faults = 0;
    int number = 0;
    bool happened = true;
    for (uint64_t nth = 1; happened; nth += depth == FAULTS_SAMPLED && nth >= SAMPLED_FROM ? SAMPLED_STEP : 1) {
      CHECK(nth < MAX_CALLS);
      if (all || number % parts == part) {
        happened = visit(nth, fault_kinds[kinds[(all ? round : number) % count]]);
        faults += happened;
      }
      number++;
    }
    minimum = faults < minimum ? faults : minimum;
  }
  return minimum;
}

/* ---- Tests */

static void (*current_scenario)(void);
static int failures;

/* Initializes a process of a test. */
static inline void begin_process(void) {
  if (plan->configure != NULL) {
    plan->configure();
  }
  CHECK_OK(plinth_enable_fault_injection());
  if (!plan->initializes) {
    CHECK_OK(plinth_init());
    last_device = device_count() - 1;
  }
  if (plan->set_up != NULL) {
    plan->set_up();
  }
}

static inline bool visit_in_one_process(uint64_t nth, fault_kind kind) {
  enum { MAX_DEVICES = 64 };
  const bool counted = plan->compare != NULL && on_host_device();
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  size_t bytes[MAX_DEVICES];
  CHECK(device_count() <= MAX_DEVICES);
  for (int32_t device = 0; device < device_count(); device++) {
    bytes[device] = allocated(device);
  }
  if (counted) {
    before = host_usage();
  }
  const bool happened = run_with_fault(current_scenario, nth, kind);
  failures += failure.failed;
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_EQ(allocated(device), bytes[device]);
  }
  if (!plan->no_run_between) {
    run_without_fault(current_scenario, kind);
  }
  if (counted) {
    const plinth_host_usage_t after = host_usage();
    plan->compare(&before, &after);
  }
  return happened;
}

/* All faults in one process, in which the scenario's one-time initialization is done. */
static inline void survive_in_one_process(void) {
  begin_process();
  for (int round = 0; round < plan->warm_up; round++) {
    run_without_fault(current_scenario, fault_kinds[0]);
  }
  failures = 0;
  CHECK(for_each_fault(plan->kinds, chosen_depth(), visit_in_one_process) >= plan->min_faults);
  CHECK(failures >= plan->min_failures);
  if (plan->tear_down != NULL) {
    plan->tear_down();
  }
}

enum { NOT_TRIPPED = 3 };

static uint64_t new_process_nth;
static fault_kind new_process_kind;

static inline void survive_in_a_new_process(void) {
  begin_process();
  const bool happened = run_with_fault(current_scenario, new_process_nth, new_process_kind);
  run_without_fault(current_scenario, new_process_kind);
  _exit(happened ? 0 : NOT_TRIPPED);
}

static inline bool visit_in_a_new_process(uint64_t nth, fault_kind kind) {
  int status = 0;
  new_process_nth = nth;
  new_process_kind = kind;
  const pid_t child = start_child(survive_in_a_new_process);
  CHECK_EQ(waitpid(child, &status, 0), child);
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != NOT_TRIPPED)) {
    fprintf(stderr, "in a new process, with the fault %d in call %d\n", (int)kind.code, (int)nth);
  }
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == NOT_TRIPPED);
  return WEXITSTATUS(status) == 0;
}

/* Each fault in a new process, to cover one-time initialization. Too slow on a GPU, where creating a context takes long. */
static inline void survive_in_new_processes(void) {
  const char *kind = getenv("PLINTH_DEVICE");
  if (!plan->initializes && (kind == NULL || strcmp(kind, "host") != 0)) {
    return;
  }
  fault_depth depth = chosen_depth();
  if (depth == FAULTS_ALL && plan->one_kind_in_new_processes != NULL && plan->one_kind_in_new_processes()) {
    depth = FAULTS_EACH;
  }
  /* A scenario without a driver call would test nothing. */
  const int minimum = plan->kinds == 0 ? plan->min_faults : 1;
  CHECK(for_each_fault(plan->kinds_in_new_processes, depth, visit_in_a_new_process) >= minimum);
}

static inline void survive_faults(const fault_plan *chosen, void (*scenario)(void)) {
  plan = chosen;
  current_scenario = scenario;
  if (plan->kinds_in_new_processes != 0) {
    survive_in_new_processes();
  }
  if (plan->kinds != 0) {
    survive_in_one_process();
  }
}

/* ---- Scenarios */

static inline void expect_no_leak(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  CHECK_EQ(after->device_bytes, before->device_bytes);
  CHECK_EQ(after->memory_handles, before->memory_handles);
  CHECK_EQ(after->mappings, before->mappings);
  CHECK_EQ(after->pinned_bytes, before->pinned_bytes);
  CHECK_EQ(after->streams, before->streams);
  CHECK_EQ(after->events, before->events);
  CHECK_EQ(after->graphs, before->graphs);
  CHECK_EQ(after->modules, before->modules);
}

static const fault_plan usual_plan = {
    .compare = expect_no_leak,
    .report = FAULT_ALWAYS_REPORTED,
    .kinds = EVERY_KIND,
    .kinds_in_new_processes = EVERY_KIND,
    .warm_up = 70,
};

/* Defines a scenario. It makes its calls with ATTEMPT, and frees its resources with RETRY. */
#define SCENARIO_OF(plan, name)                                    \
  static void name(void);                                          \
  TEST(name##_survives_faults) { survive_faults(&(plan), name); } \
  static void name(void)

#define SCENARIO(name) SCENARIO_OF(usual_plan, name)

#define SCENARIO_PART(plan, name, number, count)              \
  TEST(name##_survives_faults_##number##_of_##count) {        \
    part = (number) - 1;                                      \
    parts = (count);                                          \
    survive_faults(&(plan), name);                            \
  }

/* A scenario with many driver calls, split into three tests. */
#define LONG_SCENARIO_OF(plan, name) \
  static void name(void);            \
  SCENARIO_PART(plan, name, 1, 3)    \
  SCENARIO_PART(plan, name, 2, 3)    \
  SCENARIO_PART(plan, name, 3, 3)    \
  static void name(void)

/* ---- Scenarios of one call */

static plinth_status_t (*attempted_call)(void);
static void (*check_of_call)(void);

static inline void attempt_call(void) { (void)ATTEMPT(attempted_call()); }

static inline void check_call(void) {
  if (!failure.failed) {
    check_of_call();
  }
  for (int32_t device = 0; device < device_count(); device++) {
    CHECK_OK(plinth_synchronize(device));
  }
  expect_sound();
}

/* Runs a call repeatedly, and each time fails one of its driver calls. `check` checks the effect of a successful call. */
static inline void survive_each_call(plinth_status_t (*call)(void), void (*check)(void), int min_failures) {
  const fault_plan one_call = {
      .recover = check_call,
      .report = FAULT_MAY_BE_AVOIDED,
      .kinds = UNKNOWN_WITH_CONTEXT,
      .min_failures = min_failures,
  };
  attempted_call = call;
  check_of_call = check;
  survive_faults(&one_call, attempt_call);
  plan = NULL;
}

#endif
