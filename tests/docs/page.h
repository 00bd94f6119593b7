/* What the programs around the documentation's code blocks share. SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef PAGE_H
#define PAGE_H

#include <plinth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The blocks of the documentation ignore statuses. The library's log reports each call that fails at the level debug. */
static void page_fail(int32_t level, const char *message, void *context) {
  (void)context;
  if (level == PLINTH_LOG_DEBUG || level == PLINTH_LOG_ERROR) {
    fprintf(stderr, "%s\n", message);
    exit(1);
  }
}

static void page_begin(void) { plinth_set_log_callback(PLINTH_LOG_DEBUG, page_fail, NULL); }

/* Device memory for the use in the default stream. */
static inline void *page_memory(size_t bytes) {
  void *memory = NULL;
  plinth_caching_allocator_alloc(bytes, 0, NULL, &memory);
  return memory;
}

#endif
