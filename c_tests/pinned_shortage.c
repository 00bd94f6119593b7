/* Pinned memory is exhausted, except for blocks that streams still use. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* On a GPU, a limit of the address space does not limit pinned memory. */
/* device: host */
/* An arena of malloc for another thread would take 64 MiB of what the limit leaves. */
/* env: MALLOC_ARENA_MAX=1 */
/* alone: all_threads_wait_for_pending_blocks; counts the memory of the whole process */
#include "pinning.h"

#include <sys/resource.h>

enum { BLOCK = 128 * MIB, SLACK = 60 * MIB, BLOCKS = 2 };

static int started_threads, allowed_threads;

/* Allocates a block once `allowed_threads` exceeds this thread's number. */
static void *allocate_block(void *context) {
  const int number = *(int *)context;
  void *pointer = NULL;
  /* The C library reserves address space for a thread's first allocation. */
  free(malloc(KIB));
  __atomic_add_fetch(&started_threads, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&allowed_threads, __ATOMIC_SEQ_CST) <= number) {
    sleep_milliseconds(1);
  }
  CHECK_OK(plinth_host_alloc(BLOCK, &pointer));
  return pointer;
}

/* The first thread takes all pending blocks to wait for their streams. The second one finds no pending block, and must not
 * fail because of that. */
TEST(all_threads_wait_for_pending_blocks) {
  static int numbers[BLOCKS] = {0, 1};
  plinth_stream_t stream = stream_on(0);
  pthread_t threads[BLOCKS];
  void *blocks[BLOCKS];
  void *pointer = NULL;
  unsigned long pages = 0;
  if (HARNESS_SANITIZED) {
    SKIP("a sanitizer needs more address space than the limit");
  }
  /* Keep a block, because freeing a whole segment to the driver would wait for the streams. */
  void *kept = pin(KIB);
  gate *shut = hold(stream);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(pthread_create(&threads[index], NULL, allocate_block, &numbers[index]) == 0);
  }
  while (__atomic_load_n(&started_threads, __ATOMIC_SEQ_CST) < BLOCKS) {
    sleep_milliseconds(1);
  }
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
  fclose(file);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + BLOCKS * (rlim_t)BLOCK + SLACK;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK_OK(plinth_host_alloc(BLOCK, &blocks[index]));
  }
  CHECK_STATUS(plinth_host_alloc(BLOCK, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK_OK(plinth_host_record_stream(blocks[index], stream));
    unpin(blocks[index]);
  }
  for (int index = 0; index < BLOCKS; index++) {
    __atomic_fetch_add(&allowed_threads, 1, __ATOMIC_SEQ_CST);
    sleep_milliseconds(200);
  }
  expect_held(shut);
  gate_open(shut);
  for (int index = 0; index < BLOCKS; index++) {
    CHECK(pthread_join(threads[index], &pointer) == 0);
    unpin(pointer);
  }
  unpin(kept);
  expect_nothing_pinned();
}
