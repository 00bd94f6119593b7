/* The caching allocator: allocation, deletion and refused calls. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "allocating.h"
#include "driver.h"

static const size_t sizes[] = {1,           2,       511,         512,     513,      1024,     4095,
                               4097,        64 * KIB, MIB - 1,    MIB,     MIB + 1,  2 * MIB - 1, 2 * MIB,
                               2 * MIB + 1, 9 * MIB, 10 * MIB,    20 * MIB, 21 * MIB, 33 * MIB + 7};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static int32_t device_of(const void *pointer) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_device_of(pointer, &device));
  return device;
}

static void expect_refused(void *pointer) {
  char address[32];
  const size_t before = allocated(0);
  snprintf(address, sizeof address, "%#llx", (unsigned long long)(uintptr_t)pointer);
  CHECK_STATUS(plinth_caching_allocator_delete(pointer), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE(address);
  CHECK_EQ(plinth_last_driver_error(), 0);
  CHECK_EQ(allocated(0), before);
}

TEST(an_allocation_of_zero_bytes_is_null) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_caching_allocator_alloc(0, 0, NULL, &pointer));
  CHECK(pointer == NULL);
  pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_caching_allocator_alloc(0, -1, stream_on(0), &pointer));
  CHECK(pointer == NULL);
  CHECK_EQ(allocated(0), 0);
  CHECK_EQ(reserved(0), 0);
}

TEST(deleting_null_does_nothing) {
  CHECK_OK(plinth_caching_allocator_delete(NULL));
  void *memory = alloc_on(KIB, 0, NULL);
  CHECK_OK(plinth_caching_allocator_delete(NULL));
  CHECK_EQ(allocated(0), KIB);
  release(memory);
}

TEST(emptying_the_cache_before_the_first_allocation_does_nothing) {
  CHECK_OK(plinth_empty_cache());
  expect_sound();
  CHECK_OK(plinth_empty_cache());
  CHECK_EQ(reserved(0), 0);
}

TEST(outputs_must_not_be_null) {
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_caching_allocator_alloc(0, 0, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_allocated(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_max_memory_allocated(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_reserved(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_max_memory_reserved(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_summary(0, false, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_get_per_process_memory_fraction(0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_EQ(allocated(0), 0);
}

TEST(an_invalid_device_is_refused) {
  const int32_t devices[] = {-2, INT32_MIN, INT32_MAX, device_count(), 256};
  for (int index = 0; index < 5; index++) {
    const int32_t device = devices[index];
    void *pointer = UNTOUCHED_POINTER;
    size_t bytes = UNTOUCHED;
    char *text = (char *)UNTOUCHED_POINTER;
    double fraction = 0.25;
    CHECK_STATUS(plinth_caching_allocator_alloc(KIB, device, NULL, &pointer), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_caching_allocator_alloc(KIB, device, PLINTH_STREAM_CURRENT, &pointer), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_memory_allocated(device, &bytes), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_max_memory_allocated(device, &bytes), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_memory_reserved(device, &bytes), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_max_memory_reserved(device, &bytes), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_reset_peak_memory_stats(device), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_memory_summary(device, true, &text), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_set_per_process_memory_fraction(0.5, device), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_STATUS(plinth_get_per_process_memory_fraction(device, &fraction), PLINTH_ERROR_INVALID_DEVICE);
    CHECK_SAME(pointer, UNTOUCHED_POINTER);
    CHECK_SAME(text, UNTOUCHED_POINTER);
    CHECK_EQ(bytes, UNTOUCHED);
    CHECK(fraction == 0.25);
  }
}

TEST(an_invalid_stream_is_refused) {
  int on_stack = 0;
  void *pointer = UNTOUCHED_POINTER;
  plinth_stream_t wrong[] = {(plinth_stream_t)(void *)&on_stack, (plinth_stream_t)(uintptr_t)3,
                             (plinth_stream_t)UINTPTR_MAX};
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, wrong[index], &pointer), PLINTH_ERROR_INVALID_HANDLE);
  }
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_EQ(allocated(0), 0);
}

TEST(a_stream_of_another_device_is_refused) {
  need_devices(2);
  void *pointer = UNTOUCHED_POINTER;
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, stream_on(1), &pointer), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, -1, stream_on(1), &pointer), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
  CHECK_EQ(allocated(0) + allocated(1), 0);
}

TEST(memory_is_on_its_device_and_keeps_all_bytes) {
  unsigned char *host = (unsigned char *)pinned_memory(34 * MIB);
  unsigned char *back = (unsigned char *)pinned_memory(34 * MIB);
  for (int32_t device = 0; device < device_count(); device++) {
    for (int index = 0; index < SIZES; index++) {
      const size_t bytes = sizes[index];
      plinth_stream_t stream = index % 2 ? stream_on(device) : NULL;
      int32_t current = UNTOUCHED;
      unsigned char *memory = alloc_on(bytes, device, stream);
      CHECK_EQ(device_of(memory), device);
      CHECK_EQ(device_of(memory + bytes - 1), device);
      CHECK_OK(plinth_current_device(&current));
      CHECK_EQ(current, 0);
      pattern_fill(host, bytes, (unsigned)index);
      put(memory, host, bytes);
      memset(back, 0, bytes);
      fetch(back, memory, bytes);
      CHECK(memcmp(host, back, bytes) == 0);
      release(memory);
    }
  }
  CHECK_OK(plinth_pinned_free(host));
  CHECK_OK(plinth_pinned_free(back));
  expect_nothing_left();
}

TEST(minus_one_is_the_current_device) {
  need_devices(2);
  CHECK_OK(plinth_set_device(1));
  void *memory = alloc_on(MIB, -1, NULL);
  CHECK_EQ(device_of(memory), 1);
  CHECK_EQ(allocated(1), MIB);
  CHECK_EQ(allocated(-1), MIB);
  CHECK_EQ(allocated(0), 0);
  release(memory);
}

TEST(a_request_that_is_too_large_is_refused) {
  const size_t huge[] = {(size_t)1 << 45, (size_t)1 << 60,  SIZE_MAX / 2, SIZE_MAX / 2 + 1,
                         SIZE_MAX - MIB,  SIZE_MAX - UNIT, SIZE_MAX - 1, SIZE_MAX};
  void *memory = alloc_on(MIB, 0, NULL);
  for (int32_t device = -1; device < device_count(); device++) {
    for (int index = 0; index < (int)(sizeof huge / sizeof huge[0]); index++) {
      void *pointer = UNTOUCHED_POINTER;
      CHECK_STATUS(plinth_caching_allocator_alloc(huge[index], device, NULL, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
      CHECK_MESSAGE("allocate");
      CHECK_SAME(pointer, UNTOUCHED_POINTER);
      CHECK_EQ(allocated(0), MIB);
      expect_sound();
    }
  }
  /* Live memory stays valid, and the allocator works. */
  put(memory, memory, 0);
  void *another = alloc_on(MIB, 0, NULL);
  release(another);
  release(memory);
  expect_nothing_left();
}

