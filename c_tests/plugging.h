/*
 * The helper library with an allocator, which run.py builds beside the tests, and its record of calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLUGGING_H
#define PLUGGING_H

#include "allocating.h"

#include <dlfcn.h>

/* As pluggable_helper.c declares it. */
typedef struct helper_state {
  int allocated;
  int freed;
  int fail;
  size_t last_size;
  int last_device;
  void *last_stream;
  void *last_pointer;
} helper_state;

/* Returns the path of a library in this program's folder. */
static inline const char *path_of(const char *name) {
  static char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  char *slash;
  CHECK(length > 0);
  path[length] = '\0';
  slash = strrchr(path, '/');
  CHECK(slash != NULL && (size_t)(slash - path) + strlen(name) + 2 < sizeof path);
  strcpy(slash + 1, name);
  return path;
}

static inline plinth_pluggable_allocator_t load_helper(void) {
  plinth_pluggable_allocator_t allocator = NULL;
  CHECK_OK(plinth_pluggable_allocator_create(path_of("pluggable_helper.so"), "helper_alloc", "helper_free", &allocator));
  CHECK(allocator != NULL);
  return allocator;
}

/* Returns the record that the library writes: a process loads the library once. */
static inline helper_state *state(void) {
  void *library = dlopen(path_of("pluggable_helper.so"), RTLD_NOW | RTLD_LOCAL);
  helper_state *(*get_state)(void);
  CHECK(library != NULL);
  *(void **)&get_state = dlsym(library, "helper_get_state");
  CHECK(get_state != NULL);
  return get_state();
}

#endif
