/*
 * Helpers of the tests of cuBLAS, cuFFT and cuSOLVER: finding the libraries, or the fakes of them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef LIBRARIES_H
#define LIBRARIES_H

#include "driver.h"
#include "graphing.h"
#include "process.h"

#include <dlfcn.h>
#include <libgen.h>

/* Sets an environment variable to the path of a fake library, which is in the program's folder. Call it before the first
 * use of the library. */
static inline void name_library(const char *variable, const char *name) {
  char path[1024];
  char library[1200];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = '\0';
  snprintf(library, sizeof library, "%s/%s.so", dirname(path), name);
  harness_setenv(variable, library);
}

/* Finds a function in the library that plinth has loaded: in the one that the environment variable names, or else in the
 * first of `names` that is loaded. */
static inline void *function_of(const char *variable, const char *const *names, const char *symbol) {
  const char *path = variable[0] == '\0' ? NULL : getenv(variable);
  void *library = path != NULL && path[0] != '\0' ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
  for (; library == NULL && *names != NULL; names++) {
    library = dlopen(*names, RTLD_NOW | RTLD_NOLOAD);
  }
  CHECK(library != NULL);
  void *found = dlsym(library, symbol);
  CHECK(found != NULL);
  return found;
}

static inline plinth_stream_t current_stream(void) {
  plinth_stream_t stream = (plinth_stream_t)UNTOUCHED_POINTER;
  CHECK_OK(plinth_current_stream(-1, &stream));
  return stream;
}

#endif
