/*
 * Two ranks that sleep: their memory, their graphs, and calls on both at once.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef SLEEPING_RANKS_H
#define SLEEPING_RANKS_H

#include "ranks.h"

enum { COUNT = 1000, LARGE = 300000, MILLISECONDS = 30000, RANKS = 2, TIMED_OUT_AFTER = 300 };

/* Messages of each size take another path: packets, slots, parts. */
static const size_t counts[] = {COUNT, 100000, 2 * LARGE};
enum { SIZES = 3 };

static uint64_t limit = MILLISECONDS;
static uint32_t engine = PLINTH_ENGINE_AUTO;
static plinth_communicator_t communicators[RANKS];
static plinth_stream_t streams[RANKS];
static plinth_graph_t graphs[RANKS];
static float *inputs[RANKS], *outputs[RANKS];
static plinth_status_t statuses[RANKS];
static char messages[RANKS][512];

static inline void make_communicators(void) {
  init_ranks(RANKS, options_of(engine, limit, 0), communicators);
  for (int rank = 0; rank < RANKS; rank++) {
    streams[rank] = stream_on(rank);
    inputs[rank] = floats_on(rank, 2 * LARGE, (float)rank, 1);
    outputs[rank] = floats_on(rank, 2 * LARGE, -1, 0);
  }
}

static inline void destroy_communicators(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static plinth_status_t (*called)(plinth_communicator_t communicator);

static inline void *call_as(void *context) {
  const int rank = *(int *)context;
  statuses[rank] = called(communicators[rank]);
  snprintf(messages[rank], sizeof messages[rank], "%s", plinth_last_error());
  return NULL;
}

/* Makes a call on all ranks, which return the same status. */
static inline plinth_status_t on_all(plinth_status_t (*call)(plinth_communicator_t communicator)) {
  called = call;
  run_threads(RANKS, call_as);
  if (statuses[0] != statuses[1]) {
    fprintf(stderr, "%s\n%s\n", messages[0], messages[1]);
  }
  CHECK_EQ(statuses[0], statuses[1]);
  return statuses[0];
}

/* For on_all: splits a communicator into one of all ranks, which takes its place. */
static inline plinth_status_t split_for_all(plinth_communicator_t communicator) {
  int32_t rank = 0;
  CHECK_OK(plinth_communicator_rank(communicator, &rank));
  return plinth_communicator_split(communicator, 0, rank, &communicators[rank]);
}

static inline uint64_t free_bytes(int rank) {
  size_t unused = 0, total = 0;
  CHECK_OK(plinth_mem_get_info(rank, &unused, &total));
  return unused;
}

#define SLEEP() CHECK_EQ(on_all(plinth_communicator_sleep), PLINTH_OK)
#define WAKE() CHECK_EQ(on_all(plinth_communicator_wake), PLINTH_OK)

static inline plinth_status_t reduce(int rank, size_t count) {
  return plinth_communicator_all_reduce(communicators[rank], inputs[rank], outputs[rank], count, FLOAT32, PLINTH_REDUCE_SUM,
                                        streams[rank]);
}

static inline void clear_outputs(void) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_memset(outputs[rank], 0, 2 * LARGE * sizeof(float), streams[rank]));
  }
}

static inline void expect_sums(size_t count) {
  for (int rank = 0; rank < RANKS; rank++) {
    CHECK_OK(plinth_communicator_wait(communicators[rank], MILLISECONDS, streams[rank]));
    expect_floats(outputs[rank], count, 1, 2);
  }
}

static inline void reduce_all(void) {
  for (int size = 0; size < SIZES; size++) {
    clear_outputs();
    CHECK_OK(plinth_communicator_group_start());
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK_OK(reduce(rank, counts[size]));
    }
    CHECK_OK(plinth_communicator_group_end());
    expect_sums(counts[size]);
  }
}

static inline void *capture_as(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_set_stream(streams[rank]));
  CHECK_OK(plinth_graph_create(&graphs[rank]));
  CHECK_OK(plinth_graph_capture_begin(graphs[rank], NULL, PLINTH_CAPTURE_THREAD_LOCAL));
  for (int size = 0; size < SIZES; size++) {
    CHECK_OK(reduce(rank, counts[size]));
  }
  CHECK_OK(plinth_graph_capture_end(graphs[rank]));
  return NULL;
}

static inline void *replay_as(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_set_stream(streams[rank]));
  statuses[rank] = plinth_graph_replay(graphs[rank]);
  return NULL;
}

static inline void replay_all(void) {
  clear_outputs();
  run_threads(RANKS, replay_as);
  CHECK_OK(statuses[0]);
  CHECK_OK(statuses[1]);
  expect_sums(2 * LARGE);
}

/* Begins a capture on rank 1, whose stream becomes the current one. */
static inline void begin_capture_on_rank_1(void) {
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_graph_create(&graphs[1]));
  CHECK_OK(plinth_graph_capture_begin(graphs[1], NULL, PLINTH_CAPTURE_RELAXED));
}

static inline void end_capture_on_rank_1(void) {
  CHECK_OK(plinth_graph_capture_end(graphs[1]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
}

static inline void destroy_graphs(void) {
  CHECK_OK(plinth_graph_destroy(graphs[0]));
  CHECK_OK(plinth_graph_destroy(graphs[1]));
}

#endif
