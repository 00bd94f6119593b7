/* Collectives among ranks of one process, with each engine. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* also: PLINTH_COMMUNICATOR_NCCL_FROM=1 */
/* library: fake_nccl */
#include "ranks.h"

enum { RANKS = 2, COUNT = 1000 };

static plinth_communicator_t communicators[8];
static plinth_stream_t streams[8];
static int ranks;

/* Creates one rank on each device, four at most, with the engine that the environment selects. */
static void make_communicators(void) {
  int32_t devices[4] = {0, 1, 2, 3};
  need_devices(2);
  need_nccl();
  ranks = device_count() < 4 ? device_count() : 4;
  CHECK_OK(plinth_communicator_init_all(devices, (size_t)ranks, NULL, communicators));
  for (int rank = 0; rank < ranks; rank++) {
    streams[rank] = stream_on(rank);
  }
}

static void destroy_communicators(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
  }
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static void wait_for_all_ranks(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, streams[rank]));
  }
}

#define IN_GROUP(call)                              \
  CHECK_OK(plinth_communicator_group_start());      \
  for (int rank = 0; rank < ranks; rank++) {        \
    CHECK_OK(call);                                 \
  }                                                 \
  CHECK_OK(plinth_communicator_group_end())

TEST(communicators_report_rank_size_device_and_engine) {
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    int32_t number = -1;
    CHECK_OK(plinth_communicator_rank(communicators[rank], &number));
    CHECK_EQ(number, rank);
    CHECK_OK(plinth_communicator_size(communicators[rank], &number));
    CHECK_EQ(number, ranks);
    CHECK_OK(plinth_communicator_device(communicators[rank], &number));
    CHECK_EQ(number, rank);
    uint32_t engine = 77;
    CHECK_OK(plinth_communicator_engine(communicators[rank], &engine));
    CHECK_EQ(engine, getenv("PLINTH_COMMUNICATOR_ENGINE") != NULL ? PLINTH_ENGINE_NCCL : PLINTH_ENGINE_LOCAL);
    bool ready = false;
    CHECK_OK(plinth_communicator_query(communicators[rank], &ready));
    CHECK(ready);
  }
  destroy_communicators();
}

TEST(all_reduce_gives_every_rank_the_sum) {
  float *from[4], *to[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    from[rank] = floats_on(rank, COUNT, (float)rank, 1);
    to[rank] = floats_on(rank, COUNT, -1, 0);
  }
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], from[rank], to[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          streams[rank]));
  wait_for_all_ranks();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, (float)(ranks * (ranks - 1) / 2), (float)ranks);
    expect_floats(from[rank], COUNT, (float)rank, 1);
  }
  destroy_communicators();
}

TEST(every_reduction_operator) {
  float *memory[4];
  make_communicators();
  const float expected[] = {(float)(ranks * (ranks + 1) / 2), ranks == 2 ? 2 : ranks == 3 ? 6 : 24, (float)ranks, 1,
                            (float)(ranks + 1) / 2};
  for (int op = PLINTH_REDUCE_SUM; op <= PLINTH_REDUCE_AVERAGE; op++) {
    for (int rank = 0; rank < ranks; rank++) {
      memory[rank] = floats_on(rank, COUNT, (float)(rank + 1), 0);
    }
    IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, op,
                                            streams[rank]));
    wait_for_all_ranks();
    for (int rank = 0; rank < ranks; rank++) {
      expect_floats(memory[rank], COUNT, expected[op], 0);
    }
  }
  destroy_communicators();
}

TEST(reduce_gives_only_the_root_the_sum) {
  float *from[4], *to[4];
  make_communicators();
  for (int root = 0; root < ranks; root++) {
    for (int rank = 0; rank < ranks; rank++) {
      from[rank] = floats_on(rank, COUNT, (float)rank, 1);
      to[rank] = floats_on(rank, COUNT, -1, 0);
    }
    IN_GROUP(plinth_communicator_reduce(communicators[rank], from[rank], rank == root ? to[rank] : NULL, COUNT, FLOAT32,
                                        PLINTH_REDUCE_SUM, root, streams[rank]));
    wait_for_all_ranks();
    expect_floats(to[root], COUNT, (float)(ranks * (ranks - 1) / 2), (float)ranks);
  }
  destroy_communicators();
}

