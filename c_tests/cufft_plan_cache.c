/* The cache of cuFFT plans. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cufft */
/* env: FAKE_CUFFT_ALLOCATES=1 */
/* alone: a_cache_of_no_plans_keeps_none; expects a new process */
/* alone: the_least_recently_used_plan_is_evicted; expects a new process */
/* alone: invalid_arguments_are_refused_as_in_pytorch; expects a new process */
#include "transforming.h"

TEST(equal_parameters_share_a_plan) {
  need_cufft();
  plinth_cufft_params_t params = params_of(2, PLINTH_CUFFT_R2C, 32);
  params.sizes[0] = 2;
  params.sizes[1] = 3;
  params.sizes[2] = 8;
  plinth_cufft_params_t with_strides = params;
  const int64_t input[] = {24, 8, 1, 0}, output[] = {15, 5, 1, 0};
  memcpy(with_strides.input_strides, input, sizeof input);
  memcpy(with_strides.output_strides, output, sizeof output);
  CHECK_EQ(cached(0), 0);
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&params, 0)));
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&with_strides, 0)));
  with_strides.sizes[3] = 55; /* Ignored beyond the rank. */
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&with_strides, 0)));
  CHECK_EQ(cached(0), 1);
  params.number.bits = 64;
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&params, 0)));
  params.transform = PLINTH_CUFFT_C2R;
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&params, 0)));
  params.sizes[0] = 3;
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&params, 0)));
  params.output_strides[2] = 1;
  params.output_strides[1] = 10;
  params.output_strides[0] = 40;
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&params, 0)));
  CHECK_EQ(cached(0), 5);
  if (on_host_device()) {
    CHECK_EQ(plans_ever(), 5);
    CHECK_EQ(plans_now(), 5);
  }
}

TEST(the_least_recently_used_plan_is_evicted) {
  need_cufft();
  const plinth_cufft_params_t a = row_of(1, 8), b = row_of(1, 9), c = row_of(1, 10);
  int64_t most = UNTOUCHED;
  CHECK_OK(plinth_cufft_plan_cache_get_max_size(0, &most));
  CHECK_EQ(most, 4096);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 2));
  CHECK_OK(plinth_cufft_plan_cache_get_max_size(-1, &most));
  CHECK_EQ(most, 2);
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&a, 0)));
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&b, 0)));
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&a, 0)));
  CHECK_EQ(cached(0), 2);
  CHECK_OK(plinth_cufft_plan_destroy(plan_for(&c, 0)));
  CHECK_EQ(cached(0), 2);
  if (on_host_device()) {
    CHECK_EQ(plans_ever(), 3);
    CHECK_EQ(plans_now(), 2);
    CHECK_OK(plinth_cufft_plan_destroy(plan_for(&a, 0)));
    CHECK_OK(plinth_cufft_plan_destroy(plan_for(&c, 0)));
    CHECK_EQ(plans_ever(), 3);
    CHECK_OK(plinth_cufft_plan_destroy(plan_for(&b, 0)));
    CHECK_EQ(plans_ever(), 4);
    CHECK_OK(plinth_cufft_plan_destroy(plan_for(&c, 0)));
    CHECK_EQ(plans_ever(), 4);
    CHECK_OK(plinth_cufft_plan_destroy(plan_for(&a, 0)));
    CHECK_EQ(plans_ever(), 5);
  }
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 1));
  CHECK_EQ(cached(0), 1);
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  CHECK_EQ(cached(0), 0);
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 0);
  }
}

TEST(an_evicted_plan_lives_until_its_handles_are_destroyed) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  transform *fft[4];
  plinth_cufft_plan_t plans[4];
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 2));
  for (int index = 0; index < 4; index++) {
    fft[index] = new_transform(row_of(1, 16 + index), PLINTH_CUFFT_FORWARD, false, 0, (uint64_t)index);
    plans[index] = plan_for(&fft[index]->params, 0);
  }
  CHECK_EQ(cached(0), 2);
  CHECK_OK(plinth_cufft_plan_cache_clear(0));
  for (int index = 0; index < 4; index++) {
    carry_out(fft[index], plans[index]);
    CHECK_OK(plinth_cufft_plan_destroy(plans[index]));
    expect_transformed(fft[index], stream);
    free_transform(fft[index]);
  }
  if (on_host_device()) {
    CHECK_EQ(plans_now(), 0);
  }
}

TEST(a_cache_of_no_plans_keeps_none) {
  need_cufft();
  plinth_stream_t stream = on_new_stream(0);
  CHECK_OK(plinth_cufft_plan_cache_set_max_size(0, 0));
  transform *fft = new_transform(row_of(2, 15), PLINTH_CUFFT_INVERSE, false, 0, 8);
  for (int round = 0; round < 3; round++) {
    plinth_cufft_plan_t plan = plan_for(&fft->params, 0);
    carry_out(fft, plan);
    CHECK_OK(plinth_cufft_plan_destroy(plan));
    expect_transformed(fft, stream);
    forget_output(fft, stream);
    CHECK_EQ(cached(0), 0);
  }
  if (on_host_device()) {
    CHECK_EQ(plans_ever(), 3);
    CHECK_EQ(plans_now(), 0);
  }
  free_transform(fft);
}

TEST(invalid_arguments_are_refused_as_in_pytorch) {
  int64_t number = UNTOUCHED;
  CHECK_STATUS(plinth_cufft_plan_cache_set_max_size(0, -1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("cuFFT plan cache size must be non-negative, but got -1");
  CHECK_OK(plinth_cufft_plan_cache_get_max_size(0, &number));
  CHECK_EQ(number, 4096);
  number = UNTOUCHED;
  const int32_t wrong[] = {device_count(), -2};
  for (int index = 0; index < 2; index++) {
    CHECK_STATUS(plinth_cufft_plan_cache_set_max_size(wrong[index], 1), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_cufft_plan_cache_get_max_size(wrong[index], &number), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_cufft_plan_cache_size(wrong[index], &number), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_cufft_plan_cache_clear(wrong[index]), PLINTH_ERROR_INVALID_DEVICE);
  }
  CHECK_STATUS(plinth_cufft_plan_cache_get_max_size(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_cufft_plan_cache_size(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(number, UNTOUCHED);
}
