/* Registrations of memory with a communicator: ranks that cannot register, what a registration keeps, and its end.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* env: PLINTH_GROUP_TUNING=registered=0,packets=0,broadcast=0,one_shot=2048,staging=4096,block_bytes=256,piece=64,entry=16 */
/* timeout: 240 */
#include "registering.h"

#include <sys/resource.h>

/* ---- failures */

/* Both ranks fail with the same status, and name rank 1; then a registration works. */
static void fail_with(int rank, plinth_communicator_t communicator, void *pointer, size_t bytes, plinth_status_t expected) {
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_register(communicator, pointer, bytes), expected);
  if (rank == 0) {
    CHECK_MESSAGE("rank 1");
  }
  CHECK(seconds_now() - start < SOON);
}

static void fail_to_register(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  unsigned char *block = (unsigned char *)block_on(BLOCK, rank);
  unsigned char *freed = (unsigned char *)block_on(8 * MIB, rank);
  unsigned char *elsewhere = (unsigned char *)block_on(BLOCK, 1 - rank);
  unsigned char *const good = block, *const other = (unsigned char *)block_on(BLOCK, rank);
  CHECK_OK(plinth_caching_allocator_delete(freed));
  const bool bad = rank == 1;
  fail_with(rank, communicator, bad ? freed : good, BLOCK, PLINTH_ERROR_INVALID_POINTER);
  fail_with(rank, communicator, bad ? elsewhere : good, BLOCK, PLINTH_ERROR_DEVICE_MISMATCH);
  fail_with(rank, communicator, good, bad ? BLOCK + 1 : BLOCK, PLINTH_ERROR_INVALID_VALUE);
  fail_with(rank, communicator, good, bad ? 0 : BLOCK, PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_register(communicator, good, bad ? BLOCK / 2 : BLOCK), PLINTH_ERROR_RANK_MISMATCH);
  CHECK_MESSAGE(bad ? "rank 0 registers 1048576 bytes" : "rank 1 registers 524288 bytes");
  CHECK_EQ(uses_of(block).registrations, 0);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK / 2));
  CHECK_OK(plinth_communicator_register(communicator, block + BLOCK / 2, BLOCK / 2));
  fail_with(rank, communicator, bad ? block + 100 : other, 10, PLINTH_ERROR_INVALID_VALUE);
  CHECK_EQ(uses_of(block).registrations, 2);
  CHECK_STATUS(plinth_communicator_deregister(communicator, block + 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_communicator_register(communicator, NULL, 10), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_deregister(communicator, NULL));
  CHECK_STATUS(plinth_communicator_deregister(NULL, block), PLINTH_ERROR_NULL_POINTER);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_STATUS(plinth_communicator_register(communicator, block, 10), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_communicator_group_end());
  /* Memory in two registrations is in neither; the call does without. */
  float *memory = (float *)(void *)(block + BLOCK / 2 - 20000);
  float ones[10000];
  for (int index = 0; index < 10000; index++) {
    ones[index] = 1;
  }
  put(memory, ones, sizeof ones);
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, 10000, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  finish(communicator);
  expect_floats(memory, 10000, 2, 0);
  /* The communicator ends what was not ended before. */
  CHECK_OK(plinth_communicator_deregister(communicator, block));
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_EQ(uses_of(block).registrations, 0);
}

TEST(a_rank_that_cannot_register_fails_all_ranks) {
  ranks = 2;
  run_processes(ranks, fail_to_register);
}

/* Rank 1 does not make the call. */
static void time_out(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  void *block = block_on(BLOCK, rank);
  if (rank == 0) {
    CHECK_OK(plinth_communicator_set_timeout(communicator, 500));
    const double start = seconds_now();
    CHECK_STATUS(plinth_communicator_register(communicator, block, BLOCK), PLINTH_ERROR_TIMED_OUT);
    CHECK(seconds_now() - start < SOON);
    CHECK_EQ(uses_of(block).registrations, 0);
    CHECK_OK(plinth_communicator_destroy(communicator));
  } else {
    bool ready = false;
    EVENTUALLY(plinth_communicator_query(communicator, &ready) != PLINTH_OK);
    CHECK_STATUS(plinth_communicator_register(communicator, block, BLOCK), PLINTH_ERROR_ABORTED);
    CHECK_OK(plinth_communicator_destroy(communicator));
  }
}

