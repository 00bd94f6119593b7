/*
 * Messages about shared memory: messages that the program itself transports, and errors.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* also: PLINTH_IPC=wait */
#include "driver.h"
#include "peering.h"

/* ---- export and import */

enum { FIRST_INHERITED = 100 };

/* Changes a message so that its block and its first chunk are 2 MiB larger, with a correct checksum. */
static void enlarge(unsigned char *bytes) {
  enum { SERIAL = 48, START = 64, SIZE = 72, SUM = 248, CHUNK_SIZE = 264 };
  uint64_t numbers[4], sum = UINT64_C(0xcbf29ce484222325);
  memcpy(&numbers[0], bytes + SERIAL, 8);
  memcpy(&numbers[1], bytes + START, 8);
  memcpy(&numbers[2], bytes + SIZE, 8);
  memcpy(&numbers[3], bytes + CHUNK_SIZE, 8);
  numbers[0] += 1;
  numbers[1] += 512;
  numbers[2] += 2 * MIB - 512;
  numbers[3] += 2 * MIB;
  memcpy(bytes + SERIAL, &numbers[0], 8);
  memcpy(bytes + START, &numbers[1], 8);
  memcpy(bytes + SIZE, &numbers[2], 8);
  memcpy(bytes + CHUNK_SIZE, &numbers[3], 8);
  for (int index = 0; index < SUM; index++) {
    sum = (sum ^ bytes[index]) * UINT64_C(0x100000001b3);
  }
  memcpy(bytes + SUM, &sum, 8);
}

/* Imports a message with another file of the holders, on which there is a lease: a blocking open waits for 45 seconds. */
static void import_with_a_leased_file(const unsigned char *bytes, size_t size, const int32_t *inherited, size_t count) {
  int32_t descriptors[64];
  char path[] = "/dev/shm/plinth-lease-XXXXXX";
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  memcpy(descriptors, inherited, count * sizeof *descriptors);
  descriptors[0] = mkstemp(path);
  CHECK(descriptors[0] >= 0 && unlink(path) == 0);
  /* The signal that asks for the lease would end the process. */
  CHECK(signal(SIGIO, SIG_IGN) != SIG_ERR);
  if (fcntl(descriptors[0], F_SETLEASE, F_WRLCK) == 0) {
    const double start = seconds_now();
    CHECK_OK(plinth_ipc_import(bytes, size, descriptors, count, -1, &memory));
    CHECK(seconds_now() - start < 10);
    CHECK_OK(plinth_ipc_close(memory.pointer));
  }
  CHECK(close(descriptors[0]) == 0);
}

HELPER(imports_an_inherited_message) {
  uint32_t sizes[2];
  int32_t descriptors[64];
  unsigned char bytes[4096];
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
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
  import_with_a_leased_file(bytes, sizes[0], descriptors, sizes[1]);
  CHECK_OK(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory));
  /* The memory is mapped. A later message cannot make it larger. */
  plinth_ipc_memory_t larger = PLINTH_IPC_MEMORY_INIT;
  enlarge(bytes);
  CHECK_STATUS(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &larger), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("contradicts an earlier message");
  CHECK(larger.pointer == NULL);
  for (uint32_t index = 0; index < sizes[1]; index++) {
    CHECK(close(descriptors[index]) == 0);
  }
  CHECK_EQ(memory.size, BLOCK);
  CHECK(has_pattern(memory.pointer, BLOCK, 8));
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK_OK(plinth_ipc_close(memory.pointer));
}

static void transport_message(void) {
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 8);
  CHECK_OK(plinth_ipc_export(block, &message));
  CHECK(message.size > 0 && message.descriptor_count > 0 && message.descriptor_count <= 64);
  for (size_t index = 0; index < message.descriptor_count; index++) {
    const int inherited = FIRST_INHERITED + (int)index;
    CHECK(fcntl(inherited, F_GETFD) == -1);
    CHECK(fcntl(message.descriptors[index], F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(dup2(message.descriptors[index], inherited), inherited);
  }
  const peer other = start_peer("imports_an_inherited_message", SOCK_STREAM);
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
  expect_all_freed();
}

TEST(a_program_can_transport_the_message) {
  /* The first time, the driver may open descriptors, and the library opens its file of holders. */
  transport_message();
  const size_t before = open_descriptors();
  for (int round = 0; round < 3; round++) {
    transport_message();
  }
  CHECK_EQ(open_descriptors(), before);
}

TEST(a_message_holds_the_block_until_it_is_freed) {
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  /* A process cannot import its own memory. */
  CHECK_STATUS(plinth_ipc_import(message.bytes, message.size, message.descriptors, message.descriptor_count, -1, &memory),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  release(block);
  expect_still_held(block);
  CHECK_OK(plinth_ipc_export_free(&message));
  expect_all_freed();
}

static void note_action(const plinth_memory_history_entry_t *reported, void *context) {
  *(int32_t *)context = reported->action;
}

TEST(trackers_are_called_before_a_collection_returns) {
  static int32_t action;
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_attach_allocator_trace_tracker(note_action, &action));
  CHECK_OK(plinth_ipc_export(block, &message));
  release(block);
  CHECK_OK(plinth_ipc_collect());
  CHECK_EQ(action, PLINTH_MEMORY_ACTION_FREE_REQUESTED);
  CHECK_OK(plinth_ipc_export_free(&message));
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && action == PLINTH_MEMORY_ACTION_FREE_COMPLETED);
  CHECK_OK(plinth_detach_allocator_trace_tracker(note_action, &action));
  expect_all_freed();
}

