/* Groups of calls: their order, calls in them that are refused, and what is left of one that failed.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: what_all_ranks_do_in_a_group_is_in_order_whoever_does_it; sets the environment */
#include "ranks.h"

enum { RANKS = 2, COUNT = 1000, LIMIT = 20000 };

static plinth_communicator_t team[RANKS], other[RANKS];

/* Communicators of the first two devices, by the engine that the environment says. */
static void make(plinth_communicator_t *ranks) {
  const int32_t devices[RANKS] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, LIMIT, 0);
  need_devices(RANKS);
  need_nccl();
  CHECK_OK(plinth_communicator_init_all(devices, RANKS, &options, ranks));
}

static void end(plinth_communicator_t *ranks) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_destroy(ranks[rank]));
  }
}

static plinth_status_t sum(plinth_communicator_t own, float *memory, size_t count) {
  return plinth_communicator_all_reduce(own, memory, memory, count, FLOAT32, PLINTH_REDUCE_SUM, NULL);
}

/* Two ranks do something together, and with nothing but what they bring to it now. */
static void expect_a_new_start(plinth_communicator_t *ranks) {
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

TEST(what_a_failed_group_did_not_do_is_never_done) {
  make(team);
  float *memory = floats_on(0, COUNT, 77, 0), *wrong = floats_on(1, COUNT, 2, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(team[0], memory, COUNT));
  CHECK_OK(sum(team[0], memory, COUNT));
  CHECK_OK(plinth_communicator_send(team[0], memory, COUNT, FLOAT32, 1, NULL));
  CHECK_OK(plinth_communicator_recv(team[1], wrong, COUNT, FLOAT32, 1, NULL));
  CHECK_OK(sum(team[1], wrong, COUNT - 1));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_RANK_MISMATCH);
  expect_a_new_start(team);
  expect_floats(memory, COUNT, 77, 0);
  expect_floats(wrong, COUNT, 2, 0);
  end(team);
}

TEST(a_team_that_was_aborted_leaves_nothing_with_another) {
  make(team);
  make(other);
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_abort(other[1]));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(team[0], memory, COUNT));
  CHECK_OK(sum(other[0], memory, COUNT));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_ABORTED);
  expect_a_new_start(team);
  expect_floats(memory, COUNT, 77, 0);
  end(team);
  end(other);
}

TEST(a_team_that_was_waited_for_in_vain_leaves_nothing_with_another) {
  make(team);
  make(other);
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_set_timeout(other[0], 100));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(other[0], memory, COUNT));
  CHECK_OK(sum(team[0], memory, COUNT));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_TIMED_OUT);
  expect_a_new_start(team);
  expect_floats(memory, COUNT, 77, 0);
  end(team);
  end(other);
}

/* ---- calls that are refused */

/* Begins a group with a part of rank 0's; its end is due with the status of what was refused since, and long before the
 * limit of time. */
static float *begin(void) {
  float *memory = floats_on(0, COUNT, 77, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(team[0], memory, COUNT));
  return memory;
}

static void expect_refused(plinth_status_t status, const float *memory) {
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_group_end(), status);
  CHECK_MESSAGE("a call in the group was refused, and with it the group: ");
  CHECK(seconds_now() - start < LIMIT / 4000.0);
  expect_a_new_start(team);
  expect_floats(memory, COUNT, 77, 0);
}

#define REFUSES(call, status)    \
  do {                           \
    float *memory = begin();     \
    CHECK_STATUS(call, status);  \
    expect_refused(status, memory); \
  } while (0)

