/*
 * Blocks of the caching allocator shared with other processes: content, stream order, sizes and devices.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_IPC=wait */
/* alone: a_device_is_found_whatever_its_number a_hidden_device_is_an_error; sets the environment */
#include "driver.h"
#include "peering.h"

#include <sys/resource.h>

/* ---- content */

HELPER(reads_and_writes) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_EQ(memory.size, BLOCK);
  CHECK_EQ(memory.offset, 0);
  CHECK_EQ(memory.device, 0);
  CHECK(has_pattern(memory.pointer, BLOCK, 1));
  put_pattern(memory.pointer, BLOCK, 2);
  say(SOCKET, 'w');
  expect_to_hear(SOCKET, 'c');
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_EQ(reserved(0), 0);
}

/* The close waits for the stream, so other streams may use what it wrote. */
HELPER(uses_another_stream_after_the_close) {
  plinth_stream_t stream = stream_on(0), other = stream_on(0);
  unsigned char *own = alloc_on(KIB, 0, stream);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_OK(plinth_memcpy(own, memory.pointer, KIB, stream));
  CHECK_STATUS(plinth_memset(own, 0, KIB, other), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_OK(plinth_record_stream(own, other));
  CHECK_OK(plinth_memset(own, 0, KIB, other));
  release(own);
}

TEST(a_close_is_an_order_for_the_sanitizer) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  const peer receiver = start_peer("uses_another_stream_after_the_close", SOCK_STREAM);
  CHECK_OK(plinth_ipc_send(receiver.socket, block));
  expect_end(receiver);
  release(block);
}

static void expect_shared_through(int type) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  const peer other = start_peer("reads_and_writes", type);
  put_pattern(block, BLOCK, 1);
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_to_hear(other.socket, 'w');
  CHECK(has_pattern(block, BLOCK, 2));
  say(other.socket, 'c');
  expect_end(other);
  release(block);
  expect_all_freed();
}

TEST(another_process_has_the_same_memory) { expect_shared_through(SOCK_STREAM); }

TEST(packets_carry_memory) { expect_shared_through(SOCK_SEQPACKET); }

HELPER(receives_the_middle_of_a_block) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_EQ(memory.offset, 1000);
  CHECK_EQ(memory.size, 5000 - 1000);
  CHECK(has_pattern((unsigned char *)memory.pointer - 1000, 5000, 3));
  const plinth_ipc_memory_t whole = receive_from(SOCKET);
  CHECK_SAME(whole.pointer, (unsigned char *)memory.pointer - 1000);
  CHECK_EQ(whole.size, 5000);
  CHECK_OK(plinth_ipc_close((unsigned char *)memory.pointer + 3999));
  CHECK_OK(plinth_ipc_close(whole.pointer));
  CHECK_STATUS(plinth_ipc_close(whole.pointer), PLINTH_ERROR_INVALID_POINTER);
}

