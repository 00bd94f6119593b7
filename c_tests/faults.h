/*
 * The one loop of all fault tests: it runs a scenario again and again, and each time makes another of its driver calls fail,
 * once, in a process that is warm and, on the host device, in new processes too. A program gives scenarios, and a plan that
 * says what must hold after each run. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAULTS_H
#define FAULTS_H

#include "allocating.h"
#include "driver.h"
#include "process.h"

/* ---- Plans */

/* What a scenario's caller must see of a fault. */
typedef enum fault_report {
  /* A call fails with the fault's code and name. Only restoring what was current may be tried again without an error. */
  FAULT_ALWAYS_REPORTED,
  /* The library may find another way. A call that fails does so with the fault's code and name. */
  FAULT_MAY_BE_AVOIDED,
  /* The same, and a call may also fail for lack of memory. */
  FAULT_MAY_MEAN_NO_MEMORY,
} fault_report;

/* A fault: the code, and whether the thread has device 0's context before the scenario or its first call finds none. */
typedef struct fault_kind {
  int32_t code;
  bool attached;
} fault_kind;

static const fault_kind fault_kinds[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, false}, {CUDA_ERROR_UNKNOWN, false}, {12345, false},
    {CUDA_ERROR_OUT_OF_MEMORY, true},  {CUDA_ERROR_UNKNOWN, true},  {12345, true},
};

/* Sets of kinds: bit N stands for fault_kinds[N]. */
enum {
  FAULT_KINDS = 6,
  EVERY_KIND = 0x3F,
  KINDS_WITHOUT_CONTEXT = 0x07,
  KINDS_WITH_CONTEXT = 0x38,
  EVERY_CODE_ONCE = 0x15,
  UNKNOWN_WITH_CONTEXT = 0x10,
};

typedef struct fault_plan {
  /* Run once in a process: before the first call of the library, after plinth_init, and at the end of the test. */
  void (*configure)(void);
  void (*set_up)(void);
  void (*tear_down)(void);
  /* Run with every run of the scenario, in its thread: before the fault is armed, and after it is disarmed. */
  void (*prepare)(void);
  void (*recover)(void);
  /* Runs after every run of the scenario, in the main thread. */
  void (*inspect)(void);
  /* Runs after every call that the scenario attempts. */
  void (*after_call)(void);
  /* Compares what the host device holds before a fault and after it. NULL: with nothing. */
  void (*compare)(const plinth_host_usage_t *before, const plinth_host_usage_t *after);
  fault_report report;
  /* The kinds that every call meets in a warm process, and in new ones. */
  unsigned kinds;
  unsigned kinds_in_new_processes;
  /* How often the scenario runs without a fault before the first one. */
  int warm_up;
  /* How many calls must meet a fault in a process, and how many of the runs in a warm one must fail, at least. */
  int least_faults;
  int least_failures;
  /* Whether the next run after a fault is the one with the next fault, and not one without any. */
  bool no_run_between;
  /* Whether the scenario itself initializes the library; then new processes make sense on a GPU, too. */
  bool initializes;
  /* Whether one kind for each call is enough in new processes. NULL: no. */
  bool (*one_kind_in_new_processes)(void);
} fault_plan;

static const fault_plan *plan;

/* The device that the scenarios work on; device 0 is current, so that they go from one context to the other. */
static int32_t last;

/* ---- What a scenario attempts */

