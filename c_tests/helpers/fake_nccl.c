/*
 * A stand-in for NCCL that works on the host device: the same calls, between devices of one process and between processes
 * of one machine, by host functions in streams and shared memory. It is as strict as NCCL is, or stricter: a config must
 * turn NVLink multicast off, and a communicator that is "in progress" takes no other call.
 *
 * What it is told by the environment, looked at in each call:
 *   FAKE_NCCL_VERSION=21803     the version that it says it has
 *   FAKE_NCCL_FAIL=ncclSend:3   this call fails with this code
 *   FAKE_NCCL_ASYNC=6           communicators have come to this error
 *   FAKE_NCCL_STUCK=1           what is asked never gets to its stream
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "fake_nccl_reduce.h"
#include "faking.h"

#include <plinth.h>

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS, CUDA_ERROR, SYSTEM_ERROR, INTERNAL_ERROR, INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR, IN_PROGRESS };
enum { MOST_RANKS = 8, CHUNK = 64 << 10, MAIL = 16 << 10, POLLS = 2 };
enum work { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, PAIRS };

typedef struct {
  char internal[128];
} unique_id;

typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga, least, most;
  const char *net;
  int share, traffic;
  const char *name;
  int others[14], multicast;
} config;

/* What the ranks share. */
typedef struct {
  atomic_int joined;
  atomic_int pids[MOST_RANKS];
  atomic_long arrived[MOST_RANKS];
  atomic_int splits[MOST_RANKS];
  int colors[MOST_RANKS], keys[MOST_RANKS];
  atomic_int mailed[MOST_RANKS][MOST_RANKS];
  unsigned char mail[MOST_RANKS][MOST_RANKS][MAIL];
  unsigned char data[MOST_RANKS][CHUNK];
} segment;

typedef struct comm {
  segment *shared;
  char name[64];
  int rank, size, blocking;
  long round;
  int polls, asked_splits;
  atomic_int aborted, running, error;
  /* A split that is under way. */
  struct comm **part;
  int color;
  config settings;
  struct comm *next_kept;
} comm;

typedef struct {
  int sends, peer;
  unsigned char *memory;
  size_t bytes, done;
} transfer;

typedef struct task {
  enum work work;
  comm *of;
  plinth_stream_t stream;
  const unsigned char *from;
  unsigned char *to;
  size_t count;
  int kind, op, root, pairs;
  /* The context of the communicator's device, which a default stream is that of. */
  void *context;
  transfer *transfers;
  struct task *next;
} task;

EXPORT int plinth_nccl_on_host_device = 1;

static const size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

static void pause_a_little(void) {
  const struct timespec length = {0, 100000};
  nanosleep(&length, NULL);
}

