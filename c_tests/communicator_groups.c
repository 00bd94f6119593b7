/* Groups of calls: their order, refused calls, and the state after a failed group.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: calls_of_a_group_are_ordered_across_engines; sets the environment */
#include "ranks.h"

enum { RANKS = 2, COUNT = 1000, LIMIT = 20000 };

static plinth_communicator_t communicators[RANKS], other_communicators[RANKS];

/* Creates communicators on the first two devices, with the engine that the environment selects. */
static void make_communicators(plinth_communicator_t *ranks) {
  const int32_t devices[RANKS] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, LIMIT, 0);
  need_devices(RANKS);
  need_nccl();
  CHECK_OK(plinth_communicator_init_all(devices, RANKS, &options, ranks));
}

static void destroy_communicators(plinth_communicator_t *ranks) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_destroy(ranks[rank]));
  }
}

static plinth_status_t sum(plinth_communicator_t communicator, float *memory, size_t count) {
  return plinth_communicator_all_reduce(communicator, memory, memory, count, FLOAT32, PLINTH_REDUCE_SUM, NULL);
}

/* The communicators work, and no call of an earlier group runs with the new ones. */
static void expect_usable(plinth_communicator_t *ranks) {
  float *memory[RANKS], *sent = floats_on(0, COUNT, 5, 1), *received = floats_on(1, COUNT, -1, 0);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    memory[rank] = floats_on(rank, COUNT, (float)(rank + 1), 0);
    CHECK_OK(sum(ranks[rank], memory[rank], COUNT));
  }
  CHECK_OK(plinth_communicator_send(ranks[0], sent, COUNT, FLOAT32, 1, NULL));
  CHECK_OK(plinth_communicator_recv(ranks[1], received, COUNT, FLOAT32, 0, NULL));
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_wait(ranks[rank], 0, NULL));
    expect_floats(memory[rank], COUNT, 3, 0);
  }
  expect_floats(received, COUNT, 5, 1);
}

TEST(calls_of_a_failed_group_never_run) {
  make_communicators(communicators);
  float *memory = floats_on(0, COUNT, 77, 0), *wrong = floats_on(1, COUNT, 2, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(communicators[0], memory, COUNT));
  CHECK_OK(sum(communicators[0], memory, COUNT));
  CHECK_OK(plinth_communicator_send(communicators[0], memory, COUNT, FLOAT32, 1, NULL));
  CHECK_OK(plinth_communicator_recv(communicators[1], wrong, COUNT, FLOAT32, 1, NULL));
  CHECK_OK(sum(communicators[1], wrong, COUNT - 1));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_RANK_MISMATCH);
  expect_usable(communicators);
  expect_floats(memory, COUNT, 77, 0);
  expect_floats(wrong, COUNT, 2, 0);
  destroy_communicators(communicators);
}

TEST(an_aborted_communicator_in_a_group_does_not_affect_another) {
  make_communicators(communicators);
  make_communicators(other_communicators);
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_abort(other_communicators[1]));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(communicators[0], memory, COUNT));
  CHECK_OK(sum(other_communicators[0], memory, COUNT));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_ABORTED);
  expect_usable(communicators);
  expect_floats(memory, COUNT, 77, 0);
  destroy_communicators(communicators);
  destroy_communicators(other_communicators);
}

TEST(a_timeout_of_a_communicator_in_a_group_does_not_affect_another) {
  make_communicators(communicators);
  make_communicators(other_communicators);
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_set_timeout(other_communicators[0], 100));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(other_communicators[0], memory, COUNT));
  CHECK_OK(sum(communicators[0], memory, COUNT));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_TIMED_OUT);
  expect_usable(communicators);
  expect_floats(memory, COUNT, 77, 0);
  destroy_communicators(communicators);
  destroy_communicators(other_communicators);
}

