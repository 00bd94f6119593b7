/* Communicators of NCCL that sleep: NCCL's memory is released on all ranks and graphs are replayed after a wake, alone and
 * beside the shared engine. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_NCCL_FROM=65536 */
/* library: fake_nccl */
/* alone: an_older_nccl_keeps_its_memory an_older_nccl_beside_the_local_engine_keeps_its_memory; set the version */
/* alone: an_older_nccl_beside_the_shared_engine_refuses_calls_all_the_same; set the version */
/* alone: a_failure_of_nccl_ends_the_communicator a_failure_of_nccl_ends_the_communicator_of_one_process; set faults of NCCL */
/* alone: a_refused_wake_can_be_repeated; set faults of NCCL */
/* timeout: 120 */
#include "allocating.h"
#include "sleeping_ranks.h"

enum { CYCLES = 3, LEAST_BYTES = 4 << 20 };

/* Makes communicators of NCCL, or of the shared engine that are connected through NCCL; skips the test if NCCL cannot sleep. */
static void make_communicators_of(uint32_t wanted) {
  int32_t major = 0, minor = 0, patch = 0;
  need_nccl();
  engine = wanted;
  if (!on_host_device()) {
    CHECK_OK(plinth_nccl_version(&major, &minor, &patch));
    if (major * 10000 + minor * 100 + patch < 23003) {
      SKIP("needs NCCL 2.30.3");
    }
  }
  make_communicators();
  if (wanted == PLINTH_ENGINE_AUTO) {
    uint32_t found = 0;
    CHECK_OK(plinth_communicator_engine(communicators[0], &found));
    if (found != PLINTH_ENGINE_SHARED) {
      SKIP("the ranks share no memory");
    }
  }
}

static void make_nccl(void) { make_communicators_of(PLINTH_ENGINE_NCCL); }

static bool is_one_process;

/* Makes communicators for devices of one process, for which NCCL does everything, or what is large. */
static void make_for_one_process(uint32_t wanted) {
  const int32_t devices[] = {0, 1};
  make_nccl();
  destroy_communicators();
  const plinth_communicator_options_t options = options_of(wanted, MILLISECONDS, 0);
  CHECK_OK(plinth_communicator_init_all(devices, RANKS, &options, communicators));
  is_one_process = true;
}

static void make_nccl_of_one_process(void) { make_for_one_process(PLINTH_ENGINE_NCCL); }

static void (*const make_either[])(void) = {make_nccl, make_nccl_of_one_process};

