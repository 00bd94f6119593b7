/* Ranks that meet by an id, in threads and in processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* also: PLINTH_COMMUNICATOR_NCCL_FROM=1 */
/* also: PLINTH_COMMUNICATOR_ENGINE=shared */
/* library: fake_nccl */
/* alone: a_killed_process_is_noticed_by_the_others ranks_meet_in_processes; forks a child that uses the device */
/* alone: four_ranks_meet_in_processes nobody_waits_for_a_rank_that_cannot_share; forks a child that uses the device */
#include "ranks.h"

enum { COUNT = 5000 };

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
static int ranks;

static bool by(const char *engine) {
  const char *chosen = getenv("PLINTH_COMMUNICATOR_ENGINE");
  return chosen != NULL && strcmp(chosen, engine) == 0;
}

/* NCCL, unless another engine was chosen. */
static void need_engine(void) {
  if (!by("shared")) {
    need_nccl();
  }
}

static plinth_communicator_t join(int rank, int32_t device, uint64_t milliseconds, uint32_t flags) {
  plinth_communicator_t made = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, flags);
  CHECK_OK(plinth_communicator_init_rank(ranks, id, rank, device, &options, &made));
  return made;
}

/* Does a little of everything, as one of the ranks. */
static void work_as(int rank, int32_t device, plinth_communicator_t own) {
  plinth_stream_t stream = stream_on(device);
  float *from = floats_on(device, COUNT, (float)rank, 1), *to = floats_on(device, COUNT, -1, 0);
  float *all = floats_on(device, (size_t)ranks * COUNT, -1, 0);
  const float sum = (float)(ranks * (ranks - 1) / 2);
  CHECK_OK(plinth_communicator_all_reduce(own, from, to, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  expect_floats(to, COUNT, sum, (float)ranks);
  CHECK_OK(plinth_communicator_all_gather(own, from, all, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  for (int other = 0; other < ranks; other++) {
    expect_floats(all + (size_t)other * COUNT, COUNT, (float)other, 1);
  }
  CHECK_OK(plinth_communicator_reduce_scatter(own, all, to, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  CHECK_OK(plinth_communicator_broadcast(own, from, from, COUNT, FLOAT32, ranks - 1, stream));
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  expect_floats(to, COUNT, (float)rank, 1);
  expect_floats(from, COUNT, (float)(ranks - 1), 1);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(own, to, COUNT, FLOAT32, (rank + 1) % ranks, stream));
  CHECK_OK(plinth_communicator_recv(own, from, COUNT, FLOAT32, (rank + ranks - 1) % ranks, stream));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  expect_floats(from, COUNT, (float)((rank + ranks - 1) % ranks), 1);
  for (int round = 0; round < 20; round++) {
    CHECK_OK(plinth_communicator_all_reduce(own, to, to, COUNT, FLOAT32, PLINTH_REDUCE_MIN, stream));
  }
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  expect_floats(to, COUNT, 0, 1);
}

static void *rank_in_thread(void *context) {
  const int rank = *(int *)context;
  uint32_t engine = 77;
  plinth_communicator_t own = join(rank, rank, 20000, 0);
  CHECK_OK(plinth_communicator_engine(own, &engine));
  if (by("nccl")) {
    CHECK_EQ(engine, PLINTH_ENGINE_NCCL);
  } else if (on_host_device()) {
    CHECK_EQ(engine, PLINTH_ENGINE_SHARED);
  }
  work_as(rank, rank, own);
  CHECK_OK(plinth_communicator_destroy(own));
  return NULL;
}

TEST(ranks_meet_in_threads) {
  need_devices(2);
  need_engine();
  ranks = device_count() < 4 ? device_count() : 4;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, rank_in_thread);
  /* And again: an id is for one meeting. */
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, rank_in_thread);
}

static void rank_in_process(int rank) {
  need_devices(ranks);
  need_engine();
  share_id(rank, id);
  plinth_communicator_t own = join(rank, rank, 20000, 0);
  work_as(rank, rank, own);
  CHECK_OK(plinth_communicator_destroy(own));
}

TEST(ranks_meet_in_processes) {
  ranks = 2;
  run_processes(ranks, rank_in_process);
}

TEST(four_ranks_meet_in_processes) {
  ranks = 4;
  run_processes(ranks, rank_in_process);
}

/* Rank 1 cannot share memory. */
static void fall_back(int rank) {
  uint32_t engine = 77;
  if (rank == 1) {
    setenv("PLINTH_GROUP_TUNING", "nonsense", 1);
  }
  need_devices(ranks);
  need_engine();
  if (by("shared")) {
    SKIP("is about NCCL");
  }
  share_id(rank, id);
  const double start = seconds_now();
  plinth_communicator_t own = join(rank, rank, 60000, 0);
  CHECK(seconds_now() - start < 30);
  CHECK_OK(plinth_communicator_engine(own, &engine));
  CHECK_EQ(engine, PLINTH_ENGINE_NCCL);
  work_as(rank, rank, own);
  CHECK_OK(plinth_communicator_destroy(own));
}

TEST(nobody_waits_for_a_rank_that_cannot_share) {
  ranks = 2;
  run_processes(ranks, fall_back);
}

static void *split_in_thread(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t own = join(rank, rank, 20000, 0), part = NULL;
  int32_t number = -1;
  float *memory = floats_on(rank, COUNT, (float)rank, 0);
  CHECK_OK(plinth_communicator_split(own, rank % 2, -rank, &part));
  CHECK_OK(plinth_communicator_size(part, &number));
  CHECK_EQ(number, 2);
  CHECK_OK(plinth_communicator_rank(part, &number));
  CHECK_EQ(number, rank < 2 ? 1 : 0);
  CHECK_OK(plinth_communicator_all_reduce(part, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_communicator_wait(part, 20000, NULL));
  expect_floats(memory, COUNT, (float)(2 * (rank % 2) + 2), 0);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_split(own, rank == 0 ? 5 : -1, 0, &part));
  CHECK((part != NULL) == (rank == 0));
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(own));
  return NULL;
}

TEST(ranks_are_split) {
  need_devices(4);
  need_engine();
  ranks = 4;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, split_in_thread);
}

TEST(one_rank_is_alone) {
  need_engine();
  ranks = 1;
  CHECK_OK(plinth_nccl_unique_id(id));
  plinth_communicator_t own = join(0, 0, 20000, 0);
  work_as(0, 0, own);
  CHECK_OK(plinth_communicator_destroy(own));
}

TEST(a_rank_that_never_comes_is_given_up) {
  plinth_communicator_t made = UNTOUCHED_POINTER;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, 300, 0);
  need_engine();
  CHECK_OK(plinth_nccl_unique_id(id));
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_init_rank(2, id, 0, 0, &options, &made), PLINTH_ERROR_TIMED_OUT);
  CHECK(seconds_now() - start < 10);
  CHECK_SAME(made, UNTOUCHED_POINTER);
}

