/* PLINTH_IPC=0: memory that cannot be shared. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_IPC=0 */
/* alone: an_invalid_variable_is_an_error; sets the environment */
#include "driver.h"
#include "peering.h"

TEST(memory_cannot_be_shared) {
  int ends[2];
  plinth_ipc_export_t message = {sizeof message, UNTOUCHED_POINTER, 1, UNTOUCHED_POINTER, 2};
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_IPC_NOT_SHAREABLE);
  CHECK_MESSAGE("PLINTH_IPC");
  CHECK_STATUS(plinth_ipc_export(block, &message), PLINTH_ERROR_IPC_NOT_SHAREABLE);
  CHECK_SAME(message.bytes, UNTOUCHED_POINTER);
  release(block);
  /* No process holds it. */
  CHECK(comes_back(block, BLOCK, 0, NULL));
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_nothing_left();
}

/* An invalid value of the variable is an error of the first allocation. */
HELPER(allocates) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, &pointer), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_IPC");
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
}

TEST(an_invalid_variable_is_an_error) {
  setenv("PLINTH_IPC", "perhaps", 1);
  expect_end(start_peer("allocates", SOCK_STREAM));
}
