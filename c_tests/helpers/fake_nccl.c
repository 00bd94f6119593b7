/*
 * A fake of NCCL that works on the host device: the same calls, between devices of a process and between processes of a
 * machine, by host functions in streams and shared memory. It is at least as strict as NCCL: a config must disable NVLink
 * multicast, a communicator that is "in progress" refuses other calls, registered memory must be deregistered, without work,
 * before its communicator is destroyed, and work on addresses of a window that NCCL would not map fails, as does work of a
 * communicator that is suspended. The end of a communicator waits for the end of the graphs that have captured its work, and
 * leaves the addresses of its memory reserved if it is suspended.
 *
 * Environment variables, which each call reads:
 *   FAKE_NCCL_VERSION=21803     the version that it reports
 *   FAKE_NCCL_FAIL=ncclSend:3   this call fails with this code
 *   FAKE_NCCL_ASYNC=6           communicators report this asynchronous error
 *   FAKE_NCCL_STUCK=1           operations are never launched in their stream
 *   FAKE_NCCL_NO_WINDOWS=1      the ranks cannot access each other, so that there are no windows
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include "fake_nccl_work.h"

#include <plinth.h>

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int plinth_nccl_on_host_device = 1;

/* Returns the code with which a call must fail. */
static int fault(const char *call) { return fault_of("FAKE_NCCL_FAIL", call); }
#define MAY_FAIL(call)               \
  do {                               \
    const int code = fault(#call);   \
    if (code != SUCCESS) return code; \
  } while (0)

/* ---- groups */

static _Thread_local int depth, failed;
static _Thread_local task *first_task, *last_task;
/* The communicators that a group suspends or resumes in the blocking mode. */
static _Thread_local comm *first_changing;
/* Tasks are never freed, because a graph may replay them. */
static task *tasks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*launch_host_function)(plinth_stream_t, void (*)(void *), void *);
static int (*get_context)(void **);
static int (*set_context)(void *);
static int (*capture_info)(plinth_stream_t, int *, uint64_t *, void **, const void **, size_t *);
static int (*create_object)(void **, void *, void (*)(void *), unsigned, unsigned);
static int (*retain_object)(void *, void *, unsigned, unsigned);

/* Finds the driver's functions once. */
static void find_driver(void) {
  void *symbols[6] = {entry_point("cuLaunchHostFunc"),       entry_point("cuCtxGetCurrent"),    entry_point("cuCtxSetCurrent"),
                      entry_point("cuStreamGetCaptureInfo"), entry_point("cuUserObjectCreate"), entry_point("cuGraphRetainUserObject")};
  memcpy(&launch_host_function, &symbols[0], sizeof symbols[0]);
  memcpy(&get_context, &symbols[1], sizeof symbols[1]);
  memcpy(&set_context, &symbols[2], sizeof symbols[2]);
  memcpy(&capture_info, &symbols[3], sizeof symbols[3]);
  memcpy(&create_object, &symbols[4], sizeof symbols[4]);
  memcpy(&retain_object, &symbols[5], sizeof symbols[5]);
}

static void graph_ended(void *context) { atomic_fetch_sub(&((comm *)context)->captured, 1); }

/* Asks whether a task becomes part of a graph, and makes that graph tell when it ends. */
static int find_graph(task *job) {
  enum { CAPTURES = 1, WITHOUT_WAIT = 1, MOVE = 1 };
  int state = 0;
  uint64_t id = 0;
  void *graph = NULL, *object = NULL;
  const void *nodes = NULL;
  size_t count = 0;
  if (capture_info(job->stream, &state, &id, &graph, &nodes, &count) != 0) return CUDA_ERROR;
  job->is_captured = state == CAPTURES;
  if (!job->is_captured) return SUCCESS;
  if (create_object(&object, job->communicator, graph_ended, 1, WITHOUT_WAIT) != 0) return CUDA_ERROR;
  atomic_fetch_add(&job->communicator->captured, 1);
  return retain_object(graph, object, 1, MOVE) == 0 ? SUCCESS : CUDA_ERROR;
}