TEST(calls_of_a_cancelled_group_never_run) {
  make_communicators(communicators);
  plinth_communicator_t parts[RANKS] = {NULL, NULL};
  float *memory[RANKS];
  CHECK_STATUS(plinth_communicator_group_cancel(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    memory[rank] = floats_on(rank, COUNT, 77, 0);
    CHECK_OK(sum(communicators[rank], memory[rank], COUNT));
    CHECK_OK(plinth_communicator_split(communicators[rank], 0, 0, &parts[rank]));
  }
  CHECK_STATUS(sum(communicators[0], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_group_cancel());
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  expect_usable(communicators);
  for (int rank = 0; rank < RANKS; rank++) {
    expect_floats(memory[rank], COUNT, 77, 0);
    CHECK(parts[rank] == NULL);
  }
  destroy_communicators(communicators);
}

TEST(a_cancelled_nested_group_leaves_the_outer_one) {
  make_communicators(communicators);
  float *inner[RANKS], *outer[RANKS];
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    outer[rank] = floats_on(rank, COUNT, 1, 0);
    inner[rank] = floats_on(rank, COUNT, 77, 0);
    CHECK_OK(sum(communicators[rank], outer[rank], COUNT));
    CHECK_OK(plinth_communicator_group_start());
    CHECK_OK(sum(communicators[rank], inner[rank], COUNT));
    CHECK_STATUS(sum(communicators[rank], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
    CHECK_OK(plinth_communicator_group_cancel());
  }
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_wait(communicators[rank], 0, NULL));
    expect_floats(outer[rank], COUNT, 2, 0);
    expect_floats(inner[rank], COUNT, 77, 0);
  }
  destroy_communicators(communicators);
}

/* ---- refused calls */

/* Starts a group with a call of rank 0. After a refused call the group must end with the status of that call, and long before
 * the timeout. */
static float *begin_group(void) {
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(communicators[0], memory, COUNT));
  return memory;
}

static void expect_refused_group(plinth_status_t status, const float *memory) {
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_group_end(), status);
  CHECK_MESSAGE("a call in the group was refused, and with it the group: ");
  CHECK(seconds_now() - start < LIMIT / 4000.0);
  expect_usable(communicators);
  expect_floats(memory, COUNT, 77, 0);
}

#define REFUSES(call, status)             \
  do {                                    \
    float *memory = begin_group();        \
    CHECK_STATUS(call, status);           \
    expect_refused_group(status, memory); \
  } while (0)