/* The code that a call is to fail with. */
static int fault(const char *call) { return fault_of("FAKE_NCCL_FAIL", call); }
#define MAY_FAIL(call)               \
  do {                               \
    const int code = fault(#call);   \
    if (code != SUCCESS) return code; \
  } while (0)

static bool lost_a_rank(const comm *of) {
  for (int rank = 0; rank < of->size; rank++) {
    const int pid = atomic_load(&of->shared->pids[rank]);
    if (pid != 0 && kill(pid, 0) != 0 && errno == ESRCH) return true;
  }
  return false;
}

static bool hopeless(comm *of) {
  if (lost_a_rank(of)) atomic_store(&of->error, REMOTE_ERROR);
  return atomic_load(&of->aborted) || atomic_load(&of->error) != SUCCESS;
}

/* Waits until all ranks are here; false if that will never be. */
static bool meet(comm *of) {
  segment *shared = of->shared;
  atomic_store(&shared->arrived[of->rank], ++of->round);
  for (int rank = 0; rank < of->size; rank++) {
    while (atomic_load(&shared->arrived[rank]) < of->round) {
      if (hopeless(of)) return false;
      pause_a_little();
    }
  }
  return true;
}

/* Moves what can be moved of one transfer; whether anything was. */
static bool move(comm *of, transfer *each) {
  segment *shared = of->shared;
  const int from = each->sends ? of->rank : each->peer, to = each->sends ? each->peer : of->rank;
  const size_t left = each->bytes - each->done, bytes = left < MAIL ? left : MAIL;
  if (left == 0 || atomic_load(&shared->mailed[from][to]) != !each->sends) return false;
  memcpy(each->sends ? shared->mail[from][to] : each->memory + each->done,
         each->sends ? each->memory + each->done : shared->mail[from][to], bytes);
  atomic_store(&shared->mailed[from][to], each->sends);
  each->done += bytes;
  return true;
}

static void do_pairs(task *given) {
  size_t left = 0;
  for (int index = 0; index < given->pairs; index++) {
    given->transfers[index].done = 0;
    left += given->transfers[index].bytes;
  }
  while (left > 0) {
    bool moved = false;
    for (int index = 0; index < given->pairs; index++) {
      const size_t before = given->transfers[index].done;
      /* One after another between the same two ranks. */
      bool first = true;
      for (int earlier = 0; earlier < index; earlier++) {
        const transfer *other = &given->transfers[earlier];
        first = first && (other->done == other->bytes || other->sends != given->transfers[index].sends ||
                          other->peer != given->transfers[index].peer);
      }
      if (first && move(given->of, &given->transfers[index])) moved = true;
      left -= given->transfers[index].done - before;
    }
    if (!moved) {
      if (hopeless(given->of)) return;
      pause_a_little();
    }
  }
}

static void do_together(const task *given) {
  comm *of = given->of;
  const unsigned char *given_parts = of->shared->data[0];
  const size_t width = widths[given->kind], most = CHUNK / width;
  const int parts = given->work == REDUCE_SCATTER || given->work == ALL_TO_ALL ? of->size : 1;
  for (int part = 0; part < parts; part++) {
    for (size_t done = 0; done < given->count; done += most) {
      const size_t count = given->count - done < most ? given->count - done : most, bytes = count * width;
      const size_t at = done * width, whole = given->count * width;
      if (given->work != BROADCAST || of->rank == given->root) {
        memcpy(of->shared->data[of->rank], given->from + (size_t)part * whole + at, bytes);
      }
      if (!meet(of)) return;
      switch (given->work) {
        case REDUCE:
          if (of->rank != given->root) break;
          /* fall through */
        case ALL_REDUCE:
          reduce(given_parts, CHUNK, of->size, given->to + at, count, given->kind, given->op);
          break;
        case BROADCAST: memcpy(given->to + at, of->shared->data[given->root], bytes); break;
        case REDUCE_SCATTER:
          if (part == of->rank) reduce(given_parts, CHUNK, of->size, given->to + at, count, given->kind, given->op);
          break;
        case ALL_TO_ALL:
          if (part != of->rank) break;
          /* fall through */
        default:
          for (int rank = 0; rank < of->size; rank++) {
            memcpy(given->to + (size_t)rank * whole + at, of->shared->data[rank], bytes);
          }
      }
      if (!meet(of)) return;
    }
  }
}

static void run(void *context) {
  task *given = context;
  if (!hopeless(given->of)) {
    if (given->work == PAIRS) {
      do_pairs(given);
    } else {
      do_together(given);
    }
  }
  atomic_fetch_sub(&given->of->running, 1);
}

/* ---- groups */

static _Thread_local int depth, failed;
static _Thread_local task *first_task, *last_task;
/* Tasks are never freed: a graph may replay them. */
static task *kept;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

static int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
static int (*get_context)(void **);
static int (*set_context)(void *);

/* Finds the driver's functions once. */
static void find_driver(void) {
  void *found[3] = {NULL, NULL, NULL};
  plinth_driver_entry_point("cuLaunchHostFunc", &found[0]);
  plinth_driver_entry_point("cuCtxGetCurrent", &found[1]);
  plinth_driver_entry_point("cuCtxSetCurrent", &found[2]);
  memcpy(&launch_host_function, &found[0], sizeof found[0]);
  memcpy(&get_context, &found[1], sizeof found[1]);
  memcpy(&set_context, &found[2], sizeof found[2]);
}

static int launch(task *given) {
  void *previous = NULL;
  pthread_mutex_lock(&keeping);
  given->next = kept;
  kept = given;
  pthread_mutex_unlock(&keeping);
  if (getenv("FAKE_NCCL_STUCK") != NULL) {
    given->of->polls = INT_MAX;
    return SUCCESS;
  }
  if (get_context(&previous) != 0 || set_context(given->context) != 0) return CUDA_ERROR;
  atomic_fetch_add(&given->of->running, 1);
  const int launched = launch_host_function(given->stream, run, given);
  set_context(previous);
  if (launched != 0) {
    atomic_fetch_sub(&given->of->running, 1);
    return CUDA_ERROR;
  }
  given->of->polls = given->of->blocking ? 0 : POLLS;
  return SUCCESS;
}

static int in_progress(const comm *of) { return !of->blocking && of->polls > 0; }

static void forget(task *made) {
  free(made->transfers);
  free(made);
}

static int submit(task *made) {
  if (in_progress(made->of)) {
    forget(made);
    return failed = INVALID_ARGUMENT;
  }
  made->next = NULL;
  if (made->work == PAIRS) {
    for (task *other = first_task; other != NULL; other = other->next) {
      if (other->work == PAIRS && other->of == made->of && other->stream == made->stream) {
        other->transfers = realloc(other->transfers, (size_t)(other->pairs + 1) * sizeof(transfer));
        other->transfers[other->pairs++] = made->transfers[0];
        forget(made);
        return SUCCESS;
      }
    }
  }
  *(first_task == NULL ? &first_task : &last_task->next) = made;
  last_task = made;
  return SUCCESS;
}

EXPORT int ncclGroupStart(void) {
  MAY_FAIL(ncclGroupStart);
  depth++;
  return SUCCESS;
}

EXPORT int ncclGroupEnd(void) {
  int result = failed, waits = 0;
  if (depth == 0) return INVALID_USAGE;
  if (--depth > 0) return SUCCESS;
  task *list = first_task;
  first_task = last_task = NULL;
  failed = SUCCESS;
  if (result == SUCCESS) result = fault("ncclGroupEnd");
  while (list != NULL) {
    task *next = list->next;
    if (result == SUCCESS) {
      comm *of = list->of;
      result = launch(list);
      waits |= in_progress(of);
    } else {
      forget(list);
    }
    list = next;
  }
  return result == SUCCESS && waits ? IN_PROGRESS : result;
}

static task *task_of(enum work work, comm *of, plinth_stream_t stream, const void *from, void *to, size_t count,
                     int kind) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  task *made = calloc(1, sizeof *made);
  pthread_once(&once, find_driver);
  *made = (task){.work = work, .of = of, .stream = stream, .from = from, .to = to, .count = count, .kind = kind};
  get_context(&made->context);
  return made;
}

