/*
 * Every driver call made to fail, once, on either side of a message about memory. The other side is told or sees nothing of
 * it, and the next message is in order.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"
#include "peering.h"

static peer other;
static plinth_stream_t stream;

/* The other process may not know yet that a message was abandoned. */
static void expect_memory_back(void) {
  EVENTUALLY(plinth_ipc_collect() == PLINTH_OK && plinth_empty_cache() == PLINTH_OK && reserved(0) == 0);
}

/* Receives until the sender ends, and then sends back how many messages were abandoned. */
HELPER(receives) {
  char given_up = 0;
  for (;;) {
    plinth_ipc_memory_t memory = PLINTH_IPC_MEMORY_INIT;
    const plinth_status_t status = plinth_ipc_receive(SOCKET, -1, &memory);
    if (status == PLINTH_ERROR_IPC_PEER_GONE) {
      if (strstr(plinth_last_error(), "gave the message up") != NULL) {
        given_up++;
        continue;
      }
      say(SOCKET, given_up);
      return;
    }
    CHECK_OK(status);
    CHECK_OK(plinth_ipc_close(memory.pointer));
    say(SOCKET, 'r');
  }
}

/* Sends a block again and again, whenever it is told to. */
HELPER(sends) {
  char word = 0;
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  put_pattern(block, BLOCK, 1);
  plinth_stream_t busy = stream_on(0);
  CHECK_OK(plinth_set_stream(busy));
  while (recv(SOCKET, &word, 1, 0) == 1) {
    /* So that there is something to wait for. */
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
  GIVE_BACK(plinth_caching_allocator_delete(block));
  GIVE_BACK(plinth_stream_synchronize(stream));
  free(held);
  GIVE_BACK(plinth_ipc_collect());
  GIVE_BACK(plinth_empty_cache());
  expect_memory_back();
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

/* If the query of a stream fails, one more event may have been made, which is kept. */
static void expect_nothing_lost_but_events(const plinth_host_usage_t *before, const plinth_host_usage_t *after) {
  plinth_host_usage_t expected = *before;
  CHECK(after->events <= 4);
  expected.events = after->events;
  expect_nothing_lost(&expected, after);
}

#define MESSAGE_PLAN                                                                                   \
  .tear_down = end_peer, .compare = expect_nothing_lost_but_events, .report = FAULT_MAY_MEAN_NO_MEMORY, \
  .kinds = EVERY_KIND, .warm_up = 5

static const fault_plan sending_plan = {MESSAGE_PLAN, .set_up = start_receiver};

TEST(sending_survives_faults) { survive_faults(&sending_plan, send_and_free); }

static void receive_and_close(void) {
  plinth_ipc_memory_t memory = {sizeof memory, UNTOUCHED_POINTER, 1, 2, 3, 4};
  say(other.socket, 'n');
  if (ATTEMPT(plinth_ipc_receive(other.socket, -1, &memory))) {
    GIVE_BACK(plinth_ipc_close(memory.pointer));
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
  GIVE_BACK(plinth_caching_allocator_delete(block));
  GIVE_BACK(plinth_ipc_collect());
  expect_memory_back();
}

static const fault_plan large_plan = {.set_up = start_receiver};

/* The descriptors are made part by part, so a driver that refuses late leaves half a message behind. */
TEST(a_message_is_given_up_in_the_middle) {
  if (getenv("PLINTH_ALLOC_CONF") != NULL) {
    SKIP("is about mapped memory");
  }
  const fault_kind unknown = {CUDA_ERROR_UNKNOWN, false};
  plan = &large_plan;
  begin_faults();
  limit_memory(300 * MIB, 0);
  run_without_fault(send_large, unknown);
  uint64_t before = 0;
  uint64_t after = 0;
  CHECK_OK(plinth_driver_call_count("cuMemExportToShareableHandle", &before));
  run_without_fault(send_large, unknown);
  CHECK_OK(plinth_driver_call_count("cuMemExportToShareableHandle", &after));
  CHECK(after - before > 130);
  /* The memory is created and mapped first, and then exported; what is told to the receiver lies in the exports' last. */
  for (uint64_t nth = 290; nth < 470; nth += 3) {
    run_scenario(send_large, nth, unknown);
  }
  CHECK(shutdown(other.socket, SHUT_WR) == 0);
  char given_up = 0;
  CHECK_EQ(recv(other.socket, &given_up, 1, 0), 1);
  CHECK(given_up >= 3);
  expect_end(other);
  lift_limit(0);
  expect_memory_back();
}

/* ---- CUDA's own handles */

static void make_a_handle(void) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  void *memory = NULL;
  if (ATTEMPT(plinth_device_malloc(MIB, 0, &memory))) {
    (void)ATTEMPT(plinth_ipc_mem_handle(memory, ipc_handle, &offset));
    GIVE_BACK(plinth_device_free(memory));
  }
}

static const fault_plan making_plan = {
    .compare = expect_nothing_lost, .report = FAULT_ALWAYS_REPORTED, .kinds = EVERY_KIND, .warm_up = 70};

TEST(making_handles_survives_faults) { survive_faults(&making_plan, make_a_handle); }

static uint8_t the_handle[PLINTH_IPC_MEM_HANDLE_SIZE];

HELPER(has_memory) {
  uint8_t ipc_handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset;
  void *memory = device_memory(MIB, 0);
  CHECK_OK(plinth_ipc_mem_handle(memory, ipc_handle, &offset));
  CHECK_EQ(send(SOCKET, ipc_handle, sizeof ipc_handle, 0), sizeof ipc_handle);
  expect_to_hear(SOCKET, 'e');
}

static void open_a_handle(void) {
  void *memory = NULL;
  if (ATTEMPT(plinth_ipc_open_mem_handle(0, the_handle, &memory))) {
    GIVE_BACK(plinth_ipc_close_mem_handle(memory));
  }
}

static void start_owner(void) {
  other = start_peer("has_memory", SOCK_STREAM);
  CHECK_EQ(recv(other.socket, the_handle, sizeof the_handle, MSG_WAITALL), sizeof the_handle);
}

static void end_owner(void) {
  say(other.socket, 'e');
  expect_end(other);
}

static const fault_plan opening_plan = {
    .set_up = start_owner,
    .tear_down = end_owner,
    .compare = expect_nothing_lost,
    .report = FAULT_ALWAYS_REPORTED,
    .kinds = EVERY_KIND,
    .warm_up = 70,
};

TEST(opening_handles_survives_faults) { survive_faults(&opening_plan, open_a_handle); }
