/* Groups of processes of which one has too few file descriptors: it fails at once and says why, and so do the others.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* The leak detection at the end of a rank needs a thread, which one of them cannot have. */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* timeout: 120 */
/* long: rank_0_reports_its_own_shortage_of_descriptors_at_once another_rank_reports_its_own_shortage_of_descriptors_at_once */
#include "ranks.h"

#include <sys/prctl.h>
#include <sys/resource.h>

/* ENOUGH descriptors suffice for a rank of three, and SOON is far below the limit of all waits. */
enum { RANKS = 3, ENOUGH = 40, COUNT = 100, MILLISECONDS = 60000, SOON = 15 };

static int victim;
static struct rlimit usual;

/* Leaves this number of unused descriptors. */
static void leave_descriptors(int count) {
  struct rlimit limit = usual;
  int number = 0;
  for (int unused = 0; unused < count; number++) {
    unused += fcntl(number, F_GETFD) == -1;
  }
  limit.rlim_cur = (rlim_t)number;
  CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static void leave_all_descriptors(void) { CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0); }

/* An error of the process itself, in contrast to one that it found while it waited for another. */
static bool is_own_error(plinth_status_t status) {
  return status != PLINTH_OK && status != PLINTH_ERROR_TIMED_OUT && status != PLINTH_ERROR_PEER_LOST;
}

static void use(plinth_communicator_t communicator, int rank) {
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_OK(plinth_communicator_wait(communicator, 20000, NULL));
  expect_floats(memory, COUNT, RANKS, 0);
  CHECK_OK(plinth_device_free(memory));
}

static void split_with_few_descriptors(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  int failures = 0;
  need_devices(RANKS);
  CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  share_id(rank, id);
  CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &communicator));
  CHECK_OK(plinth_set_device(rank));
  for (int count = 0; count <= ENOUGH; count++) {
    plinth_communicator_t part = NULL;
    if (rank == victim) {
      leave_descriptors(count);
    }
    const double start = seconds_now();
    const plinth_status_t status = plinth_communicator_split(communicator, 0, 0, &part);
    CHECK(seconds_now() - start < SOON);
    if (status != PLINTH_OK) {
      char word[16];
      snprintf(word, sizeof word, "rank %d", victim);
      CHECK_MESSAGE(word);
      CHECK(is_own_error(status));
      failures++;
    }
    leave_all_descriptors();
    if (status == PLINTH_OK) {
      /* All ranks have succeeded. */
      use(part, rank);
      CHECK_OK(plinth_communicator_destroy(part));
    }
    CHECK((count > 0 || status != PLINTH_OK) && (count < ENOUGH || status == PLINTH_OK));
  }
  CHECK(failures > 3);
  use(communicator, rank);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_split_fails_on_all_ranks_if_its_first_rank_is_short_of_descriptors) {
  victim = 0;
  run_processes(RANKS, split_with_few_descriptors);
}

TEST(a_split_fails_on_all_ranks_if_another_rank_is_short_of_descriptors) {
  victim = 2;
  run_processes(RANKS, split_with_few_descriptors);
}

/* ---- no thread for one of the splits of a process */

enum { SPLITTING = 2 };

static uint8_t id_of_threads[PLINTH_UNIQUE_ID_SIZE];
static plinth_communicator_t of_ranks[RANKS];

static void *init_rank_in_thread(void *context) {
  const int rank = *(int *)context;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  CHECK_OK(plinth_communicator_init_rank(RANKS, id_of_threads, rank, rank, &options, &of_ranks[rank]));
  return NULL;
}

/* Allows no further thread. */
static void forbid_threads(void) {
  const struct rlimit one = {1, 1};
  if (getuid() == 0) {
    const uid_t user = 1000000 + (uid_t)getpid();
    CHECK(setresuid(user, user, user) == 0);
  }
  CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
  CHECK(setrlimit(RLIMIT_NPROC, &one) == 0);
}

/* The first process has ranks 0 and 1, and the second has rank 2. Each split needs a thread, except the first of a process. */
static void split_without_threads(int process) {
  plinth_communicator_t parts[RANKS] = {NULL, NULL, NULL};
  need_devices(RANKS);
  share_id(process, id_of_threads);
  if (process == 0) {
    run_threads(SPLITTING, init_rank_in_thread);
    forbid_threads();
    CHECK_OK(plinth_communicator_group_start());
    CHECK_OK(plinth_communicator_split(of_ranks[0], 7, 0, &parts[0]));
    CHECK_OK(plinth_communicator_split(of_ranks[1], 8, 0, &parts[1]));
    CHECK(plinth_communicator_group_end() != PLINTH_OK);
  } else {
    int rank = 2;
    init_rank_in_thread(&rank);
    const double start = seconds_now();
    CHECK_STATUS(plinth_communicator_split(of_ranks[2], 8, 0, &parts[2]), PLINTH_ERROR_SYSTEM);
    CHECK_MESSAGE("rank 1 of the parent communicator: starting a thread");
    CHECK(seconds_now() - start < SOON);
  }
}

TEST(a_split_without_a_thread_fails_on_all_its_ranks) { run_processes(2, split_without_threads); }

/* ---- the first communicator */

/* Waits until all ranks are here: one that still waited in its last attempt would time out in the next one. */
static void start_together(int rank) {
  char mark = 0;
  if (rank == 0) {
    for (int other = 1; other < RANKS; other++) {
      CHECK_EQ(read(processes.pipes[0][0], &mark, 1), 1);
    }
  } else {
    CHECK_EQ(write(processes.pipes[0][1], &mark, 1), 1);
  }
}

static void init_with_few_descriptors(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator = NULL;
  /* The others wait until their limit if the victim fails before it connects. */
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, rank == victim ? MILLISECONDS : 1000, 0);
  int shortages = 0;
  need_devices(RANKS);
  CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  CHECK_OK(plinth_set_device(rank));
  plinth_status_t status = PLINTH_ERROR_SYSTEM;
  for (int count = 0; status != PLINTH_OK; count++) {
    CHECK(count <= ENOUGH);
    start_together(rank);
    share_id(rank, id);
    if (rank == victim) {
      leave_descriptors(count);
    }
    const double start = seconds_now();
    status = plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &communicator);
    CHECK(seconds_now() - start < SOON);
    if (rank == victim && status != PLINTH_OK) {
      CHECK(is_own_error(status));
      if (status == PLINTH_ERROR_SYSTEM) {
        CHECK_MESSAGE("open files");
        shortages++;
      }
    }
    leave_all_descriptors();
  }
  use(communicator, rank);
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK(rank != victim || shortages > 0);
}

TEST(rank_0_reports_its_own_shortage_of_descriptors_at_once) {
  victim = 0;
  run_processes(RANKS, init_with_few_descriptors);
}

TEST(another_rank_reports_its_own_shortage_of_descriptors_at_once) {
  victim = 1;
  run_processes(RANKS, init_with_few_descriptors);
}

/* Rank 1 has a short limit, and rank 2 does not come. */
static void end_early(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_t communicator = NULL;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, rank == 1 ? 1000 : MILLISECONDS, 0);
  need_devices(RANKS);
  share_id(rank, id);
  if (rank == 2) {
    return;
  }
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &communicator), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 1 timed out");
  CHECK(seconds_now() - start < SOON);
}

TEST(rank_0_does_not_wait_longer_than_a_rank_that_has_connected) { run_processes(RANKS, end_early); }
