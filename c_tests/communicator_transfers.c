/* Messages between two ranks of the shared-memory engine: any size and alignment, around the sizes at which the protocol
 * changes, mismatches, full rings, and graphs. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* env: PLINTH_GROUP_TUNING=packets=64,broadcast=4096,entry=1024,lanes=4 */
/* also: PLINTH_GROUP_TUNING=packets=0,broadcast=0,entry=1024,lanes=2,registered=0 */
/* also: PLINTH_GROUP_TUNING=broadcast=65536,entry=65536,lanes=1 */
/* also: PLINTH_GROUP_TUNING= */
/* also: PLINTH_HOST_CONTENTS=arbitrary */
/* timeout: 240 */
#include "driver.h"
#include "ranks.h"

enum { MILLISECONDS = 30000, LARGEST = (1 << 20) + 1, GUARD = 64, SPACE = LARGEST + 4 * GUARD, UNUSED = 0xEE };

/* Around the units of packets, and around what is sent in packets, in one round, and in the ring, with each tuning. */
static const size_t SIZES[] = {0,     1,     7,     8,     9,     15,    16,     17,     4095,   4096,    4097,       8200,
                               16383, 16384, 16385, 40001, 65535, 65536, 65537, 262143, 262144, 262145, LARGEST - 1, LARGEST};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

static plinth_communicator_t communicators[2];
static plinth_stream_t streams[2];
static uint8_t *inputs[2], *outputs[2];

static uint8_t byte_of(int rank, int round, size_t index) {
  return (uint8_t)(index * 7 + index / 251 + (size_t)rank * 31 + (size_t)round * 13);
}

static void set_inputs(int round) {
  static uint8_t bytes[SPACE];
  for (int rank = 0; rank < 2; rank++) {
    for (size_t index = 0; index < SPACE; index++) {
      bytes[index] = byte_of(rank, round, index);
    }
    put(inputs[rank], bytes, SPACE);
  }
}

static void clear_outputs(void) {
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_memset(outputs[rank], UNUSED, SPACE, streams[rank]));
  }
}

static void send(int rank, size_t offset, size_t bytes, int32_t peer) {
  CHECK_OK(plinth_communicator_send(communicators[rank], inputs[rank] + offset, bytes, UINT8, peer, streams[rank]));
}

static void receive(int rank, size_t offset, size_t bytes, int32_t peer) {
  CHECK_OK(plinth_communicator_recv(communicators[rank], outputs[rank] + offset, bytes, UINT8, peer, streams[rank]));
}

static void finish(void) {
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_wait(communicators[rank], MILLISECONDS, streams[rank]));
  }
}

static void join(void) { init_ranks(2, options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0), communicators); }

static void leave(void) {
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

static void begin(void) {
  join();
  for (int rank = 0; rank < 2; rank++) {
    streams[rank] = stream_on(rank);
    inputs[rank] = (uint8_t *)device_memory(SPACE, rank);
    outputs[rank] = (uint8_t *)device_memory(SPACE, rank);
  }
  set_inputs(0);
  clear_outputs();
  /* No send waits for its kernel to be loaded while another one runs. */
  send(0, 0, 1, 1);
  send(1, 0, 1, 0);
  receive(0, 0, 1, 1);
  receive(1, 0, 1, 0);
  finish();
}

/* Checks what a rank has received at an offset, which another one sent from an offset, and that nothing beside it changed. */
static void expect(int rank, size_t at, size_t bytes, int sender, int round, size_t offset) {
  static uint8_t found[SPACE];
  fetch(found, outputs[rank] + at - GUARD, bytes + 2 * GUARD);
  for (size_t index = 0; index < bytes + 2 * GUARD; index++) {
    const bool is_data = index >= GUARD && index < GUARD + bytes;
    const uint8_t expected = is_data ? byte_of(sender, round, offset + index - GUARD) : UNUSED;
    if (found[index] != expected) {
      char message[128];
      snprintf(message, sizeof message, "of %zu bytes to offset %zu, byte %zd is %d, not %d", bytes, at,
               (ssize_t)index - GUARD, found[index], expected);
      harness_fail(__FILE__, __LINE__, message);
    }
  }
}

/* ---- sizes */

TEST(messages_of_any_size_and_alignment_in_both_directions) {
  static const size_t offsets[][2] = {{0, 0}, {1, 0}, {0, 3}, {4, 12}, {8, 5}};
  begin();
  for (size_t index = 0; index < 5 * SIZE_COUNT; index++) {
    const size_t bytes[] = {SIZES[index / 5], SIZES[(index / 5 + 3) % SIZE_COUNT]};
    const size_t from = offsets[index % 5][0], to = GUARD + offsets[index % 5][1];
    clear_outputs();
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_group_start());
      send(rank, from, bytes[rank], 1 - rank);
      receive(rank, to, bytes[1 - rank], 1 - rank);
      CHECK_OK(plinth_communicator_group_end());
    }
    finish();
    for (int rank = 0; rank < 2; rank++) {
      expect(rank, to, bytes[1 - rank], 1 - rank, 0, from);
    }
  }
  leave();
}

