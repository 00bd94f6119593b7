/*
 * Types of NCCL that the fake takes; NCCL's headers need not be installed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FAKE_NCCL_TYPES_H
#define FAKE_NCCL_TYPES_H

#include <stddef.h>

/* ncclUniqueId. */
typedef struct {
  char internal[128];
} unique_id;

/* ncclConfig_t of version 2.32. */
typedef struct {
  size_t size;
  unsigned magic, version;
  int blocking, cga, least, most;
  const char *net;
  int share, traffic;
  const char *name;
  int others[14], multicast;
} config;

#endif
