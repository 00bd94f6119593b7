/*
 * Threads concurrently allocate, write, exchange, read and free blocks of several streams and devices. PLINTH_TEST_SOAK=100
 * makes the tests a hundred times as long.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
/* timeout: 120 */
#include "allocating.h"

enum { THREADS = 8, STREAMS = 4, DEVICES = 8, MAX_OWN_BLOCKS = 24, QUEUE = 64, SLOT = 256 * 1024 };

typedef struct block {
  unsigned char *memory;
  size_t bytes;
  uint32_t word;
  int32_t device;
  plinth_stream_t stream;
} block;

static plinth_stream_t streams[DEVICES][STREAMS];
static int32_t devices;

/* Blocks that one thread allocated and another frees. */
static struct {
  pthread_mutex_t lock;
  block blocks[QUEUE];
  int count;
} queue = {PTHREAD_MUTEX_INITIALIZER, {{NULL, 0, 0, 0, NULL}}, 0};

static int rounds;
static bool may_fail;
static bool empty_caches;
static int failures;

static bool push(const block *added) {
  bool done = false;
  pthread_mutex_lock(&queue.lock);
  if (queue.count < QUEUE) {
    queue.blocks[queue.count++] = *added;
    done = true;
  }
  pthread_mutex_unlock(&queue.lock);
  return done;
}

static bool pop(block *removed, uint64_t random) {
  bool done = false;
  pthread_mutex_lock(&queue.lock);
  if (queue.count > 0) {
    const int index = (int)(random % (uint64_t)queue.count);
    *removed = queue.blocks[index];
    queue.blocks[index] = queue.blocks[--queue.count];
    done = true;
  }
  pthread_mutex_unlock(&queue.lock);
  return done;
}

static size_t some_size(uint64_t *state) {
  const uint64_t kind = random_next(state) % 20;
  const size_t most = kind < 10 ? 4 * KIB : kind < 16 ? 200 * KIB : kind < 19 ? 2 * MIB : 9 * MIB;
  return 4 * (1 + random_next(state) % (most / 4));
}

/* Returns false if out of memory and `may_fail` is set. */
static bool make(block *made, uint64_t *state) {
  void *pointer = NULL;
  made->device = (int32_t)(random_next(state) % (uint64_t)devices);
  made->stream = streams[made->device][random_next(state) % STREAMS];
  made->bytes = some_size(state);
  made->word = (uint32_t)random_next(state);
  const plinth_status_t status =
      plinth_caching_allocator_alloc(made->bytes, made->device, made->stream, &pointer);
  if (may_fail && status != PLINTH_OK) {
    CHECK_STATUS(status, PLINTH_ERROR_OUT_OF_MEMORY);
    __atomic_add_fetch(&failures, 1, __ATOMIC_SEQ_CST);
    return false;
  }
  CHECK_STATUS(status, PLINTH_OK);
  made->memory = (unsigned char *)pointer;
  CHECK_OK(plinth_set_device(made->device));
  fill_words(made->memory, made->word, made->bytes, made->stream);
  return true;
}

static size_t checked_bytes(const block *checked) { return checked->bytes < SLOT ? checked->bytes : SLOT; }

/* Copies a block out in its own stream, frees it, and checks the copy. */
static void check_and_free(const block *checked, unsigned char *slot) {
  const size_t part = checked_bytes(checked);
  CHECK_OK(plinth_set_device(checked->device));
  CHECK_OK(plinth_memcpy(slot, checked->memory + (checked->bytes - part), part, checked->stream));
  /* Another thread may get the block now, but the copy is queued in its stream before that. */
  release(checked->memory);
  CHECK_OK(plinth_stream_synchronize(checked->stream));
  CHECK_EQ(words_mismatch(slot, checked->word, part), part);
}

