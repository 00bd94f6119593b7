/* The watchdog of NCCL's work in streams. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: an_asynchronous_error_ends_work_in_a_stream; sets the environment */
/* alone: the_thread_ends_with_the_work a_thread_is_started_again; counts threads */
/* alone: a_process_exits_during_a_call_that_never_ends; forks */
#include "library_threads.h"
#include "ranks.h"

enum { RANKS = 2, COUNT = 100, LIMIT = 1000 };

static plinth_communicator_t communicators[RANKS];
static float *memory[RANKS];
static plinth_stream_t streams[RANKS];

static plinth_status_t reduce(int rank) {
  return plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                        streams[rank]);
}

static void reduce_all(void) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(reduce(rank));
  }
  CHECK_OK(plinth_communicator_group_end());
}

static void wait_for_streams(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
  }
}

/* Makes ranks that are connected by a first call. */
static void make_ranks(uint64_t milliseconds) {
  need_nccl();
  init_ranks(RANKS, options_of(PLINTH_ENGINE_NCCL, 20000, 0), communicators);
  for (int rank = 0; rank < RANKS; rank++) {
    memory[rank] = floats_on(rank, COUNT, 0, 0);
    streams[rank] = stream_on(rank);
  }
  reduce_all();
  wait_for_streams();
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_set_timeout(communicators[rank], milliseconds));
  }
}

static void destroy_communicators(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static int watching_threads(void) { return count_threads("plinth-watchdog"); }

/* The second rank never calls. Nothing but the watchdog looks at the communicator. */
TEST(a_call_that_another_rank_never_makes_ends_and_is_explained) {
  bool ready = false;
  make_ranks(LIMIT);
  const double start = seconds_now();
  CHECK_OK(reduce(0));
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  const double seconds = seconds_now() - start;
  CHECK(seconds >= LIMIT / 1000.0 && seconds < 15);
  EVENTUALLY(watching_threads() == 0);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 0 of 2: all_reduce (sum) of 100 float32 (call 2) has waited for the other ranks for 1.000 s");
  CHECK_MESSAGE("call 1 was the last that ended");
  CHECK_STATUS(reduce(0), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("(call 2) has waited for the other ranks");
  destroy_communicators();
}

TEST(the_calls_behind_one_that_never_ends_are_counted) {
  bool ready = false;
  make_ranks(LIMIT);
  for (int call = 0; call < 50; call++) {
    CHECK_OK(reduce(0));
  }
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  EVENTUALLY(watching_threads() == 0);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("all_reduce (sum) of 100 float32 (call 2) has waited");
  CHECK_MESSAGE("call 1 was the last that ended");
  destroy_communicators();
}

/* The limit is about other ranks, not about other work. */
TEST(work_in_front_of_a_call_does_not_count) {
  bool ready = false;
  gate *gates[RANKS];
  make_ranks(LIMIT);
  for (int rank = 0; rank < RANKS; rank++) {
    gates[rank] = gate_shut(streams[rank]);
  }
  reduce_all();
  sleep_milliseconds(3 * LIMIT);
  for (int rank = 0; rank < RANKS; rank++) {
    gate_open(gates[rank]);
  }
  wait_for_streams();
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_query(communicators[rank], &ready));
    CHECK(ready);
    /* The limit is that of the end, too. */
    CHECK_OK(plinth_communicator_set_timeout(communicators[rank], 20000));
  }
  destroy_communicators();
}

TEST(calls_in_several_streams_and_groups_are_watched) {
  bool ready = false;
  make_ranks(20000);
  const plinth_stream_t other = stream_on(0);
  /* The first transfer connects the ranks, and waits for them. */
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_send(communicators[rank], memory[rank], COUNT, FLOAT32, 1 - rank, streams[rank]));
    CHECK_OK(plinth_communicator_recv(communicators[rank], memory[rank], COUNT, FLOAT32, 1 - rank, streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_end());
  wait_for_streams();
  for (int round = 0; round < 40; round++) {
    reduce_all();
  }
  wait_for_streams();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], LIMIT));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicators[0], memory[0], COUNT, FLOAT32, 1, other));
  CHECK_OK(plinth_communicator_recv(communicators[0], memory[0], COUNT, FLOAT32, 1, other));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_stream_synchronize(other));
  EVENTUALLY(watching_threads() == 0);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("send to rank 1 of 100 float32 (call 44) or one of the calls to 45 has waited");
  CHECK_OK(plinth_communicator_query(communicators[1], &ready));
  destroy_communicators();
}

TEST(an_asynchronous_error_ends_work_in_a_stream) {
  bool ready = false;
  if (!on_host_device()) {
    SKIP("injects an error into the fake NCCL");
  }
  make_ranks(20000);
  CHECK_OK(reduce(0));
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  unsetenv("FAKE_NCCL_ASYNC");
  EVENTUALLY(watching_threads() == 0);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("rank 0 of 2: all_reduce (sum) of 100 float32 (call 2) was running; call 1 was the last that ended");
  CHECK_MESSAGE("failed while it worked");
  destroy_communicators();
}

TEST(the_thread_ends_with_the_work) {
  make_ranks(20000);
  for (int round = 0; round < 20; round++) {
    reduce_all();
    CHECK(watching_threads() <= 1);
  }
  wait_for_streams();
  EVENTUALLY(watching_threads() == 0);
  destroy_communicators();
}

TEST(a_thread_is_started_again) {
  bool ready = false;
  make_ranks(LIMIT);
  EVENTUALLY(watching_threads() == 0);
  CHECK_OK(reduce(0));
  EVENTUALLY(watching_threads() == 1);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  destroy_communicators();
}

static void exit_during_a_call(int rank) {
  (void)rank;
  make_ranks(600000);
  CHECK_OK(reduce(0));
  exit(0);
}

TEST(a_process_exits_during_a_call_that_never_ends) { run_processes(1, exit_during_a_call); }
