/*
 * Each driver call fails once, on either side of an IPC message with memory. The other side gets an error or no message, and
 * the next message is transferred.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 480 */
/* alone: all; enables fault injection before the first call */
/* long: a_message_is_abandoned_after_some_of_its_parts */
#include "faults.h"
#include "peering.h"

static peer other;
static plinth_stream_t stream;

/* The other process may not have noticed yet that a message was abandoned. */
static void expect_no_memory_left(void) {
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(0) == 0);
}

/* Receives until the sender closes the socket, and then sends back the number of abandoned messages. */
HELPER(receives) {
  char abandoned = 0;
  for (;;) {
    plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
    const plinth_status_t status = plinth_ipc_receive(SOCKET, -1, &memory);
    if (status == PLINTH_ERROR_IPC_PEER_GONE) {
      if (strstr(plinth_last_error(), "aborted the message") != NULL) {
        abandoned++;
        continue;
      }
      say(SOCKET, abandoned);
      return;
    }
    CHECK_OK(status);
    CHECK_OK(plinth_ipc_close(memory.pointer));
    say(SOCKET, 'r');
  }
}

/* Sends a block for each byte that it receives. */
HELPER(sends) {
  char word = 0;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 1);
  plinth_stream_t busy = stream_on(0);
  CHECK_OK(plinth_set_stream(busy));
  while (recv(SOCKET, &word, 1, 0) == 1) {
    /* The stream is busy, so that the receiver has to wait for an event. */
    gate *held = gate_shut(busy);
    const plinth_status_t status = plinth_ipc_send(SOCKET, block);
    gate_open(held);
    CHECK_OK(status);
    CHECK_OK(plinth_stream_synchronize(busy));
  }
}

static void *open_soon(void *context) {
  sleep_milliseconds(1);
  gate_open((gate *)context);
  return NULL;
}

static void send_and_free(void) {
  void *block = NULL;
  gate *held = NULL;
  pthread_t opener;
  if (!ATTEMPT(plinth_caching_allocator_alloc(BLOCK, 0, stream, &block))) {
    return;
  }
  if (ATTEMPT(plinth_set_stream(stream))) {
    held = (gate *)calloc(1, sizeof *held);
    if (ATTEMPT(plinth_launch_host_function(stream, gate_function, held))) {
      CHECK(pthread_create(&opener, NULL, open_soon, held) == 0);
      if (ATTEMPT(plinth_ipc_send(other.socket, block))) {
        expect_to_hear(other.socket, 'r');
      }
      CHECK(pthread_join(opener, NULL) == 0);
    }
  }
  RETRY(plinth_caching_allocator_delete(block));
  RETRY(plinth_stream_synchronize(stream));
  free(held);
  RETRY(plinth_ipc_collect());
  RETRY(plinth_empty_cache());
  expect_no_memory_left();
  expect_sound();
}

static void start_receiver(void) {
  stream = stream_on(0);
  other = start_peer("receives", SOCK_STREAM);
}

static void end_peer(void) {
  CHECK(shutdown(other.socket, SHUT_WR) == 0);
  expect_end(other);
}

/* If a stream query fails, the library may have created one more event, which it keeps. */
static void expect_no_leak_but_events(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  plinth_host_usage_t expected = *before;
  CHECK(after->events <= 4);
  expected.events = after->events;
  expect_no_leak(&expected, after);
}

#define MESSAGE_PLAN                                                                                   \
  .tear_down = end_peer, .compare = expect_no_leak_but_events, .report = FAULT_MAY_MEAN_NO_MEMORY,      \
  .kinds = EVERY_KIND, .warm_up = 5

static const fault_plan sending_plan = {MESSAGE_PLAN, .set_up = start_receiver};

TEST(sending_survives_faults) { survive_faults(&sending_plan, send_and_free); }

static void receive_and_close(void) {
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  say(other.socket, 'n');
  if (ATTEMPT(plinth_ipc_receive(other.socket, -1, &memory))) {
    RETRY(plinth_ipc_close(memory.pointer));
  } else {
    CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  }
  if (on_host_device()) {
    CHECK_EQ(host_usage().memory_handles, 0);
    CHECK_EQ(host_usage().mappings, 0);
  }
}

static void start_sender(void) { other = start_peer("sends", SOCK_STREAM); }

static const fault_plan receiving_plan = {MESSAGE_PLAN, .set_up = start_sender};

TEST(receiving_survives_faults) { survive_faults(&receiving_plan, receive_and_close); }

/* ---- a refused message */

/* A message as it arrives: bytes and descriptors. */
typedef struct raw_message {
  unsigned char bytes[4096];
  int32_t descriptors[64];
  size_t size, count;
} raw_message;

static void receive_part(raw_message *into) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof into->descriptors)];
  struct iovec bytes = {into->bytes + into->size, sizeof into->bytes - into->size};
  struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  const ssize_t size = recvmsg(other.socket, &message, MSG_CMSG_CLOEXEC);
  CHECK(size > 0);
  into->size += (size_t)size;
  for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header != NULL; header = CMSG_NXTHDR(&message, header)) {
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int32_t);
    memcpy(into->descriptors + into->count, CMSG_DATA(header), count * sizeof(int32_t));
    into->count += count;
  }
}

/* Sends two blocks in turn, each in memory of its own. */
HELPER(sends_two_blocks) {
  char word = 0;
  void *blocks[2] = {alloc_on(40 * MIB, 0, NULL), alloc_on(40 * MIB, 0, NULL)};
  for (int turn = 0; recv(SOCKET, &word, 1, 0) == 1; turn++) {
    CHECK_OK(plinth_ipc_send(SOCKET, blocks[turn % 2]));
  }
}