static int alone(task *made) {
  depth++;
  submit(made);
  return ncclGroupEnd();
}

/* ---- communicators */

EXPORT int ncclGetVersion(int *version) {
  const char *text = getenv("FAKE_NCCL_VERSION");
  MAY_FAIL(ncclGetVersion);
  *version = text != NULL ? atoi(text) : 23203;
  return SUCCESS;
}

EXPORT const char *ncclGetErrorString(int code) {
  return code == REMOTE_ERROR ? "remote process exited or there was a network error" : "the fake fails as it was told";
}

EXPORT const char *ncclGetLastError(const comm *of) {
  (void)of;
  return "";
}

EXPORT int ncclGetUniqueId(unique_id *id) {
  static atomic_int made;
  MAY_FAIL(ncclGetUniqueId);
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/fake_nccl_%d_%d", (int)getpid(), atomic_fetch_add(&made, 1));
  return SUCCESS;
}

static bool acceptable(const config *settings) {
  int version = 0;
  (void)ncclGetVersion(&version);
  if (settings->magic != 0xcafebeef || settings->cga != INT_MIN || settings->share != INT_MIN) return false;
  /* From here on the config has a switch for multicast, and it has to be off. */
  if (version >= 23200) return settings->size == sizeof(config) && settings->multicast == INT_MAX;
  return settings->size == offsetof(config, name) && settings->version <= 21800;
}