static int launch(task *job) {
  void *previous = NULL;
  job->is_mapped = is_mapped(job);
  pthread_mutex_lock(&lock);
  job->next = tasks;
  tasks = job;
  pthread_mutex_unlock(&lock);
  if (getenv("FAKE_NCCL_STUCK") != NULL) {
    job->communicator->polls = INT_MAX;
    return SUCCESS;
  }
  if (get_context(&previous) != 0 || set_context(job->context) != 0) return CUDA_ERROR;
  int launched = find_graph(job);
  if (!job->is_captured) atomic_fetch_add(&job->communicator->running, 1);
  if (launched == 0) launched = launch_host_function(job->stream, run, job);
  set_context(previous);
  if (launched != 0) {
    if (!job->is_captured) atomic_fetch_sub(&job->communicator->running, 1);
    return CUDA_ERROR;
  }
  job->communicator->polls = job->communicator->blocking ? 0 : POLLS;
  return SUCCESS;
}

/* NCCL connects the ranks in their first collective, in which each waits for the others. */
static bool finish_connection(comm *self) {
  for (int rank = 0; rank < self->size && !has_failed(self); rank++) {
    if (!atomic_load(&self->shared->connecting[rank])) return false;
  }
  return self->is_connected = true;
}

static bool is_connecting(const comm *self) {
  return !self->is_connected && atomic_load(&self->shared->connecting[self->rank]);
}

static bool all_joined(const comm *self);

static int in_progress(const comm *self) {
  return (!self->blocking && (self->polls > 0 || !all_joined(self))) || self->window_result != NULL || self->change != NO_CHANGE ||
         self->is_finalizing || is_connecting(self);
}

static void free_task(task *made) {
  free(made->transfers);
  free(made);
}

static int submit(task *made) {
  comm *self = made->communicator;
  if (in_progress(self) || atomic_load(&self->suspended) || atomic_load(&self->forgiven)) {
    free_task(made);
    return failed = INVALID_ARGUMENT;
  }
  made->next = NULL;
  if (made->work == SEND_RECV) {
    for (task *other = first_task; other != NULL; other = other->next) {
      if (other->work == SEND_RECV && other->communicator == made->communicator && other->stream == made->stream) {
        other->transfers = realloc(other->transfers, (size_t)(other->transfer_count + 1) * sizeof(transfer));
        other->transfers[other->transfer_count++] = made->transfers[0];
        free_task(made);
        return SUCCESS;
      }
    }
  }
  *(first_task == NULL ? &first_task : &last_task->next) = made;
  last_task = made;
  return SUCCESS;
}

static int finish_changes(void);

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
  static atomic_int groups;
  const int group = atomic_fetch_add(&groups, 1);
  for (const task *job = list; job != NULL && result == SUCCESS; job = job->next) {
    comm *self = job->communicator;
    if (job->work == SEND_RECV || atomic_exchange(&self->shared->connecting[self->rank], true)) continue;
    self->connecting_group = group;
  }
  while (list != NULL) {
    task *next = list->next;
    if (result == SUCCESS) {
      comm *self = list->communicator;
      while (self->blocking && is_connecting(self) && !finish_connection(self)) pause_a_little();
      result = launch(list);
      waits |= in_progress(self);
    } else {
      free_task(list);
    }
    list = next;
  }
  if (result == SUCCESS) result = finish_changes();
  first_changing = NULL;
  return result == SUCCESS && waits ? IN_PROGRESS : result;
}

static task *task_of(enum work work, comm *self, plinth_stream_t stream, const void *from, void *to, size_t count,
                     int kind) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  task *made = calloc(1, sizeof *made);
  pthread_once(&once, find_driver);
  *made = (task){.work = work, .communicator = self, .stream = stream, .from = from, .to = to, .count = count,
                 .kind = kind};
  get_context(&made->context);
  return made;
}