static void *join_soon(void *context) {
  (void)context;
  sleep_milliseconds(100);
  plinth_communicator_t own = join(1, 1, 20000, 0);
  work_as(1, 1, own);
  CHECK_OK(plinth_communicator_destroy(own));
  return NULL;
}

TEST(a_meeting_need_not_be_waited_for) {
  pthread_t thread;
  bool ready = true;
  need_devices(2);
  if (!by("nccl")) {
    SKIP("is about NCCL");
  }
  need_engine();
  ranks = 2;
  CHECK_OK(plinth_nccl_unique_id(id));
  CHECK(pthread_create(&thread, NULL, join_soon, NULL) == 0);
  plinth_communicator_t own = join(0, 0, 20000, PLINTH_COMMUNICATOR_NONBLOCKING);
  CHECK_OK(plinth_communicator_query(own, &ready));
  CHECK(!ready || !on_host_device());
  CHECK_OK(plinth_communicator_wait(own, 20000, NULL));
  CHECK_OK(plinth_communicator_query(own, &ready));
  CHECK(ready);
  work_as(0, 0, own);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_communicator_destroy(own));
}

/* ---- faults */

/* Rank 1 dies in the middle. */
static void survive(int rank) {
  need_devices(2);
  need_engine();
  share_id(rank, id);
  plinth_communicator_t own = join(rank, rank, 2000, 0);
  plinth_stream_t stream = stream_on(rank);
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_all_reduce(own, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(own, 20000, stream));
  /* Not before the other has what came before, too. */
  char word = 0;
  if (rank == 1) {
    CHECK_EQ(read(processes.pipes[1][0], &word, 1), 1);
    raise(SIGKILL);
  }
  CHECK_EQ(write(processes.pipes[1][1], &word, 1), 1);
  bool ready = false;
  plinth_status_t status =
      plinth_communicator_all_reduce(own, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream);
  if (status == PLINTH_OK) {
    status = plinth_communicator_wait(own, 8000, stream);
  }
  /* NCCL over shared memory does not notice; then the limit of time is what ends it. */
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_TIMED_OUT);
  if (on_host_device()) {
    CHECK_EQ(status, PLINTH_ERROR_PEER_LOST);
  }
  CHECK_OK(plinth_communicator_abort(own));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_STATUS(plinth_communicator_query(own, &ready), PLINTH_ERROR_ABORTED);
  CHECK_OK(plinth_communicator_destroy(own));
  /* And a new one can be made. */
  ranks = 1;
  CHECK_OK(plinth_nccl_unique_id(id));
  own = join(0, 0, 20000, 0);
  work_as(0, 0, own);
  CHECK_OK(plinth_communicator_destroy(own));
}

