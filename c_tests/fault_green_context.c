/* Every driver call made to fail, once, in what makes and uses green contexts.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"

SCENARIO(green_context) {
  plinth_green_context_t part = NULL;
  plinth_stream_t stream = NULL;
  if (!ATTEMPT(plinth_green_context_create(24, last, &part))) {
    CHECK(part == NULL);
    return;
  }
  for (int index = 0; index < 33; index++) {
    if (!ATTEMPT(plinth_green_context_stream(part, &stream))) {
      break;
    }
  }
  GIVE_BACK(plinth_green_context_destroy(part));
}

SCENARIO(green_context_set) {
  plinth_green_context_t part = NULL;
  plinth_stream_t before = NULL, after = NULL;
  int32_t device = -1;
  if (!ATTEMPT(plinth_green_context_create(8, last, &part))) {
    return;
  }
  CHECK_OK(plinth_current_stream(last, &before));
  if (ATTEMPT(plinth_green_context_set_context(part))) {
    CHECK_OK(plinth_current_device(&device));
    CHECK_EQ(device, last);
    GIVE_BACK(plinth_green_context_pop_context(part));
  }
  CHECK_OK(plinth_current_stream(last, &after));
  CHECK_SAME(after, before);
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  GIVE_BACK(plinth_green_context_destroy(part));
}