static void expect_asleep(void) {
  plinth_communicator_t part = UNTOUCHED_POINTER;
  for (int rank = 0; rank < RANKS; rank++) {
    bool ready = false;
    for (int size = 0; size < SIZES; size++) {
      CHECK_STATUS(reduce(rank, counts[size]), PLINTH_ERROR_GRAPH_ASLEEP);
      CHECK_MESSAGE("plinth_communicator_wake");
    }
    CHECK_STATUS(plinth_communicator_send(communicators[rank], inputs[rank], LARGE, FLOAT32, 1 - rank, streams[rank]),
                 PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_STATUS(plinth_communicator_split(communicators[rank], 0, 0, &part), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_SAME(part, UNTOUCHED_POINTER);
    if (engine == PLINTH_ENGINE_NCCL && !is_one_process) {
      CHECK_STATUS(plinth_communicator_register(communicators[rank], inputs[rank], LARGE), PLINTH_ERROR_GRAPH_ASLEEP);
    }
    CHECK_OK(plinth_communicator_query(communicators[rank], &ready));
    CHECK(ready);
  }
}

/* Both ranks sleep and wake again and again, with graphs and calls of all sizes. */
static void cycle(void) {
  uint64_t awake[RANKS];
  reduce_all();
  run_threads(RANKS, capture_as);
  replay_all();
  for (int round = 0; round < CYCLES; round++) {
    for (int rank = 0; rank < RANKS; rank++) {
      awake[rank] = free_bytes(rank);
    }
    clear_outputs();
    run_threads(RANKS, replay_as);
    SLEEP();
    expect_sums(2 * LARGE);
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK(free_bytes(rank) >= awake[rank] + LEAST_BYTES);
    }
    SLEEP();
    expect_asleep();
    run_threads(RANKS, replay_as);
    CHECK_EQ(statuses[0], PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_EQ(statuses[1], PLINTH_ERROR_GRAPH_ASLEEP);
    WAKE();
    WAKE();
    /* What the ranks exchanged first stays cached. */
    if (on_host_device() && round > 0) {
      CHECK_EQ(free_bytes(0), awake[0]);
      CHECK_EQ(free_bytes(1), awake[1]);
    }
    replay_all();
    reduce_all();
    replay_all();
  }
  destroy_graphs();
  destroy_communicators();
}

TEST(graphs_and_calls_of_nccl_continue_after_a_sleep) {
  make_nccl();
  cycle();
}

TEST(nccl_of_one_process_sleeps) {
  make_nccl_of_one_process();
  cycle();
}

TEST(graphs_of_a_rank_of_one_process_sleep_with_it) {
  make_nccl_of_one_process();
  reduce_all();
  run_threads(RANKS, capture_as);
  CHECK_OK(plinth_communicator_sleep(communicators[0]));
  CHECK_STATUS(plinth_graph_replay(graphs[0]), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_communicator_sleep(communicators[1]));
  CHECK_OK(plinth_communicator_wake(communicators[1]));
  CHECK_STATUS(plinth_graph_replay(graphs[0]), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_communicator_wake(communicators[0]));
  replay_all();
  CHECK_OK(plinth_communicator_sleep(communicators[1]));
  destroy_graphs();
  destroy_communicators();
}

/* One thread calls for both ranks: the last one releases the memory, and the first one allocates it again. */
static void sleep_one_after_the_other(void) {
  reduce_all();
  for (int round = 0; round < CYCLES; round++) {
    const uint64_t awake = free_bytes(1);
    CHECK_OK(plinth_communicator_sleep(communicators[0]));
    CHECK_STATUS(reduce(0, COUNT), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_EQ(free_bytes(1), awake);
    CHECK_OK(plinth_communicator_wake(communicators[0]));
    reduce_all();
    CHECK_OK(plinth_communicator_sleep(communicators[1]));
    CHECK_OK(plinth_communicator_sleep(communicators[0]));
    CHECK(free_bytes(1) >= awake + LEAST_BYTES);
    CHECK_OK(plinth_communicator_wake(communicators[1]));
    if (on_host_device()) {
      CHECK_EQ(free_bytes(1), awake);
    }
    CHECK_STATUS(reduce(0, COUNT), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_communicator_wake(communicators[0]));
    reduce_all();
  }
  CHECK_OK(plinth_communicator_sleep(communicators[0]));
  CHECK_OK(plinth_communicator_sleep(communicators[1]));
  destroy_communicators();
}

TEST(ranks_of_one_process_sleep_one_after_the_other) {
  make_nccl_of_one_process();
  sleep_one_after_the_other();
}

TEST(nccl_beside_the_local_engine_sleeps) {
  make_for_one_process(PLINTH_ENGINE_AUTO);
  const uint64_t unused = free_bytes(0);
  CHECK_OK(plinth_communicator_sleep(communicators[0]));
  reduce_all(); /* Nothing slept, as NCCL is not used before. */
  CHECK(free_bytes(0) < unused);
  sleep_one_after_the_other();
}

/* Reduces as rank 0, also after a sleep. */
static void *reduce_as_rank_0(void *context) {
  plinth_status_t *status = context;
  do {
    *status = reduce(0, COUNT);
  } while (*status == PLINTH_ERROR_GRAPH_ASLEEP);
  return NULL;
}

TEST(a_call_in_progress_keeps_a_rank_of_one_process_awake) {
  plinth_status_t status, slept;
  pthread_t thread;
  make_nccl_of_one_process();
  CHECK(pthread_create(&thread, NULL, reduce_as_rank_0, &status) == 0);
  while ((slept = plinth_communicator_sleep(communicators[0])) == PLINTH_OK) {
    CHECK_OK(plinth_communicator_wake(communicators[0]));
  }
  CHECK_EQ(slept, PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("a call of the rank is in progress");
  CHECK_OK(reduce(1, COUNT));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_OK(status);
  expect_sums(COUNT);
  SLEEP();
  WAKE();
  reduce_all();
  destroy_communicators();
}

TEST(a_capture_keeps_the_last_rank_of_one_process_awake) {
  make_nccl_of_one_process();
  CHECK_OK(plinth_communicator_sleep(communicators[0]));
  begin_capture_on_rank_1();
  CHECK_STATUS(plinth_communicator_sleep(communicators[1]), PLINTH_ERROR_CAPTURE_FORBIDS);
  end_capture_on_rank_1();
  CHECK_OK(plinth_communicator_wake(communicators[0]));
  reduce_all();
  SLEEP();
  begin_capture_on_rank_1();
  CHECK_STATUS(plinth_communicator_wake(communicators[0]), PLINTH_ERROR_CAPTURE_FORBIDS);
  end_capture_on_rank_1();
  expect_asleep();
  WAKE();
  reduce_all();
  destroy_communicators();
}

TEST(nccl_sleeps_with_the_shared_engine) {
  make_communicators_of(PLINTH_ENGINE_AUTO);
  cycle();
}

TEST(a_communicator_that_sleeps_can_be_destroyed) {
  make_nccl();
  reduce_all();
  run_threads(RANKS, capture_as);
  SLEEP();
  run_threads(RANKS, replay_as);
  CHECK_EQ(statuses[0], PLINTH_ERROR_GRAPH_ASLEEP);
  destroy_graphs();
  destroy_communicators();
}

TEST(a_split_sleeps_as_well) {
  plinth_communicator_t parents[RANKS];
  make_nccl();
  memcpy(parents, communicators, sizeof parents);
  CHECK_EQ(on_all(split_for_all), PLINTH_OK);
  cycle();
  memcpy(communicators, parents, sizeof parents);
  reduce_all();
  destroy_communicators();
}

/* ---- refusals, after which nothing has changed on any rank */

static void *register_as(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_register(communicators[rank], inputs[rank], LARGE));
  return NULL;
}

TEST(registered_memory_keeps_nccl_awake) {
  make_nccl();
  for (int rank = 0; rank < RANKS; rank++) {
    inputs[rank] = (float *)(void *)alloc_on(2 * LARGE * sizeof(float), rank, NULL);
  }
  run_threads(RANKS, register_as);
  CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_INVALID_VALUE);
  CHECK(strstr(messages[0], "plinth_communicator_deregister") != NULL);
  CHECK_OK(plinth_communicator_deregister(communicators[0], inputs[0]));
  CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_INVALID_VALUE);
  CHECK(strstr(messages[0], "rank 1: memory is registered") != NULL);
  CHECK_OK(plinth_communicator_deregister(communicators[1], inputs[1]));
  SLEEP();
  WAKE();
  destroy_communicators();
  CHECK_OK(plinth_caching_allocator_delete(inputs[0]));
  CHECK_OK(plinth_caching_allocator_delete(inputs[1]));
}

TEST(a_capture_on_one_rank_keeps_nccl_awake) {
  make_nccl();
  reduce_all();
  begin_capture_on_rank_1();
  CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(strstr(messages[0], "rank 1") != NULL);
  end_capture_on_rank_1();
  reduce_all();
  SLEEP();
  /* A wake that is refused on one rank can be repeated there, while the other rank waits. */
  begin_capture_on_rank_1();
  CHECK_STATUS(plinth_communicator_wake(communicators[1]), PLINTH_ERROR_CAPTURE_FORBIDS);
  end_capture_on_rank_1();
  expect_asleep();
  WAKE();
  reduce_all();
  destroy_communicators();
}

/* Takes all memory of a device but `left` bytes. */
static void *fill_device(int rank, uint64_t left) {
  void *taken = NULL;
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_device_malloc(free_bytes(rank) - left, rank, &taken));
  return taken;
}