/* Neither are communicators: those tasks name them. */
static comm *kept_comms;

static comm *join(const char *name, int rank, int size, const config *settings) {
  const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(segment)) != 0) return NULL;
  segment *shared = mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return NULL;
  comm *made = calloc(1, sizeof *made);
  pthread_mutex_lock(&keeping);
  made->next_kept = kept_comms;
  kept_comms = made;
  pthread_mutex_unlock(&keeping);
  made->shared = shared;
  made->rank = rank;
  made->size = size;
  made->settings = *settings;
  made->blocking = settings->blocking;
  snprintf(made->name, sizeof made->name, "%s", name);
  atomic_store(&shared->pids[rank], (int)getpid());
  atomic_fetch_add(&shared->joined, 1);
  return made;
}

static bool all_joined(const comm *of) {
  if (atomic_load(&of->shared->joined) < of->size) return false;
  shm_unlink(of->name);
  return true;
}

EXPORT int ncclCommInitRankConfig(comm **out, int size, unique_id id, int rank, config *settings) {
  config whole = {0};
  MAY_FAIL(ncclCommInitRankConfig);
  if (settings->size > sizeof whole || size > MOST_RANKS || rank < 0 || rank >= size) return INVALID_ARGUMENT;
  memcpy(&whole, settings, settings->size);
  if (!acceptable(&whole)) return INVALID_ARGUMENT;
  comm *made = join(id.internal, rank, size, &whole);
  if (made == NULL) return SYSTEM_ERROR;
  *out = made;
  if (!made->blocking) return IN_PROGRESS;
  while (depth == 0 && !all_joined(made)) pause_a_little();
  return SUCCESS;
}

/* Makes the part of a split once all ranks have asked for it. */
static bool finish_split(comm *of) {
  segment *shared = of->shared;
  char name[64];
  int number = 0, size = 0;
  for (int rank = 0; rank < of->size; rank++) {
    if (atomic_load(&shared->splits[rank]) < of->asked_splits) return false;
  }
  if (of->color >= 0) {
    for (int rank = 0; rank < of->size; rank++) {
      const bool before = shared->keys[rank] < shared->keys[of->rank] ||
                          (shared->keys[rank] == shared->keys[of->rank] && rank < of->rank);
      size += shared->colors[rank] == of->color;
      number += shared->colors[rank] == of->color && before;
    }
    snprintf(name, sizeof name, "%.40s_%d_%d", of->name, of->asked_splits, of->color);
    *of->part = join(name, number, size, &of->settings);
  }
  of->part = NULL;
  return true;
}

EXPORT int ncclCommSplit(comm *of, int color, int key, comm **out, config *settings) {
  MAY_FAIL(ncclCommSplit);
  if (in_progress(of) || of->part != NULL) return INVALID_ARGUMENT;
  of->settings.blocking = settings->blocking;
  of->shared->colors[of->rank] = color;
  of->shared->keys[of->rank] = key;
  of->color = color;
  of->part = out;
  atomic_store(&of->shared->splits[of->rank], ++of->asked_splits);
  return IN_PROGRESS;
}

