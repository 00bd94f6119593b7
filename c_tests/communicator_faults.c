/* What goes wrong with NCCL, by a stand-in that fails as it is told. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: an_abort_ends_a_call_that_is_stuck an_engine_that_is_none_is_named; sets the environment */
/* alone: without_nccl_its_place_is_told; sets the environment */
/* alone: what_nccl_does_not_reduce_is_named; expects what only a fresh process has */
/* alone: what_cuts_a_group_short_ends_the_ranks_or_leaves_them_whole; enables fault injection, which comes before everything else */
/* alone: an_older_nccl_gets_an_older_config; expects what only a fresh process has */
#include "ranks.h"

enum { COUNT = 100 };

static plinth_communicator_t team[2];
static float *memory[2];

static void make_team(uint64_t milliseconds) {
  const int32_t devices[] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, 0);
  need_nccl();
  CHECK_OK(plinth_communicator_init_all(devices, 2, &options, team));
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
}

static plinth_status_t reduce_all(void) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(team[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                            NULL));
  }
  return plinth_communicator_group_end();
}

static void end_team(void) {
  CHECK_OK(plinth_communicator_destroy(team[0]));
  CHECK_OK(plinth_communicator_destroy(team[1]));
}

TEST(without_nccl_its_place_is_told) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const int32_t devices[] = {0, 1};
  setenv("PLINTH_NCCL_LIBRARY", "/nonexistent/libnccl.so.2", 1);
  CHECK_STATUS(plinth_nccl_version(NULL, NULL, NULL), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_MESSAGE("PLINTH_NCCL_LIBRARY cannot be loaded");
  CHECK_MESSAGE("/nonexistent/libnccl.so.2");
  CHECK_STATUS(plinth_nccl_unique_id(id), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, team), PLINTH_ERROR_NCCL_UNAVAILABLE);
  bool available = true;
  CHECK_OK(plinth_nccl_is_available(NULL, 0, &available));
  CHECK(!available);
  /* Without being told to use NCCL, one process needs none. */
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  CHECK_OK(plinth_communicator_init_all(devices, 2, NULL, team));
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_synchronize(0));
  expect_floats(memory[0], COUNT, 2, 0);
  end_team();
  /* And neither do processes of one machine. */
  CHECK_OK(plinth_nccl_unique_id(id));
}

TEST(an_engine_that_is_none_is_named) {
  const int32_t devices[] = {0, 1};
  setenv("PLINTH_COMMUNICATOR_ENGINE", "gloo", 1);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, team), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("\"gloo\"; it can be auto, nccl, local or shared");
}

TEST(a_failed_call_is_named_and_can_be_repeated) {
  make_team(0);
  setenv("FAKE_NCCL_FAIL", "ncclAllReduce:3", 1);
  CHECK_STATUS(reduce_all(), PLINTH_ERROR_NCCL);
  CHECK_MESSAGE("ncclAllReduce failed with 3");
  CHECK_MESSAGE("the fake fails as it was told");
  setenv("FAKE_NCCL_FAIL", "ncclGroupEnd:4", 1);
  CHECK_STATUS(reduce_all(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("ncclGroupEnd failed with 4");
  unsetenv("FAKE_NCCL_FAIL");
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(team[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  end_team();
}

TEST(a_communicator_that_cannot_be_made_is_no_communicator) {
  const int32_t devices[] = {0, 1};
  need_nccl();
  setenv("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2", 1);
  team[0] = team[1] = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, team), PLINTH_ERROR_NCCL);
  CHECK_MESSAGE("ncclCommInitRankConfig failed with 2");
  CHECK_SAME(team[0], UNTOUCHED_POINTER);
  setenv("FAKE_NCCL_FAIL", "ncclGetUniqueId:1", 1);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, team), PLINTH_ERROR_NCCL);
  unsetenv("FAKE_NCCL_FAIL");
  make_team(0);
  CHECK_OK(reduce_all());
  end_team();
}

/* A rank that met another through NCCL itself. */
static void *lone_rank(void *context) {
  const int rank = *(int *)context;
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  static int made;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_NCCL, 400, 0);
  if (rank == 0) {
    CHECK_OK(plinth_nccl_unique_id(id));
    __atomic_store_n(&made, 1, __ATOMIC_SEQ_CST);
  }
  EVENTUALLY(__atomic_load_n(&made, __ATOMIC_SEQ_CST));
  CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &team[rank]));
  memory[rank] = floats_on(rank, COUNT, 1, 0);
  return NULL;
}