TEST(a_wake_without_room_can_be_repeated) {
  if (!on_host_device()) {
    SKIP("takes all memory of a device");
  }
  for (int kind = 0; kind < 2; kind++) {
    make_either[kind]();
    reduce_all();
    SLEEP();
    void *taken = fill_device(1, 4 * MIB);
    /* In one process, the first wake needs room on all devices. */
    CHECK_STATUS(plinth_communicator_wake(communicators[1 - kind]), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("NCCL needs 8.00 MiB, and device 1 has 4.00 MiB free");
    expect_asleep();
    CHECK_OK(plinth_device_free(taken));
    WAKE();
    reduce_all();
    destroy_communicators();
  }
}

/* Without room for NCCL's 8 MiB, for the shared engine's buffer, and for one of them but not for both. */
TEST(a_wake_without_room_beside_the_shared_engine_fails_on_all_ranks) {
  if (!on_host_device()) {
    SKIP("takes all memory of a device");
  }
  make_communicators_of(PLINTH_ENGINE_AUTO);
  const uint64_t awake = free_bytes(1);
  SLEEP();
  const uint64_t needed = free_bytes(1) - awake;
  const uint64_t rooms[] = {4 * MIB, 12 * MIB, needed - 2 * MIB};
  for (int index = 0; index < 3; index++) {
    void *taken = fill_device(1, rooms[index]);
    CHECK_EQ(on_all(plinth_communicator_wake), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(messages[0], "rank 1 failed") != NULL);
    CHECK_EQ(strstr(messages[0], "NCCL needs 8.00 MiB") != NULL, index == 2);
    expect_asleep();
    CHECK_OK(plinth_device_free(taken));
  }
  WAKE();
  reduce_all();
  destroy_communicators();
}

/* ---- failures */

/* The second call of a rank is the one that the other rank does not make. */
static void expect_timeout(plinth_status_t (*call)(plinth_communicator_t communicator), const char *message) {
  bool ready = false;
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], TIMED_OUT_AFTER));
  CHECK_STATUS(call(communicators[0]), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE(message);
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(call(communicators[0]), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(reduce(0, COUNT), PLINTH_ERROR_ABORTED);
  /* What it had in its stream has ended. */
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  destroy_communicators();
}

TEST(a_rank_that_is_missing_ends_the_communicator) {
  make_nccl();
  expect_timeout(plinth_communicator_sleep, "putting to sleep rank 0 of 2");
  make_nccl();
  SLEEP();
  expect_timeout(plinth_communicator_wake, "waking rank 0 of 2 of a communicator of NCCL: NCCL waited for the other ranks");
}

/* Rank 0 wakes in a thread and waits in NCCL's call, because rank 1, whose group is awake, captures. */
static pthread_t wake_halfway(void) {
  static const int rank = 0;
  pthread_t thread;
  SLEEP();
  begin_capture_on_rank_1();
  called = plinth_communicator_wake;
  CHECK(pthread_create(&thread, NULL, call_as, (void *)(uintptr_t)&rank) == 0);
  CHECK_STATUS(plinth_communicator_wake(communicators[1]), PLINTH_ERROR_CAPTURE_FORBIDS);
  end_capture_on_rank_1();
  return thread;
}

TEST(a_refused_wake_of_nccl_beside_the_shared_engine_is_repeated_or_ended) {
  make_communicators_of(PLINTH_ENGINE_AUTO);
  pthread_t thread = wake_halfway();
  CHECK_OK(plinth_communicator_wake(communicators[1]));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(statuses[0], PLINTH_OK);
  reduce_all();
  /* NCCL does not know that the group has ended; its timeout is far. */
  const double start = seconds_now();
  thread = wake_halfway();
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(statuses[0], PLINTH_ERROR_ABORTED);
  CHECK(seconds_now() - start < MILLISECONDS / 1000.0 / 2);
  destroy_communicators();
}

TEST(a_failure_of_nccl_ends_the_communicator) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  make_nccl();
  harness_setenv("FAKE_NCCL_FAIL", "ncclCommSuspend:1");
  CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_NCCL);
  CHECK(strstr(messages[0], "ncclCommSuspend") != NULL);
  CHECK_STATUS(reduce(0, COUNT), PLINTH_ERROR_ABORTED);
  harness_setenv("FAKE_NCCL_FAIL", "");
  destroy_communicators();
  make_nccl();
  SLEEP();
  harness_setenv("FAKE_NCCL_FAIL", "ncclCommResume:1");
  CHECK_EQ(on_all(plinth_communicator_wake), PLINTH_ERROR_NCCL);
  CHECK(strstr(messages[1], "ncclCommResume") != NULL);
  CHECK_STATUS(reduce(0, COUNT), PLINTH_ERROR_ABORTED);
  harness_setenv("FAKE_NCCL_FAIL", "");
  destroy_communicators();
}