HELPER(imports_and_closes_an_inherited_message) {
  uint32_t sizes[2];
  int32_t descriptors[64];
  unsigned char bytes[4096];
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  CHECK_EQ(recv(SOCKET, sizes, sizeof sizes, MSG_WAITALL), sizeof sizes);
  CHECK(sizes[0] <= sizeof bytes && sizes[1] <= 64);
  CHECK_EQ(recv(SOCKET, bytes, sizes[0], MSG_WAITALL), sizes[0]);
  for (uint32_t index = 0; index < sizes[1]; index++) {
    descriptors[index] = FIRST_INHERITED + (int32_t)index;
  }
  CHECK_OK(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory));
  CHECK_OK(plinth_ipc_close(memory.pointer));
  /* Another file in the place of the file of holders would not hold the block. */
  CHECK_OK(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory));
  const int32_t correct_file = descriptors[0];
  FILE *wrong_file = tmpfile();
  CHECK(wrong_file != NULL);
  descriptors[0] = fileno(wrong_file);
  CHECK_STATUS(plinth_ipc_import(bytes, sizes[0], descriptors, sizes[1], -1, &memory), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("file of the holders");
  CHECK(fclose(wrong_file) == 0);
  descriptors[0] = correct_file;
  CHECK_OK(plinth_ipc_close(memory.pointer));
  CHECK_STATUS(plinth_ipc_close(memory.pointer), PLINTH_ERROR_INVALID_POINTER);
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
}

/* The message's descriptors hold the block as long as they are open, even if a receiver has closed it. */
TEST(a_message_holds_the_block_when_its_receiver_has_closed) {
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  CHECK(message.descriptor_count <= 64);
  for (size_t index = 0; index < message.descriptor_count; index++) {
    CHECK_EQ(dup2(message.descriptors[index], FIRST_INHERITED + (int)index), FIRST_INHERITED + (int)index);
  }
  const peer other = start_peer("imports_and_closes_an_inherited_message", SOCK_STREAM);
  for (size_t index = 0; index < message.descriptor_count; index++) {
    CHECK(close(FIRST_INHERITED + (int)index) == 0);
  }
  const uint32_t sizes[2] = {(uint32_t)message.size, (uint32_t)message.descriptor_count};
  CHECK_EQ(send(other.socket, sizes, sizeof sizes, 0), sizeof sizes);
  CHECK_EQ(send(other.socket, message.bytes, message.size, 0), message.size);
  expect_to_hear(other.socket, 'c');
  release(block);
  expect_still_held(block);
  say(other.socket, 'e');
  expect_end(other);
  expect_still_held(block);
  CHECK_OK(plinth_ipc_export_free(&message));
  expect_all_freed();
}

/* ---- errors */

TEST(invalid_blocks_are_refused) {
  int ends[2];
  plinth_ipc_export_t message = {sizeof message, UNTOUCHED_POINTER, 1, UNTOUCHED_POINTER, 2};
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  void *driver_memory = device_memory(KIB, 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK_STATUS(plinth_ipc_send(ends[0], NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_export(NULL, &message), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_export(block, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_ipc_send(ends[0], &message), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_send(ends[0], driver_memory), PLINTH_ERROR_INVALID_POINTER);
  release(block);
  CHECK_STATUS(plinth_ipc_send(ends[0], block), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_ipc_export(block, &message), PLINTH_ERROR_INVALID_POINTER);
  CHECK_SAME(message.bytes, UNTOUCHED_POINTER);
  CHECK_OK(plinth_device_free(driver_memory));
  CHECK(close(ends[0]) == 0 && close(ends[1]) == 0);
  expect_all_freed();
}

TEST(invalid_sockets_are_refused) {
  int ends[2];
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
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
  expect_all_freed();
}

TEST(invalid_messages_are_refused) {
  int ends[2];
  unsigned char bytes[4096];
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
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

HELPER(sends_half_a_message) {
  unsigned char bytes[300];
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  CHECK_OK(plinth_ipc_export(block, &message));
  memcpy(bytes, message.bytes, 100);
  CHECK_EQ(send(SOCKET, bytes, 100, 0), 100);
  CHECK_OK(plinth_ipc_export_free(&message));
}

TEST(half_a_message_is_an_error) {
  plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
  const peer other = start_peer("sends_half_a_message", SOCK_STREAM);
  CHECK_STATUS(plinth_ipc_receive(other.socket, -1, &memory), PLINTH_ERROR_IPC_PEER_GONE);
  expect_end(other);
}

TEST(a_block_is_exported_while_another_device_is_current) {
  if (device_count() < 2) {
    SKIP("needs two devices");
  }
  const char *setting = getenv("PLINTH_IPC");
  if (setting != NULL) {
    SKIP("is about events");
  }
  plinth_ipc_export_t message = PLINTH_IPC_EXPORT_INIT;
  plinth_stream_t stream = stream_on(1);
  unsigned char *block = alloc_on(BLOCK, 1, stream);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_set_device(0));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_memset(block, 1, BLOCK, stream));
  CHECK_OK(plinth_ipc_export(block, &message));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_ipc_export_free(&message));
  release(block);
  expect_all_freed();
}

TEST(a_capturing_stream_cannot_share) {
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
  expect_all_freed();
}
