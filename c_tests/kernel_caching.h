/*
 * Helpers of the tests of the kernel cache on disk: a folder of its own, and the files in it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef KERNEL_CACHING_H
#define KERNEL_CACHING_H

#include "process.h"

#include <dirent.h>
#include <sys/stat.h>

static char folder[256], kernels[320];

/* Makes a folder for this test, and sets it as the folder of the kernel cache. */
static inline void use_own_folder(void) {
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/plinth-test-XXXXXX", temporary != NULL ? temporary : "/tmp");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(kernels, sizeof kernels, "%s/a/b", folder);
  CHECK(setenv("PLINTH_KERNEL_CACHE_PATH", kernels, 1) == 0);
}

/* Returns the number of cached kernels, and the path of one. */
static inline int cached_kernels(char path[640]) {
  DIR *opened = opendir(kernels);
  struct dirent *entry;
  int count = 0;
  if (opened == NULL) {
    return 0;
  }
  while ((entry = readdir(opened)) != NULL) {
    if (entry->d_name[0] != '.') {
      count++;
      if (path != NULL) {
        snprintf(path, 640, "%s/%s", kernels, entry->d_name);
      }
    }
  }
  closedir(opened);
  return count;
}

static inline void remove_own_folder(void) {
  char path[640], parent[300];
  (void)chmod(kernels, 0700);
  while (cached_kernels(path) > 0) {
    CHECK(unlink(path) == 0);
  }
  (void)rmdir(kernels);
  snprintf(parent, sizeof parent, "%s/a", folder);
  (void)rmdir(parent);
  CHECK(rmdir(folder) == 0);
}

static inline struct stat status_of(const char *path) {
  struct stat found;
  CHECK(stat(path, &found) == 0);
  return found;
}

#endif
