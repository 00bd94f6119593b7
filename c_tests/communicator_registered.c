/* Collectives on memory that the ranks have registered: the same bits as without, sends, mismatches, sleep, and graphs.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* env: PLINTH_GROUP_TUNING=registered=0,packets=0,broadcast=0,one_shot=2048,staging=4096,block_bytes=256,piece=64,entry=16 */
/* also: PLINTH_GROUP_TUNING=registered=1024,packets=1024,broadcast=0,one_shot=1024,entry=256 */
/* also: PLINTH_GROUP_TUNING=registered=0,packets=0,broadcast=0,one_shot=0,staging=4096,block_bytes=256,piece=64,entry=16 */
/* timeout: 240 */
#define PROCESS_SECONDS 100.0
#include "registering.h"

enum { OUTPUT = BLOCK / 2, GUARD = 64 };

/* ---- results */

typedef struct type {
  DLDataType element;
  size_t bytes;
  bool is_bool, is_complex;
} type;

static const type TYPES[] = {
    {{2, 16, 1}, 2, false, false}, {{4, 16, 1}, 2, false, false}, {{2, 32, 1}, 4, false, false}, {{2, 64, 1}, 8, false, false},
    {{1, 8, 1}, 1, false, false},  {{0, 8, 1}, 1, false, false},  {{1, 16, 1}, 2, false, false}, {{0, 16, 1}, 2, false, false},
    {{1, 32, 1}, 4, false, false}, {{0, 32, 1}, 4, false, false}, {{1, 64, 1}, 8, false, false}, {{0, 64, 1}, 8, false, false},
    {{6, 8, 1}, 1, true, false},   {{5, 64, 1}, 8, false, true},  {{5, 128, 1}, 16, false, true},
};
enum { TYPES_COUNT = sizeof TYPES / sizeof *TYPES };

typedef enum operation { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, REDUCE, ALL_TO_ALL, SEND } operation;

/* The root of a broadcast or a reduce. */
static int32_t root;

static plinth_status_t call(operation kind, plinth_communicator_t communicator, const void *from, void *to, size_t count,
                            DLDataType element, int32_t op) {
  switch (kind) {
    case ALL_REDUCE:
      return plinth_communicator_all_reduce(communicator, from, to, count, element, op, NULL);
    case REDUCE_SCATTER:
      return plinth_communicator_reduce_scatter(communicator, from, to, count, element, op, NULL);
    case BROADCAST:
      return plinth_communicator_broadcast(communicator, from, to, count, element, root, NULL);
    case REDUCE:
      return plinth_communicator_reduce(communicator, from, to, count, element, op, root, NULL);
    case ALL_TO_ALL:
      return plinth_communicator_all_to_all(communicator, from, to, count, element, NULL);
    case SEND: {
      /* To the next rank. */
      int32_t own = 0;
      CHECK_OK(plinth_communicator_rank(communicator, &own));
      CHECK_OK(plinth_communicator_group_start());
      CHECK_OK(plinth_communicator_send(communicator, from, count, element, (own + 1) % ranks, NULL));
      CHECK_OK(plinth_communicator_recv(communicator, to, count, element, (own + ranks - 1) % ranks, NULL));
      return plinth_communicator_group_end();
    }
    default:
      return plinth_communicator_all_gather(communicator, from, to, count, element, NULL);
  }
}

/* The memory of a rank: a registered block, and one that is not. Inputs are in the first half, outputs in the second. */
static unsigned char *registered_block, *plain_block;
static unsigned char host[2][BLOCK];

/* Any bits, the same in both blocks. */
static void fill_blocks(int rank, unsigned seed, const type *of) {
  uint64_t state = (uint64_t)seed * 16 + (uint64_t)rank + 1;
  for (size_t index = 0; index < BLOCK; index += 8) {
    const uint64_t bits = random_next(&state);
    memcpy(host[0] + index, &bits, 8);
  }
  for (size_t index = 0; index < BLOCK && of->is_bool; index++) {
    host[0][index] &= 1;
  }
  put(registered_block, host[0], BLOCK);
  put(plain_block, host[0], BLOCK);
}

