/* CUDA_LAUNCH_BLOCKING=1: a kernel is done when its launch returns. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: CUDA_LAUNCH_BLOCKING=1 */
#include "support.h"

TEST(a_kernel_is_done_when_its_launch_returns) {
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_sleep(1000, stream)); /* loads the kernel */
  CHECK_OK(plinth_stream_synchronize(stream));
  const double start = seconds_now();
  CHECK_OK(plinth_sleep(40000000, stream)); /* about 20 ms */
  CHECK(seconds_now() - start > 0.01);
  CHECK(stream_done(stream));
}
