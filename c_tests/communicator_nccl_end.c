/* The end of communicators of NCCL, whose ranks wait for each other. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* library: fake_nccl */
/* alone: a_rank_of_another_process_is_waited_for_up_to_the_limit; forks a child that uses the device */
/* alone: an_older_nccl_does_not_wait_for_other_processes; forks a child that uses the device */
/* alone: a_failure_of_nccl_is_reported_and_all_ranks_end; sets faults of NCCL */
#include "sleeping_ranks.h"

enum { SHORT_LIMIT = 500, SOON_SECONDS = 10 };

static void make(void) {
  need_nccl();
  engine = PLINTH_ENGINE_NCCL;
  make_communicators();
  reduce_all();
}

static uint64_t free_bytes(int rank) {
  size_t unused = 0, total = 0;
  CHECK_OK(plinth_mem_get_info(rank, &unused, &total));
  return unused;
}

static void *destroy_as(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  return NULL;
}

TEST(the_last_rank_of_a_process_releases_the_memory_of_all) {
  uint64_t before[RANKS];
  make();
  destroy_communicators();
  make();
  for (int rank = 0; rank < RANKS; rank++) {
    before[rank] = free_bytes(rank);
  }
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  CHECK_EQ(free_bytes(1), before[1]);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK(free_bytes(0) > before[0]);
  CHECK(free_bytes(1) > before[1]);
}

TEST(ranks_end_in_their_own_threads) {
  make();
  run_threads(RANKS, destroy_as);
}

TEST(a_rank_ends_after_another_was_aborted) {
  for (int first = 0; first < RANKS; first++) {
    make();
    const double start = seconds_now();
    CHECK_OK(plinth_communicator_abort(communicators[first]));
    destroy_communicators();
    CHECK(seconds_now() - start < SOON_SECONDS);
  }
}

/* A rank that waits for the last one is ended by its abort. */
TEST(a_destroyed_rank_ends_with_the_abort_of_another) {
  make();
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  CHECK(seconds_now() - start < SOON_SECONDS);
}

static plinth_status_t split_in_two(plinth_communicator_t communicator) {
  int32_t rank = 0;
  CHECK_OK(plinth_communicator_rank(communicator, &rank));
  return plinth_communicator_split(communicator, 0, rank, &communicators[rank]);
}

TEST(a_split_and_its_parent_end_in_any_order) {
  for (int parents_first = 0; parents_first < 2; parents_first++) {
    plinth_communicator_t parents[RANKS], parts[RANKS];
    make();
    memcpy(parents, communicators, sizeof parents);
    CHECK_EQ(on_all(split_in_two), PLINTH_OK);
    memcpy(parts, communicators, sizeof parts);
    reduce_all();
    for (int turn = 0; turn < 2; turn++) {
      memcpy(communicators, turn == parents_first ? parts : parents, sizeof parts);
      reduce_all();
      destroy_communicators();
    }
  }
}

TEST(a_failure_of_nccl_is_reported_and_all_ranks_end) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  const char *faults[] = {"ncclCommFinalize:1", "ncclCommDestroy:1"};
  for (int fault = 0; fault < 2; fault++) {
    make();
    CHECK_OK(plinth_communicator_destroy(communicators[0]));
    harness_setenv("FAKE_NCCL_FAIL", faults[fault]);
    CHECK_STATUS(plinth_communicator_destroy(communicators[1]), PLINTH_ERROR_NCCL);
    harness_setenv("FAKE_NCCL_FAIL", "");
  }
}

/* ---- ranks in processes */

static int ends[2];
static const char *version;

static plinth_communicator_t join(int rank) {
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_NCCL, MILLISECONDS, 0);
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t made = NULL;
  need_nccl();
  need_devices(RANKS);
  if (version != NULL) {
    harness_setenv("FAKE_NCCL_VERSION", version);
  }
  share_id(rank, id);
  CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &made));
  CHECK_OK(plinth_communicator_all_reduce(made, floats_on(rank, COUNT, 1, 0), floats_on(rank, COUNT, 1, 0), COUNT, FLOAT32,
                                          PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_synchronize(rank));
  CHECK_OK(plinth_communicator_set_timeout(made, SHORT_LIMIT));
  return made;
}

/* Rank 1 exits without an end, when rank 0 has ended. */
static void end_alone(int rank) {
  char byte = 0;
  plinth_communicator_t made = join(rank);
  if (rank == 1) {
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    return;
  }
  const double start = seconds_now();
  const plinth_status_t status = plinth_communicator_destroy(made);
  if (status != PLINTH_OK) {
    CHECK_EQ(status, PLINTH_ERROR_TIMED_OUT);
    CHECK_MESSAGE("NCCL waited for the other ranks to end for 0.500 s, which is the limit");
  }
  if (on_host_device()) {
    CHECK_EQ(status, version == NULL ? PLINTH_ERROR_TIMED_OUT : PLINTH_OK);
  }
  CHECK(seconds_now() - start < SOON_SECONDS);
  CHECK_EQ(write(ends[1], &byte, 1), 1);
}

TEST(a_rank_of_another_process_is_waited_for_up_to_the_limit) {
  CHECK(pipe(ends) == 0);
  run_processes(RANKS, end_alone);
}

TEST(an_older_nccl_does_not_wait_for_other_processes) {
  version = "23007";
  CHECK(pipe(ends) == 0);
  run_processes(RANKS, end_alone);
}
