/* Every driver call made to fail, once, around the calls of CUDA's libraries: what fails is told, what was made is
 * given back, and the next call does it right. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* library: fake_cufft */
/* device: host */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"
#include "transforming.h"

static void need_libraries(void) {
  name_library("PLINTH_CUBLAS_LIBRARY", "fake_cublas");
  name_library("PLINTH_CUSOLVER_LIBRARY", "fake_cublas");
  name_library(CUFFT, "fake_cufft");
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_init());
  last = device_count() - 1;
}

/* The first call of a body that fails; what comes after it is not made. */
static plinth_status_t outcome;
static char reason[1024];

static bool tried(plinth_status_t status) {
  if (status != PLINTH_OK && outcome == PLINTH_OK) {
    outcome = status;
    snprintf(reason, sizeof reason, "%s", plinth_last_error());
  }
  return status == PLINTH_OK;
}

/* What gives something back is made again if it fails. */
#define BACK(call)      \
  do {                  \
    if (!tried(call)) { \
      CHECK_OK(call);   \
    }                   \
  } while (0)

static void survive(void (*body)(void)) {
  const char *call = "";
  int failures = 0;
  for (uint64_t nth = 1; call != NULL; nth++) {
    CHECK(nth < MOST_CALLS);
    outcome = PLINTH_OK;
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    body();
    call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    if (outcome != PLINTH_OK) {
      failures++;
      CHECK_EQ(outcome, PLINTH_ERROR_DRIVER);
      CHECK(call != NULL && strstr(reason, call) != NULL);
      outcome = PLINTH_OK;
    }
    CHECK_OK(plinth_set_stream(NULL));
    body();
    CHECK_EQ(outcome, PLINTH_OK);
    CHECK_OK(plinth_synchronize(last));
    CHECK_EQ(allocated(last), 0);
    CHECK_OK(plinth_testing_check_allocator());
  }
  CHECK(failures > 1);
}

/* A child for each of the first calls, which meet what is made only once. */
static void (*cold_body)(void);
static uint64_t cold_call;

static void survive_cold(void) {
  need_libraries();
  outcome = PLINTH_OK;
  CHECK_OK(plinth_inject_fault(cold_call, CUDA_ERROR_UNKNOWN));
  cold_body();
  CHECK_OK(plinth_inject_fault(0, 0));
  outcome = PLINTH_OK;
  cold_body();
  CHECK_EQ(outcome, PLINTH_OK);
  CHECK_EQ(allocated(last), 0);
}

static void survive_warm_and_cold(void (*body)(void)) {
  cold_body = body;
  for (cold_call = 1; cold_call < 60; cold_call++) {
    in_child(survive_cold);
  }
  need_libraries();
  for (int round = 0; round < 40; round++) {
    body();
  }
  survive(body);
}

static bool enter_stream(void) {
  plinth_stream_t stream = NULL;
  return tried(plinth_stream_create(last, 0, &stream)) && tried(plinth_set_stream(stream));
}

static void handles(void) {
  void *handle = NULL;
  size_t bytes = 0;
  if (enter_stream() && tried(plinth_current_blas_handle(&handle)) &&
      tried(plinth_current_blaslt_workspace(&handle, &bytes))) {
    (void)tried(plinth_current_solver_handle(&handle));
  }
  BACK(plinth_clear_blas_workspaces());
}

TEST(handles_survive_faults) { survive_warm_and_cold(handles); }

static void handles_in_a_capture(void) {
  void *handle = NULL;
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  if (enter_stream() && tried(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL))) {
    if (tried(plinth_current_blas_handle(&handle)) && tried(plinth_sleep(1, current_stream()))) {
      (void)tried(plinth_graph_capture_end(graph));
    }
  }
  BACK(plinth_graph_destroy(graph));
  BACK(plinth_clear_blas_workspaces());
}

TEST(handles_in_a_capture_survive_faults) { survive_warm_and_cold(handles_in_a_capture); }

static void plans(void) {
  const plinth_cufft_params_t params = row_of(2, 100);
  plinth_cufft_plan_t plan = NULL;
  int32_t native = 0;
  if (enter_stream() && tried(plinth_cufft_plan_create(&params, last, &plan))) {
    if (tried(plinth_cufft_plan_acquire(plan, &native))) {
      CHECK_OK(plinth_cufft_plan_release(plan));
    }
    CHECK_OK(plinth_cufft_plan_destroy(plan));
  }
  BACK(plinth_cufft_plan_cache_clear(last));
}

TEST(plans_survive_faults) { survive_warm_and_cold(plans); }
