/* Helpers for measurements in C and C++. SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef MEASURE_H
#define MEASURE_H

#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Calls plinth; ends the program if the call fails. */
#define MUST(call)                                                                        \
  do {                                                                                    \
    if ((call) != PLINTH_OK) {                                                            \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, plinth_last_error()); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

/* Calls the driver; ends the program if the call fails. */
#define DRIVER(call)                                                                  \
  do {                                                                                \
    const unsigned code_ = (call);                                                    \
    if (code_ != 0) {                                                                 \
      fprintf(stderr, "%s:%d: %s: CUDA error %u\n", __FILE__, __LINE__, #call, code_); \
      exit(1);                                                                        \
    }                                                                                 \
  } while (0)

/* Looks up a driver function, the same one that plinth calls. */
#define ENTRY(variable, symbol)                        \
  do {                                                 \
    void *pointer_ = NULL;                             \
    MUST(plinth_driver_entry_point(symbol, &pointer_)); \
    memcpy(&variable, &pointer_, sizeof pointer_);     \
  } while (0)

static inline double now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Compares two doubles, for qsort. */
static inline int ascending(const void *left, const void *right) {
  const double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

#endif
