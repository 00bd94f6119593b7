/* Ranks that are initialized with an id, in threads and in processes. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* also: PLINTH_COMMUNICATOR_NCCL_FROM=1 */
/* also: PLINTH_COMMUNICATOR_ENGINE=shared */
/* library: fake_nccl */
/* alone: a_killed_process_is_reported_to_the_others two_ranks_in_processes; forks a child that uses the device */
/* alone: four_ranks_in_processes ranks_fall_back_to_nccl_if_one_cannot_share_memory; forks a child that uses the device */
/* alone: ranks_fall_back_to_nccl_if_they_cannot_share_memory_in_time; forks a child that uses the device */
/* Processes start slowly beside others on a GPU, and one test waits for half of a limit of 20 s. */
#define PROCESS_SECONDS 60.0
#include "ranks.h"

enum { COUNT = 5000 };

static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
static int ranks;

static bool uses_engine(const char *engine) {
  const char *chosen = getenv("PLINTH_COMMUNICATOR_ENGINE");
  return chosen != NULL && strcmp(chosen, engine) == 0;
}

/* NCCL is needed unless the environment selects another engine. */
static void need_engine(void) {
  if (!uses_engine("shared")) {
    need_nccl();
  }
}

static plinth_communicator_t join(int rank, int32_t device, uint64_t milliseconds, uint32_t flags) {
  plinth_communicator_t made = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, flags);
  CHECK_OK(plinth_communicator_init_rank(ranks, id, rank, device, &options, &made));
  return made;
}