TEST(an_error_that_comes_later_ends_the_communicator) {
  bool ready = false;
  need_nccl();
  run_threads(2, lone_rank);
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_STATUS(plinth_communicator_wait(team[0], 20000, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("failed while it worked");
  unsetenv("FAKE_NCCL_ASYNC");
  CHECK_STATUS(plinth_communicator_query(team[0], &ready), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("was aborted earlier");
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, 0, NULL),
               PLINTH_ERROR_ABORTED);
  end_team();
}

TEST(what_nccl_never_brings_to_its_stream_is_given_up) {
  need_nccl();
  run_threads(2, lone_rank);
  setenv("FAKE_NCCL_STUCK", "1", 1);
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("NCCL worked at all_reduce (sum) of 100 float32 for 0.400 s");
  unsetenv("FAKE_NCCL_STUCK");
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  end_team();
}

static void *abort_soon(void *context) {
  sleep_milliseconds(100);
  CHECK_OK(plinth_communicator_abort((plinth_communicator_t)context));
  return NULL;
}

TEST(an_abort_ends_a_call_that_is_stuck) {
  pthread_t thread;
  need_nccl();
  run_threads(2, lone_rank);
  CHECK_OK(plinth_communicator_set_timeout(team[0], 30000));
  setenv("FAKE_NCCL_STUCK", "1", 1);
  const double start = seconds_now();
  CHECK(pthread_create(&thread, NULL, abort_soon, team[0]) == 0);
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  CHECK(seconds_now() - start < 10);
  CHECK(pthread_join(thread, NULL) == 0);
  end_team();
}

TEST(an_older_nccl_gets_an_older_config) {
  setenv("FAKE_NCCL_VERSION", "21805", 1);
  make_team(0);
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(team[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  end_team();
}

TEST(what_nccl_does_not_reduce_is_named) {
  make_team(0);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(team[rank], memory[rank], memory[rank], COUNT, INT16, PLINTH_REDUCE_SUM,
                                            NULL));
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("NCCL does not reduce int16");
  end_team();
}

TEST(a_group_that_is_refused_leaves_nothing_behind) {
  make_team(0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_STATUS(plinth_communicator_all_reduce(team[1], NULL, memory[1], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_all_reduce(team[1], memory[1], memory[1], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(team[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  end_team();
}

/* NCCL could do the first part, and knows no numbers as in the second. */
static void *ask_too_much(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_all_reduce(team[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_OK(plinth_communicator_all_reduce(team[rank], memory[rank], memory[rank], COUNT, INT16, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_OK(plinth_communicator_wait(team[rank], 20000, NULL));
  expect_floats(memory[rank], COUNT, 1, 0);
  return NULL;
}

static void *reduce_as_one(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_all_reduce(team[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_OK(plinth_communicator_wait(team[rank], 20000, NULL));
  expect_floats(memory[rank], COUNT, 2, 0);
  return NULL;
}

TEST(of_a_group_that_nccl_cannot_do_nothing_is_done) {
  need_nccl();
  run_threads(2, lone_rank);
  run_threads(2, ask_too_much);
  run_threads(2, reduce_as_one);
  end_team();
}

/* Whatever call of the driver's fails while NCCL is given the ranks' parts: either nothing was done and the ranks go on, or they
 * are at their end, and nothing waits in their streams. */
TEST(what_cuts_a_group_short_ends_the_ranks_or_leaves_them_whole) {
  int ends = 0, refusals = 0;
  CHECK_OK(plinth_enable_fault_injection());
  for (uint64_t nth = 1;; nth++) {
    make_team(0);
    CHECK_OK(reduce_all());
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_synchronize(1));
    CHECK(nth < 100);
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = reduce_all();
    const bool met = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(met || status == PLINTH_OK);
    if (status != PLINTH_OK) {
      const plinth_status_t again = reduce_all();
      CHECK(again == PLINTH_OK || again == PLINTH_ERROR_ABORTED);
      refusals += again == PLINTH_OK;
      ends += again != PLINTH_OK;
    }
    CHECK_OK(plinth_stream_synchronize(NULL));
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_synchronize(1));
    if (status == PLINTH_OK) {
      expect_floats(memory[1], COUNT, 4, 0);
    }
    end_team();
    if (!met) {
      break;
    }
  }
  CHECK(refusals > 0);
  CHECK(ends > 0);
}

/* ---- NCCL beside the library's own kernels */

static void *lone_rank_with_nccl_for_what_is_large(void *context) {
  const int rank = *(int *)context;
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  static int made;
  uint32_t engine = 77;
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, 20000, 0);
  if (rank == 0) {
    CHECK_OK(plinth_nccl_unique_id(id));
    __atomic_store_n(&made, 1, __ATOMIC_SEQ_CST);
  }
  EVENTUALLY(__atomic_load_n(&made, __ATOMIC_SEQ_CST));
  CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &team[rank]));
  CHECK_OK(plinth_communicator_engine(team[rank], &engine));
  CHECK_EQ(engine, PLINTH_ENGINE_SHARED);
  memory[rank] = floats_on(rank, COUNT, 1, 0);
  return NULL;
}

static void make_ranks_with_nccl_for_what_is_large(void) {
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  setenv("PLINTH_COMMUNICATOR_NCCL_FROM", "64", 1);
  need_nccl();
  run_threads(2, lone_rank_with_nccl_for_what_is_large);
}

TEST(an_error_of_nccls_ends_ranks_that_use_it_for_what_is_large) {
  bool ready = false;
  make_ranks_with_nccl_for_what_is_large();
  CHECK_OK(plinth_communicator_query(team[0], &ready));
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_STATUS(plinth_communicator_wait(team[0], 20000, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_STATUS(plinth_communicator_query(team[1], &ready), PLINTH_ERROR_PEER_LOST);
  unsetenv("FAKE_NCCL_ASYNC");
  CHECK_STATUS(plinth_communicator_query(team[0], &ready), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], 4, FLOAT32, 0, NULL), PLINTH_ERROR_ABORTED);
  end_team();
}

TEST(what_nccl_never_brings_to_its_stream_ends_ranks_that_use_it_for_what_is_large) {
  bool ready = false;
  make_ranks_with_nccl_for_what_is_large();
  CHECK_OK(plinth_communicator_set_timeout(team[0], 200));
  setenv("FAKE_NCCL_STUCK", "1", 1);
  CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], COUNT, FLOAT32, 0, NULL),
               PLINTH_ERROR_TIMED_OUT);
  unsetenv("FAKE_NCCL_STUCK");
  CHECK_STATUS(plinth_communicator_query(team[0], &ready), PLINTH_ERROR_ABORTED);
  for (size_t count = 4; count <= COUNT; count += COUNT - 4) {
    CHECK_STATUS(plinth_communicator_all_reduce(team[0], memory[0], memory[0], count, FLOAT32, 0, NULL),
                 PLINTH_ERROR_ABORTED);
  }
  end_team();
}
