/*
 * Access of one device to all memory of another's: the cache's, a private pool's, and other processes'.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "driver.h"
#include "peering.h"

static void need_peers(void) {
  bool there = false;
  bool back = false;
  need_devices(2);
  CHECK_OK(plinth_can_device_access_peer(1, 0, &there));
  CHECK_OK(plinth_can_device_access_peer(0, 1, &back));
  if (!there || !back) {
    SKIP("the devices cannot access each other");
  }
}

/* A device writes memory of device 0, and reads it back. */
static void expect_reachable_from(int32_t device, void *memory, unsigned char value) {
  plinth_stream_t stream = stream_on(device);
  unsigned char *seen = (unsigned char *)pinned_memory(BLOCK);
  CHECK_OK(plinth_memset(memory, value, BLOCK, stream));
  CHECK_OK(plinth_memcpy(seen, memory, BLOCK, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (size_t index = 0; index < BLOCK; index += 4093) {
    CHECK_EQ(seen[index], value);
  }
  CHECK_OK(plinth_pinned_free(seen));
}

static void expect_reachable(void *memory, unsigned char value) { expect_reachable_from(1, memory, value); }

/* CUmemLocation and cuMemGetAccess, as cuda.h has them. */
typedef struct location {
  int type;
  int id;
} location;

typedef int (*get_access_function)(unsigned long long *flags, const location *place, unsigned long long pointer);

/* What device 1 may do with mapped memory: 0 nothing, 3 read and write. */
static unsigned long long access_of_1(const void *memory) {
  get_access_function get_access;
  const location place = {1, 1};
  unsigned long long flags = 99;
  CHECK_OK(plinth_driver_entry_point("cuMemGetAccess", (void **)&get_access));
  CHECK_EQ(get_access(&flags, &place, (unsigned long long)(uintptr_t)memory), 0);
  return flags;
}

static unsigned char *alloc_in_pool(plinth_pool_id_t pool) {
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  CHECK_OK(plinth_release_pool(0, pool));
  return block;
}

static plinth_pool_id_t new_pool(void) {
  plinth_pool_id_t pool;
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  return pool;
}

TEST(peers_reach_private_pools) {
  need_peers();
  const plinth_pool_id_t early = new_pool();
  const plinth_pool_id_t late = new_pool();
  unsigned char *before = alloc_in_pool(early);
  CHECK_OK(plinth_enable_peer_access(1, 0));
  unsigned char *after = alloc_in_pool(early);
  unsigned char *later = alloc_in_pool(late);
  expect_reachable(before, 1);
  expect_reachable(after, 2);
  expect_reachable(later, 3);
  CHECK_OK(plinth_disable_peer_access(1, 0));
  if (!has_segments()) {
    CHECK_EQ(access_of_1(before), 0);
    CHECK_EQ(access_of_1(later), 0);
  }
  release(before);
  release(after);
  release(later);
  CHECK_OK(plinth_mem_pool_destroy(early));
  CHECK_OK(plinth_mem_pool_destroy(late));
  expect_nothing_left();
}

HELPER(sends_two_blocks) {
  unsigned char *first = alloc_on(BLOCK, 0, NULL);
  unsigned char *second = alloc_on(40 * MIB, 0, NULL);
  CHECK_OK(plinth_ipc_send(SOCKET, first));
  expect_to_hear(SOCKET, 'n');
  CHECK_OK(plinth_ipc_send(SOCKET, second));
  expect_to_hear(SOCKET, 'e');
}

TEST(peers_reach_other_processes_memory) {
  need_peers();
  const peer other = start_peer("sends_two_blocks", SOCK_STREAM);
  const plinth_ipc_memory_t before = receive_from(other.socket);
  CHECK_EQ(before.device, 0);
  if (!has_segments()) {
    CHECK_EQ(access_of_1(before.pointer), 0);
  }
  CHECK_OK(plinth_enable_peer_access(1, 0));
  say(other.socket, 'n');
  const plinth_ipc_memory_t after = receive_from(other.socket);
  if (has_segments()) {
    /* Such memory is the device's that it was received for, here its own, and of no peer's. */
    expect_reachable_from(0, before.pointer, 4);
    if (on_host_device()) {
      CHECK_STATUS(plinth_memset(before.pointer, 5, BLOCK, stream_on(1)), PLINTH_ERROR_INVALID_VALUE);
    }
  } else {
    expect_reachable(before.pointer, 4);
    expect_reachable(after.pointer, 5);
  }
  CHECK_OK(plinth_disable_peer_access(1, 0));
  if (!has_segments()) {
    CHECK_EQ(access_of_1(before.pointer), 0);
    CHECK_EQ(access_of_1(after.pointer), 0);
  }
  CHECK_OK(plinth_ipc_close(before.pointer));
  CHECK_OK(plinth_ipc_close(after.pointer));
  say(other.socket, 'e');
  expect_end(other);
}

TEST(memory_is_received_for_another_device) {
  need_peers();
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  const peer other = start_peer("sends_two_blocks", SOCK_STREAM);
  CHECK_OK(plinth_ipc_receive(other.socket, 1, &memory));
  CHECK_EQ(memory.device, 0);
  expect_reachable(memory.pointer, 6);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(other.socket, 'n');
  CHECK_STATUS(plinth_ipc_receive(other.socket, 99, &memory), PLINTH_ERROR_INVALID_DEVICE);
  say(other.socket, 'e');
  expect_end(other);
}

HELPER(sends_a_block_twice) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  expect_to_hear(SOCKET, 'e');
}

/* Mapped memory is in one place for all devices, memory of a segment in one for each. */
TEST(memory_is_received_for_one_device_and_for_another) {
  need_peers();
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  unsigned char seen = 0;
  const peer other = start_peer("sends_a_block_twice", SOCK_STREAM);
  const plinth_ipc_memory_t own = receive_from(other.socket);
  CHECK_OK(plinth_ipc_receive(other.socket, 1, &memory));
  CHECK_EQ(memory.device, 0);
  CHECK_EQ(memory.size, own.size);
  CHECK_EQ(memory.pointer != own.pointer, has_segments());
  expect_reachable_from(0, own.pointer, 7);
  expect_reachable(memory.pointer, 8);
  fetch(&seen, own.pointer, 1);
  CHECK_EQ(seen, 8);
  CHECK_OK(plinth_ipc_close(own.pointer));
  expect_reachable(memory.pointer, 9);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  say(other.socket, 'e');
  expect_end(other);
}

HELPER(expects_order_on_another_device) {
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  plinth_stream_t stream = stream_on(1);
  unsigned char *seen = (unsigned char *)pinned_memory(KIB);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_ipc_receive(SOCKET, 1, &memory));
  CHECK_OK(plinth_record_stream(memory.pointer, stream));
  CHECK_OK(plinth_memcpy(seen, memory.pointer, KIB, stream));
  CHECK(stays_undone(stream));
  say(SOCKET, 'w');
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(stream_done(stream));
  CHECK_EQ(seen[KIB - 1], 9);
  CHECK_OK(plinth_pinned_free(seen));
}

TEST(the_other_device_s_stream_waits_for_the_sender) {
  need_peers();
  expect_receiver_to_wait("expects_order_on_another_device");
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(0) == 0);
}