static int run_alone(task *made) {
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

EXPORT const char *ncclGetLastError(const comm *self) {
  (void)self;
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
  /* From version 2.32 on the config can disable multicast, and it must. */
  if (version >= 23200) return settings->size == sizeof(config) && settings->multicast == INT_MAX;
  return settings->size == offsetof(config, name) && settings->version <= 21800;
}

/* Copies a config, which may be that of an older version. */
static bool take_config(config *full, const config *settings) {
  if (settings->size > sizeof *full) return false;
  memcpy(full, settings, settings->size);
  return acceptable(full);
}

/* Communicators are never freed, because tasks refer to them. */
static comm *comms;

static comm *join(const char *name, int rank, int size, int device, const config *settings) {
  const int file = shm_open(name, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, sizeof(segment)) != 0) return NULL;
  segment *shared = mmap(NULL, sizeof(segment), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared == MAP_FAILED) return NULL;
  comm *made = calloc(1, sizeof *made);
  made->shared = shared;
  made->rank = rank;
  made->size = size;
  made->settings = *settings;
  made->blocking = settings->blocking;
  if (!buffer_create(&made->own_buffer, device)) {
    if (atomic_load(&shared->joined) == 0) shm_unlink(name);
    munmap(shared, sizeof(segment));
    free(made);
    return NULL;
  }
  snprintf(made->name, sizeof made->name, "%s", name);
  pthread_mutex_lock(&lock);
  made->next_comm = comms;
  comms = made;
  pthread_mutex_unlock(&lock);
  atomic_store(&shared->pids[rank], (int)getpid());
  atomic_fetch_add(&shared->joined, 1);
  return made;
}

static bool all_joined(const comm *self) {
  if (atomic_load(&self->shared->joined) < self->size) return false;
  shm_unlink(self->name);
  return true;
}

EXPORT int ncclCommInitRankConfig(comm **out, int size, unique_id id, int rank, config *settings) {
  config full = {0};
  MAY_FAIL(ncclCommInitRankConfig);
  if (!take_config(&full, settings) || size > MAX_RANKS || rank < 0 || rank >= size) return INVALID_ARGUMENT;
  comm *made = join(id.internal, rank, size, current_device(), &full);
  if (made == NULL) return SYSTEM_ERROR;
  *out = made;
  if (!made->blocking) return IN_PROGRESS;
  while (depth == 0 && !all_joined(made)) pause_a_little();
  return SUCCESS;
}

static bool finish_shrink(comm *self);
static bool has_work(const comm *self);

/* Creates the communicator of a split once all ranks have asked for it. */
static bool finish_split(comm *self) {
  segment *shared = self->shared;
  char name[64];
  int number = 0, size = 0;
  if (self->excluded != 0) return finish_shrink(self);
  for (int rank = 0; rank < self->size; rank++) {
    if (atomic_load(&shared->splits[rank]) < self->split_count) return false;
  }
  if (self->color >= 0) {
    for (int rank = 0; rank < self->size; rank++) {
      const bool before = shared->keys[rank] < shared->keys[self->rank] ||
                          (shared->keys[rank] == shared->keys[self->rank] && rank < self->rank);
      size += shared->colors[rank] == self->color;
      number += shared->colors[rank] == self->color && before;
    }
    snprintf(name, sizeof name, "%.40s_%d_%d", self->name, self->split_count, self->color);
    *self->split_result = join(name, number, size, self->own_buffer.device, &self->settings);
  }
  self->split_result = NULL;
  return true;
}

EXPORT int ncclCommSplit(comm *self, int color, int key, comm **out, config *settings) {
  MAY_FAIL(ncclCommSplit);
  if (in_progress(self) || self->split_result != NULL || atomic_load(&self->suspended)) return INVALID_ARGUMENT;
  if (!take_config(&self->settings, settings)) return INVALID_ARGUMENT;
  self->shared->colors[self->rank] = color;
  self->shared->keys[self->rank] = key;
  self->color = color;
  self->excluded = 0;
  self->split_result = out;
  atomic_store(&self->shared->splits[self->rank], ++self->split_count);
  return IN_PROGRESS;
}

/* Ends the work, after which the communicator can only shrink or be aborted. */
EXPORT int ncclCommRevoke(comm *self, int flags) {
  MAY_FAIL(ncclCommRevoke);
  if (flags != 0 || atomic_load(&self->forgiven) || atomic_load(&self->shared->ending[self->rank])) return INVALID_ARGUMENT;
  atomic_store(&self->aborted, 1);
  while (has_work(self)) pause_a_little();
  atomic_store(&self->error, SUCCESS);
  atomic_store(&self->forgiven, (1 << self->size) - 1);
  self->is_connected = true;
  self->polls = 0;
  atomic_store(&self->aborted, 0);
  return IN_PROGRESS;
}

