/*
 * Memory of the caching allocator shared with other processes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_IPC=wait */
#include "driver.h"
#include "peering.h"

#include <sys/resource.h>

#define BLOCK (3 * MIB)

static bool has_segments(void) {
  const char *chosen = getenv("PLINTH_ALLOC_CONF");
  return chosen != NULL && strstr(chosen, "False") != NULL;
}

/* Nothing is anybody's any more; the other processes may need a moment to end. */
static void expect_all_back(void) {
  for (int32_t device = 0; device < device_count(); device++) {
    EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(device) == 0);
  }
  expect_nothing_left();
}

/* ---- the same memory */

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
  expect_all_back();
}

TEST(another_process_has_the_same_memory) { expect_shared_through(SOCK_STREAM); }

TEST(packets_carry_memory) { expect_shared_through(SOCK_SEQPACKET); }

TEST(datagrams_carry_memory) { expect_shared_through(SOCK_DGRAM); }

HELPER(looks_into_the_middle) {
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

TEST(a_place_in_a_block_is_sent_with_the_block) {
  unsigned char *before = alloc_on(700, 0, NULL);
  unsigned char *block = alloc_on(5000, 0, NULL);
  const peer other = start_peer("looks_into_the_middle", SOCK_STREAM);
  put_pattern(block, 5000, 3);
  CHECK_OK(plinth_ipc_send(other.socket, block + 1000));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  /* What lies behind the size that was asked for is nobody's. */
  CHECK_STATUS(plinth_ipc_send(other.socket, block + 5000), PLINTH_ERROR_INVALID_POINTER);
  expect_end(other);
  release(before);
  release(block);
  expect_all_back();
}

/* ---- who holds what */

HELPER(holds_until_told) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK(has_pattern(memory.pointer, BLOCK, 4));
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
}

/* Sends a block to so many holders, and frees it. */
static unsigned char *freed_block_of(peer *holders, int count) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 4);
  for (int index = 0; index < count; index++) {
    holders[index] = start_peer("holds_until_told", SOCK_SEQPACKET);
    CHECK_OK(plinth_ipc_send(holders[index].socket, block));
    expect_to_hear(holders[index].socket, 'h');
  }
  release(block);
  CHECK_EQ(allocated(0), 0);
  return block;
}

static void expect_still_held(const void *block) {
  CHECK_OK(plinth_ipc_collect());
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) >= BLOCK);
  CHECK(!comes_back(block, BLOCK, 0, NULL));
  CHECK_OK(plinth_empty_cache());
  expect_sound();
}

TEST(a_freed_block_waits_for_its_holders) {
  peer holders[3];
  unsigned char *block = freed_block_of(holders, 3);
  expect_still_held(block);
  for (int index = 0; index < 3; index++) {
    expect_still_held(block);
    say(holders[index].socket, 'c');
    expect_to_hear(holders[index].socket, 'c');
  }
  CHECK_OK(plinth_ipc_collect());
  CHECK(comes_back(block, BLOCK, 0, NULL));
  for (int index = 0; index < 3; index++) {
    say(holders[index].socket, 'e');
    expect_end(holders[index]);
  }
  expect_all_back();
}

TEST(a_killed_holder_holds_nothing) {
  peer holders[2];
  unsigned char *block = freed_block_of(holders, 2);
  expect_killed(holders[0]);
  expect_still_held(block);
  expect_killed(holders[1]);
  expect_all_back();
}

TEST(memory_that_is_short_is_collected) {
  peer holder;
  limit_memory(32 * MIB, 0);
  CHECK_EQ(allocated(0), 0);
  unsigned char *block = alloc_on(20 * MIB, 0, NULL);
  void *second = UNTOUCHED_POINTER;
  holder = start_peer("holds_until_told", SOCK_STREAM);
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  expect_to_hear(holder.socket, 'h');
  release(block);
  CHECK_STATUS(plinth_caching_allocator_alloc(20 * MIB, 0, NULL, &second), PLINTH_ERROR_OUT_OF_MEMORY);
  expect_killed(holder);
  /* Nobody collects but the allocator itself. */
  EVENTUALLY(plinth_caching_allocator_alloc(20 * MIB, 0, NULL, &second) == PLINTH_OK);
  release(second);
  lift_limit(0);
  expect_all_back();
}

TEST(a_message_that_nobody_takes_holds_nothing) {
  int ends[2];
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK_OK(plinth_ipc_send(ends[0], block));
  release(block);
  expect_still_held(block);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_back();
}

