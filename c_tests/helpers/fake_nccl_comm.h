/*
 * The communicators of the fake NCCL: what the ranks share, and how they wait for each other.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_COMM_H
#define FAKE_NCCL_COMM_H

#include "fake_nccl_buffer.h"
#include "fake_nccl_memory.h"
#include "fake_nccl_types.h"

#include <plinth.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };
enum { MAX_RANKS = 8, CHUNK = 64 << 10, MAIL_BYTES = 16 << 10, POLLS = 2 };
enum work { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND_RECV };

/* The shared memory of the ranks. */
typedef struct {
  atomic_int joined;
  atomic_int pids[MAX_RANKS];
  atomic_long arrived[MAX_RANKS];
  atomic_int splits[MAX_RANKS];
  int colors[MAX_RANKS], keys[MAX_RANKS];
  /* How often a rank has shrunk the communicator, by the bits of the excluded ranks. */
  atomic_int shrinks[MAX_RANKS][1 << MAX_RANKS];
  atomic_int windows[MAX_RANKS];
  atomic_int changes[MAX_RANKS];
  atomic_bool connecting[MAX_RANKS], ending[MAX_RANKS], stopped[MAX_RANKS];
  size_t window_bytes[MAX_RANKS][2];
  atomic_int mailed[MAX_RANKS][MAX_RANKS];
  unsigned char mail[MAX_RANKS][MAX_RANKS][MAIL_BYTES];
  unsigned char data[MAX_RANKS][CHUNK];
} segment;

typedef struct comm {
  segment *shared;
  char name[64];
  int rank, size, blocking;
  long round;
  int polls, split_count;
  /* `running` counts the tasks that were launched and have not ended, and replays of graphs. */
  atomic_int aborted, running, error;
  /* The captured tasks whose graphs exist. */
  atomic_int captured;
  /* A split in progress, or a shrink with the bits of the excluded ranks. */
  struct comm **split_result;
  int color, excluded, shrink_count;
  /* The ranks whose loss is no error after a shrink that aborted the work; the communicator can only be aborted then. */
  atomic_int forgiven;
  config settings;
  /* The registered memory, and a window in progress. */
  registry registered;
  int window_count;
  void *window_memory, **window_result;
  /* The memory that sleeps, and the suspension or resumption in progress. */
  buffer own_buffer;
  enum change { NO_CHANGE, SUSPENDING, RESUMING } change;
  int change_count;
  atomic_int suspended;
  struct comm *next_changing;
  /* Whether the ranks have connected themselves for collectives, and the number of the group in which this one began to. */
  atomic_bool is_connected;
  atomic_int connecting_group;
  /* The end: a finalization in progress or done, and whether the rank was destroyed or aborted, and released. */
  atomic_bool is_finalizing, has_ended, is_released;
  struct comm *next_comm;
} comm;

typedef struct {
  int sends, peer;
  unsigned char *memory;
  size_t bytes, done;
} transfer;

typedef struct task {
  enum work work;
  comm *communicator;
  plinth_stream_t stream;
  const unsigned char *from;
  unsigned char *to;
  size_t count;
  int kind, op, root, transfer_count;
  /* The context of the communicator's device, to which the handle of a default stream refers. */
  void *context;
  transfer *transfers;
  bool is_mapped, is_captured;
  struct task *next;
} task;

static inline void pause_a_little(void) {
  const struct timespec length = {0, 100000};
  nanosleep(&length, NULL);
}

static inline bool has_lost_rank(const comm *self) {
  for (int rank = 0; rank < self->size; rank++) {
    const int pid = atomic_load(&self->shared->pids[rank]);
    if (atomic_load(&self->forgiven) >> rank & 1) continue;
    if (pid != 0 && kill(pid, 0) != 0 && errno == ESRCH) return true;
  }
  return false;
}

static inline bool has_failed(comm *self) {
  if (has_lost_rank(self)) atomic_store(&self->error, REMOTE_ERROR);
  return atomic_load(&self->aborted) || atomic_load(&self->error) != SUCCESS;
}

/* Waits until all ranks have arrived. Returns false if one cannot arrive any more. */
static inline bool wait_for_ranks(comm *self) {
  segment *shared = self->shared;
  atomic_store(&shared->arrived[self->rank], ++self->round);
  for (int rank = 0; rank < self->size; rank++) {
    while (atomic_load(&shared->arrived[rank]) < self->round) {
      if (has_failed(self)) return false;
      pause_a_little();
    }
  }
  return true;
}

#endif