/* Creates the communicator of a shrink once all ranks that remain have asked for it. */
static bool finish_shrink(comm *self) {
  char name[64];
  int number = 0, size = 0;
  for (int rank = 0; rank < self->size; rank++) {
    if (self->excluded >> rank & 1) continue;
    if (atomic_load(&self->shared->shrinks[rank][self->excluded]) < self->shrink_count) return false;
    number += rank < self->rank;
    size++;
  }
  snprintf(name, sizeof name, "%.40s_without_%d_%d", self->name, self->excluded, self->shrink_count);
  *self->split_result = join(name, number, size, self->own_buffer.device, &self->settings);
  self->split_result = NULL;
  return true;
}

EXPORT int ncclCommShrink(comm *self, const int *excluded, int count, comm **out, config *settings, int flags) {
  int bits = 0;
  const int code = fault("ncclCommShrink");
  /* As if the library had no such call. */
  if (code < 0) return code;
  if (self->split_result != NULL || count < 1 || flags < 0 || flags > 1) return INVALID_ARGUMENT;
  for (int index = 0; index < count; index++) {
    if (excluded[index] < 0 || excluded[index] >= self->size || bits >> excluded[index] & 1) return INVALID_ARGUMENT;
    bits |= 1 << excluded[index];
  }
  if (bits >> self->rank & 1) return INVALID_ARGUMENT;
  if (flags == 1) {
    /* An error that NCCL knows already stays one. */
    const bool has_worked = atomic_load(&self->error) == SUCCESS;
    atomic_store(&self->aborted, 1);
    while (atomic_load(&self->running) > 0) pause_a_little();
    if (has_worked) atomic_store(&self->error, SUCCESS);
    atomic_fetch_or(&self->forgiven, bits);
    self->polls = 0;
    atomic_store(&self->aborted, 0);
    if (!has_worked) return atomic_load(&self->error);
  }
  if (code != SUCCESS) return code;
  if (in_progress(self) || atomic_load(&self->suspended) || !take_config(&self->settings, settings)) return INVALID_ARGUMENT;
  self->excluded = bits;
  self->split_result = out;
  self->shrink_count = atomic_fetch_add(&self->shared->shrinks[self->rank][bits], 1) + 1;
  return IN_PROGRESS;
}

/* Makes a window once all ranks have registered their memory, or none after an error. */
static bool finish_window(comm *self) {
  const segment *shared = self->shared;
  const int turn = self->window_count & 1;
  for (int rank = 0; rank < self->size && !has_failed(self); rank++) {
    if (atomic_load(&shared->windows[rank]) < self->window_count) return false;
    if (shared->window_bytes[rank][turn] != shared->window_bytes[self->rank][turn]) {
      atomic_store(&self->error, INVALID_ARGUMENT);
    }
  }
  if (!has_failed(self)) {
    *self->window_result = self->window_memory;
    registry_add(&self->registered, self->window_memory, shared->window_bytes[self->rank][turn]);
  }
  self->window_result = NULL;
  return true;
}

EXPORT int ncclCommWindowRegister(comm *self, void *memory, size_t bytes, void **window, int flags) {
  MAY_FAIL(ncclCommWindowRegister);
  if (in_progress(self) || bytes == 0 || flags != 1 || (uintptr_t)memory % 4096 != 0) return INVALID_ARGUMENT;
  if (self->registered.count == MAX_REGISTERED) return INTERNAL_ERROR;
  *window = NULL;
  if (getenv("FAKE_NCCL_NO_WINDOWS") != NULL) return SUCCESS;
  self->window_memory = memory;
  self->window_result = window;
  self->shared->window_bytes[self->rank][++self->window_count & 1] = bytes;
  atomic_store(&self->shared->windows[self->rank], self->window_count);
  if (!self->blocking) return IN_PROGRESS;
  while (!finish_window(self)) pause_a_little();
  return atomic_load(&self->error);
}

