/* Failures of NCCL, injected with fake_nccl. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: an_abort_ends_a_blocked_call an_unknown_engine_is_refused; sets the environment */
/* alone: ranks_with_a_wrong_setting_leave_nothing_behind a_fault_of_a_rank_that_joins_ends_the_others; set the environment */
/* alone: the_local_engine_makes_ids_without_nccl; sets the environment */
/* alone: a_fault_in_a_split_leaves_no_part a_fault_in_a_split_aborts_the_ranks_or_leaves_them_usable; enable fault injection */
/* alone: a_missing_nccl_is_reported; sets the environment */
/* alone: types_that_nccl_does_not_reduce_are_refused; expects a new process */
/* alone: a_fault_in_a_group_aborts_the_communicators_or_leaves_them_usable; enables fault injection before the first call */
/* alone: an_older_nccl_gets_an_older_config; expects a new process */
#include "ranks.h"

enum { COUNT = 100 };

static plinth_communicator_t communicators[2];
static float *memory[2];

static void make_communicators(uint64_t milliseconds) {
  const int32_t devices[] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, milliseconds, 0);
  need_nccl();
  CHECK_OK(plinth_communicator_init_all(devices, 2, &options, communicators));
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
}

static plinth_status_t reduce_all(void) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                            NULL));
  }
  return plinth_communicator_group_end();
}

static void destroy_communicators(void) {
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

TEST(a_missing_nccl_is_reported) {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const int32_t devices[] = {0, 1};
  setenv("PLINTH_NCCL_LIBRARY", "/nonexistent/libnccl.so.2", 1);
  CHECK_STATUS(plinth_nccl_version(NULL, NULL, NULL), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_MESSAGE("PLINTH_NCCL_LIBRARY cannot be loaded");
  CHECK_MESSAGE("/nonexistent/libnccl.so.2");
  CHECK_STATUS(plinth_nccl_unique_id(id), PLINTH_ERROR_NCCL_UNAVAILABLE);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, communicators), PLINTH_ERROR_NCCL_UNAVAILABLE);
  bool available = true;
  CHECK_OK(plinth_nccl_is_available(NULL, 0, &available));
  CHECK(!available);
  /* Unless NCCL is selected, the ranks of one process do not need it. */
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  CHECK_OK(plinth_communicator_init_all(devices, 2, NULL, communicators));
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_synchronize(0));
  expect_floats(memory[0], COUNT, 2, 0);
  destroy_communicators();
  /* Processes of one machine do not need it either. */
  CHECK_OK(plinth_nccl_unique_id(id));
}

TEST(an_unknown_engine_is_refused) {
  const int32_t devices[] = {0, 1};
  setenv("PLINTH_COMMUNICATOR_ENGINE", "gloo", 1);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, communicators), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("\"gloo\"; it can be auto, nccl, local or shared");
}

TEST(the_local_engine_makes_ids_without_nccl) {
  uint32_t engine = 77;
  setenv("PLINTH_COMMUNICATOR_ENGINE", "local", 1);
  need_nccl();
  init_ranks(2, options_of(PLINTH_ENGINE_AUTO, 20000, 0), communicators);
  CHECK_OK(plinth_communicator_engine(communicators[0], &engine));
  CHECK_EQ(engine, PLINTH_ENGINE_SHARED);
  destroy_communicators();
}

TEST(an_error_names_the_nccl_call_which_can_be_repeated) {
  make_communicators(0);
  setenv("FAKE_NCCL_FAIL", "ncclAllReduce:3", 1);
  CHECK_STATUS(reduce_all(), PLINTH_ERROR_NCCL);
  CHECK_MESSAGE("ncclAllReduce failed with 3");
  CHECK_MESSAGE("the fake fails as it was told");
  setenv("FAKE_NCCL_FAIL", "ncclGroupEnd:4", 1);
  CHECK_STATUS(reduce_all(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("ncclGroupEnd failed with 4");
  unsetenv("FAKE_NCCL_FAIL");
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  destroy_communicators();
}

TEST(a_failed_initialization_returns_no_communicator) {
  const int32_t devices[] = {0, 1};
  need_nccl();
  setenv("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:2", 1);
  communicators[0] = communicators[1] = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, communicators), PLINTH_ERROR_NCCL);
  CHECK_MESSAGE("ncclCommInitRankConfig failed with 2");
  CHECK_SAME(communicators[0], UNTOUCHED_POINTER);
  setenv("FAKE_NCCL_FAIL", "ncclGetUniqueId:1", 1);
  CHECK_STATUS(plinth_communicator_init_all(devices, 2, NULL, communicators), PLINTH_ERROR_NCCL);
  unsetenv("FAKE_NCCL_FAIL");
  make_communicators(0);
  CHECK_OK(reduce_all());
  destroy_communicators();
}