TEST(broadcast_copies_from_the_root) {
  float *memory[4];
  make_communicators();
  for (int root = 0; root < ranks; root++) {
    for (int rank = 0; rank < ranks; rank++) {
      memory[rank] = floats_on(rank, COUNT, (float)(100 * rank), 1);
    }
    IN_GROUP(plinth_communicator_broadcast(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, root,
                                           streams[rank]));
    wait_for_all_ranks();
    for (int rank = 0; rank < ranks; rank++) {
      expect_floats(memory[rank], COUNT, (float)(100 * root), 1);
    }
  }
  destroy_communicators();
}

TEST(all_gather_puts_the_ranks_in_order) {
  float *from[4], *to[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    from[rank] = floats_on(rank, COUNT, (float)(rank * COUNT), 1);
    to[rank] = floats_on(rank, (size_t)ranks * COUNT, -1, 0);
  }
  IN_GROUP(plinth_communicator_all_gather(communicators[rank], from[rank], to[rank], COUNT, FLOAT32, streams[rank]));
  wait_for_all_ranks();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], (size_t)ranks * COUNT, 0, 1);
  }
  destroy_communicators();
}

TEST(reduce_scatter_gives_each_rank_its_chunk) {
  float *from[4], *to[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    from[rank] = floats_on(rank, (size_t)ranks * COUNT, 0, 1);
    to[rank] = floats_on(rank, COUNT, -1, 0);
  }
  IN_GROUP(plinth_communicator_reduce_scatter(communicators[rank], from[rank], to[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                              streams[rank]));
  wait_for_all_ranks();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, (float)(ranks * rank * COUNT), (float)ranks);
  }
  destroy_communicators();
}

TEST(all_to_all_transposes) {
  float *from[4], *to[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    from[rank] = floats_on(rank, (size_t)ranks * COUNT, (float)(rank * 10000), 1);
    to[rank] = floats_on(rank, (size_t)ranks * COUNT, -1, 0);
  }
  IN_GROUP(plinth_communicator_all_to_all(communicators[rank], from[rank], to[rank], COUNT, FLOAT32, streams[rank]));
  wait_for_all_ranks();
  for (int rank = 0; rank < ranks; rank++) {
    for (int sender = 0; sender < ranks; sender++) {
      expect_floats(to[rank] + sender * COUNT, COUNT, (float)(sender * 10000 + rank * COUNT), 1);
    }
  }
  /* Not in place. */
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_all_to_all(communicators[rank], to[rank], to[rank], COUNT, FLOAT32, streams[rank]));
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("in place");
  destroy_communicators();
}

TEST(a_ring_of_sends_and_receives_in_a_group) {
  float *from[4], *to[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    from[rank] = floats_on(rank, COUNT, (float)rank, 0);
    to[rank] = floats_on(rank, COUNT, -1, 0);
  }
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_send(communicators[rank], from[rank], COUNT, FLOAT32, (rank + 1) % ranks, streams[rank]));
    CHECK_OK(plinth_communicator_recv(communicators[rank], to[rank], COUNT, FLOAT32, (rank + ranks - 1) % ranks,
                                      streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_end());
  wait_for_all_ranks();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, (float)((rank + ranks - 1) % ranks), 0);
  }
  destroy_communicators();
}

TEST(collectives_are_ordered_with_other_work_in_their_streams) {
  float *memory[4];
  make_communicators();
  need_host_device(); /* On a GPU a gate may block the driver's other host functions. */
  for (int rank = 0; rank < ranks; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
  gate *shut = gate_shut(streams[1]);
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          streams[rank]));
  CHECK(stays_undone(streams[0]));
  CHECK_STATUS(plinth_communicator_wait(communicators[0], 50, streams[0]), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("0.050 s");
  gate_open(shut);
  wait_for_all_ranks();
  expect_floats(memory[0], COUNT, (float)ranks, 0);
  destroy_communicators();
}

