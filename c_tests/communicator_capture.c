/* Captured collectives between processes: every operation in every capture mode, from the communicator's first call on, with
 * replays between eager calls. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* timeout: 120 */
/* library: fake_nccl */
#include "ranks.h"

enum { COUNT = 1000, REPLAYS = 1000, REPLAYS_IN_A_ROW = 100, MILLISECONDS = 30000, LONG = 200000 };

static int ranks;
static unsigned mode;

/* The memory of a rank: an input, and an output for each operation. */
struct buffers {
  float *from;
  float *all_reduced, *reduced, *received_from_root, *gathered, *scattered, *exchanged, *received;
};

static struct buffers buffers_on(int32_t device) {
  const size_t rows = (size_t)ranks * COUNT;
  return (struct buffers){
      .from = floats_on(device, rows, 0, 0),
      .all_reduced = floats_on(device, COUNT, -1, 0),
      .reduced = floats_on(device, COUNT, -1, 0),
      .received_from_root = floats_on(device, COUNT, -1, 0),
      .gathered = floats_on(device, rows, -1, 0),
      .scattered = floats_on(device, COUNT, -1, 0),
      .exchanged = floats_on(device, rows, -1, 0),
      .received = floats_on(device, COUNT, -1, 0),
  };
}

static void fill(float *memory, size_t count, float first, float step) {
  float *numbers = (float *)malloc(count * sizeof(float));
  for (size_t index = 0; index < count; index++) {
    numbers[index] = first + step * (float)index;
  }
  put(memory, numbers, count * sizeof(float));
  free(numbers);
}

/* The first number of a rank's input in a round; element i is greater by i. */
static float first_of(int rank, int round) { return (float)(1000 * rank + 10 * round); }

static void set_inputs(const struct buffers *buffers, int rank, int round) {
  fill(buffers->from, (size_t)ranks * COUNT, first_of(rank, round), 1);
  fill(buffers->all_reduced, COUNT, -1, 0);
  fill(buffers->reduced, COUNT, -1, 0);
  fill(buffers->received_from_root, COUNT, -1, 0);
  fill(buffers->gathered, (size_t)ranks * COUNT, -1, 0);
  fill(buffers->scattered, COUNT, -1, 0);
  fill(buffers->exchanged, (size_t)ranks * COUNT, -1, 0);
  fill(buffers->received, COUNT, -1, 0);
}

static void expect_outputs(const struct buffers *buffers, int rank, int round) {
  const float sum = (float)(1000 * ranks * (ranks - 1) / 2 + 10 * round * ranks);
  const int left = (rank + ranks - 1) % ranks;
  expect_floats(buffers->all_reduced, COUNT, sum, (float)ranks);
  expect_floats(buffers->reduced, COUNT, rank == 1 ? first_of(ranks - 1, round) : -1, rank == 1 ? 1 : 0);
  expect_floats(buffers->received_from_root, COUNT, first_of(ranks - 1, round), 1);
  for (int other = 0; other < ranks; other++) {
    expect_floats(buffers->gathered + (size_t)other * COUNT, COUNT, first_of(other, round), 1);
    expect_floats(buffers->exchanged + (size_t)other * COUNT, COUNT, first_of(other, round) + (float)(rank * COUNT), 1);
  }
  expect_floats(buffers->scattered, COUNT, sum + (float)(ranks * rank * COUNT), (float)ranks);
  expect_floats(buffers->received, COUNT, first_of(left, round), 1);
}

/* Runs every operation: half of them in one stream, and the rest in a second stream that is forked from it and joined. */
static void run_all(plinth_communicator_t communicator, int rank, const struct buffers *buffers, plinth_stream_t stream,
                    plinth_stream_t side) {
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  CHECK_OK(plinth_communicator_all_reduce(communicator, buffers->from, buffers->all_reduced, COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                          stream));
  CHECK_OK(plinth_communicator_reduce(communicator, buffers->from, buffers->reduced, COUNT, FLOAT32, PLINTH_REDUCE_MAX, 1,
                                      stream));
  CHECK_OK(plinth_communicator_broadcast(communicator, buffers->from, buffers->received_from_root, COUNT, FLOAT32, ranks - 1,
                                         stream));
  CHECK_OK(plinth_communicator_all_gather(communicator, buffers->from, buffers->gathered, COUNT, FLOAT32, stream));
  CHECK_OK(plinth_stream_wait_stream(side, stream));
  CHECK_OK(plinth_communicator_reduce_scatter(communicator, buffers->from, buffers->scattered, COUNT, FLOAT32,
                                              PLINTH_REDUCE_SUM, side));
  CHECK_OK(plinth_communicator_all_to_all(communicator, buffers->from, buffers->exchanged, COUNT, FLOAT32, side));
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_communicator_send(communicator, buffers->from, COUNT, FLOAT32, right, side));
  CHECK_OK(plinth_communicator_recv(communicator, buffers->received, COUNT, FLOAT32, left, side));
  CHECK_OK(plinth_communicator_group_end());
  CHECK_OK(plinth_stream_wait_stream(stream, side));
}

