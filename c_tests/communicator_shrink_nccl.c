/* Shrinks of communicators of NCCL. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: a_rank_that_does_not_shrink_ends_the_others an_nccl_without_shrinks_is_refused a_failure_of_nccl_is_reported; sets faults of NCCL */
/* alone: an_older_nccl_cannot_shrink_after_a_timeout a_communicator_that_cannot_be_revoked_is_aborted; set the environment */
/* alone: the_processes_that_remain_go_on_after_a_loss; forks a child that uses the device */
#include "ranks.h"

enum { MOST = 4, COUNT = 1000, LONG = 60000, LIMIT = 1000, SOON = 20 };

static plinth_communicator_t communicators[MOST], parts[MOST];
static float *memory[MOST];
static int ranks;
static int32_t last;

static void need_fake(void) {
  if (!on_host_device()) SKIP("the real NCCL does not fail");
}

static void make_communicators(uint64_t milliseconds, uint32_t flags) {
  need_devices(2);
  need_nccl();
  ranks = device_count() < MOST ? device_count() : MOST;
  last = ranks - 1;
  init_ranks(ranks, options_of(PLINTH_ENGINE_NCCL, milliseconds, flags), communicators);
  for (int rank = 0; rank < ranks; rank++) {
    parts[rank] = UNTOUCHED_POINTER;
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
}

static plinth_status_t reduce(plinth_communicator_t communicator, int rank) {
  return plinth_communicator_all_reduce(communicator, memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL);
}

static plinth_communicator_t *working;
static int size;

static void *work_in_thread(void *context) {
  const int rank = *(int *)context;
  int32_t number = -1;
  memory[rank] = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_rank(working[rank], &number));
  CHECK_EQ(number, rank);
  CHECK_OK(plinth_communicator_size(working[rank], &number));
  CHECK_EQ(number, size);
  CHECK_OK(reduce(working[rank], rank));
  CHECK_OK(plinth_communicator_wait(working[rank], LONG, NULL));
  expect_floats(memory[rank], COUNT, (float)size, 0);
  return NULL;
}

/* Checks that the first `count` ranks have communicators that reduce. */
static void expect_work(plinth_communicator_t *ones, int count) {
  working = ones;
  size = count;
  run_threads(count, work_in_thread);
}

static void *destroy_in_thread(void *context) {
  CHECK_OK(plinth_communicator_destroy(working[*(int *)context]));
  return NULL;
}

/* NCCL's ranks wait for each other. */
static void destroy_all(plinth_communicator_t *ones, int count) {
  working = ones;
  run_threads(count, destroy_in_thread);
}

static uint32_t flags_of_shrink;

static plinth_status_t shrink(int rank) {
  return plinth_communicator_shrink(communicators[rank], &last, 1, flags_of_shrink, &parts[rank]);
}

static void *shrink_in_thread(void *context) {
  CHECK_OK(shrink(*(int *)context));
  return NULL;
}

static void *split_in_thread(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_split(communicators[rank], 0, 0, &parts[rank]));
  return NULL;
}

static void shrink_twice_and_split(uint32_t flags) {
  make_communicators(LONG, flags);
  expect_work(communicators, ranks);
  flags_of_shrink = PLINTH_SHRINK_DEFAULT;
  for (int round = 0; round < 2; round++) {
    run_threads(last, shrink_in_thread);
    expect_work(parts, last);
    destroy_all(parts, last);
  }
  /* The excluded rank has split as often as the others. */
  run_threads(ranks, split_in_thread);
  expect_work(parts, ranks);
  destroy_all(parts, ranks);
  expect_work(communicators, ranks);
  destroy_all(communicators, ranks);
}

TEST(the_ranks_that_remain_keep_their_order_and_the_old_communicator) { shrink_twice_and_split(0); }

TEST(the_blocking_mode_shrinks_as_well) { shrink_twice_and_split(PLINTH_COMMUNICATOR_UNLIMITED); }

