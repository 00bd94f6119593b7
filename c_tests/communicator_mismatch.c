/* Ranks whose calls do not match, and memory that overlaps: each rank gets an error. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
#include "registering.h"

enum { COUNT = 3000 };

/* ---- calls of the CPU */

enum call { REGISTER, SPLIT, SLEEP };
static const char *const names[] = {"register", "split", "sleep"};
static enum call calls[2];

static void call_differently(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS), part = UNTOUCHED_POINTER;
  void *block = block_on(BLOCK, rank);
  const double start = seconds_now();
  plinth_status_t status = PLINTH_OK;
  bool ready = false;
  switch (calls[rank]) {
    case REGISTER: status = plinth_communicator_register(communicator, block, BLOCK); break;
    case SPLIT: status = plinth_communicator_split(communicator, 0, rank, &part); break;
    case SLEEP: status = plinth_communicator_sleep(communicator); break;
  }
  CHECK_STATUS(status, PLINTH_ERROR_RANK_MISMATCH);
  CHECK_MESSAGE("collective mismatch");
  /* The rank that notices it first names both calls. */
  if (strstr(plinth_last_error(), "reported") == NULL) {
    CHECK_MESSAGE(names[calls[0]]);
    CHECK_MESSAGE(names[calls[1]]);
  }
  CHECK(seconds_now() - start < SOON);
  CHECK_SAME(part, UNTOUCHED_POINTER);
  CHECK_EQ(uses_of(block).registrations, 0);
  CHECK_STATUS(plinth_communicator_query(communicator, &ready), PLINTH_ERROR_RANK_MISMATCH);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(different_calls_of_the_cpu_end_the_communicator) {
  static const enum call pairs[][2] = {{REGISTER, SPLIT}, {REGISTER, SLEEP}, {SPLIT, SLEEP}, {SLEEP, REGISTER}};
  ranks = 2;
  for (size_t pair = 0; pair < sizeof pairs / sizeof *pairs; pair++) {
    memcpy(calls, pairs[pair], sizeof calls);
    run_processes(ranks, call_differently);
  }
}

/* ---- messages */

static void receive_nothing(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *first = floats_on(rank, COUNT, 1, 0), *second = floats_on(rank, COUNT, 2, 0);
  /* Two empty messages match. */
  if (rank == 0) {
    CHECK_OK(plinth_communicator_send(communicator, first, 0, FLOAT32, 1, NULL));
    CHECK_OK(plinth_communicator_send(communicator, second, COUNT, FLOAT32, 1, NULL));
  } else {
    CHECK_OK(plinth_communicator_recv(communicator, first, 0, FLOAT32, 0, NULL));
    CHECK_OK(plinth_communicator_recv(communicator, first, COUNT, FLOAT32, 0, NULL));
  }
  finish(communicator);
  expect_floats(first, COUNT, rank == 0 ? 1 : 2, 0);
  if (rank == 0) {
    CHECK_OK(plinth_communicator_send(communicator, first, COUNT, FLOAT32, 1, NULL));
  } else {
    CHECK_OK(plinth_communicator_recv(communicator, second, 0, FLOAT32, 0, NULL));
  }
  /* The sender of a short message may be done before the receiver compares. */
  const plinth_status_t status = plinth_communicator_wait(communicator, MILLISECONDS, NULL);
  CHECK(status == PLINTH_ERROR_RANK_MISMATCH || (rank == 0 && status == PLINTH_OK));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_message_that_another_rank_takes_for_empty_is_a_mismatch) {
  ranks = 2;
  run_processes(ranks, receive_nothing);
}

static bool learns_by_a_call;