TEST(a_captured_collective_replays) {
  float *memory[4];
  plinth_graph_t graph = NULL;
  plinth_event_t forks[4], joins[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
    forks[rank] = new_event(0);
    joins[rank] = new_event(0);
  }
  /* NCCL connects in the first call, so make it outside of the capture. */
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_MAX,
                                          streams[rank]));
  wait_for_all_ranks();
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(streams[0]));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_RELAXED));
  for (int rank = 1; rank < ranks; rank++) {
    CHECK_OK(plinth_event_record(forks[rank], streams[0]));
    CHECK_OK(plinth_event_wait(forks[rank], streams[rank]));
  }
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          streams[rank]));
  for (int rank = 1; rank < ranks; rank++) {
    CHECK_OK(plinth_event_record(joins[rank], streams[rank]));
    CHECK_OK(plinth_event_wait(joins[rank], streams[0]));
  }
  CHECK_OK(plinth_graph_capture_end(graph));
  float expected = 1;
  for (int round = 0; round < 3; round++) {
    CHECK_OK(plinth_graph_replay(graph));
    expected *= (float)ranks;
  }
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, streams[0]));
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(memory[rank], COUNT, expected, 0);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  destroy_communicators();
}

TEST(a_split_orders_ranks_by_key) {
  plinth_communicator_t parts[4] = {UNTOUCHED_POINTER, UNTOUCHED_POINTER, UNTOUCHED_POINTER, UNTOUCHED_POINTER};
  make_communicators();
  /* All ranks but 0 form one communicator, in reverse order. */
  IN_GROUP(plinth_communicator_split(communicators[rank], rank == 0 ? -1 : 7, -rank, &parts[rank]));
  CHECK(parts[0] == NULL);
  for (int rank = 1; rank < ranks; rank++) {
    int32_t number = -1;
    CHECK_OK(plinth_communicator_size(parts[rank], &number));
    CHECK_EQ(number, ranks - 1);
    CHECK_OK(plinth_communicator_rank(parts[rank], &number));
    CHECK_EQ(number, ranks - 1 - rank);
  }
  float *memory[4];
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 1; rank < ranks; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
    CHECK_OK(plinth_communicator_all_reduce(parts[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                            streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 1; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_wait(parts[rank], 20000, streams[rank]));
    expect_floats(memory[rank], COUNT, (float)(ranks - 1), 0);
  }
  for (int rank = 1; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(parts[rank]));
  }
  destroy_communicators();
}

static void *run_rank(void *context) {
  const int rank = *(int *)context;
  float *memory = floats_on(rank, COUNT, (float)rank, 0);
  for (int round = 0; round < 50; round++) {
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX,
                                            streams[rank]));
  }
  CHECK_OK(plinth_communicator_wait(communicators[rank], 20000, streams[rank]));
  expect_floats(memory, COUNT, (float)(ranks - 1), 0);
  return NULL;
}

TEST(each_rank_may_run_in_its_own_thread) {
  make_communicators();
  run_threads(ranks, run_rank);
  destroy_communicators();
}

TEST(elements_of_all_types_are_broadcast) {
  const DLDataType types[] = {FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT32, FLOAT64,
                              UINT8,   INT16,    INT32,         INT64,       BOOLEAN};
  make_communicators();
  for (size_t index = 0; index < sizeof types / sizeof types[0]; index++) {
    const size_t bytes = COUNT * types[index].bits / 8;
    unsigned char *expected = pageable_memory(bytes), *actual = pageable_memory(bytes);
    unsigned char *memory[4];
    pattern_fill(expected, bytes, (unsigned)index);
    for (int rank = 0; rank < ranks; rank++) {
      memory[rank] = device_memory(bytes, rank);
    }
    put(memory[1], expected, bytes);
    IN_GROUP(plinth_communicator_broadcast(communicators[rank], memory[rank], memory[rank], COUNT, types[index], 1,
                                           streams[rank]));
    wait_for_all_ranks();
    for (int rank = 0; rank < ranks; rank++) {
      fetch(actual, memory[rank], bytes);
      CHECK(memcmp(actual, expected, bytes) == 0);
    }
    free(expected);
    free(actual);
  }
  destroy_communicators();
}

