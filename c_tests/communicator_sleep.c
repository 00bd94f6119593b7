/* Communicators that sleep: their memory is released on all ranks, graphs are replayed after a wake, and failures leave all ranks
 * in one state. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* alone: each_fault_of_a_cycle_leaves_all_ranks_in_one_state; enables fault injection before the first call */
/* alone: sleep_waits_for_replays_where_the_driver_cannot_record_a_context; enables fault injection before the first call */
/* alone: two_processes_sleep_and_one_ends; forks before the first call */
/* timeout: 120 */
/* library: fake_nccl */
#include "driver.h"
#include "sleeping_ranks.h"

static void expect_asleep(void) {
  plinth_communicator_t part = UNTOUCHED_POINTER;
  for (int rank = 0; rank < RANKS; rank++) {
    bool ready = false;
    CHECK_STATUS(reduce(rank, COUNT), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_MESSAGE("plinth_communicator_wake");
    CHECK_STATUS(plinth_communicator_send(communicators[rank], inputs[rank], COUNT, FLOAT32, 1 - rank, streams[rank]),
                 PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_STATUS(plinth_communicator_split(communicators[rank], 0, 0, &part), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_SAME(part, UNTOUCHED_POINTER);
    CHECK_OK(plinth_communicator_query(communicators[rank], &ready));
    CHECK(ready);
  }
}

TEST(graphs_and_calls_continue_after_a_sleep) {
  make_communicators();
  run_threads(RANKS, capture_as);
  reduce_all();
  replay_all();
  for (int cycle = 0; cycle < 5; cycle++) {
    SLEEP();
    expect_asleep();
    run_threads(RANKS, replay_as);
    CHECK_EQ(statuses[0], PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_EQ(statuses[1], PLINTH_ERROR_GRAPH_ASLEEP);
    WAKE();
    replay_all();
    reduce_all();
    replay_all();
  }
  SLEEP();
  destroy_communicators();
  /* The graph of a communicator that was destroyed in its sleep stays refused, for another reason, and others are not. */
  run_threads(RANKS, replay_as);
  CHECK_EQ(statuses[0], PLINTH_ERROR_ABORTED);
  destroy_graphs();
}

TEST(sleep_waits_for_replays_and_releases_the_memory) {
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  const bool counted = on_host_device();
  make_communicators();
  run_threads(RANKS, capture_as);
  replay_all();
  if (counted) {
    before = host_usage();
  }
  for (int cycle = 0; cycle < 3; cycle++) {
    clear_outputs();
    for (int replay = 0; replay < 20; replay++) {
      run_threads(RANKS, replay_as);
    }
    SLEEP();
    expect_sums(2 * LARGE);
    if (counted) {
      /* Each rank has a buffer, which both map. */
      const plinth_host_usage_t asleep = host_usage();
      CHECK(before.device_bytes - asleep.device_bytes >= (uint64_t)RANKS * 20 * MIB);
      CHECK_EQ(before.mappings - asleep.mappings, RANKS * RANKS);
      CHECK_EQ(before.memory_handles - asleep.memory_handles, RANKS * RANKS);
    }
    WAKE();
    if (counted) {
      const plinth_host_usage_t after = host_usage();
      CHECK_EQ(before.device_bytes, after.device_bytes);
      CHECK_EQ(before.mappings, after.mappings);
      CHECK_EQ(before.memory_handles, after.memory_handles);
    }
  }
  destroy_graphs();
  destroy_communicators();
}

TEST(messages_that_were_not_received_are_kept) {
  make_communicators();
  for (int cycle = 0; cycle < 3; cycle++) {
    clear_outputs();
    for (int part = 0; part < 3; part++) {
      CHECK_OK(plinth_communicator_send(communicators[1], inputs[1] + part * COUNT, COUNT, FLOAT32, 0, streams[1]));
    }
    CHECK_OK(plinth_communicator_recv(communicators[0], outputs[0], COUNT, FLOAT32, 1, streams[0]));
    SLEEP();
    WAKE();
    CHECK_OK(plinth_communicator_recv(communicators[0], outputs[0] + COUNT, COUNT, FLOAT32, 1, streams[0]));
    SLEEP();
    WAKE();
    CHECK_OK(plinth_communicator_recv(communicators[0], outputs[0] + 2 * COUNT, COUNT, FLOAT32, 1, streams[0]));
    CHECK_OK(plinth_communicator_wait(communicators[0], MILLISECONDS, streams[0]));
    expect_floats(outputs[0], 3 * COUNT, 1, 1);
  }
  destroy_communicators();
}

TEST(a_state_can_be_set_twice) {
  make_communicators();
  WAKE();
  reduce_all();
  SLEEP();
  SLEEP();
  expect_asleep();
  WAKE();
  WAKE();
  reduce_all();
  CHECK_STATUS(plinth_communicator_sleep(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_communicator_wake(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_STATUS(plinth_communicator_sleep(communicators[0]), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_communicator_sleep(communicators[0]), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  destroy_communicators();
}

/* ---- failures */

TEST(a_capture_on_one_rank_keeps_all_ranks_awake) {
  make_communicators();
  begin_capture_on_rank_1();
  CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK(strstr(messages[0], "rank 1 failed") != NULL);
  end_capture_on_rank_1();
  reduce_all();
  SLEEP();
  WAKE();
  reduce_all();
  destroy_communicators();
}

TEST(a_missing_rank_is_named_and_the_communicator_aborted) {
  bool ready = false;
  make_communicators();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], TIMED_OUT_AFTER));
  CHECK_STATUS(plinth_communicator_sleep(communicators[0]), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 1");
  CHECK_STATUS(plinth_communicator_query(communicators[1], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 0 of 2 waited too long for rank 1");
  destroy_communicators();
  make_communicators();
  SLEEP();
  CHECK_OK(plinth_communicator_set_timeout(communicators[1], TIMED_OUT_AFTER));
  CHECK_STATUS(plinth_communicator_wake(communicators[1]), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("rank 0");
  CHECK_STATUS(plinth_communicator_query(communicators[0], &ready), PLINTH_ERROR_TIMED_OUT);
  CHECK_STATUS(plinth_communicator_wake(communicators[0]), PLINTH_ERROR_ABORTED);
  destroy_communicators();
}

TEST(a_rank_that_leaves_in_its_sleep_is_lost) {
  make_communicators();
  reduce_all();
  SLEEP();
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  CHECK_STATUS(plinth_communicator_wake(communicators[0]), PLINTH_ERROR_PEER_LOST);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
}

static void *abort_soon(void *context) {
  sleep_milliseconds(100);
  CHECK_OK(plinth_communicator_abort(*(plinth_communicator_t *)context));
  return NULL;
}

TEST(an_abort_ends_the_wait) {
  pthread_t thread;
  const double start = seconds_now();
  make_communicators();
  CHECK(pthread_create(&thread, NULL, abort_soon, &communicators[0]) == 0);
  CHECK_STATUS(plinth_communicator_sleep(communicators[0]), PLINTH_ERROR_ABORTED);
  CHECK(pthread_join(thread, NULL) == 0);
  destroy_communicators();
  make_communicators();
  SLEEP();
  CHECK(pthread_create(&thread, NULL, abort_soon, &communicators[1]) == 0);
  CHECK_STATUS(plinth_communicator_wake(communicators[0]), PLINTH_ERROR_ABORTED);
  CHECK(pthread_join(thread, NULL) == 0);
  destroy_communicators();
  CHECK(seconds_now() - start < 20);
}

/* Makes the communicators, whose first cycles make calls that later ones do not. */
static void begin_with_faults(void) {
  CHECK_OK(plinth_enable_fault_injection());
  make_communicators();
  run_threads(RANKS, capture_as);
  for (int cycle = 0; cycle < 3; cycle++) {
    reduce_all();
    replay_all();
    SLEEP();
    WAKE();
  }
}

/* Each driver call fails in turn. The ranks return the same status, a repeated call succeeds, and nothing leaks. */
TEST(each_fault_of_a_cycle_leaves_all_ranks_in_one_state) {
  static const int32_t codes[] = {CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY};
  int faults = 0, failed_sleeps = 0, failed_wakes = 0;
  begin_with_faults();
  const bool counted = on_host_device();
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  if (counted) {
    before = host_usage();
  }
  bool happened = true;
  for (uint64_t nth = 1; happened; nth++) {
    CHECK_OK(plinth_inject_fault(nth, codes[nth % 2]));
    if (on_all(plinth_communicator_sleep) != PLINTH_OK) {
      failed_sleeps++;
      const char *call = plinth_tripped_fault();
      CHECK(call != NULL && strstr(messages[0], call) != NULL && strstr(messages[1], call) != NULL);
      SLEEP();
    }
    expect_asleep();
    if (on_all(plinth_communicator_wake) != PLINTH_OK) {
      failed_wakes++;
      const char *call = plinth_tripped_fault();
      CHECK(call != NULL && strstr(messages[0], call) != NULL && strstr(messages[1], call) != NULL);
      expect_asleep();
      WAKE();
    }
    happened = plinth_tripped_fault() != NULL;
    faults += happened;
    CHECK_OK(plinth_inject_fault(0, 0));
    replay_all();
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK_OK(reduce(rank, COUNT));
    }
    expect_sums(COUNT);
    if (counted) {
      const plinth_host_usage_t after = host_usage();
      CHECK_EQ(after.device_bytes, before.device_bytes);
      CHECK_EQ(after.memory_handles, before.memory_handles);
      CHECK_EQ(after.mappings, before.mappings);
      CHECK_EQ(after.streams, before.streams);
    }
  }
  CHECK(faults >= 40);
  CHECK(failed_sleeps >= 6);
  CHECK(failed_wakes >= 10);
  destroy_graphs();
  destroy_communicators();
}

/* ---- drivers before CUDA 12.5 */

static int released;

static void wait_for_release(void *context) {
  (void)context;
  while (!__atomic_load_n(&released, __ATOMIC_ACQUIRE)) sleep_milliseconds(1);
}

static void *release_soon(void *context) {
  (void)context;
  sleep_milliseconds(200);
  __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
  return NULL;
}

static uint64_t calls_of(const char *name) {
  uint64_t count = 0;
  CHECK_OK(plinth_driver_call_count(name, &count));
  return count;
}

/* Such a driver cannot record the work of a context, and a failure of that call is treated as its absence. */
TEST(sleep_waits_for_replays_where_the_driver_cannot_record_a_context) {
  bool waited = false;
  begin_with_faults();
  bool happened = true;
  for (uint64_t nth = 1; happened && !waited; nth++) {
    pthread_t releasing;
    clear_outputs();
    for (int rank = 0; rank < RANKS; rank++) CHECK_OK(plinth_stream_synchronize(streams[rank]));
    __atomic_store_n(&released, 0, __ATOMIC_RELEASE);
    for (int rank = 0; rank < RANKS; rank++) CHECK_OK(plinth_launch_host_function(streams[rank], wait_for_release, NULL));
    run_threads(RANKS, replay_as);
    CHECK_EQ(pthread_create(&releasing, NULL, release_soon, NULL), 0);
    const uint64_t before = calls_of("cuCtxSynchronize");
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t status = on_all(plinth_communicator_sleep);
    const char *call = plinth_tripped_fault();
    happened = call != NULL;
    if (happened && strcmp(call, "cuCtxRecordEvent") == 0) {
      waited = true;
      CHECK_EQ(status, PLINTH_OK);
      CHECK(__atomic_load_n(&released, __ATOMIC_ACQUIRE));
      CHECK_EQ(calls_of("cuCtxSynchronize"), before + 1);
      for (int rank = 0; rank < RANKS; rank++) CHECK(stream_done(streams[rank]));
    }
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK_EQ(pthread_join(releasing, NULL), 0);
    if (status != PLINTH_OK) SLEEP();
    WAKE();
    expect_sums(2 * LARGE);
  }
  CHECK(waited);
  destroy_graphs();
  destroy_communicators();
}

/* ---- processes */

static void sleep_in_process(int rank) {
  static uint8_t shared_id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  plinth_graph_t graph;
  const int ranks = processes.count;
  need_devices(ranks);
  share_id(rank, shared_id);
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(ranks, shared_id, rank, rank, &options, &communicator));
  plinth_stream_t stream = stream_on(rank);
  CHECK_OK(plinth_set_stream(stream));
  /* The sleep waits for the device, so results can be read in any stream afterwards. */
  CHECK_OK(plinth_sanitizer_enable(PLINTH_SANITIZER_ERROR));
  float *from = floats_on(rank, LARGE, (float)rank, 1), *to = floats_on(rank, LARGE, -1, 0);
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_communicator_all_reduce(communicator, from, to, LARGE, FLOAT32, PLINTH_REDUCE_SUM, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int cycle = 0; cycle < 4; cycle++) {
    CHECK_OK(plinth_memset(to, 0, LARGE * sizeof(float), stream));
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_communicator_sleep(communicator));
    expect_floats(to, LARGE, (float)(ranks * (ranks - 1)) / 2, (float)ranks);
    CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_GRAPH_ASLEEP);
    CHECK_OK(plinth_communicator_wake(communicator));
    CHECK_OK(plinth_communicator_all_reduce(communicator, from, to, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
    CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
    expect_floats(to, COUNT, (float)(ranks - 1), 1);
  }
  CHECK_OK(plinth_communicator_sleep(communicator));
  if (rank == 1) {
    _exit(0);
  }
  CHECK_STATUS(plinth_communicator_wake(communicator), PLINTH_ERROR_PEER_LOST);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(two_processes_sleep_and_one_ends) { run_processes(2, sleep_in_process); }

/* ---- other engines */

TEST(the_local_engine_has_no_memory) {
  const int32_t devices[] = {0, 1};
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, MILLISECONDS, 0);
  need_devices(RANKS);
  CHECK_OK(plinth_communicator_init_all(devices, RANKS, &options, communicators));
  CHECK_OK(plinth_communicator_sleep(communicators[0]));
  CHECK_OK(plinth_communicator_wake(communicators[0]));
  destroy_communicators();
}