/* Rank 0 has no kernel that runs when rank 1 finds the mismatch. It learns of it on the CPU, where it waits. */
static void split_after_a_mismatch(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS), part = UNTOUCHED_POINTER;
  float *memory = floats_on(rank, COUNT, 1, 0);
  const double start = seconds_now();
  if (rank == 0) {
    CHECK_OK(plinth_communicator_send(communicator, memory, 1, FLOAT32, 1, NULL));
    CHECK_OK(plinth_synchronize(0));
    CHECK_STATUS(plinth_communicator_split(communicator, 0, rank, &part), PLINTH_ERROR_RANK_MISMATCH);
    CHECK(seconds_now() - start < SOON);
    CHECK_EQ(write(processes.pipes[1][1], "", 1), 1);
  } else {
    char byte = 1;
    CHECK_OK(plinth_communicator_recv(communicator, memory, 2, FLOAT32, 0, NULL));
    CHECK_OK(plinth_synchronize(1));
    CHECK_STATUS(learns_by_a_call
                     ? plinth_communicator_all_reduce(communicator, memory, memory, 1, FLOAT32, PLINTH_REDUCE_SUM, NULL)
                     : plinth_communicator_wait(communicator, MILLISECONDS, NULL),
                 PLINTH_ERROR_RANK_MISMATCH);
    /* It keeps its communicator until rank 0 has learned of it. */
    CHECK_EQ(read(processes.pipes[1][0], &byte, 1), 1);
  }
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_rank_that_waits_on_the_cpu_learns_of_a_mismatch) {
  ranks = 2;
  for (int round = 0; round < 2; round++) {
    learns_by_a_call = round == 1;
    run_processes(ranks, split_after_a_mismatch);
  }
}

/* ---- memory that overlaps */

static void reduce_to_itself(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *in_place = floats_on(rank, COUNT, 1, 0), *memory = floats_on(rank, 2 * COUNT, 5, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_all_reduce(communicator, in_place, in_place, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_STATUS(plinth_communicator_all_reduce(communicator, memory, memory + 1, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("overlap");
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  finish(communicator);
  /* Nothing of the group was executed. */
  expect_floats(in_place, COUNT, 1, 0);
  expect_floats(memory, 2 * COUNT, 5, 0);
  /* The part of this rank, and no other one, may be the input or the output. */
  float *own = memory + (size_t)rank * COUNT, *other = memory + (size_t)(1 - rank) * COUNT;
  CHECK_STATUS(plinth_communicator_all_gather(communicator, other, memory, COUNT, FLOAT32, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_reduce_scatter(communicator, memory, other, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_all_gather(communicator, own, memory, COUNT, FLOAT32, NULL));
  CHECK_OK(plinth_communicator_reduce_scatter(communicator, memory, own, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  finish(communicator);
  expect_floats(own, COUNT, 10, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_group_with_memory_that_overlaps_is_refused_as_a_whole) {
  ranks = 2;
  run_processes(ranks, reduce_to_itself);
}

static void reduce_in_one_process(int process) {
  const int32_t devices[] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, MILLISECONDS, 0);
  plinth_communicator_t communicators[2];
  (void)process;
  need_devices(2);
  CHECK_OK(plinth_communicator_init_all(devices, 2, &options, communicators));
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    float *memory = floats_on(rank, 2 * COUNT, 0, 1);
    CHECK_STATUS(plinth_communicator_all_reduce(communicators[rank], memory, memory + 1, COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                                NULL),
                 PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  for (int rank = 0; rank < 2; rank++) CHECK_OK(plinth_communicator_destroy(communicators[rank]));
}

TEST(memory_that_overlaps_is_refused_in_one_process) {
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "local");
  run_processes(1, reduce_in_one_process);
}

/* ---- memory that ends beyond all addresses */

static void *const beyond = (void *)(UINTPTR_MAX - 4095);

static void use_what_is_no_memory(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  void *block = block_on(BLOCK, rank);
#define REFUSED(call) CHECK_STATUS(plinth_communicator_##call, PLINTH_ERROR_INVALID_VALUE)
  REFUSED(all_reduce(communicator, block, beyond, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_MESSAGE("the memory that is written, 12000 bytes at 0xfffffffffffff000, ends beyond all addresses");
  REFUSED(all_gather(communicator, beyond, block, COUNT, FLOAT32, NULL));
  REFUSED(reduce_scatter(communicator, beyond, block, 513, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  REFUSED(send(communicator, beyond, COUNT, FLOAT32, 1 - rank, NULL));
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  CHECK_STATUS(plinth_communicator_register(communicator, beyond, 8192), PLINTH_ERROR_INVALID_POINTER);
  finish(communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_caching_allocator_delete(block));
}

TEST(memory_that_ends_beyond_all_addresses_is_refused) {
  ranks = 2;
  run_processes(ranks, use_what_is_no_memory);
}
