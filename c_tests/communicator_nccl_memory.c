/* Memory that is registered with communicators of NCCL. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: memory_is_registered_without_windows memory_is_registered_with_an_older_nccl; set the environment */
/* alone: a_failure_of_nccl_registers_nothing; sets the environment */
#include "pooling.h"
#include "ranks.h"

enum { RANKS = 2, COUNT = 3 << 20 };

static plinth_communicator_t communicators[RANKS];
static plinth_pool_id_t pool;
static float *memory[RANKS];
static size_t bytes_of[RANKS];
static plinth_status_t statuses[RANKS];

/* Makes ranks in threads, each with `count` numbers in memory of a pool that can sleep. */
static void make_ranks_with(uint32_t flags, uint32_t flags_of_pool, size_t count) {
  need_nccl();
  init_ranks(RANKS, options_of(PLINTH_ENGINE_NCCL, 20000, flags), communicators);
  CHECK_OK(plinth_mem_pool_create_with_flags(flags_of_pool, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "registered"));
  for (int rank = 0; rank < RANKS; rank++) {
    bytes_of[rank] = count * sizeof(float);
    enter(pool, rank);
    memory[rank] = (float *)(void *)alloc_on(bytes_of[rank], rank, NULL);
    leave(pool, rank);
  }
}

static void make_ranks(uint32_t flags) { make_ranks_with(flags, 0, COUNT); }

static void *register_in_thread(void *context) {
  const int rank = *(int *)context;
  statuses[rank] = plinth_communicator_register(communicators[rank], memory[rank], bytes_of[rank]);
  return NULL;
}

static void register_all(plinth_status_t expected) {
  run_threads(RANKS, register_in_thread);
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_EQ(statuses[rank], expected);
  }
}

static void deregister_all(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_deregister(communicators[rank], memory[rank]));
  }
}

static void expect_asleep(plinth_status_t expected) {
  CHECK_STATUS(plinth_memory_sleep("registered", NULL), expected);
  if (expected == PLINTH_OK) {
    CHECK_OK(plinth_memory_wake("registered"));
  }
}

/* Each rank has its number plus one everywhere; the sum is 3. */
static void sum_numbers(size_t count) {
  for (int rank = 0; rank < RANKS; rank++) {
    const float number = (float)rank + 1;
    CHECK_OK(plinth_memset_pattern(memory[rank], &number, sizeof number, count * sizeof(float), NULL));
    CHECK_OK(plinth_synchronize(rank));
  }
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], count, FLOAT32,
                                            PLINTH_REDUCE_SUM, NULL));
  }
  CHECK_OK(plinth_communicator_group_end());
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_synchronize(rank));
    expect_floats(memory[rank], count, 3, 0);
  }
}

static void sum_in_place(void) { sum_numbers(COUNT); }

static void destroy_communicators(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static void release_all(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    release(memory[rank]);
  }
  destroy(pool);
}

static void destroy_all(void) {
  destroy_communicators();
  release_all();
}

