/*
 * Peer access to memory of another device: of the cache, of private pools, of other processes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "driver.h"
#include "peering.h"

static void need_peers(void) {
  bool forward = false;
  bool backward = false;
  need_devices(2);
  CHECK_OK(plinth_can_device_access_peer(1, 0, &forward));
  CHECK_OK(plinth_can_device_access_peer(0, 1, &backward));
  if (!forward || !backward) {
    SKIP("the devices cannot access each other");
  }
}

/* A device writes memory of device 0 and reads it. */
static void expect_access_from(int32_t device, void *memory, unsigned char value) {
  plinth_stream_t stream = stream_on(device);
  unsigned char *host = (unsigned char *)pinned_memory(BLOCK);
  CHECK_OK(plinth_memset(memory, value, BLOCK, stream));
  CHECK_OK(plinth_memcpy(host, memory, BLOCK, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  for (size_t index = 0; index < BLOCK; index += 4093) {
    CHECK_EQ(host[index], value);
  }
  CHECK_OK(plinth_pinned_free(host));
}

static void expect_access(void *memory, unsigned char value) { expect_access_from(1, memory, value); }

/* CUmemLocation and cuMemGetAccess, as cuda.h declares them. */
typedef struct location {
  int type;
  int id;
} location;

typedef int (*get_access_function)(unsigned long long *flags, const location *place, unsigned long long pointer);

/* Returns device 1's access to mapped memory: 0 is none, 3 is read and write. */
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

TEST(peers_access_private_pools) {
  need_peers();
  const plinth_pool_id_t early = new_pool();
  const plinth_pool_id_t late = new_pool();
  unsigned char *before = alloc_in_pool(early);
  CHECK_OK(plinth_enable_peer_access(1, 0));
  unsigned char *after = alloc_in_pool(early);
  unsigned char *later = alloc_in_pool(late);
  expect_access(before, 1);
  expect_access(after, 2);
  expect_access(later, 3);
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

TEST(peer_access_changes_during_a_capture) {
  need_peers();
  unsigned char *memory = alloc_on(BLOCK, 0, NULL);
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_OK(plinth_disable_peer_access(1, 0));
  CHECK_OK(plinth_enable_peer_access(1, 0));
  CHECK_OK(plinth_graph_capture_end(graph));
  expect_access(memory, 4);
  CHECK_OK(plinth_disable_peer_access(1, 0));
  CHECK_OK(plinth_graph_destroy(graph));
  release(memory);
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

TEST(peers_access_memory_of_other_processes) {
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
    /* Only the device for which such memory was received can access it, here device 0. */
    expect_access_from(0, before.pointer, 4);
    if (on_host_device()) {
      CHECK_STATUS(plinth_memset(before.pointer, 5, BLOCK, stream_on(1)), PLINTH_ERROR_INVALID_VALUE);
    }
  } else {
    expect_access(before.pointer, 4);
    expect_access(after.pointer, 5);
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
  expect_access(memory.pointer, 6);
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

/* Mapped memory has one address for all devices, memory of a segment one for each device. */
TEST(memory_is_received_for_two_devices) {
  need_peers();
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  unsigned char host = 0;
  const peer other = start_peer("sends_a_block_twice", SOCK_STREAM);
  const plinth_ipc_memory_t own = receive_from(other.socket);
  CHECK_OK(plinth_ipc_receive(other.socket, 1, &memory));
  CHECK_EQ(memory.device, 0);
  CHECK_EQ(memory.size, own.size);
  CHECK_EQ(memory.pointer != own.pointer, has_segments());
  expect_access_from(0, own.pointer, 7);
  expect_access(memory.pointer, 8);
  fetch(&host, own.pointer, 1);
  CHECK_EQ(host, 8);
  CHECK_OK(plinth_ipc_close(own.pointer));
  expect_access(memory.pointer, 9);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  say(other.socket, 'e');
  expect_end(other);
}

HELPER(checks_order_on_another_device) {
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  plinth_stream_t stream = stream_on(1);
  unsigned char *host = (unsigned char *)pinned_memory(KIB);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_ipc_receive(SOCKET, 1, &memory));
  CHECK_OK(plinth_record_stream(memory.pointer, stream));
  CHECK_OK(plinth_memcpy(host, memory.pointer, KIB, stream));
  CHECK(stays_undone(stream));
  say(SOCKET, 'w');
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(stream_done(stream));
  CHECK_EQ(host[KIB - 1], 9);
  CHECK_OK(plinth_pinned_free(host));
}

TEST(another_devices_stream_waits_for_the_sender) {
  need_peers();
  expect_receiver_to_wait("checks_order_on_another_device");
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(0) == 0);
}
