/*
 * What the tests of communicators share: NCCL or its stand-in, ranks in threads and in processes, and their memory.
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
static const DLDataType FLOAT64 = {2, 64, 1};
static const DLDataType INT32 = {0, 32, 1};
static const DLDataType INT16 = {0, 16, 1};
static const DLDataType INT64 = {0, 64, 1};
static const DLDataType UINT8 = {1, 8, 1};
static const DLDataType BOOLEAN = {6, 8, 1};

/* Names the stand-in for NCCL, which works on the host device. Before the first use of NCCL. */
static inline void name_stand_in(const char *name) {
  char path[1024];
  char library[1200];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = '\0';
  snprintf(library, sizeof library, "%s/%s.so", dirname(path), name);
  harness_setenv("PLINTH_NCCL_LIBRARY", library);
}

/* NCCL: on the host device the stand-in, on a GPU the real one, or none, and then the test is skipped. */
static inline void need_nccl(void) {
  int32_t version = 0;
  if (on_host_device()) {
    name_stand_in("fake_nccl");
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

/* Numbers in a device's memory: `first`, `first + step`, ... */
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

/* Checks that memory holds such numbers. */
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

/* ---- ranks in processes: nothing of the library may be used before, since children are made by fork */

enum { MOST_PROCESSES = 8 };

static struct {
  int count;
  int pipes[MOST_PROCESSES][2];
  pid_t pids[MOST_PROCESSES];
} processes;

/* Gives the id that rank 0 makes to all. */
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
  CHECK(count <= MOST_PROCESSES);
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
      _exit(0);
    }
  }
}

/* Runs a body in as many processes, which must all end well. */
static inline void run_processes(int count, void (*body)(int rank)) {
  start_processes(count, body);
  for (int rank = 0; rank < count; rank++) {
    int status = 0;
    EVENTUALLY(waitpid(processes.pids[rank], &status, WNOHANG) != 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == HARNESS_SKIPPED) {
        for (int other = rank + 1; other < count; other++) {
          kill(processes.pids[other], SIGKILL);
        }
        SKIP("its processes are");
      }
      harness_fail(__FILE__, __LINE__, "a process of the test failed");
    }
  }
}

#endif