TEST(a_failure_of_nccl_ends_the_communicator_of_one_process) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  for (int round = 0; round < 2; round++) {
    make_nccl_of_one_process();
    CHECK_OK(plinth_communicator_sleep(communicators[0]));
    if (round == 1) {
      CHECK_OK(plinth_communicator_sleep(communicators[1]));
    }
    harness_setenv("FAKE_NCCL_FAIL", round == 0 ? "ncclCommSuspend:1" : "ncclCommResume:1");
    CHECK_STATUS((round == 0 ? plinth_communicator_sleep : plinth_communicator_wake)(communicators[1]), PLINTH_ERROR_NCCL);
    CHECK_MESSAGE(round == 0 ? "ncclCommSuspend" : "ncclCommResume");
    harness_setenv("FAKE_NCCL_FAIL", "");
    CHECK_STATUS(plinth_communicator_sleep(communicators[0]), PLINTH_ERROR_ABORTED);
    CHECK_STATUS(reduce(1, COUNT), PLINTH_ERROR_ABORTED);
    destroy_communicators();
  }
}

TEST(a_refused_wake_can_be_repeated) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  make_nccl();
  SLEEP();
  harness_setenv("FAKE_NCCL_FAIL", "ncclCommMemStats:1");
  CHECK_EQ(on_all(plinth_communicator_wake), PLINTH_ERROR_NCCL);
  expect_asleep();
  harness_setenv("FAKE_NCCL_FAIL", "");
  WAKE();
  reduce_all();
  destroy_communicators();
}

