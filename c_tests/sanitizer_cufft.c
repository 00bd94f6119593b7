/* Programs with transforms, and the verdict of the stream sanitizer. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* library: fake_cufft */
/* alone: clean_transforms_in_turn; expects what only a fresh process has */
#include "sanitizing.h"
#include "transforming.h"

TEST(racy_transform_read_in_another_stream) {
  need_cufft();
  transform *of = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 1);
  plinth_cufft_plan_t plan = plan_for(&of->params, 0);
  judge();
  plinth_stream_t side = stream_on(0), own = on_new_stream(0);
  carry_out(of, plan);
  kernel("sum", READ, of->output.memory, 8, side);
  RACE(MISSING_WAIT, of->output.memory, 8, reads("sum", side), writes("plinth_cufft_execute", own));
  CHECK_OK(plinth_stream_synchronize(own));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(of);
}

TEST(clean_transforms_in_turn) {
  need_cufft();
  transform *of = new_transform(row_of(2, 24), PLINTH_CUFFT_FORWARD, false, 0, 1);
  plinth_cufft_plan_t plan = plan_for(&of->params, 0);
  judge();
  plinth_stream_t side = stream_on(0), own = on_new_stream(0);
  carry_out(of, plan);
  order(side, own);
  kernel("sum", READ, of->output.memory, 8, side);
  kernel("look", READ, of->input.memory, 8, side);
  order(own, side);
  carry_out(of, plan);
  CLEAN();
  CHECK_OK(plinth_stream_synchronize(own));
  CHECK_OK(plinth_cufft_plan_destroy(plan));
  free_transform(of);
}
