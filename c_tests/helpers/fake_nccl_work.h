/*
 * The work of the fake NCCL: host functions in streams, which move data through the shared memory of the ranks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_WORK_H
#define FAKE_NCCL_WORK_H

#include "fake_nccl_comm.h"
#include "fake_nccl_reduce.h"

static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* Moves the part of a transfer that can move now. Returns whether it moved any bytes. */
static inline bool move_some(comm *self, transfer *each) {
  segment *shared = self->shared;
  const int from = each->sends ? self->rank : each->peer, to = each->sends ? each->peer : self->rank;
  const size_t left = each->bytes - each->done, bytes = left < MAIL_BYTES ? left : MAIL_BYTES;
  if (left == 0 || atomic_load(&shared->mailed[from][to]) != !each->sends) return false;
  memcpy(each->sends ? shared->mail[from][to] : each->memory + each->done,
         each->sends ? each->memory + each->done : shared->mail[from][to], bytes);
  atomic_store(&shared->mailed[from][to], each->sends);
  each->done += bytes;
  return true;
}

static inline void run_transfers(task *job) {
  size_t left = 0;
  for (int index = 0; index < job->transfer_count; index++) {
    job->transfers[index].done = 0;
    left += job->transfers[index].bytes;
  }
  while (left > 0) {
    bool moved = false;
    for (int index = 0; index < job->transfer_count; index++) {
      const size_t before = job->transfers[index].done;
      /* Transfers in the same direction between the same two ranks keep their order. */
      bool first = true;
      for (int earlier = 0; earlier < index; earlier++) {
        const transfer *other = &job->transfers[earlier];
        first = first && (other->done == other->bytes || other->sends != job->transfers[index].sends ||
                          other->peer != job->transfers[index].peer);
      }
      if (first && move_some(job->communicator, &job->transfers[index])) moved = true;
      left -= job->transfers[index].done - before;
    }
    if (!moved) {
      if (has_failed(job->communicator)) return;
      pause_a_little();
    }
  }
}

static inline void run_collective(const task *job) {
  comm *self = job->communicator;
  const unsigned char *inputs = self->shared->data[0];
  const size_t width = widths[job->kind], elements_per_chunk = CHUNK / width;
  const int repeats = job->work == REDUCE_SCATTER || job->work == ALL_TO_ALL ? self->size : 1;
  for (int part = 0; part < repeats; part++) {
    for (size_t done = 0; done < job->count; done += elements_per_chunk) {
      const size_t left = job->count - done, count = left < elements_per_chunk ? left : elements_per_chunk;
      const size_t bytes = count * width;
      const size_t at = done * width, rank_bytes = job->count * width;
      if (job->work != BROADCAST || self->rank == job->root) {
        memcpy(self->shared->data[self->rank], job->from + (size_t)part * rank_bytes + at, bytes);
      }
      if (!wait_for_ranks(self)) return;
      switch (job->work) {
        case REDUCE:
          if (self->rank != job->root) break;
          /* fall through */
        case ALL_REDUCE:
          reduce(inputs, CHUNK, self->size, job->to + at, count, job->kind, job->op);
          break;
        case BROADCAST: memcpy(job->to + at, self->shared->data[job->root], bytes); break;
        case REDUCE_SCATTER:
          if (part == self->rank) reduce(inputs, CHUNK, self->size, job->to + at, count, job->kind, job->op);
          break;
        case ALL_TO_ALL:
          if (part != self->rank) break;
          /* fall through */
        default:
          for (int rank = 0; rank < self->size; rank++) {
            memcpy(job->to + (size_t)rank * rank_bytes + at, self->shared->data[rank], bytes);
          }
      }
      if (!wait_for_ranks(self)) return;
    }
  }
}

/* Whether all memory of a task is mapped, as far as it is registered. */
static inline bool is_mapped(const task *job) {
  const comm *self = job->communicator;
  const size_t bytes = job->count * widths[job->kind], all = bytes * (size_t)self->size;
  const bool reads_all = job->work == REDUCE_SCATTER || job->work == ALL_TO_ALL;
  const bool writes_all = job->work == ALL_GATHER || job->work == ALL_TO_ALL;
  for (int index = 0; index < job->transfer_count; index++) {
    if (!registry_is_mapped(&self->registered, job->transfers[index].memory, job->transfers[index].bytes)) return false;
  }
  return job->work == SEND_RECV || (registry_is_mapped(&self->registered, job->from, reads_all ? all : bytes) &&
                                    registry_is_mapped(&self->registered, job->to, writes_all ? all : bytes));
}

static inline void run(void *context) {
  task *job = context;
  if (job->is_captured) atomic_fetch_add(&job->communicator->running, 1);
  if (!has_failed(job->communicator)) {
    if (!job->is_mapped || atomic_load(&job->communicator->suspended)) {
      atomic_store(&job->communicator->error, CUDA_ERROR);
    } else if (job->work == SEND_RECV) {
      run_transfers(job);
    } else {
      run_collective(job);
    }
  }
  atomic_fetch_sub(&job->communicator->running, 1);
}

#endif