static void register_sum_and_deregister(uint32_t flags) {
  make_ranks(flags);
  for (int round = 0; round < 2; round++) {
    register_all(PLINTH_OK);
    expect_asleep(PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
    CHECK_MESSAGE("rank 0 of a communicator of 2");
    sum_in_place();
    deregister_all();
    expect_asleep(PLINTH_OK);
    sum_in_place();
  }
  destroy_all();
}

TEST(registered_memory_is_summed_and_stays_in_place) { register_sum_and_deregister(0); }

TEST(registered_memory_is_summed_in_the_blocking_mode) { register_sum_and_deregister(PLINTH_COMMUNICATOR_UNLIMITED); }

TEST(memory_is_registered_without_windows) {
  setenv("FAKE_NCCL_NO_WINDOWS", "1", 1);
  register_sum_and_deregister(0);
}

TEST(memory_is_registered_with_an_older_nccl) {
  setenv("FAKE_NCCL_VERSION", "21900", 1);
  register_sum_and_deregister(0);
}

TEST(large_blocks_of_a_pool_for_windows_are_windows) {
  const size_t count = (size_t)25 << 20;
  make_ranks_with(0, PLINTH_MEM_POOL_NCCL_WINDOW, count);
  for (int rank = 0; rank < RANKS; rank++) {
    plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
    CHECK_OK(plinth_memory_uses(memory[rank], &uses));
    CHECK(uses.parts == 1 && uses.reasons[PLINTH_MEMORY_USE_NCCL_WINDOW] == NULL);
  }
  register_all(PLINTH_OK);
  sum_numbers(count);
  deregister_all();
  destroy_all();
}

TEST(a_free_waits_for_the_end_of_the_registration) {
  make_ranks(0);
  register_all(PLINTH_OK);
  const size_t held = reserved(0);
  release(memory[0]);
  CHECK_OK(plinth_communicator_deregister(communicators[0], memory[0]));
  memory[0] = NULL;
  CHECK_EQ(reserved(0), held);
  expect_asleep(PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("rank 1 of a communicator of 2");
  CHECK_OK(plinth_communicator_deregister(communicators[1], memory[1]));
  expect_asleep(PLINTH_OK);
  destroy_all();
}

TEST(the_destruction_of_a_communicator_ends_its_registrations) {
  make_ranks(0);
  register_all(PLINTH_OK);
  sum_in_place();
  destroy_communicators();
  expect_asleep(PLINTH_OK);
  release_all();
}

TEST(an_abort_ends_the_registrations) {
  make_ranks(0);
  register_all(PLINTH_OK);
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_abort(communicators[rank]));
  }
  expect_asleep(PLINTH_OK);
  CHECK_STATUS(plinth_communicator_register(communicators[0], memory[0], 100), PLINTH_ERROR_ABORTED);
  CHECK_STATUS(plinth_communicator_deregister(communicators[0], memory[0]), PLINTH_ERROR_ABORTED);
  destroy_all();
}

TEST(an_abort_does_not_wait_for_other_work) {
  need_host_device(); /* On a GPU, a gate may block other host functions of the driver. */
  make_ranks(PLINTH_COMMUNICATOR_UNLIMITED);
  register_all(PLINTH_OK);
  gate *shut = gate_shut(stream_on(0));
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_abort(communicators[rank]));
  }
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  destroy_all();
}

/* The error of one rank is that of all, and the communicator remains usable. */
static void refuse(void *first, size_t bytes, plinth_status_t expected) {
  float *const own = memory[0];
  const size_t own_bytes = bytes_of[0];
  memory[0] = (float *)first;
  bytes_of[0] = bytes;
  register_all(expected);
  memory[0] = own;
  bytes_of[0] = own_bytes;
}

TEST(wrong_memory_of_a_rank_is_refused_by_all) {
  make_ranks(0);
  refuse(memory[0], 0, PLINTH_ERROR_INVALID_VALUE);
  refuse(memory[0], bytes_of[0] + 1, PLINTH_ERROR_INVALID_VALUE);
  refuse(memory[0], bytes_of[0] - 4, PLINTH_ERROR_RANK_MISMATCH);
  refuse(memory[1], 100, PLINTH_ERROR_DEVICE_MISMATCH);
  refuse(bytes_of, 8, PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_communicator_deregister(communicators[0], memory[0]), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_deregister(communicators[0], NULL));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_STATUS(plinth_communicator_register(communicators[0], memory[0], 100), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_group_end());
  register_all(PLINTH_OK);
  refuse(memory[0] + 1024, bytes_of[0] - 4096, PLINTH_ERROR_INVALID_VALUE);
  refuse(memory[0] + 1024, SIZE_MAX, PLINTH_ERROR_INVALID_VALUE);
  sum_in_place();
  deregister_all();
  expect_asleep(PLINTH_OK);
  destroy_all();
}

