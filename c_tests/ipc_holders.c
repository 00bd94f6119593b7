/*
 * How long receivers hold shared memory: until the last one closes it or ends.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_IPC=wait */
#include "driver.h"
#include "peering.h"

HELPER(holds_until_requested) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK(has_pattern(memory.pointer, BLOCK, 4));
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
}

/* Sends a block to `count` holders, and frees it. */
static unsigned char *freed_block_of(peer *holders, int count) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 4);
  for (int index = 0; index < count; index++) {
    holders[index] = start_peer("holds_until_requested", SOCK_SEQPACKET);
    CHECK_OK(plinth_ipc_send(holders[index].socket, block));
    expect_to_hear(holders[index].socket, 'h');
  }
  release(block);
  CHECK_EQ(allocated(0), 0);
  return block;
}

enum { MESSAGES = 20 };

HELPER(receives_and_closes_all) {
  plinth_ipc_memory_t memories[MESSAGES];
  for (int index = 0; index < MESSAGES; index++) {
    memories[index] = receive_from(SOCKET);
  }
  say(SOCKET, 'r');
  for (int index = 0; index < MESSAGES; index++) {
    CHECK_OK(plinth_ipc_close(memories[index].pointer));
  }
}

/* Sends blocks whose contents are not yet written, so that each message has an event. */
static void send_unfinished_blocks(void) {
  unsigned char *blocks[MESSAGES];
  plinth_stream_t stream = stream_on(0);
  const peer other = start_peer("receives_and_closes_all", SOCK_STREAM);
  CHECK_OK(plinth_set_stream(stream));
  gate *held = gate_shut(stream);
  for (int index = 0; index < MESSAGES; index++) {
    blocks[index] = alloc_on(BLOCK, 0, stream);
    CHECK_OK(plinth_memset(blocks[index], index, BLOCK, stream));
    CHECK_OK(plinth_ipc_send(other.socket, blocks[index]));
  }
  expect_to_hear(other.socket, 'r');
  gate_open(held);
  expect_end(other);
  for (int index = 0; index < MESSAGES; index++) {
    release(blocks[index]);
  }
  expect_all_freed();
}

TEST(the_events_of_messages_are_closed_with_their_blocks) {
  const char *setting = getenv("PLINTH_IPC");
  if (setting != NULL) {
    SKIP("is about events");
  }
  /* The library keeps its file of holders, and the driver may keep descriptors. */
  CHECK_OK(plinth_init());
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  CHECK_OK(plinth_ipc_export(block, &message));
  CHECK_OK(plinth_ipc_export_free(&message));
  release(block);
  expect_all_freed();
  const size_t before = open_descriptors();
  send_unfinished_blocks();
  /* The driver of a GPU may open some for its first events. */
  CHECK(open_descriptors() <= before + (on_host_device() ? 0 : 3));
}

TEST(a_freed_block_is_reused_after_its_last_holder) {
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
  expect_all_freed();
}

HELPER(holds_with_a_child) {
  char word = 0;
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  int ends[2];
  CHECK(pipe(ends) == 0);
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(ends[1]);
    _exit(read(ends[0], &word, 1) == 0 ? 0 : 1);
  }
  CHECK(close(ends[0]) == 0);
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
  CHECK(close(ends[1]) == 0);
  CHECK_EQ(waitpid(child, NULL, 0), child);
}

/* A child that the holder forked inherits its descriptors. They must not hold the block when the holder has closed it. */
TEST(a_holders_child_holds_nothing) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  const peer holder = start_peer("holds_with_a_child", SOCK_STREAM);
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  expect_to_hear(holder.socket, 'c');
  release(block);
  CHECK(comes_back(block, BLOCK, 0, NULL));
  say(holder.socket, 'e');
  expect_end(holder);
  expect_all_freed();
}