/* ---- versions */

TEST(an_older_nccl_keeps_its_memory) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  harness_setenv("FAKE_NCCL_VERSION", "23002");
  for (int kind = 0; kind < 2; kind++) {
    make_either[kind]();
    CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_NCCL_UNAVAILABLE);
    CHECK(strstr(messages[0], "NCCL 2.30.2 keeps its memory; 2.30.3 and newer release it") != NULL);
    CHECK_EQ(on_all(plinth_communicator_wake), PLINTH_ERROR_NCCL_UNAVAILABLE);
    reduce_all();
    destroy_communicators();
  }
}

TEST(an_older_nccl_beside_the_local_engine_keeps_its_memory) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  harness_setenv("FAKE_NCCL_VERSION", "23002");
  make_for_one_process(PLINTH_ENGINE_AUTO);
  reduce_all();
  SLEEP();
  reduce_all(); /* Nothing slept. */
  WAKE();
  destroy_communicators();
}

TEST(an_older_nccl_beside_the_shared_engine_refuses_calls_all_the_same) {
  if (!on_host_device()) {
    SKIP("needs the fake NCCL");
  }
  harness_setenv("FAKE_NCCL_VERSION", "23002");
  make_communicators_of(PLINTH_ENGINE_AUTO);
  reduce_all();
  SLEEP();
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_STATUS(reduce(rank, COUNT), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_STATUS(reduce(rank, 2 * LARGE), PLINTH_ERROR_GRAPH_ASLEEP);
  }
  WAKE();
  reduce_all();
  destroy_communicators();
}