TEST(a_group_with_a_refused_call_ends_at_once) {
  make(team);
  plinth_communicator_t part = NULL;
  float *own = floats_on(1, COUNT, 1, 0);
  REFUSES(sum(team[1], (float *)((char *)own + 2), COUNT), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(sum(team[1], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
  REFUSES(sum(NULL, own, COUNT), PLINTH_ERROR_NULL_POINTER);
  REFUSES(sum((plinth_communicator_t)own, own, COUNT), PLINTH_ERROR_INVALID_HANDLE);
  REFUSES(plinth_communicator_all_reduce(team[1], own, own, COUNT, FLOAT32, 9, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_all_reduce(team[1], own, own, COUNT, BOOLEAN, PLINTH_REDUCE_AVERAGE, NULL),
          PLINTH_ERROR_NOT_SUPPORTED);
  REFUSES(plinth_communicator_reduce(team[1], own, own, COUNT, FLOAT32, 0, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_broadcast(team[1], own, own, COUNT, FLOAT32, -1, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_all_gather(team[1], own, NULL, COUNT, FLOAT32, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_reduce_scatter(team[1], NULL, own, COUNT, FLOAT32, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_all_to_all(team[1], own, NULL, COUNT, FLOAT32, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_communicator_send(team[1], own, COUNT, FLOAT32, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_recv(team[1], own, COUNT, FLOAT32, 2, NULL), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_communicator_split(team[1], -2, 0, &part), PLINTH_ERROR_INVALID_VALUE);
  end(team);
}

TEST(a_group_is_refused_with_one_in_it) {
  make(team);
  float *memory = begin();
  CHECK_OK(plinth_communicator_group_start());
  CHECK_STATUS(sum(team[1], NULL, COUNT), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(sum(team[1], floats_on(1, COUNT, 1, 0), COUNT));
  expect_refused(PLINTH_ERROR_NULL_POINTER, memory);
  end(team);
}

TEST(torchs_calls_in_a_group_refuse_it_too) {
  int64_t shape[] = {COUNT};
  DLTensor tensors[RANKS];
  make(team);
  for (int rank = 0; rank < RANKS; rank++) {
    const DLTensor tensor = {floats_on(rank, COUNT, 1, 0), {2, rank}, 1, FLOAT32, shape, NULL, 0};
    tensors[rank] = tensor;
  }
  /* The second part is refused for its stream when the first is in the group already. */
  plinth_stream_t streams[RANKS] = {NULL, stream_on(0)};
  REFUSES(plinth_nccl_all_reduce(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, streams, team), PLINTH_ERROR_DEVICE_MISMATCH);
  REFUSES(plinth_nccl_all_reduce(tensors, NULL, RANKS, 9, NULL, team), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_nccl_reduce(tensors, NULL, RANKS, 2, PLINTH_REDUCE_SUM, NULL, team), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_nccl_broadcast(tensors, RANKS, 2, NULL, team), PLINTH_ERROR_INVALID_VALUE);
  REFUSES(plinth_nccl_all_gather(tensors, NULL, RANKS, NULL, team), PLINTH_ERROR_NULL_POINTER);
  REFUSES(plinth_nccl_reduce_scatter(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, NULL, team), PLINTH_ERROR_NULL_POINTER);
  /* Outside of a group there is nothing to refuse. */
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, RANKS, PLINTH_REDUCE_SUM, streams, team),
               PLINTH_ERROR_DEVICE_MISMATCH);
  expect_a_new_start(team);
  end(team);
}

/* ---- order */

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];

/* Small and large in turns, so that the library's kernels and NCCL have to take turns, too. */
static void *take_turns(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t own = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, LIMIT, 0);
  /* What a rank brings to its memory must not wait behind what the other waits in. */
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &own));
  float *memory = floats_on(rank, COUNT, 1, 0), *copy = floats_on(rank, COUNT, -1, 0);
  float *small = floats_on(rank, 4, -1, 0), *large = floats_on(rank, COUNT, -1, 0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(sum(own, memory, 4));
  CHECK_OK(plinth_communicator_broadcast(own, memory, copy, COUNT, FLOAT32, 0, NULL));
  CHECK_OK(sum(own, copy, 4));
  CHECK_OK(sum(own, copy, COUNT));
  CHECK_OK(plinth_communicator_group_end());
  /* And between two ranks in no order that both know. */
  CHECK_OK(plinth_communicator_group_start());
  for (int turn = 0; turn < 2; turn++) {
    if (turn == rank) {
      CHECK_OK(plinth_communicator_send(own, memory, 4, FLOAT32, 1 - rank, NULL));
      CHECK_OK(plinth_communicator_recv(own, small, 4, FLOAT32, 1 - rank, NULL));
    } else {
      CHECK_OK(plinth_communicator_send(own, memory, COUNT, FLOAT32, 1 - rank, NULL));
      CHECK_OK(plinth_communicator_recv(own, large, COUNT, FLOAT32, 1 - rank, NULL));
    }
  }
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(own, LIMIT, NULL));
  expect_floats(memory, 4, 2, 0);
  expect_floats(copy, 4, 8, 0);
  expect_floats(copy + 4, COUNT - 4, 2, 0);
  expect_floats(small, 4, 2, 0);
  expect_floats(large, 4, 2, 0);
  expect_floats(large + 4, COUNT - 4, 1, 0);
  CHECK_OK(plinth_communicator_destroy(own));
  return NULL;
}

TEST(what_all_ranks_do_in_a_group_is_in_order_whoever_does_it) {
  need_devices(RANKS);
  need_nccl();
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  setenv("PLINTH_COMMUNICATOR_NCCL_FROM", "1024", 1);
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(RANKS, take_turns);
}