/* Each rank has its number plus one; the sums are 3, 6 or 10. */
TEST(float8_is_summed) {
  const struct {
    DLDataType type;
    unsigned char numbers[4], sums[5];
  } formats[] = {{FLOAT8_E4M3FN, {0x38, 0x40, 0x44, 0x48}, {0, 0, 0x44, 0x4C, 0x52}},
                 {FLOAT8_E5M2, {0x3C, 0x40, 0x42, 0x44}, {0, 0, 0x42, 0x46, 0x49}}};
  make_communicators();
  for (size_t index = 0; index < 2; index++) {
    unsigned char *memory[4], actual[COUNT];
    for (int rank = 0; rank < ranks; rank++) {
      memory[rank] = device_memory(COUNT, rank);
      CHECK_OK(plinth_memset(memory[rank], formats[index].numbers[rank], COUNT, streams[rank]));
    }
    IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, formats[index].type,
                                            PLINTH_REDUCE_SUM, streams[rank]));
    wait_for_all_ranks();
    for (int rank = 0; rank < ranks; rank++) {
      fetch(actual, memory[rank], COUNT);
      for (int element = 0; element < COUNT; element++) {
        CHECK_EQ(actual[element], formats[index].sums[ranks]);
      }
    }
  }
  destroy_communicators();
}

TEST(empty_collectives_and_empty_groups_succeed) {
  make_communicators();
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], NULL, NULL, 0, FLOAT32, PLINTH_REDUCE_SUM, streams[rank]));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_group_end());
  wait_for_all_ranks();
  destroy_communicators();
}

TEST(mismatched_collectives_fail_and_the_communicator_stays_usable) {
  float *memory[4];
  make_communicators();
  for (int rank = 0; rank < ranks; rank++) {
    memory[rank] = floats_on(rank, COUNT, 1, 0);
  }
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], rank == 1 ? COUNT - 1 : COUNT,
                                            FLOAT32, PLINTH_REDUCE_SUM, streams[rank]));
  }
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_RANK_MISMATCH);
  CHECK_MESSAGE("rank 0 asks for all_reduce (sum) of 1000 float32, and rank 1 for all_reduce (sum) of 999 float32");
  IN_GROUP(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          streams[rank]));
  wait_for_all_ranks();
  expect_floats(memory[0], COUNT, (float)ranks, 0);
  destroy_communicators();
}

TEST(a_timeout_names_the_missing_ranks) {
  make_communicators();
  float *memory = floats_on(0, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 100));
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, streams[0]),
               PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE(ranks == 2 ? "rank 0 waited for rank 1 for 0.100 s" : "rank 0 waited for ranks 1, ");
  memory = floats_on(1, COUNT, 1, 0);
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[1], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, streams[1]),
               PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("was aborted earlier");
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static void *wait_until_aborted(void *context) {
  float *memory = floats_on(0, COUNT, 1, 0);
  (void)context;
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, streams[0]),
               PLINTH_ERROR_ABORTED);
  return NULL;
}

TEST(an_abort_ends_a_waiting_collective) {
  pthread_t thread;
  bool ready = false;
  make_communicators();
  CHECK(pthread_create(&thread, NULL, wait_until_aborted, NULL) == 0);
  sleep_milliseconds(50);
  CHECK_OK(plinth_communicator_abort(communicators[1]));
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_STATUS(plinth_communicator_query(communicators[1], &ready), PLINTH_ERROR_ABORTED);
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
  /* New communicators can be created afterwards. */
  make_communicators();
  destroy_communicators();
}

static void *wait_for_a_destroyed_rank(void *context) {
  float *memory = (float *)context;
  CHECK_STATUS(plinth_communicator_all_reduce(communicators[0], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_SUM, streams[0]),
               PLINTH_ERROR_PEER_LOST);
  CHECK_MESSAGE("rank 0 waited for rank 1, whose communicator was destroyed");
  return NULL;
}