TEST(only_memory_of_the_allocator_can_be_deleted) {
  int on_stack = 0;
  void *heap = pageable_memory(KIB);
  void *direct = device_memory(MIB, 0);
  void *pinned = pinned_memory(MIB);
  uint64_t state = 9;
  expect_refused(&on_stack);
  expect_refused(heap);
  expect_refused(direct);
  expect_refused(pinned);
  expect_refused((void *)(uintptr_t)1);
  expect_refused((void *)UINTPTR_MAX);
  for (int round = 0; round < 200; round++) {
    expect_refused((void *)(uintptr_t)(random_next(&state) >> (round % 40) | 1));
  }
  CHECK_OK(plinth_device_free(direct));
  CHECK_OK(plinth_pinned_free(pinned));
  free(heap);
}

TEST(memory_is_deleted_by_its_first_address) {
  enum { BYTES = 5 * MIB };
  const size_t offsets[] = {1, 8, 256, 512, 513, 4096, MIB, 2 * MIB, BYTES - 512, BYTES - 1, BYTES};
  unsigned char *host = (unsigned char *)pinned_memory(BYTES);
  unsigned char *memory = alloc_on(BYTES, 0, NULL);
  pattern_fill(host, BYTES, 3);
  put(memory, host, BYTES);
  for (int index = 0; index < (int)(sizeof offsets / sizeof offsets[0]); index++) {
    expect_refused(memory + offsets[index]);
  }
  expect_refused(memory - 1);
  expect_refused(memory - 512);
  memset(host, 0, BYTES);
  fetch(host, memory, BYTES);
  CHECK_EQ(pattern_mismatch(host, BYTES, 3), BYTES);
  CHECK_EQ(allocated(0), BYTES);
  release(memory);
  CHECK_OK(plinth_pinned_free(host));
  expect_nothing_left();
}

TEST(memory_is_deleted_once) {
  const size_t sizes_to_try[] = {1, 4096, 3 * MIB, 40 * MIB};
  for (int index = 0; index < 4; index++) {
    void *live = alloc_on(sizes_to_try[index], 0, NULL);
    void *memory = alloc_on(sizes_to_try[index], 0, NULL);
    release(memory);
    expect_refused(memory);
    expect_refused(memory);
    CHECK_OK(plinth_empty_cache());
    expect_refused(memory);
    release(live);
    CHECK_OK(plinth_empty_cache());
    expect_refused(live);
    expect_refused(memory);
  }
  expect_nothing_left();
}