EXPORT int ncclCommRegister(comm *self, void *memory, size_t bytes, void **buffer) {
  MAY_FAIL(ncclCommRegister);
  if (in_progress(self) || bytes == 0) return INVALID_ARGUMENT;
  if (self->registered.count == MAX_REGISTERED) return INTERNAL_ERROR;
  *buffer = memory;
  registry_add(&self->registered, memory, 0);
  return SUCCESS;
}

static int deregister(comm *self, const void *memory) {
  if (atomic_load(&self->running) > 0) return INVALID_USAGE;
  return registry_remove(&self->registered, memory) ? SUCCESS : INVALID_ARGUMENT;
}

EXPORT int ncclCommWindowDeregister(comm *self, const void *window) {
  MAY_FAIL(ncclCommWindowDeregister);
  return deregister(self, window);
}

EXPORT int ncclCommDeregister(comm *self, const void *buffer) {
  MAY_FAIL(ncclCommDeregister);
  return deregister(self, buffer);
}

/* Releases or allocates the memory. NCCL allocates before it waits for the others, and releases after that. Its other ranks
 * wait without a limit for one that has failed. */
static void change_memory(comm *self) {
  if (self->change == SUSPENDING) {
    buffer_unmap(&self->own_buffer);
    atomic_store(&self->suspended, 1);
  } else if (buffer_map(&self->own_buffer)) {
    atomic_store(&self->suspended, 0);
  } else {
    atomic_store(&self->error, CUDA_ERROR);
  }
}

/* Completes a suspension or a resumption, unless other ranks are missing. */
static bool finish_change(comm *self) {
  for (int rank = 0; rank < self->size && !has_failed(self); rank++) {
    if (atomic_load(&self->shared->changes[rank]) < self->change_count) return false;
  }
  if (self->change == SUSPENDING && !has_failed(self)) {
    if (atomic_load(&self->running) > 0) return false;
    change_memory(self);
  }
  self->change = NO_CHANGE;
  return true;
}

static int begin_change(comm *self, enum change change) {
  if (in_progress(self) || self->split_result != NULL) return INVALID_ARGUMENT;
  if (atomic_load(&self->suspended) != (change == RESUMING)) return INVALID_USAGE;
  /* NCCL does not say what becomes of registered memory. */
  if (self->registered.count > 0) return INVALID_USAGE;
  self->change = change;
  self->change_count++;
  if (change == RESUMING) change_memory(self);
  if (!has_failed(self)) atomic_store(&self->shared->changes[self->rank], self->change_count);
  if (!self->blocking) return IN_PROGRESS;
  self->next_changing = first_changing;
  first_changing = self;
  return depth > 0 ? SUCCESS : finish_changes();
}

/* After a failure of one communicator, the others of the group do not wait for it. */
static int finish_changes(void) {
  comm *const list = first_changing;
  int result = SUCCESS;
  first_changing = NULL;
  for (comm *self = list; self != NULL; self = self->next_changing) {
    if (result == SUCCESS) result = atomic_load(&self->error);
  }
  for (comm *self = list; self != NULL; self = self->next_changing) {
    if (result != SUCCESS) atomic_store(&self->aborted, 1);
    while (!finish_change(self)) pause_a_little();
    if (result == SUCCESS) result = atomic_load(&self->error);
  }
  return result;
}

/* An error in a group is one of the group. */
static int in_group(int result) {
  if (depth > 0 && result != SUCCESS) failed = result;
  return result;
}

EXPORT int ncclCommSuspend(comm *self, int flags) {
  const int code = fault("ncclCommSuspend");
  if (code != SUCCESS || flags != 1) return in_group(code != SUCCESS ? code : INVALID_ARGUMENT);
  return in_group(begin_change(self, SUSPENDING));
}

EXPORT int ncclCommResume(comm *self) {
  const int code = fault("ncclCommResume");
  return in_group(code != SUCCESS ? code : begin_change(self, RESUMING));
}

EXPORT int ncclCommMemStats(const comm *self, int which, uint64_t *value) {
  MAY_FAIL(ncclCommMemStats);
  (void)self;
  if (which != 0) return INVALID_ARGUMENT;
  *value = BUFFER_BYTES;
  return SUCCESS;
}