static plinth_ipc_memory_t first_block = PLINTH_IPC_MEMORY_INIT;
static raw_message refused;

/* Imports the second block with another file in the place of the sender's. The memory is mapped before that is noticed. */
static void import_what_is_refused(void) {
  int32_t descriptors[64];
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  FILE *wrong_file = tmpfile();
  CHECK(wrong_file != NULL);
  memcpy(descriptors, refused.descriptors, sizeof descriptors);
  descriptors[0] = fileno(wrong_file);
  const plinth_status_t status =
      plinth_ipc_import(refused.bytes, refused.size, descriptors, refused.count, -1, &memory);
  CHECK(status == PLINTH_ERROR_INVALID_VALUE || !ATTEMPT(status));
  CHECK_SAME(memory.pointer, UNTOUCHED_POINTER);
  CHECK(fclose(wrong_file) == 0);
  RETRY(plinth_ipc_collect());
}

static void start_sender_of_two(void) {
  other = start_peer("sends_two_blocks", SOCK_SEQPACKET);
  say(other.socket, '1');
  first_block = receive_from(other.socket);
  say(other.socket, '2');
  receive_part(&refused);
  receive_part(&refused);
}

static void end_sender_of_two(void) {
  for (size_t index = 0; index < refused.count; index++) {
    CHECK(close(refused.descriptors[index]) == 0);
  }
  refused = (raw_message){.size = 0};
  CHECK_OK(plinth_ipc_close(first_block.pointer));
  end_peer();
}

static const fault_plan refusing_plan = {
    .set_up = start_sender_of_two, .tear_down = end_sender_of_two, .compare = expect_no_leak,
    .report = FAULT_MAY_BE_AVOIDED, .kinds = EVERY_KIND, .warm_up = 5, .no_run_between = true};

TEST(refusing_memory_survives_faults) { survive_faults(&refusing_plan, import_what_is_refused); }

/* ---- a message of several parts */

#define LARGE (290 * MIB)

static void send_large(void) {
  void *block = NULL;
  if (!ATTEMPT(plinth_caching_allocator_alloc(LARGE, 0, NULL, &block))) {
    return;
  }
  if (ATTEMPT(plinth_ipc_send(other.socket, block))) {
    expect_to_hear(other.socket, 'r');
  }
  RETRY(plinth_caching_allocator_delete(block));
  RETRY(plinth_ipc_collect());
  expect_no_memory_left();
}

static const fault_plan large_plan = {.set_up = start_receiver};

/* The memory is exported in several parts, so a late fault leaves an incomplete message. */
TEST(a_message_is_abandoned_after_some_of_its_parts) {
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    SKIP("is about mapped memory");
  }
  const fault_kind unknown = {CUDA_ERROR_UNKNOWN, false};
  plan = &large_plan;
  begin_process();
  limit_memory(300 * MIB, 0);
  run_without_fault(send_large, unknown);
  uint64_t before = 0;
  uint64_t after = 0;
  CHECK_OK(plinth_driver_call_count("cuMemExportToShareableHandle", &before));
  run_without_fault(send_large, unknown);
  CHECK_OK(plinth_driver_call_count("cuMemExportToShareableHandle", &after));
  CHECK(after - before > 130);
  /* The memory is created and mapped first, and then exported. Messages begin during the last exports. */
  for (uint64_t nth = 290; nth < 470; nth += 3) {
    run_scenario(send_large, nth, unknown);
  }
  CHECK(shutdown(other.socket, SHUT_WR) == 0);
  char abandoned = 0;
  CHECK_EQ(recv(other.socket, &abandoned, 1, 0), 1);
  CHECK(abandoned >= 3);
  expect_end(other);
  lift_limit(0);
  expect_no_memory_left();
}

/* ---- CUDA IPC handles */

static void export_handle(void) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  void *memory = NULL;
  if (ATTEMPT(plinth_device_malloc(MIB, 0, &memory))) {
    (void)ATTEMPT(plinth_ipc_mem_handle(memory, ipc_handle, &offset));
    RETRY(plinth_device_free(memory));
  }
}

static const fault_plan exporting_plan = {
    .compare = expect_no_leak, .report = FAULT_ALWAYS_REPORTED, .kinds = EVERY_KIND, .warm_up = 70};

TEST(exporting_handles_survives_faults) { survive_faults(&exporting_plan, export_handle); }

static uint8_t received_handle[PLINTH_IPC_MEM_HANDLE_SIZE];

HELPER(has_memory) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  void *memory = device_memory(MIB, 0);
  CHECK_OK(plinth_ipc_mem_handle(memory, ipc_handle, &offset));
  CHECK_EQ(send(SOCKET, ipc_handle, sizeof ipc_handle, 0), sizeof ipc_handle);
  expect_to_hear(SOCKET, 'e');
}

static void open_handle(void) {
  void *memory = NULL;
  if (ATTEMPT(plinth_ipc_open_mem_handle(0, received_handle, &memory))) {
    RETRY(plinth_ipc_close_mem_handle(memory));
  }
}

static void start_owner(void) {
  other = start_peer("has_memory", SOCK_STREAM);
  CHECK_EQ(recv(other.socket, received_handle, sizeof received_handle, MSG_WAITALL), sizeof received_handle);
}

static void end_owner(void) {
  say(other.socket, 'e');
  expect_end(other);
}

static const fault_plan opening_plan = {
    .set_up = start_owner,
    .tear_down = end_owner,
    .compare = expect_no_leak,
    .report = FAULT_ALWAYS_REPORTED,
    .kinds = EVERY_KIND,
    .warm_up = 70,
};

TEST(opening_handles_survives_faults) { survive_faults(&opening_plan, open_handle); }