TEST(a_rank_that_does_not_register_makes_the_others_time_out) {
  ranks = 2;
  run_processes(ranks, time_out);
}

enum { ENOUGH = 40 };

static int victim;

/* With any number of unused descriptors of one rank, all ranks succeed or all fail. */
static void register_with_few_descriptors(int rank) {
  struct rlimit usual;
  plinth_communicator_t communicator = join(rank, 60000);
  void *block = block_on(BLOCK, rank);
  int failures = 0;
  CHECK(getrlimit(RLIMIT_NOFILE, &usual) == 0);
  for (int count = 0; count <= ENOUGH; count++) {
    struct rlimit limit = usual;
    int number = 0;
    for (int unused = 0; unused < count; number++) {
      unused += fcntl(number, F_GETFD) == -1;
    }
    limit.rlim_cur = (rlim_t)number;
    CHECK(rank != victim || setrlimit(RLIMIT_NOFILE, &limit) == 0);
    const double start = seconds_now();
    const plinth_status_t status = plinth_communicator_register(communicator, block, BLOCK);
    CHECK(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(seconds_now() - start < SOON);
    CHECK((count > 0 || status != PLINTH_OK) && (count < ENOUGH || status == PLINTH_OK));
    if (status == PLINTH_OK) {
      CHECK_EQ(uses_of(block).registrations, 1);
      CHECK_OK(plinth_communicator_deregister(communicator, block));
    } else {
      char word[16];
      snprintf(word, sizeof word, "rank %d", victim);
      CHECK_MESSAGE(word);
      CHECK(status != PLINTH_ERROR_TIMED_OUT && status != PLINTH_ERROR_PEER_LOST);
      CHECK_EQ(uses_of(block).registrations, 0);
      failures++;
    }
  }
  CHECK(failures > 1);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_shortage_of_descriptors_fails_all_ranks) {
  ranks = 3;
  for (victim = 0; victim < ranks; victim += 2) {
    run_processes(ranks, register_with_few_descriptors);
  }
}

static void use_another_engine(int rank) {
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  void *block = block_on(BLOCK, rank);
  CHECK_OK(plinth_communicator_init_all((const int32_t[]){rank}, 1, &options, &communicator));
  CHECK_STATUS(plinth_communicator_register(communicator, block, BLOCK), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_MESSAGE("access the memory of each other without a registration");
  CHECK_STATUS(plinth_communicator_deregister(communicator, block), PLINTH_ERROR_NOT_SUPPORTED);
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_caching_allocator_delete(block));
}

TEST(devices_of_one_process_do_not_register) { run_processes(1, use_another_engine); }

/* ---- what a registration keeps */

static void keep_memory(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  plinth_pool_id_t pool;
  void *block = NULL;
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  CHECK_OK(plinth_mem_pool_create_with_flags(0, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "weights"));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(rank, pool));
  /* Of many physical allocations, so that the ranks exchange descriptors in several rounds. */
  enum { SMALL = 24 };
  void *small[SMALL];
  for (int index = 0; index < SMALL; index++) {
    CHECK_OK(plinth_caching_allocator_alloc(2 * MIB, rank, NULL, &small[index]));
  }
  for (int index = 0; index < SMALL; index++) {
    CHECK_OK(plinth_caching_allocator_delete(small[index]));
  }
  CHECK_OK(plinth_caching_allocator_alloc(SMALL * 2 * MIB, rank, NULL, &block));
  CHECK_OK(plinth_end_allocate_to_pool(rank, pool));
  CHECK(!on_host_device() || uses_of(block).parts > 16);
  CHECK_OK(plinth_communicator_register(communicator, block, SMALL * 2 * MIB));
  float *last = (float *)block + SMALL * 2 * MIB / sizeof(float) - 100000;
  float ones[1000];
  for (int index = 0; index < 1000; index++) {
    ones[index] = (float)index;
  }
  put(last, ones, sizeof ones);
  CHECK_OK(plinth_communicator_all_reduce(communicator, last, last, 1000, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  finish(communicator);
  expect_floats(last, 1000, 0, (float)ranks);
  options.flags = PLINTH_SLEEP_RELEASE_REGISTRATIONS;
  CHECK_STATUS(plinth_memory_sleep("weights", NULL), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("of a communicator of 2");
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  /* A free is deferred, and the ranks still use the memory. */
  CHECK_OK(plinth_caching_allocator_delete(block));
  CHECK_OK(plinth_communicator_all_reduce(communicator, last, last, 1000, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  finish(communicator);
  expect_floats(last, 1000, 0, (float)(ranks * ranks));
  CHECK_OK(plinth_communicator_deregister(communicator, block));
  CHECK_OK(plinth_memory_sleep("weights", NULL));
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK_OK(plinth_communicator_destroy(communicator));
  CHECK_OK(plinth_release_pool(rank, pool));
}

TEST(registered_memory_is_kept_until_it_is_deregistered) {
  ranks = 2;
  run_processes(ranks, keep_memory);
}

/* Rank 0 deregisters while its call waits for rank 1. */
static void deregister_early(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *block = floats_in_block(rank, 1);
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 1) {
    sleep_milliseconds(300);
  }
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_all_reduce(communicator, block, block, 100000, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  if (rank == 0) {
    CHECK_OK(plinth_set_sync_debug_mode(2));
    CHECK_STATUS(plinth_communicator_deregister(communicator, block), PLINTH_ERROR_WOULD_SYNCHRONIZE);
    CHECK_OK(plinth_set_sync_debug_mode(0));
  }
  CHECK_OK(plinth_communicator_deregister(communicator, block));
  CHECK(rank == 1 || seconds_now() - start > 0.1);
  CHECK(stream_done(NULL));
  expect_floats(block, 100000, 2, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(deregistration_waits_for_the_ranks_work) {
  ranks = 2;
  run_processes(ranks, deregister_early);
}

/* Rank 1 ends while a call of rank 0 waits for it, so rank 0 is not left with the timeout of its work. */
static void deregister_without_the_other(int rank) {
  plinth_communicator_t communicator = join(rank, 10 * MILLISECONDS);
  float *block = floats_in_block(rank, 1);
  bool ready = false;
  CHECK_OK(plinth_communicator_register(communicator, block, BLOCK));
  if (rank == 1) _exit(0);
  sleep_milliseconds(300);
  CHECK_OK(plinth_communicator_all_reduce(communicator, block, block, 100000, FLOAT32, PLINTH_REDUCE_SUM, NULL));
  const double start = seconds_now();
  CHECK_OK(plinth_communicator_deregister(communicator, block));
  CHECK(seconds_now() - start < SOON);
  CHECK_EQ(uses_of(block).registrations, 0);
  CHECK_STATUS(plinth_communicator_query(communicator, &ready), PLINTH_ERROR_PEER_LOST);
}

TEST(deregistration_ends_when_another_rank_is_gone) {
  ranks = 2;
  run_processes(ranks, deregister_without_the_other);
}

/* Rank 1 still names memory that rank 0 has deregistered. Its old address may belong to other memory, which stays as it is. */
static void send_to_deregistered_memory(int rank) {
  enum { MESSAGE = 4 * MIB };
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  float *first = (float *)block_on(2 * MESSAGE, rank), *second = (float *)block_on(2 * MESSAGE, rank);
  float *sent = floats_on(rank, MESSAGE / sizeof(float), 1, 1);
  CHECK_OK(plinth_memset(second, 0, 2 * MESSAGE, NULL));
  CHECK_OK(plinth_communicator_register(communicator, first, 2 * MESSAGE));
  if (rank == 0) CHECK_OK(plinth_communicator_deregister(communicator, first));
  CHECK_OK(plinth_communicator_register(communicator, second, 2 * MESSAGE));
  if (rank == 0) {
    CHECK_OK(plinth_communicator_send(communicator, sent, MESSAGE / sizeof(float), FLOAT32, 1, NULL));
  } else {
    CHECK_OK(plinth_communicator_recv(communicator, first, MESSAGE / sizeof(float), FLOAT32, 0, NULL));
  }
  CHECK_STATUS(plinth_communicator_wait(communicator, MILLISECONDS, NULL), PLINTH_ERROR_RANK_MISMATCH);
  if (rank == 0) CHECK_MESSAGE("refers to registered memory");
  expect_floats(second, MESSAGE / sizeof(float), 0, 0);
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(memory_that_only_one_rank_has_deregistered_is_a_mismatch) {
  ranks = 2;
  run_processes(ranks, send_to_deregistered_memory);
}

/* ---- the end of the communicator during a registration */

enum end { DIES, ABORTS, FIRST_RANK_ABORTS };
static enum end end;
static char folder[] = "/tmp/plinth_registration_XXXXXX";
static plinth_communicator_t ending;

static void *end_soon(void *context) {
  (void)context;
  sleep_milliseconds(400);
  if (end == DIES) _exit(0);
  CHECK_OK(plinth_communicator_abort(ending));
  return NULL;
}

/* Rank 1 looks for the others in an empty folder, so all ranks wait until the communicator ends. */
static void end_during_a_registration(int rank) {
  pthread_t thread;
  const bool ends = rank == (end == FIRST_RANK_ABORTS ? 0 : 1);
  const plinth_status_t expected = end == DIES ? PLINTH_ERROR_PEER_LOST : PLINTH_ERROR_ABORTED;
  ending = join(rank, 10 * MILLISECONDS);
  float *block = floats_in_block(rank, 1);
  if (rank == 1) setenv("PLINTH_RENDEZVOUS_DIR", folder, 1);
  if (ends) CHECK_EQ(pthread_create(&thread, NULL, end_soon, NULL), 0);
  const double start = seconds_now();
  CHECK_STATUS(plinth_communicator_register(ending, block, BLOCK), expected);
  CHECK(seconds_now() - start < SOON);
  CHECK_EQ(uses_of(block).registrations, 0);
  bool ready = false;
  CHECK_STATUS(plinth_communicator_query(ending, &ready), expected);
  if (ends) CHECK_EQ(pthread_join(thread, NULL), 0);
  CHECK_OK(plinth_communicator_destroy(ending));
}

TEST(the_end_of_the_communicator_ends_a_registration) {
  ranks = 3;
  CHECK(mkdtemp(folder) != NULL);
  for (end = DIES; end <= FIRST_RANK_ABORTS; end++) run_processes(ranks, end_during_a_registration);
  CHECK_EQ(rmdir(folder), 0);
}

/* ---- graphs with memory that is deregistered */

enum { COUNT = 5000 };

static plinth_graph_t capture_sum(plinth_communicator_t communicator, float *memory, plinth_stream_t stream) {
  plinth_graph_t graph = NULL;
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_set_stream(stream));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  return graph;
}

static void replay_after_a_deregistration(int rank) {
  plinth_communicator_t communicator = join(rank, MILLISECONDS);
  plinth_stream_t stream = stream_on(rank);
  float *memory = floats_in_block(rank, (float)rank), *kept = floats_in_block(rank, (float)rank);
  CHECK_OK(plinth_communicator_register(communicator, memory, BLOCK));
  CHECK_OK(plinth_communicator_register(communicator, kept, BLOCK));
  plinth_graph_t graph = capture_sum(communicator, memory, stream), other = capture_sum(communicator, kept, stream);
  for (int round = 0; round < 2; round++) {
    CHECK_OK(plinth_graph_replay(graph));
    CHECK_OK(plinth_graph_replay(other));
  }
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
  CHECK_OK(plinth_communicator_deregister(communicator, memory));
  CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("was deregistered; capture them again");
  /* Also when the memory is registered again. The other graph is as before. */
  CHECK_OK(plinth_communicator_register(communicator, memory, BLOCK));
  CHECK_STATUS(plinth_graph_replay(graph), PLINTH_ERROR_ABORTED);
  CHECK_OK(plinth_graph_replay(other));
  CHECK_OK(plinth_graph_destroy(graph));
  graph = capture_sum(communicator, memory, stream);
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
  expect_floats(memory, COUNT, (float)ranks - 1, 0);
  expect_floats(kept, COUNT, (float)ranks - 1, 0);
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_graph_destroy(other));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(a_graph_with_deregistered_memory_is_refused) {
  ranks = 2;
  run_processes(ranks, replay_after_a_deregistration);
}