TEST(a_group_with_a_refused_call_ends_at_once) {
  make_communicators(communicators);
  plinth_communicator_t part = NULL;
  float *data = floats_on(1, COUNT, 1, 0);
  REFUSES(sum(communicators[1], (float *)((char *)data + 2), COUNT), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(sum(communicators[1], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
  REFUSES(sum(NULL, data, COUNT), PLINTH_ERROR_NULL_POINTER);
  REFUSES(sum((plinth_communicator_t)data, data, COUNT), PLINTH_ERROR_INVALID_HANDLE);
  REFUSES(plinth_communicator_all_reduce(communicators[1], data, data, COUNT, FLOAT32, 9, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_all_reduce(communicators[1], data, data, COUNT, BOOLEAN, PLINTH_REDUCE_AVERAGE, NULL),
          PLINTH_ERROR_NOT_SUPPORTED);
  REFUSES(plinth_communicator_reduce(communicators[1], data, data, COUNT, FLOAT32, 0, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_broadcast(communicators[1], data, data, COUNT, FLOAT32, -1, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_all_gather(communicators[1], data, NULL, COUNT, FLOAT32, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_reduce_scatter(communicators[1], NULL, data, COUNT, FLOAT32, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_all_to_all(communicators[1], data, NULL, COUNT, FLOAT32, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_send(communicators[1], data, COUNT, FLOAT32, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_recv(communicators[1], data, COUNT, FLOAT32, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_split(communicators[1], -2, 0, &part), PLINTH_ERROR_INVALID_VALUE);
  destroy_communicators(communicators);
}

TEST(a_refused_nested_group_refuses_the_outer_one) {
  make_communicators(communicators);
  float *memory = begin_group();
  CHECK_OK(plinth_communicator_group_start());
  CHECK_STATUS(sum(communicators[1], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(sum(communicators[1], floats_on(1, COUNT, 1, 0), COUNT));
  expect_refused_group(PLINTH_ERROR_NULL_POINTER, memory);
  destroy_communicators(communicators);
}

TEST(refused_torch_nccl_calls_refuse_the_group) {
  int64_t shape[] = {COUNT};
  DLTensor tensors[RANKS];
  make_communicators(communicators);
  for (int rank = 0; rank < RANKS; rank++) {
    const DLTensor tensor = {floats_on(rank, COUNT, 1, 0), {2, rank}, 1, FLOAT32, shape, NULL, 0};
    tensors[rank] = tensor;
  }
  /* The call of rank 1 is refused for its stream when that of rank 0 is in the group already. */
  plinth_stream_t streams[RANKS] = {NULL, stream_on(0)};
  REFUSES(plinth_nccl_all_reduce(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, streams, communicators),
          PLINTH_ERROR_DEVICE_MISMATCH);
  REFUSES(plinth_nccl_all_reduce(tensors, NULL, RANKS, 9, NULL, communicators), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_nccl_reduce(tensors, NULL, RANKS, 2, PLINTH_REDUCE_SUM, NULL, communicators), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_nccl_broadcast(tensors, RANKS, 2, NULL, communicators), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_nccl_all_gather(tensors, NULL, RANKS, NULL, communicators), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_nccl_reduce_scatter(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, NULL, communicators), PLINTH_ERROR_NULL_POINTER);
  /* Outside of a group only the call itself fails. */
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, streams, communicators),
               PLINTH_ERROR_DEVICE_MISMATCH);
  expect_usable(communicators);
  destroy_communicators(communicators);
}

/* ---- order */

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];

/* Alternates small and large calls, so that the library's kernels and NCCL alternate too. */
static void *alternate_engines(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t communicator = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, LIMIT, 0);
  /* Copies to a rank's memory must not wait behind a stream in which the other rank waits. */
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &communicator));
  float *memory = floats_on(rank, COUNT, 1, 0), *copy = floats_on(rank, COUNT, -1, 0);
  float *small = floats_on(rank, 4, -1, 0), *large = floats_on(rank, COUNT, -1, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(communicator, memory, 4));
  CHECK_OK(plinth_communicator_broadcast(communicator, memory, copy, COUNT, FLOAT32, 0, NULL));
  CHECK_OK(sum(communicator, copy, 4));
  CHECK_OK(sum(communicator, copy, COUNT));
  CHECK_OK(plinth_communicator_group_end());
  /* The two ranks send and receive in different orders. */
  CHECK_OK(plinth_communicator_group_start());
  for (int step = 0; step < 2; step++) {
    if (step == rank) {
      CHECK_OK(plinth_communicator_send(communicator, memory, 4, FLOAT32, 1 - rank, NULL));
      CHECK_OK(plinth_communicator_recv(communicator, small, 4, FLOAT32, 1 - rank, NULL));
    } else {
      CHECK_OK(plinth_communicator_send(communicator, memory, COUNT, FLOAT32, 1 - rank, NULL));
      CHECK_OK(plinth_communicator_recv(communicator, large, COUNT, FLOAT32, 1 - rank, NULL));
    }
  }
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(communicator, LIMIT, NULL));
  expect_floats(memory, 4, 2, 0);
  expect_floats(copy, 4, 8, 0);
  expect_floats(copy + 4, COUNT - 4, 2, 0);
  expect_floats(small, 4, 2, 0);
  expect_floats(large, 4, 2, 0);
  expect_floats(large + 4, COUNT - 4, 1, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
  return NULL;
}

TEST(calls_of_a_group_are_ordered_across_engines) {
  need_devices(RANKS);
  need_nccl();
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  setenv("PLINTH_COMMUNICATOR_NCCL_FROM", "1024", 1);
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(RANKS, alternate_engines);
}