TEST(a_killed_holder_holds_nothing) {
  peer holders[2];
  unsigned char *block = freed_block_of(holders, 2);
  expect_killed(holders[0]);
  expect_still_held(block);
  expect_killed(holders[1]);
  expect_all_freed();
}

HELPER(holds_for_two_devices) {
  plinth_ipc_memory_t first = PLINTH_IPC_MEMORY_INIT;
  plinth_ipc_memory_t second = PLINTH_IPC_MEMORY_INIT;
  CHECK_OK(plinth_ipc_receive(SOCKET, 0, &first));
  CHECK_OK(plinth_ipc_receive(SOCKET, 1, &second));
  CHECK_OK(plinth_ipc_close(first.pointer));
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK(has_pattern(second.pointer, BLOCK, 4));
  CHECK_OK(plinth_ipc_close(second.pointer));
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
}

/* A pointer for another device holds the block as well. */
TEST(a_block_is_held_for_each_device) {
  bool possible = false;
  need_devices(2);
  CHECK_OK(plinth_can_device_access_peer(1, 0, &possible));
  if (!possible) {
    SKIP("the devices cannot access each other");
  }
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 4);
  const peer holder = start_peer("holds_for_two_devices", SOCK_STREAM);
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  expect_to_hear(holder.socket, 'h');
  release(block);
  expect_still_held(block);
  say(holder.socket, 'c');
  expect_to_hear(holder.socket, 'c');
  expect_all_freed();
  say(holder.socket, 'e');
  expect_end(holder);
}

TEST(a_shortage_collects_closed_blocks) {
  peer holder;
  limit_memory(32 * MIB, 0);
  CHECK_EQ(allocated(0), 0);
  unsigned char *block = alloc_on(20 * MIB, 0, NULL);
  void *second = UNTOUCHED_POINTER;
  holder = start_peer("holds_until_requested", SOCK_STREAM);
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  expect_to_hear(holder.socket, 'h');
  release(block);
  CHECK_STATUS(plinth_caching_allocator_alloc(20 * MIB, 0, NULL, &second), PLINTH_ERROR_OUT_OF_MEMORY);
  expect_killed(holder);
  /* The allocator itself collects. */
  EVENTUALLY(plinth_caching_allocator_alloc(20 * MIB, 0, NULL, &second) == PLINTH_OK);
  release(second);
  lift_limit(0);
  expect_all_freed();
}

TEST(an_unreceived_message_holds_until_its_socket_closes) {
  int ends[2];
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_OK(plinth_ipc_send(ends[0], block));
  CHECK_OK(plinth_ipc_send(ends[0], block));
  release(block);
  expect_still_held(block);
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_freed();
}

TEST(a_block_can_be_sent_again_and_used_again) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 4);
  for (int round = 0; round < 3; round++) {
    const peer holder = start_peer("holds_until_requested", SOCK_STREAM);
    CHECK_OK(plinth_ipc_send(holder.socket, block));
    expect_to_hear(holder.socket, 'h');
    say(holder.socket, 'c');
    expect_to_hear(holder.socket, 'c');
    CHECK_OK(plinth_ipc_collect());
    say(holder.socket, 'e');
    expect_end(holder);
  }
  release(block);
  /* No process holds it, so it is free at once. */
  CHECK(comes_back(block, BLOCK, 0, NULL));
  expect_all_freed();
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
  expect_all_freed();
}

TEST(received_memory_cannot_be_freed_or_sent) {
  int ends[2];
  void *moved = UNTOUCHED_POINTER;
  const peer sender = start_peer("sends_and_waits", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(sender.socket);
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
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

HELPER(sends_twice_and_waits) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 5);
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  expect_to_hear(SOCKET, 'n');
  CHECK_OK(plinth_ipc_send(SOCKET, block));
  expect_to_hear(SOCKET, 'e');
}

typedef struct closing {
  void *memory;
  plinth_stream_t stream;
} closing;

