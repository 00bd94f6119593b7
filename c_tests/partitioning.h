/*
 * Helpers of the tests of green contexts.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PARTITIONING_H
#define PARTITIONING_H

#include "support.h"

static inline int32_t multiprocessors(int32_t device) {
  plinth_device_properties_t properties = PLINTH_DEVICE_PROPERTIES_INIT;
  CHECK_OK(plinth_get_device_properties(device, &properties));
  return properties.multi_processor_count;
}

/* Creates a green context. Skips the test if the driver does not support them. */
static inline plinth_green_context_t new_green_context(int32_t requested, int32_t device) {
  plinth_green_context_t made = (plinth_green_context_t)UNTOUCHED_POINTER;
  const plinth_status_t status = plinth_green_context_create(requested, device, &made);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    CHECK_MESSAGE("green context");
    SKIP("the driver has no green contexts");
  }
  CHECK_OK(status);
  CHECK(made != NULL && made != UNTOUCHED_POINTER);
  return made;
}

static inline int32_t sm_count(plinth_green_context_t partition) {
  int32_t count = UNTOUCHED;
  CHECK_OK(plinth_green_context_num_sms(partition, &count));
  return count;
}

static inline plinth_stream_t stream_of(plinth_green_context_t partition) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_green_context_stream(partition, &stream));
  return stream;
}

#endif