/* The last rank does not take part in what the others wait for in their streams. */
static void *leave_the_last(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(reduce(communicators[rank], rank));
  CHECK_OK(shrink(rank));
  CHECK_OK(plinth_synchronize(rank));
  CHECK_STATUS(reduce(communicators[rank], rank), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("a shrink ended it");
  return NULL;
}

/* All ranks but the last do something that aborts their communicators. */
static void lose_the_last_in(void *(*body)(void *)) {
  expect_work(communicators, ranks);
  flags_of_shrink = PLINTH_SHRINK_ABORT;
  const double start = seconds_now();
  run_threads(last, body);
  CHECK(seconds_now() - start < SOON);
}

static void destroy_after_a_loss(void) {
  CHECK_OK(plinth_communicator_abort(communicators[last]));
  destroy_all(communicators, ranks);
}

TEST(a_shrink_ends_work_that_waits_for_the_excluded_rank) {
  make_communicators(LONG, 0);
  lose_the_last_in(leave_the_last);
  expect_work(parts, last);
  destroy_all(parts, last);
  destroy_after_a_loss();
}

/* The last rank does not take part, which the watchdog finds. */
static void *shrink_after_the_timeout(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_set_timeout(communicators[rank], LIMIT));
  CHECK_OK(reduce(communicators[rank], rank));
  CHECK_STATUS(plinth_communicator_wait(communicators[rank], LONG, NULL), PLINTH_ERROR_TIMED_OUT);
  CHECK_OK(plinth_synchronize(rank));
  CHECK_STATUS(reduce(communicators[rank], rank), PLINTH_ERROR_ABORTED);
  CHECK_OK(plinth_communicator_set_timeout(communicators[rank], LONG));
  CHECK_OK(shrink(rank));
  return NULL;
}

TEST(the_ranks_that_remain_go_on_after_a_timeout) {
  int32_t major = 0, minor = 0, patch = 0;
  make_communicators(LONG, 0);
  CHECK_OK(plinth_nccl_version(&major, &minor, &patch));
  if (major * 10000 + minor * 100 + patch < 22807) SKIP("needs NCCL 2.28.7");
  lose_the_last_in(shrink_after_the_timeout);
  expect_work(parts, last);
  destroy_all(parts, last);
  destroy_after_a_loss();
}

static void *fail_after_the_timeout(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_set_timeout(communicators[rank], LIMIT));
  CHECK_OK(reduce(communicators[rank], rank));
  CHECK_STATUS(plinth_communicator_wait(communicators[rank], LONG, NULL), PLINTH_ERROR_TIMED_OUT);
  CHECK_STATUS(shrink(rank), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("make a new one of an id");
  CHECK_SAME(parts[rank], UNTOUCHED_POINTER);
  return NULL;
}

static void time_out_with(const char *fault) {
  need_fake();
  harness_setenv("FAKE_NCCL_FAIL", fault);
  make_communicators(LONG, 0);
  lose_the_last_in(fail_after_the_timeout);
  destroy_after_a_loss();
}

TEST(an_older_nccl_cannot_shrink_after_a_timeout) { time_out_with("ncclCommRevoke:-1"); }

TEST(a_communicator_that_cannot_be_revoked_is_aborted) { time_out_with("ncclCommRevoke:3"); }

TEST(an_aborted_communicator_cannot_shrink) {
  make_communicators(LONG, 0);
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_abort(communicators[rank]));
  }
  flags_of_shrink = PLINTH_SHRINK_ABORT;
  CHECK_STATUS(shrink(0), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("make a new one of an id");
  flags_of_shrink = PLINTH_SHRINK_DEFAULT;
  CHECK_STATUS(shrink(0), PLINTH_ERROR_ABORTED);
  CHECK_SAME(parts[0], UNTOUCHED_POINTER);
  destroy_all(communicators, ranks);
}

TEST(a_rank_that_does_not_shrink_ends_the_others) {
  need_devices(3);
  make_communicators(LONG, 0);
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], LIMIT));
  flags_of_shrink = PLINTH_SHRINK_DEFAULT;
  const double start = seconds_now();
  CHECK_STATUS(shrink(0), PLINTH_ERROR_TIMED_OUT);
  CHECK(seconds_now() - start < SOON);
  CHECK_SAME(parts[0], UNTOUCHED_POINTER);
  CHECK_STATUS(reduce(communicators[0], 0), PLINTH_ERROR_ABORTED);
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_abort(communicators[rank]));
  }
  destroy_all(communicators, ranks);
}

