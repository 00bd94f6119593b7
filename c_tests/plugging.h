/*
 * The helper library of allocators, which the runner builds beside the tests, and what its functions saw.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef PLUGGING_H
#define PLUGGING_H

#include "allocating.h"

#include <dlfcn.h>

/* As the helper declares it. */
typedef struct helper_book {
  int allocated;
  int freed;
  int fail;
  size_t last_size;
  int last_device;
  void *last_stream;
  void *last_pointer;
} helper_book;

/* The path of a library beside this program. */
static inline const char *beside(const char *name) {
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
  CHECK_OK(plinth_pluggable_allocator_create(beside("pluggable_helper.so"), "helper_alloc", "helper_free", &allocator));
  CHECK(allocator != NULL);
  return allocator;
}

/* The same book that the library writes: it is loaded once a process. */
static inline helper_book *book(void) {
  void *library = dlopen(beside("pluggable_helper.so"), RTLD_NOW | RTLD_LOCAL);
  helper_book *(*look)(void);
  CHECK(library != NULL);
  *(void **)&look = dlsym(library, "helper_look");
  CHECK(look != NULL);
  return look();
}

#endif