EXPORT int ncclCommGetAsyncError(comm *of, int *error) {
  const char *text = getenv("FAKE_NCCL_ASYNC");
  MAY_FAIL(ncclCommGetAsyncError);
  if (text != NULL) {
    *error = atoi(text);
  } else if (hopeless(of)) {
    *error = atomic_load(&of->error);
  } else if (!all_joined(of) || (of->part != NULL && !finish_split(of))) {
    *error = IN_PROGRESS;
  } else if (of->polls > 0) {
    of->polls -= of->polls != INT_MAX;
    *error = IN_PROGRESS;
  } else {
    *error = SUCCESS;
  }
  return SUCCESS;
}

EXPORT int ncclCommCount(const comm *of, int *size) {
  *size = of->size;
  return SUCCESS;
}

EXPORT int ncclCommUserRank(const comm *of, int *rank) {
  *rank = of->rank;
  return SUCCESS;
}

static int finish(comm *of) {
  atomic_store(&of->aborted, 1);
  while (atomic_load(&of->running) > 0) pause_a_little();
  shm_unlink(of->name);
  /* Who left in peace is not missed. */
  atomic_store(&of->shared->pids[of->rank], 0);
  munmap(of->shared, sizeof(segment));
  /* The rest stays: a graph may still hold tasks of it. */
  return SUCCESS;
}

EXPORT int ncclCommDestroy(comm *of) {
  MAY_FAIL(ncclCommDestroy);
  while (atomic_load(&of->running) > 0) pause_a_little();
  return finish(of);
}

EXPORT int ncclCommAbort(comm *of) {
  MAY_FAIL(ncclCommAbort);
  return finish(of);
}

/* ---- what ranks do together */

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int kind, int op, comm *of, plinth_stream_t stream) {
  MAY_FAIL(ncclAllReduce);
  task *made = task_of(ALL_REDUCE, of, stream, from, to, count, kind);
  made->op = op;
  return alone(made);
}

EXPORT int ncclReduce(const void *from, void *to, size_t count, int kind, int op, int root, comm *of,
                      plinth_stream_t stream) {
  MAY_FAIL(ncclReduce);
  task *made = task_of(REDUCE, of, stream, from, to, count, kind);
  made->op = op;
  made->root = root;
  return alone(made);
}

EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int kind, int root, comm *of,
                         plinth_stream_t stream) {
  MAY_FAIL(ncclBroadcast);
  task *made = task_of(BROADCAST, of, stream, from, to, count, kind);
  made->root = root;
  return alone(made);
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int kind, comm *of, plinth_stream_t stream) {
  MAY_FAIL(ncclAllGather);
  return alone(task_of(ALL_GATHER, of, stream, from, to, count, kind));
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int kind, int op, comm *of,
                             plinth_stream_t stream) {
  MAY_FAIL(ncclReduceScatter);
  task *made = task_of(REDUCE_SCATTER, of, stream, from, to, count, kind);
  made->op = op;
  return alone(made);
}

#ifndef WITHOUT_ALL_TO_ALL
EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int kind, comm *of, plinth_stream_t stream) {
  MAY_FAIL(ncclAlltoAll);
  return alone(task_of(ALL_TO_ALL, of, stream, from, to, count, kind));
}
#endif

static int pair(int sends, void *memory, size_t count, int kind, int peer, comm *of, plinth_stream_t stream) {
  task *made = task_of(PAIRS, of, stream, NULL, NULL, count, kind);
  made->pairs = 1;
  made->transfers = malloc(sizeof(transfer));
  made->transfers[0] = (transfer){sends, peer, memory, count * widths[kind], 0};
  return alone(made);
}

EXPORT int ncclSend(const void *from, size_t count, int kind, int peer, comm *of, plinth_stream_t stream) {
  MAY_FAIL(ncclSend);
  return pair(1, (void *)(uintptr_t)from, count, kind, peer, of, stream);
}

EXPORT int ncclRecv(void *to, size_t count, int kind, int peer, comm *of, plinth_stream_t stream) {
  MAY_FAIL(ncclRecv);
  return pair(0, to, count, kind, peer, of, stream);
}