/* Parts of blocks: a window if the part begins at a multiple of 4096 in one physical allocation, else a buffer. */
TEST(parts_of_blocks_are_registered) {
  enum { PART = 1000 };
  static const size_t offsets[] = {0, 1024, 128, 1};
  make_ranks(0);
  for (int index = 0; index < 4; index++) {
    for (int rank = 0; rank < RANKS; rank++) {
      memory[rank] += offsets[index];
      bytes_of[rank] = PART * sizeof(float);
    }
    register_all(PLINTH_OK);
    sum_numbers(PART);
    sum_numbers(PART - 10);
    /* More than is registered. */
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK_STATUS(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], PART + 1, FLOAT32,
                                                  PLINTH_REDUCE_SUM, NULL),
                   PLINTH_ERROR_INVALID_VALUE);
      CHECK_MESSAGE("register all of them, or none");
    }
    deregister_all();
    sum_numbers(PART + 1);
    for (int rank = 0; rank < RANKS; rank++) {
      memory[rank] -= offsets[index];
    }
  }
  destroy_all();
}

TEST(memory_is_registered_while_another_thread_captures) {
  plinth_graph_t graph = NULL;
  need_host_device(); /* NCCL's own calls may disturb the capture on a GPU. */
  make_ranks(0);
  CHECK_OK(plinth_set_stream(stream_on(0)));
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  register_all(PLINTH_OK);
  CHECK_OK(plinth_memset(memory[0], 0, bytes_of[0], PLINTH_STREAM_CURRENT));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  sum_in_place();
  deregister_all();
  destroy_all();
}

static plinth_graph_t graphs[RANKS];

static void *capture_in_thread(void *context) {
  const int rank = *(int *)context;
  plinth_stream_t stream = stream_on(rank);
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_create(&graphs[rank]));
  CHECK_OK(plinth_graph_capture_begin(graphs[rank], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  CHECK_OK(plinth_communicator_all_reduce(communicators[rank], memory[rank], memory[rank], 1000, FLOAT32, PLINTH_REDUCE_MAX,
                                          stream));
  CHECK_OK(plinth_graph_capture_end(graphs[rank]));
  CHECK_OK(plinth_graph_replay(graphs[rank]));
  CHECK_OK(plinth_stream_synchronize(stream));
  return NULL;
}

TEST(a_graph_with_deregistered_memory_is_refused) {
  make_ranks(0);
  register_all(PLINTH_OK);
  sum_in_place();
  run_threads(RANKS, capture_in_thread);
  deregister_all();
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_STATUS(plinth_graph_replay(graphs[rank]), PLINTH_ERROR_ABORTED);
    CHECK_MESSAGE("was deregistered; capture them again");
    CHECK_OK(plinth_graph_destroy(graphs[rank]));
  }
  sum_in_place();
  destroy_all();
}

TEST(a_rank_that_registers_nothing_is_waited_for_up_to_the_limit) {
  make_ranks(0);
  sum_in_place();
  CHECK_OK(plinth_communicator_set_timeout(communicators[0], 300));
  CHECK_STATUS(plinth_communicator_register(communicators[0], memory[0], bytes_of[0]), PLINTH_ERROR_TIMED_OUT);
  CHECK_MESSAGE("registering 12.00 MiB as rank 0 of 2");
  CHECK_STATUS(plinth_communicator_register(communicators[0], memory[0], bytes_of[0]), PLINTH_ERROR_ABORTED);
  CHECK_OK(plinth_communicator_abort(communicators[0]));
  expect_asleep(PLINTH_OK);
  destroy_all();
}

TEST(a_failure_of_nccl_registers_nothing) {
  if (!on_host_device()) {
    SKIP("injects a failure into the fake NCCL");
  }
  make_ranks(0);
  for (int rank = 0; rank < RANKS; rank++) {
    bytes_of[rank] = 4096; /* In one physical allocation. */
  }
  setenv("FAKE_NCCL_FAIL", "ncclCommWindowRegister:3", 1);
  register_all(PLINTH_ERROR_NCCL);
  unsetenv("FAKE_NCCL_FAIL");
  CHECK_STATUS(plinth_communicator_deregister(communicators[0], memory[0]), PLINTH_ERROR_ABORTED);
  /* NCCL may use the memory until then. */
  destroy_communicators();
  expect_asleep(PLINTH_OK);
  release_all();
}
