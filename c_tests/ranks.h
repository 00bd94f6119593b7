/*
 * Helpers of the communicator tests: NCCL or its fake, ranks in processes, and their memory.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef RANKS_H
#define RANKS_H

#include "process.h"

#include <libgen.h>
#include <signal.h>

static const DLDataType FLOAT32 = {2, 32, 1};
static const DLDataType FLOAT16 = {2, 16, 1};
static const DLDataType BFLOAT16 = {4, 16, 1};
static const DLDataType FLOAT8_E4M3FN = {10, 8, 1};
static const DLDataType FLOAT8_E5M2 = {12, 8, 1};
static const DLDataType FLOAT64 = {2, 64, 1};
static const DLDataType INT32 = {0, 32, 1};
static const DLDataType INT16 = {0, 16, 1};
static const DLDataType INT64 = {0, 64, 1};
static const DLDataType UINT8 = {1, 8, 1};
static const DLDataType BOOLEAN = {6, 8, 1};

/* Uses a fake NCCL, which works on the host device. Call it before the first use of NCCL. */
static inline void use_fake_nccl(const char *name) {
  char path[1024];
  char library[1200];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = '\0';
  snprintf(library, sizeof library, "%s/%s.so", dirname(path), name);
  harness_setenv("PLINTH_NCCL_LIBRARY", library);
}

/* Uses the fake NCCL on the host device, and the real one on a GPU. Skips the test if there is none. */
static inline void need_nccl(void) {
  int32_t version = 0;
  if (on_host_device()) {
    use_fake_nccl("fake_nccl");
  } else if (plinth_nccl_version(&version, NULL, NULL) == PLINTH_ERROR_NCCL_UNAVAILABLE) {
    SKIP("needs NCCL");
  }
}

static inline plinth_communicator_options_t options_of(uint32_t engine, uint64_t milliseconds, uint32_t flags) {
  plinth_communicator_options_t options = PLINTH_COMMUNICATOR_OPTIONS_INIT;
  options.engine = engine;
  options.timeout_milliseconds = milliseconds;
  options.flags = flags;
  return options;
}

/* Allocates device memory with the numbers `first`, `first + step`, ... */
static inline float *floats_on(int32_t device, size_t count, float first, float step) {
  float *numbers = (float *)malloc((count + 1) * sizeof(float));
  float *memory = (float *)device_memory((count + 1) * sizeof(float), device);
  for (size_t index = 0; index < count; index++) {
    numbers[index] = first + step * (float)index;
  }
  put(memory, numbers, count * sizeof(float));
  free(numbers);
  return memory;
}

/* Checks that memory holds the numbers `first`, `first + step`, ... */
static inline void expect_floats(const float *memory, size_t count, float first, float step) {
  float *numbers = (float *)malloc((count + 1) * sizeof(float));
  fetch(numbers, memory, count * sizeof(float));
  for (size_t index = 0; index < count; index++) {
    if (numbers[index] != first + step * (float)index) {
      char message[128];
      snprintf(message, sizeof message, "element %zu is %g, not %g", index, (double)numbers[index],
               (double)(first + step * (float)index));
      harness_fail(__FILE__, __LINE__, message);
    }
  }
  free(numbers);
}

/* ---- ranks in threads */

static struct {
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  int count;
  plinth_communicator_options_t options;
  plinth_communicator_t *communicators;
} threads_of_ranks;

static inline void *init_rank_of_threads(void *context) {
  const int rank = *(int *)context;
  CHECK_OK(plinth_communicator_init_rank(threads_of_ranks.count, threads_of_ranks.id, rank, rank, &threads_of_ranks.options,
                                         &threads_of_ranks.communicators[rank]));
  return NULL;
}

/* Makes a communicator for each rank, on the device of its number. */
static inline void init_ranks(int count, plinth_communicator_options_t options, plinth_communicator_t *communicators) {
  need_devices(count);
  threads_of_ranks.count = count;
  threads_of_ranks.options = options;
  threads_of_ranks.communicators = communicators;
  CHECK_OK(plinth_nccl_unique_id(threads_of_ranks.id));
  run_threads(count, init_rank_of_threads);
}

/* ---- ranks in processes: do not use the library before, because the children are forked */

enum { MAX_PROCESSES = 8 };

static struct {
  int count;
  int pipes[MAX_PROCESSES][2];
  pid_t pids[MAX_PROCESSES];
} processes;

/* Sends the id that rank 0 creates to all ranks. */
static inline void share_id(int rank, uint8_t *id) {
  if (rank == 0) {
    CHECK_OK(plinth_nccl_unique_id(id));
    for (int other = 1; other < processes.count; other++) {
      CHECK_EQ(write(processes.pipes[other][1], id, PLINTH_UNIQUE_ID_SIZE), PLINTH_UNIQUE_ID_SIZE);
    }
  } else {
    CHECK_EQ(read(processes.pipes[rank][0], id, PLINTH_UNIQUE_ID_SIZE), PLINTH_UNIQUE_ID_SIZE);
  }
}

static inline void start_processes(int count, void (*body)(int rank)) {
  CHECK(count <= MAX_PROCESSES);
  processes.count = count;
  for (int rank = 0; rank < count; rank++) {
    CHECK(pipe(processes.pipes[rank]) == 0);
  }
  for (int rank = 0; rank < count; rank++) {
    fflush(NULL);
    processes.pids[rank] = fork();
    CHECK(processes.pids[rank] >= 0);
    if (processes.pids[rank] == 0) {
      body(rank);
      /* As programs end, so that the library ends its threads. */
      exit(0);
    }
  }
}

/* How long a process of run_processes may take; a program whose ranks have more to do defines it before. */
#ifndef PROCESS_SECONDS
#define PROCESS_SECONDS EVENTUALLY_SECONDS
#endif

/* Runs a body in `count` processes, which must all exit with status 0. */
static inline void run_processes(int count, void (*body)(int rank)) {
  start_processes(count, body);
  for (int rank = 0; rank < count; rank++) {
    int status = 0;
    const double end = seconds_now() + PROCESS_SECONDS;
    while (waitpid(processes.pids[rank], &status, WNOHANG) == 0) {
      CHECK(seconds_now() < end);
      sleep_a_little();
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
        for (int other = rank + 1; other < count; other++) {
          kill(processes.pids[other], SIGKILL);
        }
        SKIP("its processes skipped");
      }
      harness_fail(__FILE__, __LINE__, "a process of the test failed");
    }
  }
}

#endif
