/*
 * Scenarios in which every driver call is made to fail, once, at each of its places, with several codes: in a process that
 * is warm, and on the host device in new processes, too. SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAULTS_H
#define FAULTS_H

#include "allocating.h"
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

static inline bool attempt(plinth_status_t status, const char *text) {
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
static inline bool attempt_driver(const char *name, int code) {
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

static inline void expect_the_fault_was_reported(int32_t code) {
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

static inline void *run_in_thread(void *context) {
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
static inline void run_scenario(void (*scenario)(void), uint64_t nth, int32_t code) {
  current_scenario = scenario;
  armed_nth = nth;
  armed_code = code;
  failure.failed = false;
  run_threads(1, run_in_thread);
}

static inline void run_without_fault(void (*scenario)(void)) {
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
static inline bool run_with_fault(void (*scenario)(void), uint64_t nth, int32_t code) {
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

static inline void expect_nothing_lost(const plinth_host_usage_t *before) {
  const plinth_host_usage_t after = host_usage();
  CHECK_EQ(after.device_bytes, before->device_bytes);
  CHECK_EQ(after.pinned_bytes, before->pinned_bytes);
  CHECK_EQ(after.streams, before->streams);
  CHECK_EQ(after.events, before->events);
  CHECK_EQ(after.graphs, before->graphs);
  CHECK_EQ(after.modules, before->modules);
}

enum { FAULT_KINDS = 6 };

/* Whether every call fails with every code in every kind of thread. With PLINTH_TEST_FAULTS=sampled, which the fast tier
 * sets, every call fails once in new processes and once in a warm one, with one of them in turn. */
static inline bool faults_are_exhaustive(void) {
  const char *chosen = getenv("PLINTH_TEST_FAULTS");
  return chosen == NULL || strcmp(chosen, "sampled") != 0;
}

/* In one process, where everything that the scenario makes once is made. */
static inline void survive_in_one_process(void (*scenario)(void)) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
  for (int round = 0; round < 70; round++) {
    run_without_fault(scenario);
  }
  const bool counted = on_host_device();
  const plinth_host_usage_t nothing = PLINTH_HOST_USAGE_INIT;
  const bool exhaustive = faults_are_exhaustive();
  for (int index = 0; index < (exhaustive ? FAULT_KINDS : 1); index++) {
    uint64_t nth = 0;
    do {
      const plinth_host_usage_t before = counted ? host_usage() : nothing;
      CHECK(++nth < MOST_CALLS);
      const int kind_of_fault = exhaustive ? index : (int)(nth % FAULT_KINDS);
      attached = kind_of_fault >= 3;
      if (!run_with_fault(scenario, nth, codes[kind_of_fault % 3])) {
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

static inline void survive_in_a_new_process(void) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
  _exit(run_with_fault(cold_scenario, cold_nth, cold_code) ? 0 : NOT_TRIPPED);
}

/* Each fault in a process of its own, so that it meets what is done only once. Too slow where making a context is. */
static inline void survive_in_new_processes(void (*scenario)(void)) {
  const char *kind = getenv("PLINTH_DEVICE");
  if (kind == NULL || strcmp(kind, "host") != 0) {
    return;
  }
  cold_scenario = scenario;
  const bool exhaustive = faults_are_exhaustive();
  for (int index = 0; index < (exhaustive ? FAULT_KINDS : 1); index++) {
    int status = 0;
    for (cold_nth = 1; status == 0; cold_nth++) {
      const int kind_of_fault = exhaustive ? index : (int)(cold_nth % FAULT_KINDS);
      cold_code = codes[kind_of_fault % 3];
      attached = kind_of_fault >= 3;
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

/* Runs a body with each of its driver calls failing in turn. After each failure nothing is left that it made, and the
 * same without a fault succeeds. Returns how many of them made it fail. */
static inline int survive_each_call(plinth_status_t (*body)(void), void (*check)(void)) {
  int failures = 0;
  bool met = true;
  for (uint64_t nth = 1; met; nth++) {
    size_t before[8];
    CHECK(nth < MOST_CALLS);
    for (int32_t device = 0; device < device_count(); device++) {
      before[device] = allocated(device);
    }
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t status = body();
    char message[1024];
    snprintf(message, sizeof message, "%s", plinth_last_error());
    const char *call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    met = call != NULL;
    if (status != PLINTH_OK) {
      failures++;
      CHECK_EQ(status, PLINTH_ERROR_DRIVER);
      CHECK(call != NULL && strstr(message, call) != NULL);
    } else {
      check();
    }
    for (int32_t device = 0; device < device_count(); device++) {
      CHECK_OK(plinth_synchronize(device));
    }
    for (int32_t device = 0; device < device_count(); device++) {
      CHECK_EQ(allocated(device), before[device]);
    }
    CHECK_OK(body());
    check();
    CHECK_OK(plinth_testing_check_allocator());
  }
  return failures;
}

/* A scenario: calls that it ATTEMPTs, and GIVE_BACK for whatever it holds at its end. */
#define SCENARIO(name)             \
  static void name(void);          \
  TEST(name##_survives_faults) {   \
    survive_in_new_processes(name); \
    survive_in_one_process(name);  \
  }                                \
  static void name(void)

#endif