TEST(a_rank_that_is_destroyed_ends_the_waits_for_it) {
  pthread_t thread;
  /* While another rank waits for it, and before. */
  for (int before = 0; before < 2; before++) {
    make_communicators();
    float *memory = floats_on(0, COUNT, 1, 0);
    if (before) {
      CHECK_OK(plinth_communicator_destroy(communicators[1]));
    }
    CHECK(pthread_create(&thread, NULL, wait_for_a_destroyed_rank, memory) == 0);
    if (!before) {
      sleep_milliseconds(50);
      CHECK_OK(plinth_communicator_destroy(communicators[1]));
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_STATUS(plinth_communicator_recv(communicators[0], memory, COUNT, FLOAT32, 1, streams[0]), PLINTH_ERROR_ABORTED);
    communicators[1] = NULL;
    destroy_communicators();
  }
  make_communicators();
  float *memory = floats_on(0, COUNT, 1, 0);
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
  communicators[1] = NULL;
  CHECK_STATUS(plinth_communicator_recv(communicators[0], memory, COUNT, FLOAT32, 1, streams[0]), PLINTH_ERROR_PEER_LOST);
  destroy_communicators();
}

TEST(a_message_to_oneself_needs_a_group) {
  make_communicators();
  float *from = floats_on(0, COUNT, 1, 1), *to = floats_on(0, COUNT, 0, 0);
  CHECK_STATUS(plinth_communicator_send(communicators[0], from, COUNT, FLOAT32, 0, streams[0]), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_recv(communicators[0], to, 0, FLOAT32, 0, streams[0]), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("only while it receives, in one group");
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicators[0], from, COUNT, FLOAT32, 0, streams[0]));
  CHECK_OK(plinth_communicator_recv(communicators[0], to, COUNT, FLOAT32, 0, streams[0]));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_communicator_wait(communicators[0], 20000, streams[0]));
  expect_floats(to, COUNT, 1, 1);
  destroy_communicators();
}

TEST(invalid_arguments_are_refused) {
  plinth_communicator_t made = UNTOUCHED_POINTER;
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  const int32_t twice[] = {0, 0}, absent[] = {0, 99};
  uint8_t id[PLINTH_UNIQUE_ID_SIZE] = {0};
  make_communicators();
  float *memory = floats_on(0, COUNT, 1, 0);
  plinth_communicator_t communicator = communicators[0];
  CHECK_STATUS(plinth_communicator_init_all(twice, 2, NULL, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("device 0 is there twice");
  CHECK_STATUS(plinth_communicator_init_all(absent, 2, NULL, &made), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_communicator_init_all(twice, 0, NULL, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_init_all(NULL, 1, NULL, &made), PLINTH_ERROR_NULL_POINTER);
  options.flags = 4;
  CHECK_STATUS(plinth_communicator_init_all(twice, 1, &options, &made), PLINTH_ERROR_INVALID_VALUE);
  options = options_of(9, 0, 0);
  CHECK_STATUS(plinth_communicator_init_all(twice, 1, &options, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_init_rank(2, id, 2, 0, NULL, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("no rank 2 among 2");
  CHECK_STATUS(plinth_communicator_init_rank(2, NULL, 0, 0, NULL, &made), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_communicator_init_rank(-1, id, 0, 0, NULL, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_SAME(made, UNTOUCHED_POINTER);
  CHECK_STATUS(plinth_communicator_all_reduce(communicator, memory, memory, 1, FLOAT32, 5, streams[0]),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_all_reduce(communicator, NULL, memory, 1, FLOAT32, 0, streams[0]),
               PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("the memory that is read is NULL");
  CHECK_STATUS(plinth_communicator_all_reduce(communicator, (char *)memory + 1, memory, 1, FLOAT32, 0, streams[0]),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("not aligned");
  CHECK_STATUS(plinth_communicator_all_reduce(communicator, memory, memory, 1, FLOAT32, 0, streams[1]),
               PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_communicator_broadcast(communicator, memory, memory, 1, FLOAT32, ranks, streams[0]),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_send(communicator, memory, 1, FLOAT32, -1, streams[0]), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_all_gather(communicator, memory, memory, SIZE_MAX / 8, FLOAT32, streams[0]),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_split(communicator, -2, 0, &made), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_query((plinth_communicator_t)memory, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_communicator_abort((plinth_communicator_t)memory), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_communicator_abort(NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_destroy(NULL));
  destroy_communicators();
  CHECK_STATUS(plinth_communicator_destroy(communicator), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_MESSAGE("was a communicator, but is destroyed");
}
