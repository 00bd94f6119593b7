/*
 * The threads of the library in this process.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef LIBRARY_THREADS_H
#define LIBRARY_THREADS_H

#include "harness.h"

#include <dirent.h>

/* Counts the threads with a name, of which the kernel keeps 15 characters. */
static inline int count_threads(const char *wanted) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
  for (struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL) continue; /* it has ended */
    count += fgets(name, sizeof name, file) != NULL && strncmp(name, wanted, strlen(wanted)) == 0;
    fclose(file);
  }
  closedir(tasks);
  return count;
}

#endif