TEST(a_block_can_be_sent_again_and_used_again) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 4);
  for (int round = 0; round < 3; round++) {
    const peer holder = start_peer("holds_until_told", SOCK_STREAM);
    CHECK_OK(plinth_ipc_send(holder.socket, block));
    expect_to_hear(holder.socket, 'h');
    say(holder.socket, 'c');
    expect_to_hear(holder.socket, 'c');
    CHECK_OK(plinth_ipc_collect());
    say(holder.socket, 'e');
    expect_end(holder);
  }
  release(block);
  /* Nobody holds it, so it is free at once. */
  CHECK(comes_back(block, BLOCK, 0, NULL));
  expect_all_back();
}

HELPER(sends_and_waits) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 5);
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  expect_to_hear(SOCKET, 'e');
}

TEST(memory_outlives_its_sender) {
  const peer sender = start_peer("sends_and_waits", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(sender.socket);
  expect_killed(sender);
  CHECK(has_pattern(memory.pointer, BLOCK, 5));
  put_pattern(memory.pointer, BLOCK, 6);
  CHECK(has_pattern(memory.pointer, BLOCK, 6));
  CHECK_OK(plinth_ipc_close(memory.pointer));
  expect_all_back();
}

TEST(received_memory_is_not_this_process_s) {
  int ends[2];
  void *moved = UNTOUCHED_POINTER;
  const peer sender = start_peer("sends_and_waits", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(sender.socket);
  plinth_ipc_export_t message;
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[0], memory.pointer), PLINTH_ERROR_IPC_REEXPORT);
  CHECK_STATUS(plinth_ipc_export(memory.pointer, &message), PLINTH_ERROR_IPC_REEXPORT);
  CHECK_STATUS(plinth_caching_allocator_delete(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_device_free(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(reserved(0), 0);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_close(&moved), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_ipc_close(NULL));
  say(sender.socket, 'e');
  expect_end(sender);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* ---- order */

HELPER(waits_behind_the_sender) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *pinned = (unsigned char *)pinned_memory(KIB);
  CHECK_OK(plinth_set_stream(stream));
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_OK(plinth_memcpy(pinned, memory.pointer, KIB, stream));
  CHECK(stays_undone(stream));
  say(SOCKET, 'w');
  /* The close waits for the copy, and with it for the sender. */
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(stream_done(stream));
  CHECK_EQ(pinned[0], 9);
  CHECK_EQ(pinned[KIB - 1], 9);
  CHECK_OK(plinth_pinned_free(pinned));
}

TEST(the_receiver_s_stream_waits_for_the_sender_s) {
  const char *chosen = getenv("PLINTH_IPC");
  if (chosen != NULL) {
    SKIP("is about events");
  }
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_set_stream(stream));
  unsigned char *block = alloc_on(BLOCK, 0, stream);
  const peer other = start_peer("waits_behind_the_sender", SOCK_STREAM);
  CHECK_OK(plinth_memset(block, 1, BLOCK, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memset(block, 9, BLOCK, stream));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_to_hear(other.socket, 'w');
  gate_open(held);
  expect_end(other);
  release(block);
  expect_all_back();
}

TEST(a_sender_can_wait_itself) {
  const char *chosen = getenv("PLINTH_IPC");
  if (chosen == NULL || strcmp(chosen, "wait") != 0) {
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
  expect_all_back();
}

TEST(the_last_close_waits_for_recorded_streams) {
  const peer sender = start_peer("sends_and_waits", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(sender.socket);
  plinth_stream_t stream = stream_on(0);
  CHECK_OK(plinth_record_stream(memory.pointer, stream));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  const pthread_t opener = gate_open_soon(held);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(gate_is_open(held));
  CHECK(stream_done(stream));
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_STATUS(plinth_record_stream(memory.pointer, stream), PLINTH_ERROR_INVALID_POINTER);
  say(sender.socket, 'e');
  expect_end(sender);
}

/* ---- much of it */

#define LARGE (290 * MIB)

HELPER(sees_a_large_block) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  CHECK_EQ(memory.size, LARGE);
  for (size_t at = 0; at < LARGE; at += 2 * MIB) {
    CHECK(has_pattern((unsigned char *)memory.pointer + at, KIB, (unsigned)(at / MIB)));
  }
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

/* So many handles that a message about them has several parts. */
TEST(a_block_of_many_handles_is_sent_in_parts) {
  limit_memory(300 * MIB, 0);
  unsigned char *block = alloc_on(LARGE, 0, NULL);
  for (size_t at = 0; at < LARGE; at += 2 * MIB) {
    put_pattern(block + at, KIB, (unsigned)(at / MIB));
  }
  const peer stream = start_peer("sees_a_large_block", SOCK_STREAM);
  const peer packets = start_peer("sees_a_large_block", SOCK_SEQPACKET);
  const size_t before = open_descriptors();
  CHECK_OK(plinth_ipc_send(stream.socket, block));
  CHECK_OK(plinth_ipc_send(packets.socket, block));
  CHECK(open_descriptors() <= before + 2);
  expect_end(stream);
  expect_end(packets);
  release(block);
  lift_limit(0);
  expect_all_back();
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
    /* The blocks lie side by side, and so few mappings hold them all. */
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
  expect_all_back();
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
  expect_all_back();
}

HELPER(does_not_see_the_device) {
  plinth_ipc_memory_t memory = {UNTOUCHED_POINTER, 1, 2, 3, 4};
  CHECK_STATUS(plinth_ipc_receive(SOCKET, -1, &memory), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("UUID");
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  /* The next message is in order all the same. */
  memory = receive_from(SOCKET);
  CHECK(has_pattern(memory.pointer, BLOCK, 7));
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

TEST(a_device_that_is_not_there_is_named) {
  need_devices(2);
  if (getenv("CUDA_VISIBLE_DEVICES") != NULL) {
    SKIP("the devices are chosen already");
  }
  unsigned char *hidden = alloc_on(BLOCK, 1, NULL);
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const peer other = start_peer("does_not_see_the_device", SOCK_STREAM);
  put_pattern(block, BLOCK, 7);
  CHECK_OK(plinth_ipc_send(other.socket, hidden));
  CHECK_OK(plinth_ipc_send(other.socket, block));
  expect_end(other);
  release(hidden);
  release(block);
  expect_all_back();
}

/* ---- a channel of the program's own */

enum { FIRST_INHERITED = 100 };

HELPER(imports_what_it_inherited) {
  uint32_t sizes[2];
  int32_t descriptors[64];
  unsigned char bytes[4096];
  plinth_ipc_memory_t memory;
  CHECK_EQ(recv(SOCKET, sizes, sizeof sizes, MSG_WAITALL), sizeof sizes);
  CHECK(sizes[0] <= sizeof bytes && sizes[1] <= 64);
  CHECK_EQ(recv(SOCKET, bytes, sizes[0], MSG_WAITALL), sizes[0]);
  for (uint32_t index = 0; index < sizes[1]; index++) {
    descriptors[index] = FIRST_INHERITED + (int32_t)index;
  }
  CHECK_STATUS(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1] - 1, -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_import(bytes, sizes[0] - 1, descriptors, sizes[1], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_import(bytes, 10, descriptors, sizes[1], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  bytes[40] ^= 1;
  CHECK_STATUS(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  bytes[40] ^= 1;
  CHECK_OK(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory));
  for (uint32_t index = 0; index < sizes[1]; index++) {
    CHECK(close(descriptors[index]) == 0);
  }
  CHECK_EQ(memory.size, BLOCK);
  CHECK(has_pattern(memory.pointer, BLOCK, 8));
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

TEST(a_program_can_bring_the_message_itself) {
  plinth_ipc_export_t message;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 8);
  const size_t before = open_descriptors();
  CHECK_OK(plinth_ipc_export(block, &message));
  CHECK(message.size > 0 && message.descriptor_count > 0 && message.descriptor_count <= 64);
  for (size_t index = 0; index < message.descriptor_count; index++) {
    const int inherited = FIRST_INHERITED + (int)index;
    CHECK(fcntl(inherited, F_GETFD) == -1);
    CHECK(fcntl(message.descriptors[index], F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(dup2(message.descriptors[index], inherited), inherited);
  }
  const peer other = start_peer("imports_what_it_inherited", SOCK_STREAM);
  for (size_t index = 0; index < message.descriptor_count; index++) {
    CHECK(close(FIRST_INHERITED + (int)index) == 0);
  }
  const uint32_t sizes[2] = {(uint32_t)message.size, (uint32_t)message.descriptor_count};
  CHECK_EQ(send(other.socket, sizes, sizeof sizes, 0), sizeof sizes);
  CHECK_EQ(send(other.socket, message.bytes, message.size, 0), message.size);
  expect_to_hear(other.socket, 'h');
  CHECK_OK(plinth_ipc_export_free(&message));
  CHECK(message.bytes == NULL && message.descriptors == NULL);
  CHECK_OK(plinth_ipc_export_free(&message));
  CHECK_OK(plinth_ipc_export_free(NULL));
  release(block);
  expect_still_held(block);
  say(other.socket, 'c');
  expect_end(other);
  expect_all_back();
  CHECK(open_descriptors() <= before + 1);
}

TEST(a_message_holds_the_block_until_it_is_freed) {
  plinth_ipc_export_t message;
  plinth_ipc_memory_t memory = {UNTOUCHED_POINTER, 1, 2, 3, 4};
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  /* A process has its own memory already. */
  CHECK_STATUS(plinth_ipc_import(message.bytes, message.size, message.descriptors, message.descriptor_count, -1, &memory),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  release(block);
  expect_still_held(block);
  CHECK_OK(plinth_ipc_export_free(&message));
  expect_all_back();
}

/* ---- pools that sleep */

TEST(a_pool_does_not_sleep_under_its_holders) {
  int ends[2];
  plinth_graph_t graph = NULL;
  plinth_stream_t stream = stream_on(0);
  if (has_segments()) {
    SKIP("segments do not sleep");
  }
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED));
  unsigned char *block = alloc_on(BLOCK, 0, stream);
  CHECK_OK(plinth_memset(block, 1, BLOCK, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK_STATUS(plinth_graph_sleep(graph), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("other processes");
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  CHECK_OK(plinth_graph_sleep(graph));
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_graph_wake(graph));
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK_OK(plinth_graph_destroy(graph));
  release(block);
  expect_still_held(block);
  /* The pool is gone with the last holder. */
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_back();
}

/* ---- what is refused */

TEST(what_is_no_block_is_refused) {
  int ends[2];
  plinth_ipc_export_t message = {UNTOUCHED_POINTER, 1, UNTOUCHED_POINTER, 2};
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  void *driver_s = device_memory(KIB, 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[0], NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_export(NULL, &message), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_export(block, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_send(ends[0], &message), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_send(ends[0], driver_s), PLINTH_ERROR_INVALID_POINTER);
  release(block);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_export(block, &message), PLINTH_ERROR_INVALID_POINTER);
  CHECK_SAME(message.bytes, UNTOUCHED_POINTER);
  CHECK_OK(plinth_device_free(driver_s));
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_back();
}

TEST(what_is_no_socket_is_refused) {
  int ends[2];
  plinth_ipc_memory_t memory;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK(pipe(ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[1], block), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_receive(ends[0], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[1], block), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_ipc_receive(-1, -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_receive(ends[0], -1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
  CHECK_STATUS(plinth_ipc_receive(ends[0], -1, &memory), PLINTH_ERROR_SYSTEM);
  CHECK(close(ends[1]) == 0);
  CHECK_STATUS(plinth_ipc_receive(ends[0], -1, &memory), PLINTH_ERROR_IPC_PEER_GONE);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_IPC_PEER_GONE);
  CHECK(close(ends[0]) == 0);
  release(block);
  expect_all_back();
}

TEST(bytes_that_are_no_message_are_refused) {
  int ends[2];
  unsigned char bytes[4096];
  plinth_ipc_memory_t memory = {UNTOUCHED_POINTER, 1, 2, 3, 4};
  const int32_t descriptors[2] = {0, 0};
  for (int round = 0; round < 50; round++) {
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    pattern_fill(bytes, sizeof bytes, (unsigned)round);
    CHECK_EQ(send(ends[1], bytes, sizeof bytes, 0), sizeof bytes);
    CHECK_STATUS(plinth_ipc_receive(ends[0], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
    CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK_STATUS(plinth_ipc_import(bytes, (size_t)round * 80, descriptors, 2, -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_STATUS(plinth_ipc_import(NULL, 1, descriptors, 2, -1, &memory), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_import(bytes, 1, NULL, 2, -1, &memory), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_import(bytes, 1, descriptors, 2, -1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
}

HELPER(says_half_a_message) {
  unsigned char bytes[300];
  plinth_ipc_export_t message;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  memcpy(bytes, message.bytes, 100);
  CHECK_EQ(send(SOCKET, bytes, 100, 0), 100);
}

TEST(half_a_message_is_none) {
  plinth_ipc_memory_t memory;
  const peer other = start_peer("says_half_a_message", SOCK_STREAM);
  CHECK_STATUS(plinth_ipc_receive(other.socket, -1, &memory), PLINTH_ERROR_IPC_PEER_GONE);
  expect_end(other);
}

TEST(a_capturing_stream_shares_nothing) {
  int ends[2];
  plinth_graph_t graph = NULL;
  plinth_stream_t stream = stream_on(0);
  unsigned char *block = alloc_on(BLOCK, 0, stream);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED));
  CHECK_OK(plinth_memset(block, 1, BLOCK, stream));
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  release(block);
  expect_all_back();
}