static void *join_with_a_wrong_setting(void *context) {
  const int rank = *(int *)context;
  CHECK_STATUS(plinth_communicator_init_rank(2, threads_of_ranks.id, rank, rank, &threads_of_ranks.options, &communicators[rank]),
               PLINTH_ERROR_INVALID_CONFIGURATION);
  return NULL;
}

TEST(ranks_with_a_wrong_setting_leave_nothing_behind) {
  size_t before = 0, after = 0, total = 0;
  need_nccl();
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  setenv("PLINTH_COMMUNICATOR_NCCL_FROM", "much", 1);
  threads_of_ranks.options = options_of(PLINTH_ENGINE_AUTO, 20000, 0);
  CHECK_OK(plinth_nccl_unique_id(threads_of_ranks.id));
  CHECK_OK(plinth_mem_get_info(0, &before, &total));
  run_threads(2, join_with_a_wrong_setting);
  CHECK_OK(plinth_mem_get_info(0, &after, &total));
  CHECK_EQ(after, before);
}

/* Makes ranks in threads, with memory. */
static void make_ranks(uint32_t engine, uint64_t milliseconds) {
  need_nccl();
  init_ranks(2, options_of(engine, milliseconds, 0), communicators);
  for (int rank = 0; rank < 2; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
}

TEST(an_asynchronous_error_aborts_the_communicator) {
  bool ready = false;
  make_ranks(PLINTH_ENGINE_NCCL, 400);
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 20000, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("failed while it worked");
  unsetenv("FAKE_NCCL_ASYNC");
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("was aborted earlier");
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, 0, NULL),
               PLINTH_ERROR_ABORTED);
  destroy_communicators();
}

TEST(a_call_that_nccl_never_enqueues_times_out) {
  make_ranks(PLINTH_ENGINE_NCCL, 400);
  setenv("FAKE_NCCL_STUCK", "1", 1);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("NCCL worked at all_reduce (sum) of 100 float32 for 0.400 s");
  unsetenv("FAKE_NCCL_STUCK");
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  destroy_communicators();
}

static void *abort_soon(void *context) {
  sleep_milliseconds(100);
  CHECK_OK(plinth_communicator_abort((plinth_communicator_t)context));
  return NULL;
}

TEST(an_abort_ends_a_blocked_call) {
  pthread_t thread;
  make_ranks(PLINTH_ENGINE_NCCL, 400);
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 30000));
  setenv("FAKE_NCCL_STUCK", "1", 1);
  const double start = seconds_now();
  CHECK(pthread_create(&thread, NULL, abort_soon, communicators[0]) == 0);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_ABORTED);
  CHECK(seconds_now() - start < 10);
  CHECK(pthread_join(thread, NULL) == 0);
  destroy_communicators();
}

TEST(an_older_nccl_gets_an_older_config) {
  setenv("FAKE_NCCL_VERSION", "21805", 1);
  make_communicators(0);
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  destroy_communicators();
}

TEST(types_that_nccl_does_not_reduce_are_refused) {
  make_communicators(0);
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, INT16, PLINTH_REDUCE_SUM,
                                            NULL));
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("NCCL does not reduce int16");
  destroy_communicators();
}

TEST(a_refused_group_runs_no_call) {
  make_communicators(0);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[1], NULL, memory[1], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL),
               PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_all_reduce(communicators[1], memory[1], memory[1], COUNT, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(reduce_all());
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, NULL));
  expect_floats(memory[0], COUNT, 2, 0);
  destroy_communicators();
}

/* A group with a call that NCCL supports, and one of a type that it does not. */
static void *call_unsupported_group(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, INT16, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, NULL));
  expect_floats(memory[rank], COUNT, 1, 0);
  return NULL;
}

static void *call_all_reduce(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          NULL));
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, NULL));
  expect_floats(memory[rank], COUNT, 2, 0);
  return NULL;
}

