/* Handles of cuSOLVER. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cublas */
/* env: FAKE_CUBLAS_ALLOCATES=1 */
/* alone: all; sets the environment */
#include "multiplying.h"

TEST(a_system_of_equations_is_solved_in_the_current_stream) {
  static const float matrix[] = {4, 2, 6, 0, 10, 5, 0, 0, 14}; /* Column-major, the lower triangle. */
  float factor_values[9];
  int info = UNTOUCHED, count = 0;
  int (*buffer_size)(void *, int, int, float *, int, int *);
  int (*factor)(void *, int, int, float *, int, float *, int, int *);
  need_blas();
  void *handle = UNTOUCHED_POINTER, *again = NULL;
  const plinth_status_t status = plinth_current_solver_handle(&handle);
  if (status == PLINTH_ERROR_LIBRARY_UNAVAILABLE && !on_host_device()) {
    SKIP("needs cuSOLVER");
  }
  CHECK_OK(status);
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_current_solver_handle(&again));
  CHECK_SAME(again, handle);
  float *a = (float *)device_memory(sizeof matrix, 0);
  int *result = (int *)device_memory(sizeof(int), 0);
  CHECK_OK(plinth_memcpy(a, matrix, sizeof matrix, stream));
  void *symbol = function_of(SOLVER, solver_names, "cusolverDnSpotrf_bufferSize");
  memcpy(&buffer_size, &symbol, sizeof symbol);
  symbol = function_of(SOLVER, solver_names, "cusolverDnSpotrf");
  memcpy(&factor, &symbol, sizeof symbol);
  CHECK_EQ(buffer_size(handle, 0, 3, a, 3, &count), 0);
  float *buffer = (float *)device_memory(sizeof(float) * (size_t)(count > 0 ? count : 1), 0);
  CHECK_EQ(factor(handle, 0, 3, a, 3, buffer, count, result), 0);
  CHECK_OK(plinth_memcpy(factor_values, a, sizeof factor_values, stream));
  CHECK_OK(plinth_memcpy(&info, result, sizeof info, stream));
  finish(stream);
  /* The Cholesky factor is (2; 1 3; 3 2/3 sqrt(41)/3). */
  CHECK_EQ(info, 0);
  CHECK(factor_values[0] > 1.999f && factor_values[0] < 2.001f && factor_values[1] > 0.999f && factor_values[1] < 1.001f);
  CHECK(factor_values[2] > 2.999f && factor_values[2] < 3.001f && factor_values[4] > 2.999f && factor_values[4] < 3.001f);
  CHECK(factor_values[5] > 0.666f && factor_values[5] < 0.667f && factor_values[8] > 2.13f && factor_values[8] < 2.14f);
  if (on_host_device()) {
    setenv("FAKE_CUBLAS_FAIL", "cusolverDnSetStream:7", 1);
    CHECK_STATUS(plinth_current_solver_handle(&again), PLINTH_ERROR_LIBRARY);
    CHECK_MESSAGE("cusolverDnSetStream failed with 7, CUSOLVER_STATUS_INTERNAL_ERROR");
  }
  CHECK_OK(plinth_device_free(a));
  CHECK_OK(plinth_device_free(result));
  CHECK_OK(plinth_device_free(buffer));
}