/* ---- the end */

/* From version 2.32 on, a rank that was not aborted waits for all ranks of the machine, and then stops to serve them. */
static bool waits_for_ends(void) {
  int version = 0;
  (void)ncclGetVersion(&version);
  return version >= 23200;
}

/* Whether it has work in a stream, or in a graph. */
static bool has_work(const comm *self) { return atomic_load(&self->running) > 0 || atomic_load(&self->captured) > 0; }

static bool finish_end(comm *self) {
  if (has_work(self)) return false;
  for (int rank = 0; rank < self->size && waits_for_ends() && !atomic_load(&self->aborted); rank++) {
    if (!atomic_load(&self->shared->ending[rank])) return false;
  }
  atomic_store(&self->shared->stopped[self->rank], true);
  self->is_finalizing = false;
  return true;
}

EXPORT int ncclCommFinalize(comm *self) {
  MAY_FAIL(ncclCommFinalize);
  if (in_progress(self) || atomic_load(&self->shared->ending[self->rank])) return INVALID_ARGUMENT;
  if (atomic_load(&self->forgiven)) return INVALID_USAGE;
  if (self->registered.count > 0) return INVALID_USAGE;
  self->is_finalizing = true;
  atomic_store(&self->shared->ending[self->rank], true);
  if (!self->blocking) return IN_PROGRESS;
  while (!finish_end(self)) pause_a_little();
  return SUCCESS;
}

EXPORT int ncclCommGetAsyncError(comm *self, int *error) {
  const char *text = getenv("FAKE_NCCL_ASYNC");
  MAY_FAIL(ncclCommGetAsyncError);
  if (text != NULL) {
    *error = atoi(text);
  } else if (has_failed(self)) {
    *error = atomic_load(&self->error);
  } else if (!all_joined(self) || (self->split_result != NULL && !finish_split(self)) ||
             (self->window_result != NULL && !finish_window(self)) || (self->change != NO_CHANGE && !finish_change(self)) ||
             (is_connecting(self) && !finish_connection(self)) || (self->is_finalizing && !finish_end(self))) {
    *error = IN_PROGRESS;
  } else if (self->polls > 0) {
    self->polls -= self->polls != INT_MAX;
    *error = IN_PROGRESS;
  } else {
    *error = SUCCESS;
  }
  return SUCCESS;
}

EXPORT int ncclCommCount(const comm *self, int *size) {
  *size = self->size;
  return SUCCESS;
}

EXPORT int ncclCommUserRank(const comm *self, int *rank) {
  *rank = self->rank;
  return SUCCESS;
}

/* Whether a rank of another process is still connected to this one. */
static bool is_in_use(const comm *self) {
  for (int rank = 0; rank < self->size && !atomic_load(&self->aborted); rank++) {
    const int pid = atomic_load(&self->shared->pids[rank]);
    if (pid != 0 && pid != (int)getpid() && kill(pid, 0) == 0 && !atomic_load(&self->shared->stopped[rank])) return true;
  }
  return false;
}

static void release(comm *self) {
  while (has_work(self) || is_in_use(self)) pause_a_little();
  shm_unlink(self->name);
  /* A rank that was destroyed is not a lost rank. */
  atomic_store(&self->shared->pids[self->rank], 0);
  munmap(self->shared, sizeof(segment));
  /* The rest stays, because a graph may hold tasks of it. */
  if (!atomic_load(&self->suspended)) buffer_destroy(&self->own_buffer);
  self->is_released = true;
}

/* Ends a rank. The last rank of a communicator in the process ends all of them: first all of them arrive, then each waits for
 * the ranks of other processes, and for those of its own process that were aborted. */