/* The same in another stream, which record_stream must announce. */
static void check_in_other_stream_and_free(const block *checked, unsigned char *slot, uint64_t *state) {
  const size_t part = checked_bytes(checked);
  plinth_stream_t other = streams[checked->device][random_next(state) % STREAMS];
  CHECK_OK(plinth_set_device(checked->device));
  CHECK_OK(plinth_stream_wait_stream(other, checked->stream));
  CHECK_OK(plinth_memcpy(slot, checked->memory + (checked->bytes - part), part, other));
  CHECK_OK(plinth_record_stream(checked->memory, other));
  release(checked->memory);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_EQ(words_mismatch(slot, checked->word, part), part);
}

static void *stress(void *context) {
  uint64_t state = (uint64_t)*(int *)context * 1000 + (uint64_t)rounds;
  unsigned char *slot = (unsigned char *)pinned_memory(SLOT);
  block own_blocks[MAX_OWN_BLOCKS];
  block removed;
  int count = 0;
  for (int round = 0; round < rounds; round++) {
    const uint64_t action = random_next(&state) % 16;
    if (count < MAX_OWN_BLOCKS && action < 8 && make(&own_blocks[count], &state)) {
      count++;
    } else if (action < 10 && count > 0 && push(&own_blocks[count - 1])) {
      count--;
    } else if (action < 12 && pop(&removed, random_next(&state))) {
      check_and_free(&removed, slot);
    } else if (action == 12 && count > 0) {
      check_in_other_stream_and_free(&own_blocks[--count], slot, &state);
    } else if (action == 13 && empty_caches) {
      CHECK_OK(plinth_empty_cache());
    } else if (count > 0) {
      const uint64_t index = random_next(&state) % (uint64_t)count;
      removed = own_blocks[index];
      own_blocks[index] = own_blocks[--count];
      check_and_free(&removed, slot);
    }
  }
  while (count > 0) {
    check_and_free(&own_blocks[--count], slot);
  }
  CHECK_OK(plinth_pinned_free(slot));
  return NULL;
}

static void run_phases(int phases, int rounds_of_each) {
  const char *soak = getenv("PLINTH_TEST_SOAK");
  const int times = soak != NULL && atoi(soak) > 0 ? atoi(soak) : 1;
  unsigned char *slot = (unsigned char *)pinned_memory(SLOT);
  block remaining;
  devices = device_count() < DEVICES ? device_count() : DEVICES;
  for (int32_t device = 0; device < devices; device++) {
    for (int index = 0; index < STREAMS; index++) {
      streams[device][index] = index == 0 ? NULL : stream_on(device);
    }
  }
  for (int phase = 0; phase < phases * times; phase++) {
    size_t sum = 0;
    size_t counted = 0;
    rounds = rounds_of_each + phase;
    run_threads(THREADS, stress);
    expect_sound();
    for (int index = 0; index < queue.count; index++) {
      sum += rounded(queue.blocks[index].bytes);
    }
    for (int32_t device = 0; device < devices; device++) {
      counted += allocated(device);
    }
    CHECK_EQ(counted, sum);
  }
  while (pop(&remaining, 0)) {
    check_and_free(&remaining, slot);
  }
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_pinned_free(slot));
  expect_nothing_left();
}

TEST(threads_allocate_exchange_and_free) { run_phases(3, 300); }

TEST(threads_empty_the_cache_too) {
  empty_caches = true;
  run_phases(2, 150);
}

TEST(threads_compete_for_too_little_memory) {
  may_fail = true;
  for (int32_t device = 0; device < device_count(); device++) {
    limit_memory(40 * MIB, device);
  }
  run_phases(2, 250);
  CHECK(max_reserved(0) <= 41 * MIB);
}

static void *allocate_and_free(void *context) {
  const int thread = *(int *)context;
  plinth_stream_t stream = stream_on(0);
  uint64_t state = (uint64_t)thread;
  for (int round = 0; round < 3000; round++) {
    void *memory = alloc_on(1 + random_next(&state) % (64 * KIB), 0, thread % 2 ? stream : NULL);
    release(memory);
  }
  return NULL;
}

TEST(threads_allocate_and_free_at_once) {
  run_threads(16, allocate_and_free);
  expect_nothing_left();
}
