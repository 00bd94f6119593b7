/*
 * The threads of the library in this process.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef LIBRARY_THREADS_H
#define LIBRARY_THREADS_H

#include "harness.h"

#include <dirent.h>

/* Opens a file of a thread's folder in /proc; NULL if the thread has ended. */
static inline FILE *open_of_thread(const char *thread, const char *name) {
  char path[300];
  snprintf(path, sizeof path, "/proc/self/task/%s/%s", thread, name);
  return fopen(path, "r");
}

static inline bool has_name(const char *thread, const char *wanted) {
  char name[32] = "";
  FILE *file = open_of_thread(thread, "comm");
  if (file == NULL) return false;
  const bool same = fgets(name, sizeof name, file) != NULL && strncmp(name, wanted, strlen(wanted)) == 0;
  fclose(file);
  return same;
}

/* Whether a thread blocks a signal. */
static inline bool blocks(const char *thread, int number) {
  char line[200];
  unsigned long long blocked = 0;
  FILE *file = open_of_thread(thread, "status");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    (void)sscanf(line, "SigBlk: %llx", &blocked);
  }
  if (file != NULL) fclose(file);
  return (blocked >> (number - 1)) & 1;
}

/* Counts the threads with a name, of which the kernel keeps 15 characters; those that block a signal, unless it is 0. */
static inline int count_threads_that_block(const char *wanted, int number) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
    count += has_name(task->d_name, wanted) && (number == 0 || blocks(task->d_name, number));
  }
  closedir(tasks);
  return count;
}

static inline int count_threads(const char *wanted) { return count_threads_that_block(wanted, 0); }

#endif