TEST(each_kind_of_memory_has_its_own_free) {
  void *memory = alloc_on(20 * MIB, 0, NULL);
  CHECK_STATUS(plinth_device_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_pinned_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_memset(memory, 1, 20 * MIB, NULL));
  CHECK_OK(plinth_stream_synchronize(NULL));
  release(memory);
  expect_nothing_left();
}

static void *blocks_to_delete[8];

static void *delete_in_thread(void *context) {
  int32_t device = UNTOUCHED;
  release(blocks_to_delete[*(int *)context]);
  CHECK_STATUS(plinth_caching_allocator_delete(blocks_to_delete[*(int *)context]), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_current_device(&device));
  CHECK_EQ(device, 0);
  return NULL;
}

TEST(any_thread_may_delete) {
  for (int round = 0; round < 20; round++) {
    for (int index = 0; index < 8; index++) {
      blocks_to_delete[index] = alloc_on(MIB + (size_t)index, index % device_count(), NULL);
    }
    run_threads(8, delete_in_thread);
  }
  expect_nothing_left();
}

static void *shared_block;
static int deletions;

static void *delete_shared_block(void *context) {
  (void)context;
  const plinth_status_t status = plinth_caching_allocator_delete(shared_block);
  if (status == PLINTH_OK) {
    __atomic_add_fetch(&deletions, 1, __ATOMIC_SEQ_CST);
  } else {
    CHECK_STATUS(status, PLINTH_ERROR_INVALID_POINTER);
  }
  return NULL;
}

TEST(if_many_threads_delete_a_block_one_succeeds) {
  for (int round = 1; round <= 50; round++) {
    shared_block = alloc_on(KIB, 0, NULL);
    run_threads(8, delete_shared_block);
    CHECK_EQ(deletions, round);
    CHECK_EQ(allocated(0), 0);
  }
  expect_nothing_left();
}

TEST(memory_is_deleted_whichever_device_is_current) {
  need_devices(2);
  plinth_stream_t stream = stream_on(1);
  void *memory = alloc_on(3 * MIB, 1, stream);
  int32_t current = UNTOUCHED;
  release(memory);
  CHECK_OK(plinth_current_device(&current));
  CHECK_EQ(current, 0);
  CHECK_EQ(allocated(1), 0);
  CHECK_OK(plinth_set_device(1));
  memory = alloc_on(3 * MIB, 0, NULL);
  CHECK_EQ(device_of(memory), 0);
  release(memory);
  CHECK_OK(plinth_current_device(&current));
  CHECK_EQ(current, 1);
  expect_nothing_left();
}

enum { MANY = 300 };

typedef struct block {
  unsigned char *memory;
  size_t bytes;
  uint32_t word;
} block;

static int by_address(const void *one, const void *other) {
  const uintptr_t first = (uintptr_t)((const block *)one)->memory;
  const uintptr_t second = (uintptr_t)((const block *)other)->memory;
  return first < second ? -1 : first > second;
}

static void expect_disjoint(const block *blocks) {
  block sorted[MANY];
  memcpy(sorted, blocks, sizeof sorted);
  qsort(sorted, MANY, sizeof sorted[0], by_address);
  for (int index = 1; index < MANY; index++) {
    CHECK(sorted[index - 1].memory + rounded(sorted[index - 1].bytes) <= sorted[index].memory);
  }
}

static size_t random_size(uint64_t *state) {
  const uint64_t kind = random_next(state) % 10;
  const size_t most = kind < 5 ? 8 * KIB : kind < 9 ? MIB : 6 * MIB;
  return 4 * (1 + random_next(state) % (most / 4));
}

static void fill_block(block *filled, uint64_t *state, plinth_stream_t stream) {
  filled->bytes = random_size(state);
  filled->memory = alloc_on(filled->bytes, 0, stream);
  filled->word = (uint32_t)random_next(state);
  fill_words(filled->memory, filled->word, filled->bytes, stream);
}

