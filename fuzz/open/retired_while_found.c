/* Threads allocate in a stream while its requests begin to go to a pool, and end to, and the pool is destroyed. Then they
 * all pause, nothing is live, and the cache is emptied: nothing may be held. Some is, within a few rounds, by either
 * PLINTH_ALLOC_CONF; plinth_testing_check_allocator says so.
 *
 * A thread has found the pool's arena, the pool goes and the arena is retired, and then the thread grows it. Compile:
 * gcc -std=gnu11 -Iinclude fuzz/open/retired_while_found.c -Ltarget/release -lplinth -lpthread
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <plinth.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 8, ROUNDS = 1000 };

static plinth_stream_t stream;
static int stop, pausing, paused;

static int read_flag(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }

static void *churn(void *context) {
  (void)context;
  while (!read_flag(&stop)) {
    void *memory = NULL;
    if (read_flag(&pausing)) {
      __atomic_add_fetch(&paused, 1, __ATOMIC_SEQ_CST);
      while (read_flag(&pausing)) usleep(50);
      __atomic_sub_fetch(&paused, 1, __ATOMIC_SEQ_CST);
    }
    if (plinth_caching_allocator_alloc(1 << 20, 0, stream, &memory) != PLINTH_OK) abort();
    if (plinth_caching_allocator_delete(memory) != PLINTH_OK) abort();
  }
  return NULL;
}

int main(void) {
  pthread_t threads[THREADS];
  setenv("PLINTH_DEVICE", "host", 1);
  if (plinth_stream_create(0, 0, &stream) != PLINTH_OK) return 2;
  for (int index = 0; index < THREADS; index++) pthread_create(&threads[index], NULL, churn, NULL);
  for (int round = 0; round < ROUNDS; round++) {
    plinth_pool_id_t pool;
    size_t allocated = 0, reserved = 0;
    plinth_mem_pool_create(false, false, &pool);
    plinth_begin_allocate_current_stream_to_pool(0, stream, pool);
    usleep(300);
    plinth_end_allocate_to_pool(0, pool);
    plinth_release_pool(0, pool);
    plinth_mem_pool_destroy(pool);
    __atomic_store_n(&pausing, 1, __ATOMIC_SEQ_CST);
    while (read_flag(&paused) < THREADS) usleep(50);
    plinth_empty_cache();
    plinth_memory_allocated(0, &allocated);
    plinth_memory_reserved(0, &reserved);
    const plinth_status_t sound = plinth_testing_check_allocator();
    if (allocated != 0 || reserved != 0 || sound != PLINTH_OK) {
      fprintf(stderr, "round %d: %zu bytes allocated, %zu reserved; %s\n", round, allocated, reserved, plinth_last_error());
      return 1;
    }
    __atomic_store_n(&pausing, 0, __ATOMIC_SEQ_CST);
    while (read_flag(&paused) > 0) usleep(50);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < THREADS; index++) pthread_join(threads[index], NULL);
  puts("nothing is lost");
  return 0;
}
