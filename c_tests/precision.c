/* The precision of matrix products: the settings, and the math mode of cuBLAS handles. SPDX-License-Identifier: MIT OR
 * Apache-2.0 */
/* library: fake_cublas */
/* alone: the_environment_has_torchs_variables nothing_is_supported_without_a_device; sets the environment */
#include "multiplying.h"
#include "process.h"

enum { TF32 = 3, NO_REDUCED_PRECISION = 16 };

static bool allows(plinth_status_t (*get)(bool *)) {
  bool allow = false;
  CHECK_OK(get(&allow));
  return allow;
}

static int32_t setting(plinth_status_t (*get)(int32_t *)) {
  int32_t value = UNTOUCHED;
  CHECK_OK(get(&value));
  return value;
}

static void expect_defaults(void) {
  CHECK(!allows(plinth_get_matmul_allow_tf32));
  CHECK(allows(plinth_get_matmul_allow_fp16_reduced_precision_reduction));
  CHECK(allows(plinth_get_matmul_allow_bf16_reduced_precision_reduction));
  CHECK_EQ(setting(plinth_get_float32_matmul_precision), PLINTH_MATMUL_PRECISION_HIGHEST);
  CHECK_EQ(setting(plinth_get_preferred_blas_library), PLINTH_BLAS_LIBRARY_CUBLAS);
  CHECK_EQ(setting(plinth_get_preferred_linalg_library), PLINTH_LINALG_LIBRARY_DEFAULT);
}

static void restore_defaults(void) {
  CHECK_OK(plinth_set_matmul_allow_tf32(false));
  CHECK_OK(plinth_set_matmul_allow_fp16_reduced_precision_reduction(true));
  CHECK_OK(plinth_set_matmul_allow_bf16_reduced_precision_reduction(true));
  CHECK_OK(plinth_set_preferred_blas_library(PLINTH_BLAS_LIBRARY_DEFAULT));
  CHECK_OK(plinth_set_preferred_linalg_library(PLINTH_LINALG_LIBRARY_DEFAULT));
  expect_defaults();
}

TEST(the_settings_are_torchs) {
  expect_defaults();
  CHECK_OK(plinth_set_matmul_allow_tf32(true));
  CHECK_EQ(setting(plinth_get_float32_matmul_precision), PLINTH_MATMUL_PRECISION_HIGH);
  CHECK_OK(plinth_set_float32_matmul_precision(PLINTH_MATMUL_PRECISION_MEDIUM));
  CHECK(allows(plinth_get_matmul_allow_tf32));
  CHECK_EQ(setting(plinth_get_float32_matmul_precision), PLINTH_MATMUL_PRECISION_MEDIUM);
  CHECK_OK(plinth_set_matmul_allow_tf32(false));
  CHECK_EQ(setting(plinth_get_float32_matmul_precision), PLINTH_MATMUL_PRECISION_HIGHEST);
  CHECK_OK(plinth_set_matmul_allow_fp16_reduced_precision_reduction(false));
  CHECK(!allows(plinth_get_matmul_allow_fp16_reduced_precision_reduction));
  CHECK(allows(plinth_get_matmul_allow_bf16_reduced_precision_reduction));
  CHECK_OK(plinth_set_preferred_blas_library(PLINTH_BLAS_LIBRARY_CUBLASLT));
  CHECK_EQ(setting(plinth_get_preferred_blas_library), PLINTH_BLAS_LIBRARY_CUBLASLT);
  CHECK_OK(plinth_set_preferred_linalg_library(PLINTH_LINALG_LIBRARY_MAGMA));
  CHECK_EQ(setting(plinth_get_preferred_linalg_library), PLINTH_LINALG_LIBRARY_MAGMA);
  restore_defaults();
}