TEST(a_killed_process_is_noticed_by_the_others) {
  int status = 0;
  ranks = 2;
  start_processes(ranks, survive);
  EVENTUALLY(waitpid(processes.pids[1], &status, WNOHANG) != 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
    SKIP("its processes are");
  }
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EVENTUALLY(waitpid(processes.pids[0], &status, WNOHANG) != 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static plinth_communicator_t members[2];

static void *be_late(void *context) {
  const int rank = *(int *)context;
  float *memory = floats_on(rank, COUNT, 1, 0);
  plinth_stream_t stream = stream_on(rank);
  members[rank] = join(rank, rank, 20000, 0);
  /* NCCL connects ranks in their first operation, and until then waits for them in the call itself. */
  CHECK_OK(plinth_communicator_all_reduce(members[rank], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(members[rank], 20000, stream));
  if (rank == 1) {
    return NULL;
  }
  CHECK_OK(plinth_communicator_all_reduce(members[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_STATUS(plinth_communicator_wait(members[0], 200, stream), PLINTH_ERROR_TIMED_OUT);
  /* The caller may wait again, or abort. */
  CHECK_STATUS(plinth_communicator_wait(members[0], 50, stream), PLINTH_ERROR_TIMED_OUT);
  CHECK_OK(plinth_communicator_abort(members[0]));
  CHECK_OK(plinth_stream_synchronize(stream));
  return NULL;
}

TEST(work_that_waits_in_vain_is_aborted) {
  need_devices(2);
  need_engine();
  ranks = 2;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(2, be_late);
  CHECK_OK(plinth_communicator_abort(members[1]));
  CHECK_OK(plinth_communicator_destroy(members[0]));
  CHECK_OK(plinth_communicator_destroy(members[1]));
}

TEST(an_id_and_an_engine_must_suit_each_other) {
  plinth_communicator_t made = NULL;
  plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, 300, 0);
  need_engine();
  CHECK_OK(plinth_nccl_unique_id(id));
  if (by("shared")) {
    options.engine = PLINTH_ENGINE_NCCL;
  }
  CHECK_STATUS(plinth_communicator_init_rank(2, id, 0, 0, &options, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the id is one of");
}