TEST(live_blocks_do_not_overlap) {
  block blocks[MANY];
  uint64_t state = 17;
  plinth_stream_t stream = stream_on(0);
  void *pinned = pinned_memory(6 * MIB);
  size_t sum = 0;
  for (int index = 0; index < MANY; index++) {
    fill_block(&blocks[index], &state, stream);
    sum += rounded(blocks[index].bytes);
  }
  CHECK_EQ(allocated(0), sum);
  expect_disjoint(blocks);
  /* Half of the blocks are replaced by others of other sizes. The rest keep their contents. */
  for (int round = 0; round < 3; round++) {
    for (int index = 0; index < MANY; index++) {
      if (random_next(&state) % 2 == 0) {
        CHECK(has_words(blocks[index].memory, blocks[index].word, blocks[index].bytes, stream, pinned));
        sum -= rounded(blocks[index].bytes);
        release(blocks[index].memory);
        fill_block(&blocks[index], &state, stream);
        sum += rounded(blocks[index].bytes);
      }
    }
    CHECK_EQ(allocated(0), sum);
    expect_disjoint(blocks);
    expect_sound();
  }
  for (int index = 0; index < MANY; index++) {
    CHECK(has_words(blocks[index].memory, blocks[index].word, blocks[index].bytes, stream, pinned));
    release(blocks[index].memory);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(a_deleted_block_is_reused_at_once_in_its_stream) {
  for (int index = 0; index < SIZES; index++) {
    plinth_stream_t stream = stream_on(0);
    unsigned char *memory = alloc_on(sizes[index], 0, stream);
    const size_t held = reserved(0);
    gate *shut = hold(stream);
    CHECK_OK(plinth_memset(memory, 1, sizes[index], stream));
    /* The stream still uses the block, but later work in the same stream runs after that. */
    release(memory);
    CHECK_SAME(alloc_on(sizes[index], 0, stream), memory);
    CHECK_EQ(reserved(0), held);
    release(memory);
    expect_held(shut);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_OK(plinth_empty_cache());
  }
  expect_nothing_left();
}

TEST(reuse_of_cached_blocks_makes_no_driver_calls) {
  need_host_device();
  static const char *const calls[] = {"cuMemAlloc",     "cuMemFree",    "cuMemCreate",   "cuMemMap",
                                      "cuMemUnmap",     "cuMemRelease", "cuMemSetAccess", "cuMemGetInfo",
                                      "cuEventRecord",  "cuEventQuery", "cuStreamSynchronize"};
  enum { CALLS = sizeof calls / sizeof calls[0] };
  uint64_t before[CALLS];
  uint64_t after = 0;
  plinth_stream_t stream = stream_on(0);
  for (int index = 0; index < 3 * SIZES; index++) {
    release(alloc_on(sizes[index % SIZES], 0, stream));
  }
  for (int index = 0; index < CALLS; index++) {
    CHECK_OK(plinth_driver_call_count(calls[index], &before[index]));
  }
  for (int round = 0; round < 100; round++) {
    for (int index = 0; index < SIZES; index++) {
      release(alloc_on(sizes[index], 0, stream));
    }
  }
  for (int index = 0; index < CALLS; index++) {
    CHECK_OK(plinth_driver_call_count(calls[index], &after));
    if (after != before[index]) {
      fprintf(stderr, "%s was called %d times\n", calls[index], (int)(after - before[index]));
    }
    CHECK_EQ(after, before[index]);
  }
}

/* While a stream has pending work on a deleted block, no other stream gets the block. */
TEST(a_deleted_block_stays_with_its_stream) {
  const size_t sizes_to_try[] = {4 * KIB, MIB, 8 * MIB, 48 * MIB};
  void *pinned = pinned_memory(48 * MIB);
  for (int index = 0; index < 4; index++) {
    const size_t bytes = sizes_to_try[index];
    plinth_stream_t first = stream_on(0);
    plinth_stream_t second = stream_on(0);
    unsigned char *memory = alloc_on(bytes, 0, first);
    gate *shut = hold(first);
    fill_words(memory, 0x11111111, bytes, first);
    release(memory);
    unsigned char *other = alloc_on(bytes, 0, second);
    CHECK(!overlap(memory, bytes, other, bytes));
    fill_words(other, 0x22222222, bytes, second);
    CHECK(has_words(other, 0x22222222, bytes, second, pinned));
    expect_held(shut);
    gate_open(shut);
    CHECK_OK(plinth_stream_synchronize(first));
    CHECK(has_words(other, 0x22222222, bytes, second, pinned));
    release(other);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

TEST(memory_stays_valid_while_the_cache_is_emptied) {
  enum { COUNT = 60 };
  block blocks[COUNT];
  uint64_t state = 23;
  void *pinned = pinned_memory(6 * MIB);
  plinth_stream_t stream = stream_on(0);
  for (int index = 0; index < COUNT; index++) {
    fill_block(&blocks[index], &state, stream);
  }
  for (int index = 0; index < COUNT; index += 2) {
    release(blocks[index].memory);
  }
  const size_t held = reserved(0);
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) <= held);
  CHECK(reserved(0) >= allocated(0));
  expect_sound();
  for (int index = 1; index < COUNT; index += 2) {
    CHECK(has_words(blocks[index].memory, blocks[index].word, blocks[index].bytes, stream, pinned));
    release(blocks[index].memory);
  }
  CHECK_OK(plinth_pinned_free(pinned));
  expect_nothing_left();
}

/* Work that was queued before the block was deleted must still be able to use it when the cache is emptied. */
TEST(emptying_the_cache_waits_for_queued_work) {
  plinth_stream_t stream = stream_on(0);
  void *memory = alloc_on(24 * MIB, 0, stream);
  gate *shut = gate_shut(stream);
  CHECK_OK(plinth_memset(memory, 7, 24 * MIB, stream));
  release(memory);
  pthread_t opener = gate_open_soon(shut);
  CHECK_OK(plinth_empty_cache());
  pthread_join(opener, NULL);
  CHECK_OK(plinth_stream_synchronize(stream));
  expect_nothing_left();
}

TEST(every_kind_of_stream_can_allocate) {
  plinth_stream_t streams[] = {NULL, (plinth_stream_t)(uintptr_t)1, (plinth_stream_t)(uintptr_t)2, stream_on(0),
                               known_foreign_stream(0, CU_STREAM_NON_BLOCKING)};
  void *memory[5];
  for (int index = 0; index < 5; index++) {
    memory[index] = alloc_on(MIB, 0, streams[index]);
    CHECK_OK(plinth_memset(memory[index], 1, MIB, streams[index]));
  }
  CHECK_EQ(allocated(0), 5 * MIB);
  for (int index = 0; index < 5; index++) {
    release(memory[index]);
  }
  expect_nothing_left();
}

TEST(the_default_stream_is_the_one_of_the_memorys_device) {
  need_devices(2);
  gate *shut = hold(NULL);
  unsigned char *memory = alloc_on(MIB, 1, NULL);
  release(memory);
  CHECK_SAME(alloc_on(MIB, 1, NULL), memory);
  CHECK_EQ(device_of(memory), 1);
  release(memory);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_synchronize(0));
  expect_nothing_left();
}

TEST(the_default_stream_has_two_handles) {
  plinth_stream_t legacy = (plinth_stream_t)(uintptr_t)1;
  void *memory = alloc_on(3 * MIB, 0, NULL);
  CHECK_OK(plinth_record_stream(memory, legacy));
  release(memory);
  CHECK_SAME(alloc_on(3 * MIB, 0, legacy), memory);
  release(memory);
  expect_nothing_left();
}

static unsigned char *main_thread_memory;

static void *allocate_on_per_thread_stream(void *context) {
  (void)context;
  unsigned char *memory = alloc_on(3 * MIB, 0, (plinth_stream_t)(uintptr_t)2);
  CHECK(!overlap(memory, 3 * MIB, main_thread_memory, 3 * MIB));
  release(memory);
  return NULL;
}

/* The per-thread handle is a different stream in every thread. */
TEST(each_thread_has_its_own_default_stream) {
  plinth_stream_t own = (plinth_stream_t)(uintptr_t)2;
  main_thread_memory = alloc_on(3 * MIB, 0, own);
  gate *shut = hold(own);
  CHECK_OK(plinth_memset(main_thread_memory, 1, 3 * MIB, own));
  release(main_thread_memory);
  run_threads(1, allocate_on_per_thread_stream);
  CHECK_SAME(alloc_on(3 * MIB, 0, own), main_thread_memory);
  release(main_thread_memory);
  expect_held(shut);
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(own));
  expect_nothing_left();
}

TEST(memory_of_destroyed_streams_is_released) {
  DRIVER(driver_stream_destroy, destroy, "cuStreamDestroy");
  const int rounds = some_rounds(300);
  for (int round = 0; round < rounds; round++) {
    plinth_stream_t stream = known_foreign_stream(0, CU_STREAM_NON_BLOCKING);
    void *memory = alloc_on(3 * MIB, 0, stream);
    CHECK_OK(plinth_memset(memory, 1, 3 * MIB, stream));
    release(memory);
    CHECK_OK(plinth_stream_synchronize(stream));
    CHECK_OK(plinth_empty_cache());
    CHECK_EQ(reserved(0), 0);
    CHECK_EQ(destroy(stream), CUDA_SUCCESS);
  }
  if (on_host_device()) {
    CHECK(host_usage().reservations < 1000);
  }
  expect_nothing_left();
}
