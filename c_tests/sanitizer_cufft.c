/* Programs with Fourier transforms, checked by the stream sanitizer. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cufft */
/* alone: clean_ordered_transforms; expects what only a fresh process has */
#include "sanitizing.h"
#include "transforming.h"

TEST(racy_transform_read_in_another_stream) {
  need_cufft();
  transform *job = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 1);
  plinth_cufft_plan_t plan = plan_for(&job->params, 0);
  enable_sanitizer();
  plinth_stream_t side = stream_on(0), stream = on_new_stream(0);
  carry_out(job, plan);
  kernel("sum", READ, job->output.memory, 8, side);
  RACE(MISSING_WAIT, job->output.memory, 8, reads("sum", side), writes("plinth_cufft_execute", stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(job);
}

TEST(clean_ordered_transforms) {
  need_cufft();
  transform *job = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 1);
  plinth_cufft_plan_t plan = plan_for(&job->params, 0);
  enable_sanitizer();
  plinth_stream_t side = stream_on(0), stream = on_new_stream(0);
  carry_out(job, plan);
  wait_for(side, stream);
  kernel("sum", READ, job->output.memory, 8, side);
  kernel("look", READ, job->input.memory, 8, side);
  wait_for(stream, side);
  carry_out(job, plan);
  CLEAN();
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(job);
}