TEST(a_rank_sends_to_itself_and_to_another_at_once) {
  begin();
  for (size_t index = 0; index < SIZE_COUNT; index++) {
    const size_t bytes = SIZES[index] / 3;
    const size_t second = GUARD + bytes + GUARD;
    clear_outputs();
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_group_start());
      send(rank, 0, bytes, rank);
      send(rank, 5, bytes + 1, 1 - rank);
      receive(rank, second, bytes + 1, 1 - rank);
      receive(rank, GUARD, bytes, rank);
      CHECK_OK(plinth_communicator_group_end());
    }
    finish();
    for (int rank = 0; rank < 2; rank++) {
      expect(rank, GUARD, bytes, rank, 0, 0);
      expect(rank, second, bytes + 1, 1 - rank, 0, 5);
    }
  }
  leave();
}

/* A group with messages in the default stream and in streams that wait for its work, and the other way round. */
TEST(messages_of_a_group_do_not_wait_for_each_other_in_any_streams) {
  enum { STREAMS = 4 };
  const uintptr_t legacy = 1, per_thread = 2;
  plinth_stream_t known[2][STREAMS];
  begin();
  for (int rank = 0; rank < 2; rank++) {
    const plinth_stream_t all[STREAMS] = {NULL, (plinth_stream_t)legacy, (plinth_stream_t)per_thread,
                                          known_foreign_stream(rank, 0)};
    memcpy(known[rank], all, sizeof all);
    CHECK_OK(plinth_communicator_set_timeout(communicators[rank], 5000));
  }
  for (int pair = 0; pair < STREAMS * STREAMS; pair++) {
    clear_outputs();
    finish();
    for (int rank = 0; rank < 2; rank++) {
      const plinth_stream_t sender = known[rank][pair / STREAMS], receiver = known[rank][pair % STREAMS];
      CHECK_OK(plinth_communicator_group_start());
      CHECK_OK(plinth_communicator_send(communicators[rank], inputs[rank], LARGEST, UINT8, 1 - rank, sender));
      CHECK_OK(plinth_communicator_recv(communicators[rank], outputs[rank] + GUARD, LARGEST, UINT8, 1 - rank, receiver));
      CHECK_OK(plinth_communicator_send(communicators[rank], inputs[rank], 9, UINT8, rank, streams[rank]));
      CHECK_OK(plinth_communicator_recv(communicators[rank], outputs[rank] + 3 * GUARD + LARGEST, 9, UINT8, rank, NULL));
      CHECK_OK(plinth_communicator_group_end());
    }
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_wait(communicators[rank], MILLISECONDS, known[rank][pair % STREAMS]));
      expect(rank, GUARD, LARGEST, 1 - rank, 0, 0);
      CHECK_OK(plinth_communicator_wait(communicators[rank], MILLISECONDS, NULL));
    }
  }
  leave();
}

/* ---- full rings */

/* The first four messages find room, and the others wait. */
TEST(messages_of_all_kinds_wait_for_room_and_keep_their_order) {
  enum { MESSAGES = 24 };
  static const size_t bytes[] = {9, 0, 4096, 4097, 16, 30000, 65536, 1};
  begin();
  for (int round = 0; round < 4; round++) {
    set_inputs(round);
    clear_outputs();
    CHECK_OK(plinth_stream_synchronize(streams[1]));
    for (size_t message = 0; message < MESSAGES; message++) {
      send(0, message, bytes[(message + (size_t)round) % 8], 1);
    }
    sleep_milliseconds(20);
    CHECK(!stream_done(streams[0]));
    for (size_t message = 0; message < MESSAGES; message++) {
      const size_t at = GUARD + message % 8 * (LARGEST / 8), size = bytes[(message + (size_t)round) % 8];
      receive(1, at + message, size, 0);
      CHECK_OK(plinth_communicator_wait(communicators[1], MILLISECONDS, streams[1]));
      expect(1, at + message, size, 0, round, message);
      CHECK_OK(plinth_memset(outputs[1], UNUSED, SPACE, streams[1]));
    }
    finish();
  }
  leave();
}

static void exchange(int rank) {
  CHECK_OK(plinth_communicator_group_start());
  send(rank, 0, 100, 1 - rank);
  receive(rank, 0, 100, 1 - rank);
  CHECK_OK(plinth_communicator_group_end());
}

/* Rank 1 sends only after it has received: a send that waited for the receive before it would wait forever. */
TEST(a_send_does_not_wait_for_a_receive_that_follows_their_group) {
  begin();
  const plinth_stream_t first = streams[0];
  for (int round = 0; round < 4; round++) {
    const plinth_stream_t second = stream_on(0), third = stream_on(0);
    set_inputs(round);
    exchange(0);
    exchange(1);
    streams[0] = second;
    receive(0, GUARD + 100, 50, 1);
    streams[0] = third;
    send(0, 1, 60, 1);
    receive(1, GUARD + 100, 60, 0);
    send(1, 1, 50, 0);
    finish();
    CHECK_OK(plinth_communicator_wait(communicators[0], MILLISECONDS, second));
    expect(0, GUARD + 100, 50, 1, round, 1);
    expect(1, GUARD + 100, 60, 0, round, 1);
    streams[0] = first;
    clear_outputs();
  }
  leave();
}

