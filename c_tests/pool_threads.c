/* Pools are created and destroyed while threads allocate: a thread that found a pool's arena before its destruction must use
 * another one, and no memory may leak. */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 120 */
/* long: a_pools_last_block_is_freed_while_the_pool_is_released */
#include "allocating.h"

#include <pthread.h>
#include <unistd.h>

enum { ALLOCATORS = 8, POOLS = 100, POOL_THREADS = 6, QUEUE = 64, STREAMS = 3, ROUNDS = 60 };

static plinth_stream_t streams[STREAMS];
static int stop, pausing, paused;

static int read_flag(const int *flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }

static void pause_if_asked(void) {
  if (read_flag(&pausing)) {
    __atomic_add_fetch(&paused, 1, __ATOMIC_SEQ_CST);
    while (read_flag(&pausing)) {
      usleep(50);
    }
    __atomic_sub_fetch(&paused, 1, __ATOMIC_SEQ_CST);
  }
}

/* Pauses all threads, checks that no memory is left, and resumes the threads. */
static void check_while_paused(int threads, void (*before)(void)) {
  __atomic_store_n(&pausing, 1, __ATOMIC_SEQ_CST);
  while (read_flag(&paused) < threads) {
    usleep(50);
  }
  if (before != NULL) {
    before();
  }
  CHECK_OK(plinth_synchronize(0));
  expect_nothing_left();
  __atomic_store_n(&pausing, 0, __ATOMIC_SEQ_CST);
  while (read_flag(&paused) > 0) {
    usleep(50);
  }
}

static void *allocate_and_free(void *context) {
  (void)context;
  while (!read_flag(&stop)) {
    pause_if_asked();
    void *memory = NULL;
    CHECK_OK(plinth_caching_allocator_alloc(1 << 20, 0, streams[0], &memory));
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
  return NULL;
}

TEST(a_streams_requests_change_pools_while_threads_allocate) {
  CHECK_OK(plinth_stream_create(0, 0, &streams[0]));
  pthread_t threads[ALLOCATORS];
  for (int index = 0; index < ALLOCATORS; index++) {
    CHECK_EQ(pthread_create(&threads[index], NULL, allocate_and_free, NULL), 0);
  }
  for (int round = 0; round < POOLS; round++) {
    plinth_pool_id_t pool;
    CHECK_OK(plinth_mem_pool_create(false, false, &pool));
    CHECK_OK(plinth_begin_allocate_current_stream_to_pool(0, streams[0], pool));
    usleep(300);
    CHECK_OK(plinth_end_allocate_to_pool(0, pool));
    CHECK_OK(plinth_release_pool(0, pool));
    CHECK_OK(plinth_mem_pool_destroy(pool));
    check_while_paused(ALLOCATORS, NULL);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < ALLOCATORS; index++) {
    CHECK_EQ(pthread_join(threads[index], NULL), 0);
  }
}

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static void *queue[QUEUE];
static int queued;

static void push(void *memory) {
  CHECK_EQ(pthread_mutex_lock(&queue_lock), 0);
  if (queued < QUEUE) {
    queue[queued++] = memory;
    memory = NULL;
  }
  CHECK_EQ(pthread_mutex_unlock(&queue_lock), 0);
  CHECK_OK(plinth_caching_allocator_delete(memory));
}

static void *pop(void) {
  void *memory = NULL;
  CHECK_EQ(pthread_mutex_lock(&queue_lock), 0);
  if (queued > 0) {
    memory = queue[--queued];
  }
  CHECK_EQ(pthread_mutex_unlock(&queue_lock), 0);
  return memory;
}

static void free_all(void) {
  for (void *memory = pop(); memory != NULL; memory = pop()) {
    CHECK_OK(plinth_caching_allocator_delete(memory));
  }
}

/* Creates pools, allocates in them, releases them, and passes the blocks to other threads, which free them. */
static void *make_pools(void *context) {
  unsigned state = *(unsigned *)context;
  while (!read_flag(&stop)) {
    pause_if_asked();
    plinth_pool_id_t pool;
    CHECK_OK(plinth_mem_pool_create(false, false, &pool));
    CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
    for (int index = 0; index < 4; index++) {
      void *memory = NULL;
      state = state * 1103515245 + 12345;
      CHECK_OK(plinth_caching_allocator_alloc((state >> 8) % (3 << 20) + 1, 0, streams[(state >> 4) % STREAMS], &memory));
      if (state >> 20 & 1) {
        CHECK_OK(plinth_record_stream(memory, streams[(state >> 6) % STREAMS]));
      }
      push(memory);
    }
    CHECK_OK(plinth_end_allocate_to_pool(0, pool));
    for (int index = 0; index < 3; index++) {
      CHECK_OK(plinth_caching_allocator_delete(pop()));
    }
    CHECK_OK(plinth_release_pool(0, pool));
    CHECK_OK(plinth_mem_pool_destroy(pool));
    if ((state >> 16) % 16 == 0) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  return NULL;
}

TEST(a_pools_last_block_is_freed_while_the_pool_is_released) {
  static unsigned seeds[POOL_THREADS];
  pthread_t threads[POOL_THREADS];
  for (int index = 0; index < STREAMS; index++) {
    CHECK_OK(plinth_stream_create(0, 0, &streams[index]));
  }
  for (int index = 0; index < POOL_THREADS; index++) {
    seeds[index] = 77 * (unsigned)index + 1;
    CHECK_EQ(pthread_create(&threads[index], NULL, make_pools, &seeds[index]), 0);
  }
  for (int round = 0; round < ROUNDS; round++) {
    usleep(5000);
    check_while_paused(POOL_THREADS, free_all);
  }
  __atomic_store_n(&stop, 1, __ATOMIC_SEQ_CST);
  for (int index = 0; index < POOL_THREADS; index++) {
    CHECK_EQ(pthread_join(threads[index], NULL), 0);
  }
  free_all();
}
