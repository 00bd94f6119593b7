/* plinth_host_register: pinning memory of the program. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "pinning.h"

#include <sys/mman.h>

static unsigned char *map_pages(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  return (unsigned char *)memory;
}

TEST(registered_memory_is_pinned_until_it_is_unregistered) {
  unsigned char *memory = map_pages(MIB);
  CHECK(!is_pinned(memory));
  CHECK_OK(plinth_host_register(memory, MIB, PLINTH_HOST_REGISTER_PORTABLE));
  CHECK(is_pinned(memory) && is_pinned(memory + MIB - 1));
  CHECK_OK(plinth_host_unregister(memory));
  CHECK(!is_pinned(memory) && !is_pinned(memory + MIB - 1));
  CHECK_OK(plinth_host_register(memory, MIB, PLINTH_HOST_REGISTER_PORTABLE | PLINTH_HOST_REGISTER_MAPPED));
  CHECK_OK(plinth_host_unregister(memory));
  CHECK_EQ(munmap(memory, MIB), 0);
}

TEST(copies_with_registered_memory_do_not_wait) {
  unsigned char *memory = map_pages(4 * MIB);
  unsigned char *device = (unsigned char *)device_memory(4 * MIB, 0);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_host_register(memory, 4 * MIB, PLINTH_HOST_REGISTER_PORTABLE));
  pattern_fill(memory, 4 * MIB, 1);
  gate *shut = hold(stream);
  CHECK_OK(plinth_memcpy(device, memory, 4 * MIB, stream));
  CHECK_OK(plinth_memset(device, 7, KIB, stream));
  CHECK_OK(plinth_memcpy(memory, device, 4 * MIB, stream));
  CHECK(!stream_done(stream));
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_EQ(memory[0], 7);
  CHECK_EQ(memory[KIB - 1], 7);
  CHECK_EQ(memory[KIB], pattern_byte(KIB, 1));
  CHECK_EQ(memory[4 * MIB - 1], pattern_byte(4 * MIB - 1, 1));
  CHECK_OK(plinth_host_unregister(memory));
  CHECK_OK(plinth_device_free(device));
  CHECK_EQ(munmap(memory, 4 * MIB), 0);
}

TEST(invalid_requests_are_refused) {
  unsigned char *memory = map_pages(MIB);
  int local = 0;
  CHECK_STATUS(plinth_host_register(NULL, MIB, 0), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_host_register(memory, 0, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_register(memory, SIZE_MAX, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_register(memory, MIB, 16), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_host_unregister(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_unregister(&local), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_host_unregister(NULL));
  CHECK_OK(plinth_host_register(memory, MIB, 0));
  CHECK_STATUS(plinth_host_register(memory, MIB, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("registering 1.00 MiB of host memory at ");
  CHECK_STATUS(plinth_pinned_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_host_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_host_unregister(memory));
  CHECK_STATUS(plinth_host_unregister(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_EQ(munmap(memory, MIB), 0);
}

TEST(unmapped_memory_is_refused) {
  unsigned char *memory = map_pages(MIB);
  CHECK_EQ(munmap(memory, MIB), 0);
  const plinth_status_t status = plinth_host_register(memory, MIB, 0);
  CHECK(status == PLINTH_ERROR_INVALID_VALUE || status == PLINTH_ERROR_OUT_OF_MEMORY || status == PLINTH_ERROR_DRIVER);
  CHECK(!is_pinned(memory));
}

TEST(unregistering_is_checked_by_the_sync_debug_mode) {
  unsigned char *memory = map_pages(MIB);
  CHECK_OK(plinth_host_register(memory, MIB, 0));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_host_unregister(memory), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK(is_pinned(memory));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_host_unregister(memory));
  CHECK_EQ(munmap(memory, MIB), 0);
}