static void *close_from_a_stream(void *context) {
  const closing *own = (const closing *)context;
  CHECK_OK(plinth_set_stream(own->stream));
  CHECK_OK(plinth_ipc_close(own->memory));
  return NULL;
}

static void *open_one_by_one(void *context) {
  gate **shut = (gate **)context;
  for (int index = 0; index < 2; index++) {
    sleep_milliseconds(100);
    gate_open(shut[index]);
  }
  return NULL;
}

/* The block is received and closed again while its last close waits. That close must wait for the new stream, too. */
TEST(the_last_close_waits_for_streams_that_are_added_meanwhile) {
  pthread_t thread;
  pthread_t opener;
  const peer sender = start_peer("sends_twice_and_waits", SOCK_STREAM);
  const plinth_ipc_memory_t memory = receive_from(sender.socket);
  closing other = {memory.pointer, stream_on(0)};
  plinth_stream_t stream = stream_on(0);
  gate *first = gate_shut(other.stream);
  CHECK(pthread_create(&thread, NULL, close_from_a_stream, &other) == 0);
  sleep_milliseconds(100);
  CHECK_OK(plinth_set_stream(stream));
  say(sender.socket, 'n');
  CHECK_SAME(receive_from(sender.socket).pointer, memory.pointer);
  gate *gates_of_both[] = {first, gate_shut(stream)};
  CHECK(pthread_create(&opener, NULL, open_one_by_one, gates_of_both) == 0);
  /* The last of the two closes waits for both streams. */
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(gate_is_open(gates_of_both[1]));
  CHECK(stream_done(stream));
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  say(sender.socket, 'e');
  expect_end(sender);
}

/* ---- pools that sleep */

TEST(a_pool_with_holders_does_not_sleep) {
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
  /* The last holder's close frees the pool. */
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_freed();
}

static unsigned char *sleeper;
static int sleeping_ends;

/* Exports the block, whether or not its memory is asleep. Counts both outcomes. */
static void *export_sleeper(void *context) {
  int *outcomes = (int *)context;
  while (!__atomic_load_n(&sleeping_ends, __ATOMIC_SEQ_CST)) {
    plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
    const plinth_status_t status = plinth_ipc_export(sleeper, &message);
    outcomes[status != PLINTH_OK]++;
    if (status != PLINTH_OK) {
      CHECK_EQ(status, PLINTH_ERROR_GRAPH_ASLEEP);
    }
    CHECK_OK(plinth_ipc_export_free(&message));
  }
  return NULL;
}

/* The handles of a pool that goes to sleep are released, so an export must not use them: the driver may give their
 * numbers to other memory. */
TEST(a_block_is_exported_while_its_pool_goes_to_sleep) {
  pthread_t thread;
  plinth_graph_t graph = NULL;
  plinth_stream_t stream = stream_on(0);
  int outcomes[2] = {0, 0};
  int refused = 0;
  if (has_segments()) {
    SKIP("segments do not sleep");
  }
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED));
  sleeper = alloc_on(BLOCK, 0, stream);
  CHECK_OK(plinth_memset(sleeper, 1, BLOCK, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK(pthread_create(&thread, NULL, export_sleeper, outcomes) == 0);
  for (int round = 0; round < some_rounds(20000); round++) {
    const plinth_status_t status = plinth_graph_sleep(graph);
    if (status == PLINTH_OK) {
      CHECK_OK(plinth_graph_wake(graph));
    } else {
      CHECK_STATUS(status, PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
      refused++;
    }
  }
  __atomic_store_n(&sleeping_ends, 1, __ATOMIC_SEQ_CST);
  CHECK(pthread_join(thread, NULL) == 0);
  printf("%d exports, %d while asleep; sleep was refused %d times\n", outcomes[0], outcomes[1], refused);
  CHECK(outcomes[0] > 0);
  CHECK_OK(plinth_graph_destroy(graph));
  release(sleeper);
  expect_all_freed();
}