/* Runs every kind of operation, as one of the ranks. */
static void work_as(int rank, int32_t device, plinth_communicator_t communicator) {
  plinth_stream_t stream = stream_on(device);
  float *from = floats_on(device, COUNT, (float)rank, 1), *to = floats_on(device, COUNT, -1, 0);
  float *all = floats_on(device, (size_t)ranks * COUNT, -1, 0);
  const float sum = (float)(ranks * (ranks - 1) / 2);
  CHECK_OK(plinth_communicator_all_reduce(communicator, from, to, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  expect_floats(to, COUNT, sum, (float)ranks);
  CHECK_OK(plinth_communicator_all_gather(communicator, from, all, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  for (int other = 0; other < ranks; other++) {
    expect_floats(all + (size_t)other * COUNT, COUNT, (float)other, 1);
  }
  CHECK_OK(plinth_communicator_reduce_scatter(communicator, all, to, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  CHECK_OK(plinth_communicator_broadcast(communicator, from, from, COUNT, FLOAT32, ranks - 1, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  expect_floats(to, COUNT, (float)rank, 1);
  expect_floats(from, COUNT, (float)(ranks - 1), 1);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicator, to, COUNT, FLOAT32, (rank + 1) % ranks, stream));
  CHECK_OK(plinth_communicator_recv(communicator, from, COUNT, FLOAT32, (rank + ranks - 1) % ranks, stream));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  expect_floats(from, COUNT, (float)((rank + ranks - 1) % ranks), 1);
  for (int round = 0; round < 20; round++) {
    CHECK_OK(plinth_communicator_all_reduce(communicator, to, to, COUNT, FLOAT32, PLINTH_REDUCE_MIN, stream));
  }
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  expect_floats(to, COUNT, 0, 1);
}

static void *rank_in_thread(void *context) {
  const int rank = *(int *)context;
  uint32_t engine = 77;
  plinth_communicator_t communicator = join(rank, rank, 20000, 0);
  CHECK_OK(plinth_communicator_engine(communicator, &engine));
  if (uses_engine("nccl")) {
    CHECK_EQ(engine, PLINTH_ENGINE_NCCL);
  } else if (on_host_device()) {
    CHECK_EQ(engine, PLINTH_ENGINE_SHARED);
  }
  work_as(rank, rank, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
  return NULL;
}

TEST(ranks_in_threads) {
  need_devices(2);
  need_engine();
  ranks = device_count() < 4 ? device_count() : 4;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, rank_in_thread);
  /* A second time with a new id, since an id can be used once. */
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, rank_in_thread);
}

static void rank_in_process(int rank) {
  need_devices(ranks);
  need_engine();
  share_id(rank, id);
  plinth_communicator_t communicator = join(rank, rank, 20000, 0);
  work_as(rank, rank, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(two_ranks_in_processes) {
  ranks = 2;
  run_processes(ranks, rank_in_process);
}

TEST(four_ranks_in_processes) {
  ranks = 4;
  run_processes(ranks, rank_in_process);
}

/* The ranks use NCCL within some seconds, because one of them has a setting with which it cannot share memory. */
static void fall_back_within(int rank, double seconds, uint64_t milliseconds) {
  uint32_t engine = 77;
  need_devices(ranks);
  need_engine();
  if (uses_engine("shared")) {
    SKIP("is about NCCL");
  }
  share_id(rank, id);
  const double start = seconds_now();
  plinth_communicator_t communicator = join(rank, rank, milliseconds, 0);
  CHECK(seconds_now() - start < seconds);
  CHECK_OK(plinth_communicator_engine(communicator, &engine));
  CHECK_EQ(engine, PLINTH_ENGINE_NCCL);
  work_as(rank, rank, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

/* Rank 1 cannot share memory. */
static void fall_back(int rank) {
  if (rank == 1) {
    setenv("PLINTH_GROUP_TUNING", "nonsense", 1);
  }
  fall_back_within(rank, 30, 60000);
}

TEST(ranks_fall_back_to_nccl_if_one_cannot_share_memory) {
  ranks = 2;
  run_processes(ranks, fall_back);
}

/* Rank 0 cannot listen for the others, which learn it before their limit. */
static void fall_back_without_rendezvous(int rank) {
  if (rank == 0) {
    setenv("PLINTH_RENDEZVOUS_DIR", "/nowhere", 1);
  }
  fall_back_within(rank, 39, 40000);
}

TEST(ranks_fall_back_to_nccl_if_they_cannot_share_memory_in_time) {
  ranks = 2;
  run_processes(ranks, fall_back_without_rendezvous);
}

static void *split_in_thread(void *context) {
  const int rank = *(int *)context;
  plinth_communicator_t communicator = join(rank, rank, 20000, 0), part = NULL;
  int32_t number = -1;
  float *memory = floats_on(rank, COUNT, (float)rank, 0);
  CHECK_OK(plinth_communicator_split(communicator, rank % 2, -rank, &part));
  CHECK_OK(plinth_communicator_size(part, &number));
  CHECK_EQ(number, 2);
  CHECK_OK(plinth_communicator_rank(part, &number));
  CHECK_EQ(number, rank < 2 ? 1 : 0);
  CHECK_OK(plinth_communicator_all_reduce(part, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_communicator_wait(part, 20000, NULL));
  expect_floats(memory, COUNT, (float)(2 * (rank % 2) + 2), 0);
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_split(communicator, rank == 0 ? 5 : -1, 0, &part));
  CHECK((part != NULL) == (rank == 0));
  CHECK_OK(plinth_communicator_destroy(part));
  CHECK_OK(plinth_communicator_destroy(communicator));
  return NULL;
}

TEST(ranks_in_threads_are_split) {
  need_devices(4);
  need_engine();
  ranks = 4;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(ranks, split_in_thread);
}

TEST(a_communicator_may_have_one_rank) {
  need_engine();
  ranks = 1;
  CHECK_OK(plinth_nccl_unique_id(id));
  plinth_communicator_t communicator = join(0, 0, 20000, 0);
  work_as(0, 0, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(initialization_times_out_if_a_rank_is_missing) {
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
  plinth_communicator_t communicator = join(1, 1, 20000, 0);
  work_as(1, 1, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
  return NULL;
}

TEST(initialization_may_be_nonblocking) {
  pthread_t thread;
  bool ready = true;
  need_devices(2);
  if (!uses_engine("nccl")) {
    SKIP("is about NCCL");
  }
  need_engine();
  ranks = 2;
  CHECK_OK(plinth_nccl_unique_id(id));
  CHECK(pthread_create(&thread, NULL, join_soon, NULL) == 0);
  plinth_communicator_t communicator = join(0, 0, 20000, PLINTH_COMMUNICATOR_NONBLOCKING);
  CHECK_OK(plinth_communicator_query(communicator, &ready));
  CHECK(!ready || !on_host_device());
  if (!ready) {
    /* Nothing of them is left, so that the ranks agree later. */
    float *memory = floats_on(0, 1, 1, 0);
    plinth_communicator_t part = NULL;
    CHECK_STATUS(plinth_communicator_all_reduce(communicator, memory, memory, 1, FLOAT32, PLINTH_REDUCE_SUM, NULL),
                 PLINTH_ERROR_COMMUNICATOR_NOT_READY);
    CHECK_STATUS(plinth_communicator_split(communicator, 0, 0, &part), PLINTH_ERROR_COMMUNICATOR_NOT_READY);
    CHECK_STATUS(plinth_communicator_register(communicator, memory, sizeof *memory), PLINTH_ERROR_COMMUNICATOR_NOT_READY);
    CHECK_STATUS(plinth_communicator_sleep(communicator), PLINTH_ERROR_COMMUNICATOR_NOT_READY);
  }
  CHECK_OK(plinth_communicator_wait(communicator, 20000, NULL));
  CHECK_OK(plinth_communicator_query(communicator, &ready));
  CHECK(ready);
  work_as(0, 0, communicator);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

/* ---- faults */

/* Rank 1 dies between two collectives. */
static void kill_rank_1(int rank) {
  need_devices(2);
  need_engine();
  share_id(rank, id);
  plinth_communicator_t communicator = join(rank, rank, 20000, 0);
  plinth_stream_t stream = stream_on(rank);
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(communicator, 20000, stream));
  /* Rank 1 dies only after rank 0 has completed the first collective too. */
  char word = 0;
  if (rank == 1) {
    CHECK_EQ(read(processes.pipes[1][0], &word, 1), 1);
    raise(SIGKILL);
  }
  CHECK_EQ(write(processes.pipes[1][1], &word, 1), 1);
  bool ready = false;
  plinth_status_t status =
      plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream);
  if (status == PLINTH_OK) {
    status = plinth_communicator_wait(communicator, 8000, stream);
  }
  /* NCCL over shared memory does not detect the death; then the timeout ends the wait. */
  CHECK(status == PLINTH_ERROR_PEER_LOST || status == PLINTH_ERROR_TIMED_OUT);
  if (on_host_device()) {
    CHECK_EQ(status, PLINTH_ERROR_PEER_LOST);
  }
  CHECK_OK(plinth_communicator_abort(communicator));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_STATUS(plinth_communicator_query(communicator, &ready), PLINTH_ERROR_ABORTED);
  CHECK_OK(plinth_communicator_destroy(communicator));
  /* A new communicator can be created. */
  ranks = 1;
  CHECK_OK(plinth_nccl_unique_id(id));
  communicator = join(0, 0, 20000, 0);
  work_as(0, 0, communicator);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_killed_process_is_reported_to_the_others) {
  int status = 0;
  ranks = 2;
  start_processes(ranks, kill_rank_1);
  EVENTUALLY(waitpid(processes.pids[1], &status, WNOHANG) != 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
    SKIP("a rank's process was skipped");
  }
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EVENTUALLY(waitpid(processes.pids[0], &status, WNOHANG) != 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static plinth_communicator_t communicators[2];

static void *wait_for_missing_rank(void *context) {
  const int rank = *(int *)context;
  float *memory = floats_on(rank, COUNT, 1, 0);
  plinth_stream_t stream = stream_on(rank);
  communicators[rank] = join(rank, rank, 20000, 0);
  /* NCCL connects ranks in the first operation, which waits for the other ranks. */
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, stream));
  if (rank == 1) {
    return NULL;
  }
  CHECK_OK(plinth_communicator_all_reduce(communicators[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 200, stream), PLINTH_ERROR_TIMED_OUT);
  /* The caller may wait again, or abort. */
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 50, stream), PLINTH_ERROR_TIMED_OUT);
  CHECK_OK(plinth_communicator_abort(communicators[0]));
  CHECK_OK(plinth_stream_synchronize(stream));
  return NULL;
}

TEST(a_collective_that_waits_for_a_missing_rank_can_be_aborted) {
  need_devices(2);
  need_engine();
  ranks = 2;
  CHECK_OK(plinth_nccl_unique_id(id));
  run_threads(2, wait_for_missing_rank);
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

TEST(an_id_of_another_engine_is_refused) {
  plinth_communicator_t made = NULL;
  plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, 300, 0);
  need_engine();
  CHECK_OK(plinth_nccl_unique_id(id));
  if (uses_engine("shared")) {
    options.engine = PLINTH_ENGINE_NCCL;
  }
  CHECK_STATUS(plinth_communicator_init_rank(2, id, 0, 0, &options, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the id is one of");
}