TEST(a_group_with_an_unsupported_call_runs_no_call) {
  make_ranks(PLINTH_ENGINE_NCCL, 400);
  run_threads(2, call_unsupported_group);
  run_threads(2, call_all_reduce);
  destroy_communicators();
}

/* If a driver call fails while a group is enqueued, either no call of the group ran and the communicators stay usable, or they
 * are aborted and their streams are not blocked. */
TEST(a_fault_in_a_group_aborts_the_communicators_or_leaves_them_usable) {
  int aborts = 0, refusals = 0;
  CHECK_OK(plinth_enable_fault_injection());
  for (uint64_t nth = 1;; nth++) {
    make_communicators(0);
    CHECK_OK(reduce_all());
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_synchronize(1));
    CHECK(nth < 100);
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = reduce_all();
    const bool tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(tripped || status == PLINTH_OK);
    if (status != PLINTH_OK) {
      const plinth_status_t repeated = reduce_all();
      CHECK(repeated == PLINTH_OK || repeated == PLINTH_ERROR_ABORTED);
      refusals += repeated == PLINTH_OK;
      aborts += repeated != PLINTH_OK;
    }
    CHECK_OK(plinth_stream_synchronize(NULL));
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_synchronize(1));
    if (status == PLINTH_OK) {
      expect_floats(memory[1], COUNT, 4, 0);
    }
    destroy_communicators();
    if (!tripped) {
      break;
    }
  }
  CHECK(refusals > 0);
  CHECK(aborts > 0);
}

/* Each rank is a part of its own. */
TEST(a_fault_in_a_split_leaves_no_part) {
  bool tripped = true;
  CHECK_OK(plinth_enable_fault_injection());
  for (uint64_t nth = 1; tripped; nth++) {
    plinth_communicator_t parts[2] = {NULL, NULL};
    size_t before = 0, after = 0, total = 0;
    make_communicators(0);
    CHECK_OK(plinth_mem_get_info(0, &before, &total));
    CHECK_OK(plinth_communicator_group_start());
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_split(communicators[rank], rank, 0, &parts[rank]));
    }
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = plinth_communicator_group_end();
    tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(tripped || status == PLINTH_OK);
    for (int rank = 0; rank < 2; rank++) {
      CHECK((parts[rank] != NULL) == (status == PLINTH_OK));
      CHECK_OK(plinth_communicator_destroy(parts[rank]));
    }
    CHECK_OK(plinth_mem_get_info(0, &after, &total));
    CHECK_EQ(after, before);
    destroy_communicators();
  }
}

/* NCCL begins the split of a rank although that of the next one fails. */
TEST(a_fault_in_a_split_aborts_the_ranks_or_leaves_them_usable) {
  int aborts = 0, refusals = 0;
  bool tripped = true;
  CHECK_OK(plinth_enable_fault_injection());
  for (uint64_t nth = 1; tripped; nth++) {
    plinth_communicator_t parts[2] = {NULL, NULL};
    make_ranks(PLINTH_ENGINE_NCCL, 400);
    CHECK_OK(plinth_communicator_group_start());
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_split(communicators[rank], 0, 0, &parts[rank]));
    }
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = plinth_communicator_group_end();
    tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    if (status != PLINTH_OK) {
      const plinth_status_t later = reduce_all();
      CHECK(tripped && (later == PLINTH_OK || later == PLINTH_ERROR_ABORTED));
      refusals += later == PLINTH_OK;
      aborts += later != PLINTH_OK;
    }
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(plinth_communicator_destroy(parts[rank]));
      CHECK_OK(plinth_synchronize(rank));
    }
    destroy_communicators();
  }
  CHECK(refusals > 0);
  CHECK(aborts > 0);
}

static void *join_unless_a_fault_happens(void *context) {
  const int rank = *(int *)context;
  communicators[rank] = NULL;
  if (plinth_communicator_init_rank(2, threads_of_ranks.id, rank, rank, &threads_of_ranks.options, &communicators[rank]) !=
      PLINTH_OK) {
    CHECK(plinth_tripped_fault() != NULL);
  }
  return NULL;
}