TEST(an_address_within_a_block_is_sent_with_its_offset) {
  unsigned char *before = alloc_on(700, 0, NULL);
  unsigned char *block = alloc_on(5000, 0, NULL);
  const peer other = start_peer("receives_the_middle_of_a_block", SOCK_STREAM);
  put_pattern(block, 5000, 3);
  CHECK_OK(plinth_ipc_send(other.socket, block + 1000));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  /* Bytes after the requested size are not part of the block. */
  CHECK_STATUS(plinth_ipc_send(other.socket, block + 5000), PLINTH_ERROR_INVALID_POINTER);
  /* Not sockets: an unused descriptor and an invalid one. */
  CHECK_STATUS(plinth_ipc_send(0x7FFFFFFF, block), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_send(-1, block), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("descriptor -1 is not a Unix socket");
  expect_end(other);
  release(before);
  release(block);
  expect_all_freed();
}

/* ---- order */

HELPER(waits_for_the_sender) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = (unsigned char *)pinned_memory(KIB);
  CHECK_OK(plinth_set_stream(stream));
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_OK(plinth_memcpy(pinned, memory.pointer, KIB, stream));
  CHECK(stays_undone(stream));
  say(SOCKET, 'w');
  /* The close waits for the copy, and so for the sender. */
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(stream_done(stream));
  CHECK_EQ(pinned[0], 9);
  CHECK_EQ(pinned[KIB - 1], 9);
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(the_receivers_stream_waits_for_the_senders) {
  const char *setting = getenv("PLINTH_IPC");
  if (setting != NULL) {
    SKIP("is about events");
  }
  expect_receiver_to_wait("waits_for_the_sender");
  expect_all_freed();
}

TEST(a_sender_can_synchronize_instead) {
  const char *setting = getenv("PLINTH_IPC");
  if (setting == NULL || strcmp(setting, "wait") != 0) {
    SKIP("is about PLINTH_IPC=wait");
  }
  int ends[2];
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  unsigned char *block = alloc_on(BLOCK, 0, stream);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  gate *held = gate_shut(stream);
  const pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK(gate_is_open(held));
  CHECK(stream_done(stream));
  CHECK(pthread_join(opener, NULL) == 0);
  release(block);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_freed();
}

/* ---- large blocks and many blocks */

#define LARGE (290 * MIB)

HELPER(receives_a_large_block) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_EQ(memory.size, LARGE);
  for (size_t at = 0; at < LARGE; at += 2 * MIB) {
    CHECK(has_pattern((unsigned char *)memory.pointer + at, KIB, (unsigned)(at / MIB)));
  }
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

/* The block has so many handles that its message is sent in several parts. */
TEST(a_block_of_many_handles_is_sent_in_parts) {
  limit_memory(300 * MIB, 0);
  unsigned char *block = alloc_on(LARGE, 0, NULL);
  for (size_t at = 0; at < LARGE; at += 2 * MIB) {
    put_pattern(block + at, KIB, (unsigned)(at / MIB));
  }
  const peer stream = start_peer("receives_a_large_block", SOCK_STREAM);
  const peer packets = start_peer("receives_a_large_block", SOCK_SEQPACKET);
  const size_t before = open_descriptors();
  CHECK_OK(plinth_ipc_send(stream.socket, block));
  CHECK_OK(plinth_ipc_send(packets.socket, block));
  CHECK(open_descriptors() <= before + 2);
  expect_end(stream);
  expect_end(packets);
  release(block);
  lift_limit(0);
  expect_all_freed();
}

enum { MANY = 600 };

static void allow_few_descriptors(void) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  limit.rlim_cur = 300;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

HELPER(holds_many) {
  plinth_ipc_memory_t memories[MANY];
  uint64_t mapped = 0;
  allow_few_descriptors();
  for (int index = 0; index < MANY; index++) {
    memories[index] = receive_from(SOCKET);
    say(SOCKET, 'n');
  }
  for (int index = 0; index < MANY; index++) {
    CHECK(has_pattern(memories[index].pointer, 2 * KIB, (unsigned)index));
  }
  if (on_host_device() && !has_segments()) {
    /* The blocks share segments, so that a few mappings contain them all. */
    CHECK_OK(plinth_driver_call_count("cuMemMap", &mapped));
    CHECK(mapped <= 4);
  }
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  for (int index = 0; index < MANY; index++) {
    CHECK_OK(plinth_ipc_close(memories[(index * 7) % MANY].pointer));
  }
  if (on_host_device()) {
    CHECK_EQ(host_usage().mappings, 0);
  }
}

TEST(many_blocks_need_few_descriptors) {
  unsigned char *blocks[MANY];
  const peer other = start_peer("holds_many", SOCK_STREAM);
  allow_few_descriptors();
  for (int index = 0; index < MANY; index++) {
    blocks[index] = alloc_on(2 * KIB, 0, NULL);
    put_pattern(blocks[index], 2 * KIB, (unsigned)index);
    CHECK_OK(plinth_ipc_send(other.socket, blocks[index]));
    expect_to_hear(other.socket, 'n');
  }
  expect_to_hear(other.socket, 'h');
  CHECK(open_descriptors() < 200);
  for (int index = 0; index < MANY; index++) {
    release(blocks[index]);
  }
  CHECK_EQ(allocated(0), 0);
  say(other.socket, 'c');
  expect_end(other);
  expect_all_freed();
}

/* ---- devices */

HELPER(finds_its_device) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_EQ(memory.device, 0);
  CHECK(has_pattern(memory.pointer, BLOCK, 7));
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

TEST(a_device_is_found_whatever_its_number) {
  need_devices(2);
  if (getenv("CUDA_VISIBLE_DEVICES") != NULL) {
    SKIP("the devices are chosen already");
  }
  unsigned char *block = alloc_on(BLOCK, 1, NULL);
  setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
  const peer other = start_peer("finds_its_device", SOCK_STREAM);
  CHECK_OK(plinth_set_device(1));
  put_pattern(block, BLOCK, 7);
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_end(other);
  release(block);
  expect_all_freed();
}

HELPER(has_the_device_hidden) {
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  CHECK_STATUS(plinth_ipc_receive(SOCKET, -1, &memory), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("UUID");
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  /* The next message can be received nevertheless. */
  memory = receive_from(SOCKET);
  CHECK(has_pattern(memory.pointer, BLOCK, 7));
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

TEST(a_hidden_device_is_an_error) {
  need_devices(2);
  if (getenv("CUDA_VISIBLE_DEVICES") != NULL) {
    SKIP("the devices are chosen already");
  }
  unsigned char *hidden = alloc_on(BLOCK, 1, NULL);
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const peer other = start_peer("has_the_device_hidden", SOCK_STREAM);
  put_pattern(block, BLOCK, 7);
  CHECK_OK(plinth_ipc_send(other.socket, hidden));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_end(other);
  release(hidden);
  release(block);
  expect_all_freed();
}