static int end(comm *self) {
  pthread_mutex_lock(&lock);
  comm *const all = comms;
  bool is_last = true;
  self->has_ended = true;
  for (const comm *other = all; other != NULL; other = other->next_comm) {
    is_last &= other->is_released || other->has_ended || strcmp(other->name, self->name) != 0;
  }
  pthread_mutex_unlock(&lock);
  if (!is_last) return SUCCESS;
#define FOR_EACH_SIBLING(name_) \
  for (comm *name_ = all; name_ != NULL; name_ = name_->next_comm) \
    if (!name_->is_released && strcmp(name_->name, self->name) == 0)
  FOR_EACH_SIBLING(other) {
    if (!atomic_load(&other->aborted)) atomic_store(&other->shared->ending[other->rank], true);
  }
  FOR_EACH_SIBLING(other) {
    while (!finish_end(other)) pause_a_little();
  }
  /* The memory is released when the ranks of other processes have ended as well. */
  FOR_EACH_SIBLING(other) release(other);
  return SUCCESS;
}

EXPORT int ncclCommDestroy(comm *self) {
  MAY_FAIL(ncclCommDestroy);
  return self->registered.count == 0 && !atomic_load(&self->forgiven) ? end(self) : INVALID_USAGE;
}

/* A group that connects its ranks ends as a whole. */
static void wait_for_group(const comm *self) {
  pthread_mutex_lock(&lock);
  comm *other = comms;
  pthread_mutex_unlock(&lock);
  for (; other != NULL; other = other->next_comm) {
    const bool is_together = !other->is_released && other->connecting_group == self->connecting_group;
    while (is_together && is_connecting(other) && !finish_connection(other)) pause_a_little();
  }
}

EXPORT int ncclCommAbort(comm *self) {
  MAY_FAIL(ncclCommAbort);
  atomic_store(&self->aborted, 1);
  if (is_connecting(self)) wait_for_group(self);
  /* A split in progress ends here, and writes its result. */
  if (self->split_result != NULL) *self->split_result = NULL;
  self->split_result = NULL;
  while (has_work(self)) pause_a_little();
  return end(self);
}

/* ---- collectives, send and receive */

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int kind, int op, comm *self, plinth_stream_t stream) {
  MAY_FAIL(ncclAllReduce);
  task *made = task_of(ALL_REDUCE, self, stream, from, to, count, kind);
  made->op = op;
  return run_alone(made);
}

EXPORT int ncclReduce(const void *from, void *to, size_t count, int kind, int op, int root, comm *self,
                      plinth_stream_t stream) {
  MAY_FAIL(ncclReduce);
  task *made = task_of(REDUCE, self, stream, from, to, count, kind);
  made->op = op;
  made->root = root;
  return run_alone(made);
}

EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int kind, int root, comm *self,
                         plinth_stream_t stream) {
  MAY_FAIL(ncclBroadcast);
  task *made = task_of(BROADCAST, self, stream, from, to, count, kind);
  made->root = root;
  return run_alone(made);
}

EXPORT int ncclAllGather(const void *from, void *to, size_t count, int kind, comm *self, plinth_stream_t stream) {
  MAY_FAIL(ncclAllGather);
  return run_alone(task_of(ALL_GATHER, self, stream, from, to, count, kind));
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int kind, int op, comm *self,
                             plinth_stream_t stream) {
  MAY_FAIL(ncclReduceScatter);
  task *made = task_of(REDUCE_SCATTER, self, stream, from, to, count, kind);
  made->op = op;
  return run_alone(made);
}

EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int kind, comm *self, plinth_stream_t stream) {
  MAY_FAIL(ncclAlltoAll);
  return run_alone(task_of(ALL_TO_ALL, self, stream, from, to, count, kind));
}

static int send_or_receive(int sends, void *memory, size_t count, int kind, int peer, comm *self, plinth_stream_t stream) {
  task *made = task_of(SEND_RECV, self, stream, NULL, NULL, count, kind);
  made->transfer_count = 1;
  made->transfers = malloc(sizeof(transfer));
  made->transfers[0] = (transfer){sends, peer, memory, count * widths[kind], 0};
  return run_alone(made);
}

EXPORT int ncclSend(const void *from, size_t count, int kind, int peer, comm *self, plinth_stream_t stream) {
  MAY_FAIL(ncclSend);
  return send_or_receive(1, (void *)(uintptr_t)from, count, kind, peer, self, stream);
}

EXPORT int ncclRecv(void *to, size_t count, int kind, int peer, comm *self, plinth_stream_t stream) {
  MAY_FAIL(ncclRecv);
  return send_or_receive(0, to, count, kind, peer, self, stream);
}