static void *shrink_without_the_call(void *context) {
  const int rank = *(int *)context;
  CHECK_STATUS(shrink(rank), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_MESSAGE("has no ncclCommShrink, which came with 2.27.0");
  CHECK_SAME(parts[rank], UNTOUCHED_POINTER);
  return NULL;
}

TEST(an_nccl_without_shrinks_is_refused) {
  need_fake();
  make_communicators(LONG, 0);
  for (uint32_t flags = PLINTH_SHRINK_DEFAULT; flags <= PLINTH_SHRINK_ABORT; flags++) {
    flags_of_shrink = flags;
    CHECK(setenv("FAKE_NCCL_FAIL", "ncclCommShrink:-1", 1) == 0);
    run_threads(last, shrink_without_the_call);
    CHECK(unsetenv("FAKE_NCCL_FAIL") == 0);
    expect_work(communicators, ranks);
  }
  destroy_all(communicators, ranks);
}

/* A shrink that aborts has done so when it fails. */
TEST(a_failure_of_nccl_is_reported) {
  need_fake();
  make_communicators(LONG, 0);
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], LIMIT));
  for (uint32_t flags = PLINTH_SHRINK_DEFAULT; flags <= PLINTH_SHRINK_ABORT; flags++) {
    flags_of_shrink = flags;
    CHECK(setenv("FAKE_NCCL_FAIL", "ncclCommShrink:3", 1) == 0);
    CHECK_STATUS(shrink(0), PLINTH_ERROR_NCCL);
    CHECK_MESSAGE("ncclCommShrink failed with 3");
    CHECK(unsetenv("FAKE_NCCL_FAIL") == 0);
    CHECK_SAME(parts[0], UNTOUCHED_POINTER);
    if (flags == PLINTH_SHRINK_DEFAULT) expect_work(communicators, ranks);
  }
  CHECK_STATUS(reduce(communicators[0], 0), PLINTH_ERROR_ABORTED);
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_abort(communicators[rank]));
  }
  destroy_all(communicators, ranks);
}

/* ---- processes */

static int steps[2], reaped[2];

static void lose_the_last(int rank) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_NCCL, LONG, 0);
  need_devices(processes.count);
  need_nccl();
  last = processes.count - 1;
  share_id(rank, id);
  CHECK_OK(plinth_communicator_init_rank(processes.count, id, rank, rank, &options, &communicators[rank]));
  memory[rank] = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(reduce(communicators[rank], rank));
  CHECK_OK(plinth_communicator_wait(communicators[rank], LONG, NULL));
  if (rank == last) {
    for (int other = 0; other < last; other++) {
      char byte = 1;
      CHECK_EQ(read(steps[0], &byte, 1), 1);
    }
    _exit(0);
  }
  CHECK_EQ(write(steps[1], "", 1), 1);
  char byte = 1;
  CHECK_EQ(read(reaped[0], &byte, 1), 1);
  flags_of_shrink = PLINTH_SHRINK_ABORT;
  CHECK_OK(shrink(rank));
  memory[rank] = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(reduce(parts[rank], rank));
  CHECK_OK(plinth_communicator_wait(parts[rank], LONG, NULL));
  expect_floats(memory[rank], COUNT, (float)last, 0);
  CHECK_OK(plinth_communicator_destroy(parts[rank]));
  CHECK_OK(plinth_communicator_destroy(communicators[rank]));
}

TEST(the_processes_that_remain_go_on_after_a_loss) {
  int status = 0;
  CHECK(pipe(steps) == 0 && pipe(reaped) == 0);
  start_processes(on_host_device() ? 3 : 2, lose_the_last);
  /* A process that has ended is there until its parent has asked for it. */
  const int count = processes.count - 1;
  CHECK_EQ(waitpid(processes.pids[count], &status, 0), processes.pids[count]);
  CHECK(WIFEXITED(status));
  if (WEXITSTATUS(status) == HARNESS_SKIPPED) SKIP("its processes skipped");
  for (int rank = 0; rank < count; rank++) {
    CHECK_EQ(write(reaped[1], "", 1), 1);
  }
  for (int rank = 0; rank < count; rank++) {
    CHECK_EQ(waitpid(processes.pids[rank], &status, 0), processes.pids[rank]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}