TEST(unknown_settings_are_refused) {
  for (int32_t wrong = -1; wrong <= 3; wrong += 4) {
    CHECK_STATUS(plinth_set_float32_matmul_precision(wrong), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("highest, high and medium are 0, 1 and 2");
    CHECK_STATUS(plinth_set_preferred_blas_library(wrong), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("default, cuBLAS and cuBLASLt are 0, 1 and 2");
    CHECK_STATUS(plinth_set_preferred_linalg_library(wrong), PLINTH_ERROR_INVALID_VALUE);
    CHECK_MESSAGE("default, cuSOLVER and MAGMA are 0, 1 and 2");
  }
  CHECK_STATUS(plinth_get_matmul_allow_tf32(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_matmul_allow_fp16_reduced_precision_reduction(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_matmul_allow_bf16_reduced_precision_reduction(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_float32_matmul_precision(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_preferred_blas_library(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_preferred_linalg_library(NULL), PLINTH_ERROR_NULL_POINTER);
  expect_defaults();
}

/* The math mode of this thread's handle, when it is requested. */
static int mode_now(void) { return modes(handle_now()) >> 4 & 0xFF; }

TEST(a_handle_has_the_math_mode_of_the_settings) {
  need_stand_in();
  CHECK_EQ(mode_now(), 0);
  CHECK_OK(plinth_set_float32_matmul_precision(PLINTH_MATMUL_PRECISION_MEDIUM));
  CHECK_EQ(mode_now(), TF32);
  CHECK_OK(plinth_set_matmul_allow_bf16_reduced_precision_reduction(false));
  CHECK_EQ(mode_now(), TF32 | NO_REDUCED_PRECISION);
  CHECK_OK(plinth_set_matmul_allow_tf32(false));
  CHECK_EQ(mode_now(), NO_REDUCED_PRECISION);
  CHECK_OK(plinth_set_matmul_allow_bf16_reduced_precision_reduction(true));
  CHECK_OK(plinth_set_matmul_allow_fp16_reduced_precision_reduction(false));
  CHECK_EQ(mode_now(), NO_REDUCED_PRECISION);
  restore_defaults();
  CHECK_EQ(mode_now(), 0);
}

static void expect_variables(void) {
  CHECK(allows(plinth_get_matmul_allow_tf32));
  CHECK_EQ(setting(plinth_get_preferred_blas_library), PLINTH_BLAS_LIBRARY_CUBLASLT);
  CHECK_EQ(setting(plinth_get_preferred_linalg_library), PLINTH_LINALG_LIBRARY_CUSOLVER);
  CHECK_OK(plinth_set_matmul_allow_tf32(false));
  CHECK_OK(plinth_set_preferred_blas_library(PLINTH_BLAS_LIBRARY_DEFAULT));
  CHECK_OK(plinth_set_preferred_linalg_library(PLINTH_LINALG_LIBRARY_DEFAULT));
  expect_defaults();
}

TEST(the_environment_has_torchs_variables) {
  CHECK(setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", 1) == 0);
  CHECK(setenv("TORCH_BLAS_PREFER_CUBLASLT", "1", 1) == 0);
  CHECK(setenv("TORCH_LINALG_PREFER_CUSOLVER", "1", 1) == 0);
  in_child(expect_variables);
}

TEST(the_device_says_what_it_supports) {
  bool bf16 = false, emulated = false, tf32 = false;
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(-1, &properties));
  CHECK_OK(plinth_is_bf16_supported(false, &bf16));
  CHECK_OK(plinth_is_bf16_supported(true, &emulated));
  CHECK_OK(plinth_is_tf32_supported(&tf32));
  CHECK(emulated);
  CHECK_EQ(bf16, properties.major >= 8);
  CHECK_EQ(tf32, properties.major >= 8);
  CHECK_STATUS(plinth_is_bf16_supported(true, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_is_tf32_supported(NULL), PLINTH_ERROR_NULL_POINTER);
}

static void expect_no_support(void) {
  bool bf16 = true, tf32 = true;
  CHECK_OK(plinth_is_bf16_supported(true, &bf16));
  CHECK_OK(plinth_is_tf32_supported(&tf32));
  CHECK(!bf16 && !tf32);
}

TEST(nothing_is_supported_without_a_device) {
  CHECK(setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0);
  in_child(expect_no_support);
}