/* Makes a call with both blocks, and compares all of their bytes. */
static void compare(operation kind, plinth_communicator_t communicator, int rank, const type *of, size_t count, int32_t op,
                    size_t offset, bool in_place) {
  static unsigned seed = 0;
  const size_t row = count * of->bytes, own = (size_t)rank * row;
  size_t from = offset * of->bytes, to = OUTPUT + GUARD + offset * of->bytes;
  if (in_place) {
    to = kind == REDUCE_SCATTER ? from + own : from;
    from = kind == ALL_GATHER ? from + own : from;
  }
  fill_blocks(rank, ++seed, of);
  CHECK_OK(call(kind, communicator, registered_block + from, registered_block + to, count, of->element, op));
  CHECK_OK(call(kind, communicator, plain_block + from, plain_block + to, count, of->element, op));
  finish(communicator);
  fetch(host[0], registered_block, BLOCK);
  fetch(host[1], plain_block, BLOCK);
  if (memcmp(host[0], host[1], BLOCK) != 0) {
    fprintf(stderr, "operation %d, type %d of %zu bytes, count %zu, op %d, offset %zu, in place %d, rank %d\n", kind,
            of->element.code, of->bytes, count, op, offset, in_place, rank);
    CHECK(memcmp(host[0], host[1], BLOCK) == 0);
  }
}

/* A reduce of registered memory to memory of the root that the others cannot write, and to none of theirs. */
static void reduce_to_other_memory(plinth_communicator_t communicator, int rank, size_t count) {
  const type *of = &TYPES[2];
  const size_t bytes = count * of->bytes;
  fill_blocks(rank, 77, of);
  for (root = 0; root < ranks; root++) {
    unsigned char *to[2] = {plain_block + OUTPUT, plain_block + OUTPUT + bytes};
    const bool is_root = rank == root;
    CHECK_OK(call(REDUCE, communicator, registered_block, is_root ? to[0] : NULL, count, of->element, PLINTH_REDUCE_SUM));
    CHECK_OK(call(REDUCE, communicator, plain_block, is_root ? to[1] : NULL, count, of->element, PLINTH_REDUCE_SUM));
    finish(communicator);
    fetch(host[0], to[0], bytes);
    fetch(host[1], to[1], bytes);
    CHECK(!is_root || memcmp(host[0], host[1], bytes) == 0);
  }
}

/* An all_to_all from registered memory to memory that is not, which the others cannot write. */
static void exchange_to_other_memory(plinth_communicator_t communicator, int rank, size_t count) {
  const type *of = &TYPES[2];
  const size_t bytes = (size_t)ranks * count * of->bytes;
  fill_blocks(rank, 78, of);
  unsigned char *to[2] = {plain_block + OUTPUT, plain_block + OUTPUT + bytes};
  CHECK_OK(call(ALL_TO_ALL, communicator, registered_block, to[0], count, of->element, 0));
  CHECK_OK(call(ALL_TO_ALL, communicator, plain_block, to[1], count, of->element, 0));
  finish(communicator);
  fetch(host[0], to[0], bytes);
  fetch(host[1], to[1], bytes);
  CHECK(memcmp(host[0], host[1], bytes) == 0);
}

