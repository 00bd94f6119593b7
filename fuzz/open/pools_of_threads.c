/* Each thread makes a pool, allocates in it, destroys it, and leaves its blocks for whoever frees them: so a pool's last block
 * may go, by any thread, while its maker gives it up. Then all pause, and the cache is emptied: nothing may be held. Some is,
 * in one of some hundred rounds, mostly with PLINTH_ALLOC_CONF=expandable_segments:False. Compile:
 * gcc -std=gnu11 -Iinclude fuzz/open/pools_of_threads.c -Ltarget/release -lplinth -lpthread
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <plinth.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 6, QUEUE = 64, STREAMS = 3, ROUNDS = 1000 };

#define MUST(call)                                                                        \
  do {                                                                                    \
    if ((call) != PLINTH_OK) {                                                            \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, plinth_last_error()); \
      exit(2);                                                                            \
    }                                                                                     \
  } while (0)

static plinth_stream_t streams[STREAMS];
static int pausing, paused;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *queue[QUEUE];
static int queued;

static int read_flag(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }

static void push(void *memory) {
  pthread_mutex_lock(&lock);
  if (queued < QUEUE) {
    queue[queued++] = memory;
    memory = NULL;
  }
  pthread_mutex_unlock(&lock);
  MUST(plinth_caching_allocator_delete(memory));
}

static void *pop(void) {
  void *memory = NULL;
  pthread_mutex_lock(&lock);
  if (queued > 0) memory = queue[--queued];
  pthread_mutex_unlock(&lock);
  return memory;
}

static void free_all(void) {
  void *memory;
  while ((memory = pop()) != NULL) MUST(plinth_caching_allocator_delete(memory));
}

static void *churn(void *context) {
  unsigned state = *(unsigned *)context;
  for (;;) {
    plinth_pool_id_t pool;
    if (read_flag(&pausing)) {
      free_all();
      __atomic_add_fetch(&paused, 1, __ATOMIC_SEQ_CST);
      while (read_flag(&pausing)) usleep(50);
      __atomic_sub_fetch(&paused, 1, __ATOMIC_SEQ_CST);
    }
    MUST(plinth_mem_pool_create(false, false, &pool));
    MUST(plinth_begin_allocate_current_thread_to_pool(0, pool));
    for (int index = 0; index < 4; index++) {
      void *memory = NULL;
      state = state * 1103515245 + 12345;
      MUST(plinth_caching_allocator_alloc((state >> 8) % (3 << 20) + 1, 0, streams[(state >> 4) % STREAMS], &memory));
      if (state >> 20 & 1) MUST(plinth_record_stream(memory, streams[(state >> 6) % STREAMS]));
      push(memory);
    }
    MUST(plinth_end_allocate_to_pool(0, pool));
    for (int index = 0; index < 3; index++) MUST(plinth_caching_allocator_delete(pop()));
    MUST(plinth_release_pool(0, pool));
    MUST(plinth_mem_pool_destroy(pool));
    if ((state >> 16) % 16 == 0) MUST(plinth_empty_cache());
  }
  return NULL;
}

int main(void) {
  static unsigned seeds[THREADS];
  pthread_t thread;
  setenv("PLINTH_DEVICE", "host", 1);
  for (int index = 0; index < STREAMS; index++) MUST(plinth_stream_create(0, 0, &streams[index]));
  for (int index = 0; index < THREADS; index++) {
    seeds[index] = 77 * (unsigned)index + 1;
    pthread_create(&thread, NULL, churn, &seeds[index]);
  }
  for (int round = 0; round < ROUNDS; round++) {
    size_t allocated = 0, reserved = 0;
    usleep(5000);
    __atomic_store_n(&pausing, 1, __ATOMIC_SEQ_CST);
    while (read_flag(&paused) < THREADS) usleep(50);
    free_all();
    MUST(plinth_synchronize(0));
    MUST(plinth_empty_cache());
    MUST(plinth_memory_allocated(0, &allocated));
    MUST(plinth_memory_reserved(0, &reserved));
    const plinth_status_t sound = plinth_testing_check_allocator();
    if (allocated != 0 || reserved != 0 || sound != PLINTH_OK) {
      fprintf(stderr, "round %d: %zu bytes allocated, %zu reserved; %s\n", round, allocated, reserved, plinth_last_error());
      _exit(1);
    }
    __atomic_store_n(&pausing, 0, __ATOMIC_SEQ_CST);
    while (read_flag(&paused) > 0) usleep(50);
  }
  puts("nothing is lost");
  fflush(stdout);
  _exit(0);
}
