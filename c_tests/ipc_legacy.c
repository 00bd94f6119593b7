/* CUDA's IPC handles of memory (cudaIpcMemHandle_t). SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "driver.h"
#include "peering.h"

#define BYTES (3 * MIB)

typedef struct handle_message {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
} handle_message;

HELPER(opens_a_handle) {
  handle_message message;
  void *base = UNTOUCHED_POINTER;
  void *again = UNTOUCHED_POINTER;
  CHECK_EQ(recv(SOCKET, &message, sizeof message, MSG_WAITALL), sizeof message);
  CHECK_OK(plinth_ipc_open_mem_handle(0, message.ipc_handle, &base));
  CHECK_OK(plinth_ipc_open_mem_handle(-1, message.ipc_handle, &again));
  CHECK_SAME(base, again);
  unsigned char *memory = (unsigned char *)base + message.offset;
  CHECK(has_pattern(memory, BYTES - 1000, 1));
  put_pattern(memory, BYTES - 1000, 2);
  CHECK_STATUS(plinth_device_free(base), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_close(base), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_ipc_close_mem_handle(base));
  CHECK_OK(plinth_ipc_close_mem_handle(base));
  CHECK_STATUS(plinth_ipc_close_mem_handle(base), PLINTH_ERROR_INVALID_POINTER);
  message.ipc_handle[20] ^= 1;
  again = UNTOUCHED_POINTER;
  if (on_host_device()) {
    /* Real drivers do not validate all bytes. */
    CHECK_STATUS(plinth_ipc_open_mem_handle(0, message.ipc_handle, &again), PLINTH_ERROR_INVALID_VALUE);
    CHECK_SAME(again, UNTOUCHED_POINTER);
  }
}

/* A program may close the memory with the driver's own call. Then plinth has nothing to close, also when the memory is opened
 * again at the address. */
HELPER(closes_with_the_driver) {
  typedef int (*driver_close)(unsigned long long memory);
  handle_message message;
  void *base = NULL;
  DRIVER(driver_close, close_memory, "cuIpcCloseMemHandle");
  CHECK_EQ(recv(SOCKET, &message, sizeof message, MSG_WAITALL), sizeof message);
  CHECK_OK(plinth_set_device(0));
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_ipc_open_mem_handle(0, message.ipc_handle, &base));
    CHECK_EQ(close_memory((unsigned long long)(uintptr_t)base), CUDA_SUCCESS);
    CHECK_STATUS(plinth_ipc_close_mem_handle(base), PLINTH_ERROR_INVALID_POINTER);
    CHECK_OK(plinth_ipc_open_mem_handle(0, message.ipc_handle, &base));
    CHECK_OK(plinth_ipc_close_mem_handle(base));
    CHECK_STATUS(plinth_ipc_close_mem_handle(base), PLINTH_ERROR_INVALID_POINTER);
    CHECK_MESSAGE("is not the start of memory that was opened");
  }
}

TEST(memory_may_be_closed_with_the_driver) {
  handle_message message;
  unsigned char *memory = (unsigned char *)device_memory(BYTES, 0);
  CHECK_OK(plinth_ipc_mem_handle(memory, message.ipc_handle, &message.offset));
  const peer other = start_peer("closes_with_the_driver", SOCK_STREAM);
  CHECK_EQ(send(other.socket, &message, sizeof message, 0), sizeof message);
  expect_end(other);
  CHECK_OK(plinth_device_free(memory));
}

/* Shares the memory without its first 1000 bytes with another process. */
static void expect_shared(unsigned char *memory, size_t offset) {
  handle_message message;
  put_pattern(memory + 1000, BYTES - 1000, 1);
  CHECK_OK(plinth_ipc_mem_handle(memory + 1000, message.ipc_handle, &message.offset));
  CHECK_EQ(message.offset, offset + 1000);
  const peer other = start_peer("opens_a_handle", SOCK_STREAM);
  CHECK_EQ(send(other.socket, &message, sizeof message, 0), sizeof message);
  expect_end(other);
  CHECK(has_pattern(memory + 1000, BYTES - 1000, 2));
}

TEST(driver_allocations_have_handles) {
  unsigned char *memory = (unsigned char *)device_memory(BYTES, 0);
  expect_shared(memory, 0);
  CHECK_OK(plinth_device_free(memory));
}

TEST(segments_have_handles) {
  if (!has_segments()) {
    SKIP("is about expandable_segments:False");
  }
  unsigned char *first = alloc_on(BYTES, 0, NULL);
  unsigned char *second = alloc_on(BYTES, 0, NULL);
  expect_shared(first, 0);
  expect_shared(second, (size_t)(second - first));
  release(first);
  release(second);
  expect_nothing_left();
}

TEST(mapped_memory_has_no_handle) {
  if (has_segments()) {
    SKIP("is about mapped memory");
  }
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE] = {7};
  size_t offset = UNTOUCHED;
  unsigned char *block = alloc_on(BYTES, 0, NULL);
  CHECK_STATUS(plinth_ipc_mem_handle(block, ipc_handle, &offset), PLINTH_ERROR_IPC_NOT_SHAREABLE);
  CHECK_MESSAGE("plinth_ipc_send");
  CHECK_EQ(ipc_handle[0], 7);
  CHECK_EQ(offset, UNTOUCHED);
  release(block);
  expect_nothing_left();
}

HELPER(sends) {
  unsigned char *block = alloc_on(BYTES, 0, NULL);
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  expect_to_hear(SOCKET, 'e');
}

TEST(received_memory_has_no_handle) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  const peer other = start_peer("sends", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(other.socket);
  CHECK_STATUS(plinth_ipc_mem_handle(memory.pointer, ipc_handle, &offset), PLINTH_ERROR_IPC_REEXPORT);
  CHECK_STATUS(plinth_ipc_close_mem_handle(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(other.socket, 'e');
  expect_end(other);
}

TEST(a_process_cannot_open_its_own_handle) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  void *opened = UNTOUCHED_POINTER;
  void *memory = device_memory(BYTES, 0);
  CHECK_OK(plinth_ipc_mem_handle(memory, ipc_handle, &offset));
  CHECK_STATUS(plinth_ipc_open_mem_handle(0, ipc_handle, &opened), PLINTH_ERROR_DRIVER);
  CHECK_SAME(opened, UNTOUCHED_POINTER);
  CHECK_STATUS(plinth_ipc_close_mem_handle(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_ipc_close_mem_handle(NULL));
  CHECK_OK(plinth_device_free(memory));
}

TEST(invalid_pointers_and_handles_are_refused) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset = 0;
  void *opened = UNTOUCHED_POINTER;
  memset(ipc_handle, 0, sizeof ipc_handle);
  CHECK_STATUS(plinth_ipc_mem_handle(&offset, ipc_handle, &offset), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_mem_handle(NULL, ipc_handle, &offset), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_mem_handle(&offset, NULL, &offset), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_mem_handle(&offset, ipc_handle, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_open_mem_handle(0, ipc_handle, &opened), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_open_mem_handle(99, ipc_handle, &opened), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_ipc_open_mem_handle(0, NULL, &opened), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_open_mem_handle(0, ipc_handle, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_close_mem_handle(&offset), PLINTH_ERROR_INVALID_POINTER);
  CHECK_SAME(opened, UNTOUCHED_POINTER);
}