static void capture_as(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  plinth_stream_t stream, side;
  plinth_graph_t graph;
  need_devices(ranks);
  if (strcmp(getenv("PLINTH_COMMUNICATOR_ENGINE"), "nccl") == 0) {
    need_nccl();
  }
  share_id(rank, id);
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(ranks, id, rank, rank, &options, &communicator));
  stream = stream_on(rank);
  side = stream_on(rank);
  CHECK_OK(plinth_set_stream(stream));
  const struct buffers buffers = buffers_on(rank);
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, mode));
  run_all(communicator, rank, &buffers, stream, side);
  CHECK_OK(plinth_graph_capture_end(graph));
  for (int round = 0; round < REPLAYS / REPLAYS_IN_A_ROW; round++) {
    set_inputs(&buffers, rank, round);
    for (int replay = 0; replay < REPLAYS_IN_A_ROW; replay++) {
      CHECK_OK(plinth_graph_replay(graph));
    }
    CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
    expect_outputs(&buffers, rank, round);
    set_inputs(&buffers, rank, round + 100);
    run_all(communicator, rank, &buffers, stream, side);
    CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
    expect_outputs(&buffers, rank, round + 100);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

static void capture_in_processes(int count, unsigned capture_mode) {
  ranks = count;
  mode = capture_mode;
  run_processes(ranks, capture_as);
}

TEST(two_ranks_in_a_global_capture) { capture_in_processes(2, PLINTH_CAPTURE_GLOBAL); }
TEST(two_ranks_in_a_thread_local_capture) { capture_in_processes(2, PLINTH_CAPTURE_THREAD_LOCAL); }
TEST(two_ranks_in_a_relaxed_capture) { capture_in_processes(2, PLINTH_CAPTURE_RELAXED); }
TEST(four_ranks_in_a_global_capture) { capture_in_processes(4, PLINTH_CAPTURE_GLOBAL); }

/* ---- a rank that leaves */

enum { REPLAYS_BEFORE = 5 };

/* Rank 1 leaves after some replays. Rank 0 calls once more than rank 1, and learns it long before the limit of the wait. */
static void lose_a_rank(int rank, bool by_replay) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  plinth_communicator_options_t options = options_of(PLINTH_ENGINE_SHARED, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  plinth_graph_t graph;
  need_devices(2);
  share_id(rank, id);
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &communicator));
  plinth_stream_t stream = stream_on(rank);
  CHECK_OK(plinth_set_stream(stream));
  float *memory = floats_on(rank, COUNT, 1, 0);
  CHECK_OK(plinth_graph_create(&graph));
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
  for (int replay = 0; replay < REPLAYS_BEFORE; replay++) {
    CHECK_OK(plinth_graph_replay(graph));
  }
  CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, stream));
  if (rank == 0) {
    const double start = seconds_now();
    if (by_replay) {
      CHECK_OK(plinth_graph_replay(graph));
    } else {
      CHECK_OK(plinth_communicator_all_reduce(communicator, memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX, stream));
    }
    CHECK_STATUS(plinth_communicator_wait(communicator, MILLISECONDS, stream), PLINTH_ERROR_PEER_LOST);
    CHECK_MESSAGE("rank 1");
    CHECK(seconds_now() - start < MILLISECONDS / 3000.0);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

static void lose_a_rank_by_replay(int rank) { lose_a_rank(rank, true); }
static void lose_a_rank_after_replays(int rank) { lose_a_rank(rank, false); }

static void run_with_shared_memory(void (*body)(int rank)) {
  if (strcmp(getenv("PLINTH_COMMUNICATOR_ENGINE"), "shared") != 0) {
    SKIP("is about shared memory");
  }
  run_processes(2, body);
}

TEST(a_replay_that_needs_a_rank_that_left_is_an_error) { run_with_shared_memory(lose_a_rank_by_replay); }
TEST(a_call_that_needs_a_rank_that_left_is_an_error_after_replays) { run_with_shared_memory(lose_a_rank_after_replays); }

/* ---- a communicator that is destroyed before a replay */

static void destroy_before_a_replay(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_SHARED, MILLISECONDS, 0);
  plinth_communicator_t communicators[2];
  plinth_graph_t graphs[2];
  need_devices(2);
  CHECK_OK(plinth_set_device(rank));
  const plinth_stream_t stream = stream_on(rank);
  CHECK_OK(plinth_set_stream(stream));
  float *memory = floats_on(rank, COUNT, 1, 0);
  for (int index = 0; index < 2; index++) {
    share_id(rank, id);
    CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &communicators[index]));
    CHECK_OK(plinth_graph_create(&graphs[index]));
    CHECK_OK(plinth_graph_capture_begin(graphs[index], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
    CHECK_OK(plinth_communicator_all_reduce(communicators[index], memory, memory, COUNT, FLOAT32, PLINTH_REDUCE_MAX,
                                            stream));
    CHECK_OK(plinth_graph_capture_end(graphs[index]));
    CHECK_OK(plinth_graph_replay(graphs[index]));
    CHECK_OK(plinth_communicator_wait(communicators[index], MILLISECONDS, stream));
  }
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_STATUS(plinth_graph_replay(graphs[0]), PLINTH_ERROR_ABORTED);
  CHECK_MESSAGE("a communicator whose calls the graph has captured was destroyed");
  CHECK_OK(plinth_graph_replay(graphs[1]));
  CHECK_OK(plinth_communicator_wait(communicators[1], MILLISECONDS, stream));
  CHECK_OK(plinth_graph_destroy(graphs[0]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

TEST(graphs_of_a_destroyed_communicator_are_refused) { run_with_shared_memory(destroy_before_a_replay); }

/* ---- captures at once */

static float *output_in_capture(plinth_communicator_t communicator, const float *input, int32_t op, plinth_stream_t stream,
                                int rank) {
  float *output = floats_on(rank, LONG, -1, 0);
  CHECK_OK(plinth_communicator_all_reduce(communicator, input, output, LONG, FLOAT32, op, stream));
  return output;
}

/* A capture with two streams, between whose calls another capture makes one. Its calls keep their order. */
static void capture_two_graphs(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  plinth_communicator_t communicator = NULL;
  plinth_graph_t first = NULL, second = NULL;
  need_devices(2);
  share_id(rank, id);
  CHECK_OK(plinth_set_device(rank));
  CHECK_OK(plinth_communicator_init_rank(2, id, rank, rank, &options, &communicator));
  const plinth_stream_t begun = stream_on(rank), forked = stream_on(rank), other = stream_on(rank);
  const float *input = floats_on(rank, LONG, (float)rank, 0);
  CHECK_OK(plinth_graph_create(&first));
  CHECK_OK(plinth_graph_create(&second));
  CHECK_OK(plinth_set_stream(begun));
  CHECK_OK(plinth_graph_capture_begin(first, NULL, PLINTH_CAPTURE_RELAXED));
  CHECK_OK(plinth_stream_wait_stream(forked, begun));
  float *sum = output_in_capture(communicator, input, PLINTH_REDUCE_SUM, begun, rank);
  CHECK_OK(plinth_set_stream(other));
  CHECK_OK(plinth_graph_capture_begin(second, NULL, PLINTH_CAPTURE_RELAXED));
  output_in_capture(communicator, input, PLINTH_REDUCE_SUM, other, rank);
  CHECK_OK(plinth_graph_capture_end(second));
  CHECK_OK(plinth_set_stream(begun));
  float *most = output_in_capture(communicator, input, PLINTH_REDUCE_MAX, forked, rank);
  CHECK_OK(plinth_stream_wait_stream(begun, forked));
  CHECK_OK(plinth_graph_capture_end(first));
  for (int round = 0; round < 100; round++) {
    CHECK_OK(plinth_graph_replay(first));
    CHECK_OK(plinth_communicator_wait(communicator, MILLISECONDS, begun));
  }
  expect_floats(sum, LONG, 1, 0);
  expect_floats(most, LONG, 1, 0);
  CHECK_OK(plinth_graph_destroy(second));
  CHECK_OK(plinth_graph_destroy(first));
  CHECK_OK(plinth_communicator_destroy(communicator));
}

TEST(captures_at_once_keep_the_order_of_their_calls) {
  /* The program itself orders the calls of NCCL. */
  run_with_shared_memory(capture_two_graphs);
}
