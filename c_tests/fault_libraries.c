/* Each driver call of the functions for CUDA's libraries fails once: the function reports it and releases its resources, and
 * the next call succeeds. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* library: fake_cufft */
/* device: host */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"
#include "transforming.h"

static void name_libraries(void) {
  name_library("PLINTH_CUBLAS_LIBRARY", "fake_cublas");
  name_library("PLINTH_CUSOLVER_LIBRARY", "fake_cublas");
  name_library(CUFFT, "fake_cufft");
}

static void expect_usable(void) {
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_OK(plinth_synchronize(last_device));
  CHECK_EQ(allocated(last_device), 0);
  expect_sound();
}

static const fault_plan library_plan = {
    .configure = name_libraries,
    .recover = expect_usable,
    .report = FAULT_MAY_BE_AVOIDED,
    .kinds = UNKNOWN_WITH_CONTEXT,
    .kinds_in_new_processes = UNKNOWN_WITH_CONTEXT,
    .warm_up = 40,
    .min_failures = 2,
};

static bool enter_stream(void) {
  plinth_stream_t stream = NULL;
  return ATTEMPT(plinth_stream_create(last_device, 0, &stream)) && ATTEMPT(plinth_set_stream(stream));
}

static void handles(void) {
  void *handle = NULL;
  size_t bytes = 0;
  if (enter_stream() && ATTEMPT(plinth_current_blas_handle(&handle)) &&
      ATTEMPT(plinth_current_blaslt_workspace(&handle, &bytes))) {
    (void)ATTEMPT(plinth_current_solver_handle(&handle));
  }
  RETRY(plinth_clear_blas_workspaces());
}

TEST(handles_survive_faults) { survive_faults(&library_plan, handles); }

static void handles_in_a_capture(void) {
  void *handle = NULL;
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  if (enter_stream() && ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL))) {
    if (ATTEMPT(plinth_current_blas_handle(&handle)) && ATTEMPT(plinth_sleep(1, current_stream()))) {
      (void)ATTEMPT(plinth_graph_capture_end(graph));
    }
  }
  RETRY(plinth_graph_destroy(graph));
  RETRY(plinth_clear_blas_workspaces());
}

TEST(handles_in_a_capture_survive_faults) { survive_faults(&library_plan, handles_in_a_capture); }

static void plans(void) {
  const plinth_cufft_params_t params = row_of(2, 100);
  plinth_cufft_plan_t plan = NULL;
  int32_t native = 0;
  if (enter_stream() && ATTEMPT(plinth_cufft_plan_create(&params, last_device, &plan))) {
    if (ATTEMPT(plinth_cufft_plan_acquire(plan, &native))) {
      CHECK_OK(plinth_cufft_plan_release(plan));
    }
    CHECK_OK(plinth_cufft_plan_destroy(plan));
  }
  RETRY(plinth_cufft_plan_cache_clear(last_device));
}

TEST(plans_survive_faults) { survive_faults(&library_plan, plans); }
