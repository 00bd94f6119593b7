/*
 * A library that must not be loaded: its constructor appends its own path to the file that HOSTILE_MARKER names. It is
 * no working NCCL, NVRTC or NVTX tool.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void mark(void) {
  const char *marker = getenv("HOSTILE_MARKER");
  FILE *file = marker == NULL ? NULL : fopen(marker, "a");
  Dl_info info;
  if (file != NULL) {
    fprintf(file, "%s\n", dladdr((void *)(size_t)mark, &info) != 0 ? info.dli_fname : "?");
    fclose(file);
  }
}