/* The first failed call of a scenario. A scenario must not fail twice, for the fault happens once. */
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
      fprintf(stderr, "%s fails: \"%s\"; the fault: %s; before: \"%s\" of %s\n", call, plinth_last_error(),
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

/* A call that may meet the fault. */
#define ATTEMPT(call) attempt((call), #call)

/* The same for one that gives something back: if it fails it did nothing, and can be made again. */
#define GIVE_BACK(call)   \
  do {                    \
    if (!ATTEMPT(call)) { \
      CHECK_OK(call);     \
      fault_after_call(); \
    }                     \
  } while (0)

/* The test's own driver calls can meet the fault too, and say no more than its code. */
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

/* The driver call that met the fault in the last run of a scenario; NULL if none did. */
static const char *tripped;

static struct {
  void (*scenario)(void);
  uint64_t nth;
  int32_t code;
  bool attached;
} armed;

/* Runs a function with its nth driver call failing; returns the name of that call, or NULL if there was no nth. */
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

/* Runs a scenario in a thread of its own. */
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

/* Restoring what was current may be tried again: then nothing went wrong that a caller could see. */
static inline bool may_be_tried_again(const char *call) {
  return strcmp(call, "cuCtxSetCurrent") == 0 || strcmp(call, "cuThreadExchangeStreamCaptureMode") == 0;
}

static inline void expect_the_fault_was_reported(int32_t code) {
  char digits[16];
  snprintf(digits, sizeof digits, "%d", (int)code);
  if (!failure.failed || failure.driver_code != code || strstr(failure.message, tripped) == NULL ||
      strstr(failure.message, digits) == NULL) {
    fprintf(stderr, "%s failed with %d, and was reported as: failed %d, driver code %d, \"%s\"\n", tripped, (int)code,
            failure.failed, (int)failure.driver_code, failure.message);
  }
  CHECK(failure.failed);
  CHECK_EQ(failure.driver_code, code);
  CHECK(strstr(failure.message, tripped) != NULL);
  CHECK(strstr(failure.message, digits) != NULL);
  CHECK_EQ(failure.status, code == CUDA_ERROR_OUT_OF_MEMORY ? PLINTH_ERROR_OUT_OF_MEMORY : PLINTH_ERROR_DRIVER);
}

/* Runs a scenario with its nth driver call failing; returns whether there was an nth. */
static inline bool run_with_fault(void (*scenario)(void), uint64_t nth, fault_kind kind) {
  run_scenario(scenario, nth, kind);
  if (tripped == NULL) {
    CHECK(!failure.failed);
    return false;
  }
  const bool no_memory = plan->report == FAULT_MAY_MEAN_NO_MEMORY && failure.status == PLINTH_ERROR_OUT_OF_MEMORY;
  if (failure.failed ? !no_memory : plan->report == FAULT_ALWAYS_REPORTED && !may_be_tried_again(tripped)) {
    expect_the_fault_was_reported(kind.code);
  }
  return true;
}

/* ---- Which calls fail, and how */

/* PLINTH_TEST_FAULTS says how many faults a test makes. */
typedef enum fault_depth {
  /* Unset: every call fails with every kind of the plan. */
  FAULTS_ALL,
  /* `each`: every call fails once in new processes and once in a warm one, with one kind after the other. */
  FAULTS_EACH,
  /* `sampled`, of the fast tier: the same for the first calls, and of the later ones for one in seven. */
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

/* A long test is several: each makes its part of the faults, so that they run side by side. */
static int part, parts = 1;

enum { SAMPLED_FROM = 32, SAMPLED_STEP = 7, MOST_CALLS = 2000 };

/* Visits the calls of a scenario until one is not met, in each round, and returns the least number met in a round. In a
 * walk of all faults a round has one kind; otherwise there is one round, and its kinds take turns. */
static inline int walk_faults(unsigned set, fault_depth depth, bool (*visit)(uint64_t nth, fault_kind kind)) {
  const bool all = depth == FAULTS_ALL;
  int kinds[FAULT_KINDS];
  int count = 0;
  int least = MOST_CALLS;
  for (int kind = 0; kind < FAULT_KINDS; kind++) {
    if ((set >> kind & 1) != 0) {
      kinds[count++] = kind;
    }
  }
  for (int round = all ? part : 0; round < (all ? count : 1); round += parts) {
    int faults = 0;
    int number = 0;
    bool met = true;
    for (uint64_t nth = 1; met; nth += depth == FAULTS_SAMPLED && nth >= SAMPLED_FROM ? SAMPLED_STEP : 1) {
      CHECK(nth < MOST_CALLS);
      if (all || number % parts == part) {
        met = visit(nth, fault_kinds[kinds[(all ? round : number) % count]]);
        faults += met;
      }
      number++;
    }
    least = faults < least ? faults : least;
  }
  return least;
}

/* ---- Tests */

static void (*current_scenario)(void);
static int failures;

/* What comes first in every process of a test. */
static inline void begin_faults(void) {
  if (plan->configure != NULL) {
    plan->configure();
  }
  CHECK_OK(plinth_enable_fault_injection());
  if (!plan->initializes) {
    CHECK_OK(plinth_init());
    last = device_count() - 1;
  }
  if (plan->set_up != NULL) {
    plan->set_up();
  }
}

static inline bool visit_in_one_process(uint64_t nth, fault_kind kind) {
  enum { MOST_DEVICES = 64 };
  const bool counted = plan->compare != NULL && on_host_device();
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  size_t bytes[MOST_DEVICES];
  CHECK(device_count() <= MOST_DEVICES);
  for (int32_t device = 0; device < device_count(); device++) {
    bytes[device] = allocated(device);
  }
  if (counted) {
    before = host_usage();
  }
  const bool met = run_with_fault(current_scenario, nth, kind);
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
  return met;
}

/* In one process, where everything that the scenario makes once is made. */
static inline void survive_in_one_process(void) {
  begin_faults();
  for (int round = 0; round < plan->warm_up; round++) {
    run_without_fault(current_scenario, fault_kinds[0]);
  }
  failures = 0;
  CHECK(walk_faults(plan->kinds, chosen_depth(), visit_in_one_process) >= plan->least_faults);
  CHECK(failures >= plan->least_failures);
  if (plan->tear_down != NULL) {
    plan->tear_down();
  }
}

enum { NOT_TRIPPED = 3 };

static uint64_t new_process_nth;
static fault_kind new_process_kind;

static inline void survive_in_a_new_process(void) {
  begin_faults();
  const bool met = run_with_fault(current_scenario, new_process_nth, new_process_kind);
  run_without_fault(current_scenario, new_process_kind);
  _exit(met ? 0 : NOT_TRIPPED);
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

/* Each fault in a process of its own, so that it meets what is done only once. Too slow where making a context is. */
static inline void survive_in_new_processes(void) {
  const char *kind = getenv("PLINTH_DEVICE");
  if (!plan->initializes && (kind == NULL || strcmp(kind, "host") != 0)) {
    return;
  }
  fault_depth depth = chosen_depth();
  if (depth == FAULTS_ALL && plan->one_kind_in_new_processes != NULL && plan->one_kind_in_new_processes()) {
    depth = FAULTS_EACH;
  }
  /* A scenario without any call would test nothing. */
  const int least = plan->kinds == 0 ? plan->least_faults : 1;
  CHECK(walk_faults(plan->kinds_in_new_processes, depth, visit_in_a_new_process) >= least);
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

static inline void expect_nothing_lost(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  CHECK_EQ(after->device_bytes, before->device_bytes);
  CHECK_EQ(after->pinned_bytes, before->pinned_bytes);
  CHECK_EQ(after->streams, before->streams);
  CHECK_EQ(after->events, before->events);
  CHECK_EQ(after->graphs, before->graphs);
  CHECK_EQ(after->modules, before->modules);
}

static const fault_plan usual_plan = {
    .compare = expect_nothing_lost,
    .report = FAULT_ALWAYS_REPORTED,
    .kinds = EVERY_KIND,
    .kinds_in_new_processes = EVERY_KIND,
    .warm_up = 70,
};

/* A scenario: calls that it ATTEMPTs, and GIVE_BACK for whatever it holds at its end. */
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

/* A scenario of many calls, as three tests. */
#define LONG_SCENARIO_OF(plan, name) \
  static void name(void);            \
  SCENARIO_PART(plan, name, 1, 3)    \
  SCENARIO_PART(plan, name, 2, 3)    \
  SCENARIO_PART(plan, name, 3, 3)    \
  static void name(void)

/* ---- One call, as a scenario */

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

/* Runs a call with each of its driver calls failing. `check` sees what a call that succeeded did. */
static inline void survive_each_call(plinth_status_t (*call)(void), void (*check)(void), int least_failures) {
  const fault_plan one_call = {
      .recover = check_call,
      .report = FAULT_MAY_BE_AVOIDED,
      .kinds = UNKNOWN_WITH_CONTEXT,
      .least_failures = least_failures,
  };
  attempted_call = call;
  check_of_call = check;
  survive_faults(&one_call, attempt_call);
  plan = NULL;
}

#endif