/* ---- mismatches */

/* Both ranks learn that their calls differ, and the receiver also how. */
static void mismatch(size_t sent, DLDataType sent_type, size_t received, DLDataType received_type) {
  char text[64];
  const size_t sent_bytes = sent * sent_type.bits / 8, received_bytes = received * received_type.bits / 8;
  join();
  CHECK_OK(plinth_communicator_send(communicators[0], inputs[0], sent, sent_type, 1, streams[0]));
  CHECK_OK(plinth_communicator_recv(communicators[1], outputs[1], received, received_type, 0, streams[1]));
  CHECK_STATUS(plinth_communicator_wait(communicators[1], MILLISECONDS, streams[1]), PLINTH_ERROR_RANK_MISMATCH);
  snprintf(text, sizeof text, "rank 1 of 2 calls a transfer of %zu bytes", received_bytes);
  CHECK_MESSAGE(text);
  snprintf(text, sizeof text, "rank 0 calls a transfer of %zu bytes", sent_bytes);
  CHECK_MESSAGE(text);
  /* A message for which there is room may have been sent before. */
  plinth_status_t status = plinth_communicator_wait(communicators[0], MILLISECONDS, streams[0]);
  if (status == PLINTH_OK) {
    status = plinth_communicator_send(communicators[0], inputs[0], 1, UINT8, 1, streams[0]);
  }
  if (status == PLINTH_OK) {
    status = plinth_communicator_wait(communicators[0], MILLISECONDS, streams[0]);
  }
  CHECK_EQ(status, PLINTH_ERROR_RANK_MISMATCH);
  leave();
}

TEST(messages_of_other_sizes_and_types_are_mismatches) {
  static const size_t sizes[][2] = {{16, 17},       {15, 16},         {4096, 4097},    {8, 40000}, {4096, 65536}, {16384, 16385},
                                    {65536, 65537}, {262144, 262145}, {40001, LARGEST}, {1, LARGEST}};
  begin();
  leave();
  for (size_t index = 0; index < sizeof sizes / sizeof *sizes; index++) {
    mismatch(sizes[index][0], UINT8, sizes[index][1], UINT8);
    mismatch(sizes[index][1], UINT8, sizes[index][0], UINT8);
  }
  mismatch(4, UINT8, 1, INT32);
  mismatch(2, FLOAT32, 8, UINT8);
  mismatch(100000, INT32, 100000, FLOAT32);
}

/* ---- graphs */

enum { KINDS = 6 };
static const size_t kinds[KINDS] = {9, 4096, 0, 40001, 65537, 16};

static void all_kinds(int rank) {
  for (size_t index = 0; index < KINDS; index++) {
    if ((index + (size_t)rank) % 2 == 0) {
      send(rank, index, kinds[index], 1 - rank);
    } else {
      receive(rank, GUARD + index * (LARGEST / 8), kinds[index], 1 - rank);
    }
  }
  CHECK_OK(plinth_communicator_group_start());
  send(rank, 3, rank == 0 ? 4097 : 33, 1 - rank);
  receive(rank, GUARD + KINDS * (LARGEST / 8), rank == 0 ? 33 : 4097, 1 - rank);
  CHECK_OK(plinth_communicator_group_end());
}

static void expect_all_kinds(int round) {
  for (size_t index = 0; index < KINDS; index++) {
    const int sender = (int)(index % 2);
    expect(1 - sender, GUARD + index * (LARGEST / 8), kinds[index], sender, round, index);
  }
  expect(0, GUARD + KINDS * (LARGEST / 8), 33, 1, round, 3);
  expect(1, GUARD + KINDS * (LARGEST / 8), 4097, 0, round, 3);
}

TEST(captured_messages_are_replayed_between_others) {
  enum { ROUNDS = 20, REPLAYS = 10 };
  plinth_graph_t graphs[2];
  begin();
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_set_stream(streams[rank]));
    CHECK_OK(plinth_graph_create(&graphs[rank]));
    CHECK_OK(plinth_graph_capture_begin(graphs[rank], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
    all_kinds(rank);
    CHECK_OK(plinth_graph_capture_end(graphs[rank]));
  }
  for (int round = 0; round < ROUNDS; round++) {
    set_inputs(round);
    clear_outputs();
    for (int replay = 0; replay < REPLAYS; replay++) {
      for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(plinth_set_stream(streams[rank]));
        CHECK_OK(plinth_graph_replay(graphs[rank]));
      }
    }
    finish();
    expect_all_kinds(round);
    clear_outputs();
    all_kinds(0);
    all_kinds(1);
    finish();
    expect_all_kinds(round);
  }
  CHECK_OK(plinth_graph_destroy(graphs[0]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
  leave();
}