/* No rank waits for one that fails longer than the limit, whatever the ranks are doing. */
TEST(a_fault_of_a_rank_that_joins_ends_the_others) {
  bool tripped = true;
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  need_nccl();
  CHECK_OK(plinth_enable_fault_injection());
  threads_of_ranks.count = 2;
  threads_of_ranks.options = options_of(PLINTH_ENGINE_AUTO, 200, 0);
  for (uint64_t nth = 1; tripped; nth += 13) {
    CHECK_OK(plinth_nccl_unique_id(threads_of_ranks.id));
    CHECK_OK(plinth_inject_fault(nth, 999));
    run_threads(2, join_unless_a_fault_happens);
    tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    for (int rank = 0; rank < 2; rank++) {
      if (communicators[rank] != NULL) {
        (void)plinth_communicator_destroy(communicators[rank]);
      }
    }
    CHECK_OK(plinth_synchronize(0));
    CHECK_OK(plinth_synchronize(1));
  }
}

/* ---- NCCL for large calls, the library's own kernels for small ones */

static void make_ranks_with_nccl_for_large_calls(void) {
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  setenv("PLINTH_COMMUNICATOR_NCCL_FROM", "64", 1);
  make_ranks(PLINTH_ENGINE_AUTO, 20000);
  for (int rank = 0; rank < 2; rank++) {
    uint32_t engine = 77;
    CHECK_OK(plinth_communicator_engine(communicators[rank], &engine));
    CHECK_EQ(engine, PLINTH_ENGINE_SHARED);
  }
}

TEST(an_asynchronous_nccl_error_aborts_ranks_with_nccl_for_large_calls) {
  bool ready = false;
  make_ranks_with_nccl_for_large_calls();
  CHECK_OK(plinth_communicator_query(communicators[0], &ready));
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 20000, NULL), PLINTH_ERROR_PEER_LOST);
  CHECK_STATUS(plinth_communicator_query(communicators[1], &ready), PLINTH_ERROR_PEER_LOST);
  unsetenv("FAKE_NCCL_ASYNC");
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], 4, FLOAT32, 0, NULL),
               PLINTH_ERROR_ABORTED);
  destroy_communicators();
}

TEST(a_call_that_nccl_never_enqueues_aborts_ranks_with_nccl_for_large_calls) {
  bool ready = false;
  make_ranks_with_nccl_for_large_calls();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 200));
  setenv("FAKE_NCCL_STUCK", "1", 1);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], COUNT, FLOAT32, 0, NULL),
               PLINTH_ERROR_TIMED_OUT);
  unsetenv("FAKE_NCCL_STUCK");
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_ABORTED);
  for (size_t count = 4; count <= COUNT; count += COUNT - 4) {
    CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory[0], memory[0], count, FLOAT32, 0, NULL),
                 PLINTH_ERROR_ABORTED);
  }
  destroy_communicators();
}

/* ---- registered memory of two ranks, and their messages, whatever the size */

enum { LARGE = 64 << 20, FLOATS = LARGE / 4 };

static void *sources[2], *targets[2];

static void *register_with_other(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_register(communicators[rank], sources[rank], LARGE));
  CHECK_OK(plinth_communicator_register(communicators[rank], targets[rank], LARGE));
  return NULL;
}

static plinth_status_t reduce_large(int rank) {
  return plinth_communicator_all_reduce(communicators[rank], sources[rank], targets[rank], FLOATS, FLOAT32, 0, NULL);
}

TEST(nccl_does_no_messages_and_no_registered_collectives_of_two_ranks) {
  setenv("PLINTH_COMMUNICATOR_ENGINE", "auto", 1);
  unsetenv("PLINTH_COMMUNICATOR_NCCL_FROM");
  make_ranks(PLINTH_ENGINE_AUTO, 20000);
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_caching_allocator_alloc(LARGE, rank, NULL, &sources[rank]));
    CHECK_OK(plinth_caching_allocator_alloc(LARGE, rank, NULL, &targets[rank]));
  }
  setenv("FAKE_NCCL_STUCK", "1", 1);
  CHECK_OK(plinth_communicator_send(communicators[0], sources[0], LARGE, UINT8, 1, NULL));
  CHECK_OK(plinth_communicator_recv(communicators[1], targets[1], LARGE, UINT8, 0, NULL));
  run_threads(2, register_with_other);
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(reduce_large(rank));
  }
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, NULL));
    CHECK_OK(plinth_communicator_deregister(communicators[rank], targets[rank]));
  }
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 200));
  CHECK_STATUS(reduce_large(0), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("NCCL worked at all_reduce");
  unsetenv("FAKE_NCCL_STUCK");
  destroy_communicators();
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_caching_allocator_delete(sources[rank]));
    CHECK_OK(plinth_caching_allocator_delete(targets[rank]));
  }
}
