/* Memory that is freed before a copy uses it, which ends the context of the copy's device.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* alone: all; leaves an illegal access, after which the device is lost */
#include "support.h"

enum { BYTES = 1 << 20 };

/* Frees memory of device 1, which waits only for device 1, before a copy of device 0 uses it. */
static void expect_illegal_address(bool writes) {
  plinth_stream_t stream = stream_on(0);
  void *pinned = pinned_memory(BYTES);
  void *memory = device_memory(BYTES, 1);
  gate *const shut = gate_shut(stream);
  CHECK_OK(plinth_memcpy(writes ? memory : pinned, writes ? pinned : memory, BYTES, stream));
  CHECK_OK(plinth_device_free(memory));
  gate_open(shut);
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_ILLEGAL_ADDRESS);
  CHECK_EQ(plinth_last_driver_error(), 700);
  CHECK_MESSAGE(writes ? "a copy writes" : "a copy reads");
  CHECK_MESSAGE("where no device memory is mapped");
  CHECK_OK(plinth_synchronize(1));
}

TEST(a_copy_to_memory_that_was_freed_is_an_illegal_address) { expect_illegal_address(true); }
TEST(a_copy_from_memory_that_was_freed_is_an_illegal_address) { expect_illegal_address(false); }
