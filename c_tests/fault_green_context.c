/* Each driver call fails once, in the functions of green contexts.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"

SCENARIO(green_context) {
  plinth_green_context_t context = NULL;
  plinth_stream_t stream = NULL;
  if (!ATTEMPT(plinth_green_context_create(24, last_device, &context))) {
    CHECK(context == NULL);
    return;
  }
  for (int index = 0; index < 33; index++) {
    if (!ATTEMPT(plinth_green_context_stream(context, &stream))) {
      break;
    }
  }
  RETRY(plinth_green_context_destroy(context));
}

SCENARIO(green_context_split) {
  plinth_green_context_t contexts[3] = {NULL, NULL, NULL}, rest = NULL;
  if (!ATTEMPT(plinth_green_context_split(16, 3, last_device, contexts, &rest))) {
    CHECK(contexts[0] == NULL && contexts[1] == NULL && contexts[2] == NULL && rest == NULL);
    return;
  }
  for (int index = 0; index < 3; index++) {
    RETRY(plinth_green_context_destroy(contexts[index]));
  }
  RETRY(plinth_green_context_destroy(rest));
}

SCENARIO(green_context_set) {
  plinth_green_context_t context = NULL;
  plinth_stream_t before = NULL, after = NULL;
  int32_t device = -1;
  if (!ATTEMPT(plinth_green_context_create(8, last_device, &context))) {
    return;
  }
  CHECK_OK(plinth_current_stream(last_device, &before));
  if (ATTEMPT(plinth_green_context_set_context(context))) {
    CHECK_OK(plinth_current_device(&device));
    CHECK_EQ(device, last_device);
    RETRY(plinth_green_context_pop_context(context));
  }
  CHECK_OK(plinth_current_stream(last_device, &after));
  CHECK_SAME(after, before);
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  RETRY(plinth_green_context_destroy(context));
}