static void compare_all(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  registered_block = (unsigned char *)block_on(BLOCK, rank);
  plain_block = (unsigned char *)block_on(BLOCK, rank);
  CHECK_OK(plinth_communicator_register(communicator, registered_block, BLOCK));
  CHECK_EQ(uses_of(registered_block).registrations, 1);
  for (int index = 0; index < TYPES_COUNT; index++) {
    const type *of = &TYPES[index];
    for (int32_t op = PLINTH_REDUCE_SUM; op <= PLINTH_REDUCE_AVERAGE; op++) {
      const bool has_order = op == PLINTH_REDUCE_MAX || op == PLINTH_REDUCE_MIN;
      if ((of->is_bool && op == PLINTH_REDUCE_AVERAGE) || (of->is_complex && has_order)) {
        continue;
      }
      compare(ALL_REDUCE, communicator, rank, of, 3001, op, op % 2 == 0 ? 0 : 3, op % 3 == 0);
      compare(REDUCE_SCATTER, communicator, rank, of, 1501, op, op % 2 == 0 ? 5 : 0, op % 3 == 1);
      root = index % ranks;
      compare(REDUCE, communicator, rank, of, 3001, op, op % 2 == 0 ? 3 : 0, op % 3 == 0);
    }
    compare(ALL_GATHER, communicator, rank, of, 1501, 0, index % 4, index % 2 == 0);
    compare(BROADCAST, communicator, rank, of, 3001, 0, index % 4, index % 2 == 0);
    compare(ALL_TO_ALL, communicator, rank, of, 1501, 0, index % 4, false);
    compare(SEND, communicator, rank, of, 3001, 0, index % 4, false);
  }
  /* Sizes about those of a unit, a part and a block; of more ranks, which share the processors here, some of them. */
  static const size_t counts[] = {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1023, 4096, 16385};
  for (size_t index = 0; index < sizeof counts / sizeof *counts; index += ranks > 2 ? 6 : 1) {
    for (int in_place = 0; in_place < 2; in_place++) {
      for (size_t offset = 0; offset < 5; offset += 4) {
        compare(ALL_REDUCE, communicator, rank, &TYPES[4], counts[index], PLINTH_REDUCE_SUM, offset, in_place != 0);
        compare(ALL_REDUCE, communicator, rank, &TYPES[2], counts[index], PLINTH_REDUCE_SUM, offset, in_place != 0);
        compare(REDUCE_SCATTER, communicator, rank, &TYPES[2], counts[index], PLINTH_REDUCE_SUM, offset, in_place != 0);
        compare(ALL_GATHER, communicator, rank, &TYPES[2], counts[index], 0, offset, in_place != 0);
        compare(ALL_TO_ALL, communicator, rank, &TYPES[2], counts[index], 0, offset, in_place != 0);
        compare(SEND, communicator, rank, &TYPES[4], counts[index], 0, offset, false);
        compare(SEND, communicator, rank, &TYPES[2], counts[index], 0, offset, false);
        for (root = 0; root < ranks; root += ranks - 1) {
          compare(BROADCAST, communicator, rank, &TYPES[4], counts[index], 0, offset, in_place != 0);
          compare(BROADCAST, communicator, rank, &TYPES[2], counts[index], 0, offset, in_place != 0);
          compare(REDUCE, communicator, rank, &TYPES[2], counts[index], PLINTH_REDUCE_SUM, offset, in_place != 0);
        }
      }
    }
  }
  reduce_to_other_memory(communicator, rank, 3001);
  exchange_to_other_memory(communicator, rank, 1501);
  CHECK_OK(plinth_communicator_deregister(communicator, registered_block));
  CHECK_EQ(uses_of(registered_block).registrations, 0);
  compare(ALL_REDUCE, communicator, rank, &TYPES[2], 5000, PLINTH_REDUCE_SUM, 0, true);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

static void compare_in_processes(int count) {
  ranks = count;
  run_processes(ranks, compare_all);
}

TEST(two_ranks_get_the_same_bits) { compare_in_processes(2); }
TEST(three_ranks_get_the_same_bits) { compare_in_processes(3); }
TEST(four_ranks_get_the_same_bits) { compare_in_processes(4); }

/* ---- sends */

/* Messages of every kind in turn: to registered memory or not, longer than the buffer between two ranks or not. */
static void send_by_turns(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *from = floats_in_block(rank, 0), *block = floats_in_block(rank, -1), *plain = floats_in_block(rank, -1);
  static float numbers[BLOCK / sizeof(float)];
  for (size_t index = 0; index < BLOCK / sizeof(float); index++) {
    numbers[index] = (float)(rank * 1000000 + (int)index);
  }
  put(from, numbers, sizeof numbers);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  static const size_t counts[] = {1, 5000, 256, 257, 100001, 0, 3, 65536};
  const int32_t next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  for (size_t index = 0; index < 4 * (sizeof counts / sizeof *counts); index++) {
    const size_t count = counts[index / 4], offset = index % 3;
    /* In some of the rounds only some ranks receive in registered memory. */
    float *to = (index % 4 == 0 || (index % 4 == 1 && rank % 2 == 0)) ? block : plain;
    CHECK_OK(plinth_communicator_group_start());
    CHECK_OK(plinth_communicator_send(communicator, from + offset, count, FLOAT32, next, NULL));
    CHECK_OK(plinth_communicator_recv(communicator, to, count, FLOAT32, previous, NULL));
    CHECK_OK(plinth_communicator_group_end());
    finish(communicator);
    expect_floats(to, count, (float)(previous * 1000000 + (int)offset), 1);
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(messages_to_registered_memory_and_to_other_memory_alternate) {
  for (ranks = 2; ranks <= 4; ranks++) {
    run_processes(ranks, send_by_turns);
  }
}

/* Rank 1 receives after rank 0 has changed what it sends: the sender of a long message waits for the receiver. */
static void send_late(int rank) {
  char word = 0;
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  plinth_stream_t stream = stream_on(rank), other = stream_on(rank);
  float *block = floats_in_block(rank, 1);
  static float twos[BLOCK / sizeof(float)];
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 0) {
    for (size_t index = 0; index < BLOCK / sizeof(float); index++) {
      twos[index] = 2;
    }
    CHECK_OK(plinth_communicator_send(communicator, block, 100000, FLOAT32, 1, stream));
    sleep_milliseconds(200);
    CHECK(!stream_done(stream));
    CHECK_OK(plinth_memcpy(block, twos, sizeof twos, other));
    CHECK_OK(plinth_stream_synchronize(other));
    CHECK_EQ(write(processes.pipes[1][1], "", 1), 1);
  } else {
    CHECK_EQ(read(processes.pipes[1][0], &word, 1), 1);
    CHECK_OK(plinth_communicator_recv(communicator, block, 100000, FLOAT32, 0, stream));
  }
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
  expect_floats(block, 100000, 2, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(the_sender_of_a_long_message_waits_for_the_receiver) {
  ranks = 2;
  run_processes(ranks, send_late);
}

/* Rank 0 sends more than rank 1 receives in its registered memory, or less. An eager send may be complete before. */
enum { EAGER_COUNT = 3 };
static size_t sent_count;

static void send_another_count(int rank) {
  char word = 0;
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *block = floats_in_block(rank, 1);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 0) {
    CHECK_OK(plinth_communicator_send(communicator, block, sent_count, FLOAT32, 1, NULL));
  } else {
    CHECK_OK(plinth_memset(block, 0, BLOCK, NULL));
    CHECK_OK(plinth_communicator_recv(communicator, block, 50000, FLOAT32, 0, NULL));
  }
  const double start = seconds_now();
  const plinth_status_t status = plinth_communicator_wait(communicator, MILLISECONDS, NULL);
  if (rank == 1 || sent_count != EAGER_COUNT || status != PLINTH_OK) {
    CHECK_STATUS(status, PLINTH_ERROR_RANK_MISMATCH);
  }
  CHECK(seconds_now() - start < SOON);
  /* Rank 0 does not leave before rank 1 has found the mismatch. */
  if (rank == 1) {
    expect_floats(block, BLOCK / sizeof(float), 0, 0);
    CHECK_EQ(write(processes.pipes[0][1], "", 1), 1);
  } else {
    CHECK_EQ(read(processes.pipes[0][0], &word, 1), 1);
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_message_of_another_size_does_not_touch_registered_memory) {
  ranks = 2;
  static const size_t counts[] = {100000, 40000, EAGER_COUNT};
  for (size_t index = 0; index < sizeof counts / sizeof *counts; index++) {
    sent_count = counts[index];
    run_processes(ranks, send_another_count);
  }
}

/* More registrations than kernels find by their places; those beyond are sent through the buffer between two ranks. */
static void register_many(int rank) {
  enum { MANY = 70, BYTES = 16384 };
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *block = (float *)block_on(MANY * BYTES, rank), *from = (float *)block_on(MANY * BYTES, rank);
  const size_t count = BYTES / sizeof(float);
  static float numbers[MANY * BYTES / sizeof(float)];
  for (size_t index = 0; index < MANY * count; index++) {
    numbers[index] = (float)(rank * 1000000 + (int)index);
  }
  put(from, numbers, sizeof numbers);
  for (size_t index = 0; index < MANY; index++) {
    CHECK_OK(plinth_communicator_register(communicator, block + index * count, BYTES));
    /* One of the first ends, and a later one takes its row. */
    if (index == 40) {
      CHECK_OK(plinth_communicator_deregister(communicator, block + 20 * count));
    }
  }
  for (size_t index = 0; index < MANY; index++) {
    CHECK_OK(call(SEND, communicator, from + index * count, block + index * count, count, FLOAT32, 0));
    finish(communicator);
    expect_floats(block + index * count, count, (float)((1 - rank) * 1000000 + (int)(index * count)), 1);
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(there_may_be_many_registrations) {
  ranks = 2;
  run_processes(ranks, register_many);
}

/* Deregistration waits for the work of its rank, so the result may be used in any stream afterwards. */
static void use_after_deregistration(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  plinth_stream_t stream = stream_on(rank), other = stream_on(rank);
  float *block = floats_in_block(rank, 1);
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  CHECK_OK(plinth_communicator_all_reduce(communicator, block, block, 10000, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_STATUS(plinth_memset(block, 0, 4, other), PLINTH_ERROR_RACE);
  CHECK_OK(plinth_communicator_deregister(communicator, block));
  CHECK_OK(plinth_memset(block, 0, 4, other));
  CHECK_OK(plinth_stream_synchronize(other));
  expect_floats(block + 1, 9999, (float)ranks, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(deregistration_is_an_order_for_the_sanitizer) {
  ranks = 2;
  run_processes(ranks, use_after_deregistration);
}

/* ---- mismatches */

/* The operation of a test. */
static operation tested;
static bool is_at_another_offset;

/* Rank 1 makes the call with memory that is not registered, or at another offset. */
static void mismatch(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  bool ready = false;
  unsigned char *block = (unsigned char *)block_on(BLOCK, rank), *plain = (unsigned char *)block_on(BLOCK, rank);
  unsigned char *from = block, *to = block + OUTPUT;
  memset(host[0], 7, BLOCK);
  put(block, host[0], BLOCK);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 1 && is_at_another_offset) {
    from += 4096;
    to += 8192;
  } else if (rank == 1) {
    from = plain;
    to = plain + OUTPUT;
  }
  const double start = seconds_now();
  CHECK_OK(call(tested, communicator, from, to, 16384, FLOAT32, PLINTH_REDUCE_SUM));
  CHECK_STATUS(plinth_communicator_wait(communicator, MILLISECONDS, NULL), PLINTH_ERROR_RANK_MISMATCH);
  const bool is_to = tested == ALL_GATHER || tested == BROADCAST || tested == ALL_TO_ALL;
  if (strstr(plinth_last_error(), " calls ") != NULL) {
    CHECK_MESSAGE(is_to ? "to byte 524288 of registration 1" : "from byte 0 of registration 1");
    CHECK_MESSAGE(!is_at_another_offset      ? "in memory that is not registered"
                  : is_to                    ? "to byte 532480 of registration 1"
                  : tested == ALL_REDUCE ? "from byte 4096 of registration 1 to byte 532480 of registration 1"
                                             : "from byte 4096 of registration 1");
  }
  CHECK(seconds_now() - start < SOON);
  CHECK_STATUS(plinth_communicator_query(communicator, &ready), PLINTH_ERROR_ABORTED);
  /* What is no output was not written. */
  fetch(host[1], block, BLOCK);
  CHECK(memcmp(host[0], host[1], OUTPUT) == 0);
  CHECK(rank == 0 || !is_at_another_offset || memcmp(host[0], host[1], OUTPUT + 8192) == 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_EQ(uses_of(block).registrations, 0);
}

static void mismatch_in(operation kind, bool at_another_offset) {
  tested = kind;
  is_at_another_offset = at_another_offset;
  ranks = 2;
  run_processes(ranks, mismatch);
}

TEST(all_reduce_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(ALL_REDUCE, false); }
TEST(all_reduce_at_different_offsets_is_a_mismatch) { mismatch_in(ALL_REDUCE, true); }
TEST(reduce_scatter_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(REDUCE_SCATTER, false); }
TEST(all_gather_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(ALL_GATHER, false); }
TEST(all_gather_at_different_offsets_is_a_mismatch) { mismatch_in(ALL_GATHER, true); }
TEST(broadcast_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(BROADCAST, false); }
TEST(broadcast_at_different_offsets_is_a_mismatch) { mismatch_in(BROADCAST, true); }
TEST(reduce_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(REDUCE, false); }
TEST(reduce_at_different_offsets_is_a_mismatch) { mismatch_in(REDUCE, true); }
TEST(all_to_all_with_memory_that_one_rank_has_not_registered_is_a_mismatch) { mismatch_in(ALL_TO_ALL, false); }
TEST(all_to_all_at_different_offsets_is_a_mismatch) { mismatch_in(ALL_TO_ALL, true); }

/* Rank 1 is killed before its call; the others wait for it in theirs. */
static void lose_rank_1(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  unsigned char *block = (unsigned char *)block_on(BLOCK, rank);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 1) {
    char word = 0;
    for (int other = 0; other < ranks; other += 2) {
      CHECK_EQ(read(processes.pipes[1][0], &word, 1), 1);
    }
    raise(SIGKILL);
  }
  CHECK_OK(call(tested, communicator, block, block + OUTPUT, 16384, FLOAT32, PLINTH_REDUCE_SUM));
  CHECK_EQ(write(processes.pipes[1][1], "", 1), 1);
  CHECK_STATUS(plinth_communicator_wait(communicator, MILLISECONDS, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("rank 1");
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_EQ(uses_of(block).registrations, 0);
}

TEST(a_rank_that_is_killed_ends_the_calls_of_the_others) {
  static const operation all[] = {BROADCAST, REDUCE, ALL_TO_ALL, ALL_REDUCE, SEND};
  ranks = 3;
  for (size_t index = 0; index < sizeof all / sizeof *all; index++) {
    tested = all[index];
    /* The root of the broadcast is the rank that is killed, or one that waits for it. */
    for (root = 0; root < 2; root++) {
      start_processes(ranks, lose_rank_1);
      for (int rank = 0; rank < ranks; rank++) {
        int status = 0;
        EVENTUALLY(waitpid(processes.pids[rank], &status, WNOHANG) != 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
          SKIP("its processes skipped");
        }
        CHECK(rank == 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0);
      }
    }
  }
}

/* ---- sleep */

/* While the communicator sleeps, nothing is registered; the ranks find what was registered before when it is awake. */
static void sleep_and_wake(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *block = floats_in_block(rank, (float)rank), *to = floats_in_block(rank, -1), *other = floats_in_block(rank, 0);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  CHECK_OK(plinth_communicator_sleep(communicator));
  CHECK_STATUS(plinth_communicator_register(communicator, other, BLOCK), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_EQ(uses_of(other).registrations, 0);
  CHECK_OK(plinth_communicator_wake(communicator));
  root = 2;
  CHECK_OK(call(SEND, communicator, block, to, 100000, FLOAT32, 0));
  CHECK_OK(call(REDUCE, communicator, block, block + 110000, 100000, FLOAT32, PLINTH_REDUCE_SUM));
  finish(communicator);
  expect_floats(to, 100000, (float)((rank + ranks - 1) % ranks), 0);
  expect_floats(block + 110000, rank == root ? 100000 : 0, 3, 0);
  CHECK_OK(plinth_communicator_register(communicator, other, BLOCK));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(registrations_outlast_the_sleep_of_the_communicator) {
  ranks = 3;
  run_processes(ranks, sleep_and_wake);
}

/* ---- graphs */

enum { COUNT = 5000, ROUNDS = 20, REPLAYS = 5 };

static void replay(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  plinth_graph_t graph;
  plinth_stream_t stream = stream_on(rank);
  float *block = floats_in_block(rank, 0);
  float *all = block + 2 * COUNT, *part = floats_on(rank, COUNT, 0, 0), *rows = floats_on(rank, (size_t)ranks * COUNT, 0, 0);
  float *copied = all + (size_t)ranks * COUNT, *reduced = copied + COUNT, *received = reduced + COUNT;
  static float numbers[COUNT];
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_communicator_broadcast(communicator, block, copied, COUNT, FLOAT32, ranks - 1, stream));
  CHECK_OK(plinth_communicator_all_reduce(communicator, block, block, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  CHECK_OK(plinth_communicator_reduce(communicator, block, reduced, COUNT, FLOAT32, PLINTH_REDUCE_SUM, 0, stream));
  CHECK_OK(plinth_communicator_all_gather(communicator, block, all, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_reduce_scatter(communicator, all, part, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_all_to_all(communicator, all, rows, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicator, reduced, COUNT, FLOAT32, (rank + 1) % ranks, stream));
  CHECK_OK(plinth_communicator_recv(communicator, received, COUNT, FLOAT32, (rank + ranks - 1) % ranks, stream));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < ROUNDS; round++) {
    for (int index = 0; index < COUNT; index++) {
      numbers[index] = (float)(round * 100 + rank + index);
    }
    put(block, numbers, sizeof numbers);
    for (int again = 0; again < REPLAYS; again++) {
      CHECK_OK(plinth_graph_replay(graph));
    }
    CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
    expect_floats(block, COUNT, (float)(round * 100 + ranks - 1), 1);
    for (int other = 0; other < ranks; other++) {
      expect_floats(all + (size_t)other * COUNT, COUNT, (float)(round * 100 + ranks - 1), 1);
    }
    expect_floats(copied, COUNT, (float)(round * 100 + ranks - 1), 1);
    expect_floats(received, rank == 1 ? COUNT : 0, (float)(ranks * (round * 100 + ranks - 1)), (float)ranks);
    expect_floats(reduced, rank == 0 ? COUNT : 0, (float)(ranks * (round * 100 + ranks - 1)), (float)ranks);
    for (int other = 0; other < ranks; other++) {
      expect_floats(rows + (size_t)other * COUNT, COUNT, (float)(round * 100 + ranks - 1), 1);
    }
    expect_floats(part, COUNT, (float)(ranks * (round * 100 + ranks - 1)), (float)ranks);
    /* An eager call between the replays. */
    CHECK_OK(plinth_communicator_all_reduce(communicator, part, part, COUNT, FLOAT32, PLINTH_REDUCE_MIN, stream));
  }
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(two_ranks_replay) {
  ranks = 2;
  run_processes(ranks, replay);
}

TEST(four_ranks_replay) {
  ranks = 4;
  run_processes(ranks, replay);
}
