/*
 * Memory debugging finds each kind of error. A fault on a GPU ends the context, so each test has its own
 * process. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; expects what only a fresh process has */
#include "allocating.h"
#include "drawing.h"

static void debug(const char *options) { CHECK(setenv("PLINTH_MEMORY_DEBUG", options, 1) == 0); }

/* Writes bytes by a kernel, whose addresses no driver call checks. */
static void write_by_kernel(void *memory, size_t bytes, plinth_stream_t stream) {
  tensor whole;
  CHECK_OK(plinth_uniform(row(&whole, memory, F32, (int64_t)(bytes / 4)), 0, 1, NULL, stream));
}

static void expect_fault(plinth_stream_t stream) {
  CHECK_STATUS(plinth_stream_synchronize(stream), PLINTH_ERROR_ILLEGAL_ADDRESS);
}

/* Loads the kernel before the error. */
static void load_kernel(void) {
  void *memory = alloc_on(MIB, 0, NULL);
  write_by_kernel(memory, MIB, NULL);
  CHECK_OK(plinth_stream_synchronize(NULL));
  release(memory);
}

TEST(debugging_is_a_backend) {
  const char *name = NULL;
  debug("guard,unmap,fill");
  CHECK_OK(plinth_get_allocator_backend(&name));
  CHECK_TEXT(name, "debug");
}

TEST(options_are_checked) {
  void *memory = UNTOUCHED_POINTER;
  debug("guard,gard");
  CHECK_STATUS(plinth_caching_allocator_alloc(KIB, 0, NULL, &memory), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_MEMORY_DEBUG");
  CHECK_MESSAGE("gard");
  CHECK_SAME(memory, UNTOUCHED_POINTER);
}

static void use_correctly(const char *options) {
  static const size_t sizes[] = {1, 511, 512, 513, 100000, 2 * MIB, 2 * MIB + 1, 5 * MIB};
  plinth_stream_t stream = stream_on(0);
  plinth_stream_t other = stream_on(0);
  unsigned char *blocks[8];
  debug(options);
  for (int round = 0; round < 3; round++) {
    for (int index = 0; index < 8; index++) {
      blocks[index] = alloc_on(sizes[index], 0, stream);
      CHECK_OK(plinth_memset(blocks[index], round, sizes[index], stream));
    }
    for (int index = 0; index < 8; index++) {
      CHECK_OK(plinth_record_stream(blocks[index], other));
      release(blocks[index]);
      CHECK_STATUS(plinth_caching_allocator_delete(blocks[index]), PLINTH_ERROR_INVALID_POINTER);
    }
  }
  if (device_count() > 1) {
    release(alloc_on(MIB, 1, NULL));
  }
  expect_nothing_left();
}

TEST(correct_programs_have_no_errors) { use_correctly("guard,unmap,fill"); }
TEST(correct_programs_with_guard_only) { use_correctly("guard"); }
TEST(correct_programs_with_unmap_only) { use_correctly("unmap"); }
TEST(correct_programs_with_fill_only) { use_correctly("fill"); }

TEST(memory_has_no_handle_of_cuda) {
  unsigned char handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset = 0;
  debug("guard");
  void *memory = alloc_on(MIB, 0, NULL);
  CHECK_STATUS(plinth_ipc_mem_handle(memory, handle, &offset), PLINTH_ERROR_IPC_NOT_SHAREABLE);
  CHECK_MESSAGE("only memory of plinth_device_malloc");
  release(memory);
}

TEST(a_write_far_past_the_end_faults) {
  debug("guard");
  load_kernel();
  unsigned char *memory = alloc_on(1000, 0, NULL);
  write_by_kernel(memory, 1024 + 4 * KIB, NULL);
  expect_fault(NULL);
}

/* Two places that messages name. */
__attribute__((noinline)) static void *make_block(size_t bytes, plinth_stream_t stream) {
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(bytes, 0, stream, &memory));
  return memory;
}

__attribute__((noinline)) static plinth_status_t free_block(void *memory) {
  const plinth_status_t status = plinth_caching_allocator_delete(memory);
  __asm__ volatile("" ::: "memory"); /* no tail call */
  return status;
}

TEST(a_write_just_past_the_end_is_found) {
  debug("guard");
  unsigned char *memory = make_block(1000, NULL);
  CHECK_OK(plinth_memset(memory, 1, 1003, NULL));
  CHECK_STATUS(free_block(memory), PLINTH_ERROR_MEMORY_CORRUPTED);
  CHECK_MESSAGE("0 bytes behind its end");
  CHECK_MESSAGE("1000 bytes");
  CHECK_MESSAGE("; it was allocated in make_block (");
  CHECK_MESSAGE("mem_debug.c:");
  CHECK_MESSAGE(" and freed in free_block (");
  /* It was freed nevertheless. */
  expect_nothing_left();
}

TEST(a_write_before_the_beginning_is_found) {
  debug("guard");
  unsigned char *memory = alloc_on(4096, 0, NULL);
  CHECK_OK(plinth_memory_set_name(memory, "weights"));
  CHECK_OK(plinth_memset(memory - 8, 1, 16, NULL));
  CHECK_STATUS(plinth_caching_allocator_delete(memory), PLINTH_ERROR_MEMORY_CORRUPTED);
  CHECK_MESSAGE(" (\"weights\") of ");
  CHECK_MESSAGE("8 bytes before its beginning");
  expect_nothing_left();
}

TEST(a_late_use_faults) {
  debug("unmap");
  plinth_stream_t other = stream_on(0);
  load_kernel();
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  gate *shut = gate_shut(other);
  /* This use is not recorded. */
  write_by_kernel(memory, MIB, other);
  release(memory);
  gate_open(shut);
  expect_fault(other);
}

TEST(a_recorded_late_use_does_not_fault) {
  debug("guard,unmap,fill");
  plinth_stream_t other = stream_on(0);
  load_kernel();
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  gate *shut = gate_shut(other);
  write_by_kernel(memory, MIB, other);
  CHECK_OK(plinth_record_stream(memory, other));
  pthread_t opener = gate_open_soon(shut);
  release(memory);
  CHECK(gate_is_open(shut));
  CHECK(pthread_join(opener, NULL) == 0);
  CHECK_OK(plinth_stream_synchronize(other));
  expect_nothing_left();
}

TEST(addresses_are_not_used_again_soon) {
  enum { ROUNDS = 50 };
  unsigned char *seen[ROUNDS];
  debug("unmap");
  for (int round = 0; round < ROUNDS; round++) {
    seen[round] = alloc_on(MIB, 0, NULL);
    for (int before = 0; before < round; before++) {
      CHECK(!overlap(seen[before], MIB, seen[round], MIB));
    }
    release(seen[round]);
  }
  expect_nothing_left();
}

TEST(addresses_are_reused_eventually) {
  CHECK(setenv("PLINTH_ALLOC_CONF", "debug:[unmap],debug_quarantine_mb:64", 1) == 0);
  for (int round = 0; round < 200; round++) {
    release(alloc_on(MIB, 0, NULL));
  }
  if (on_host_device()) {
    /* Each takes 4 MiB: a block and its guard. */
    CHECK(host_usage().reservations <= 20);
  }
  expect_nothing_left();
}

TEST(new_memory_is_filled_with_nan) {
  debug("fill");
  unsigned char host[3000];
  unsigned char *memory = alloc_on(sizeof host, 0, NULL);
  memset(host, 0, sizeof host);
  fetch(host, memory, sizeof host);
  for (size_t index = 0; index < sizeof host; index++) {
    CHECK_EQ(host[index], 0xFF);
  }
  release(memory);
  expect_nothing_left();
}

TEST(a_late_write_is_found_without_a_fault) {
  debug("fill");
  plinth_stream_t other = stream_on(0);
  load_kernel();
  unsigned char *memory = make_block(MIB, NULL);
  CHECK_OK(plinth_memory_set_name(memory, "weights"));
  gate *shut = gate_shut(other);
  CHECK_OK(plinth_memset(memory + 1000, 7, 3, other));
  CHECK_OK(free_block(memory));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(other));
  CHECK_STATUS(plinth_empty_cache(), PLINTH_ERROR_MEMORY_CORRUPTED);
  CHECK_MESSAGE(" (\"weights\") of ");
  CHECK_MESSAGE("after it was freed");
  CHECK_MESSAGE("byte 1000 is now 0x07; it was allocated in make_block (");
  CHECK_MESSAGE(" and freed in free_block (");
  expect_nothing_left();
}

TEST(a_shortage_frees_quarantined_memory) {
  debug("fill");
  limit_memory(64 * MIB, 0);
  for (int round = 0; round < 40; round++) {
    release(alloc_on(20 * MIB, 0, NULL));
  }
  expect_nothing_left();
}

TEST(captures_are_refused) {
  debug("guard");
  expect_no_memory_for_captures("cannot allocate in a stream that is capturing");
}

/* The driver refuses a copy or a fill past the end with an error that names neither the block nor its size. */
TEST(a_call_past_the_end_of_a_guarded_block_names_it) {
  plinth_stream_t stream = stream_on(0);
  char place[128];
  debug("guard");
  unsigned char *block = make_block(4 * KIB, stream);
  void *pinned = pinned_memory(8 * KIB);
  snprintf(place, sizeof place, "8.00 KiB from byte 0 of a block of 4.00 KiB at %#zx, of which 4.00 KiB lie past its end",
           (size_t)block);
  CHECK_STATUS(plinth_memset(block, 1, 8 * KIB, stream), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("filling 8.00 KiB: the destination is ");
  CHECK_MESSAGE(place);
  CHECK_MESSAGE("; the block was allocated in make_block (");
  CHECK_STATUS(plinth_memcpy_2d(block, KIB, pinned, KIB, KIB, 8, stream), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("copying 8 rows of 1.00 KiB: the destination is ");
  CHECK_MESSAGE(place);
  CHECK_STATUS(plinth_memcpy(block, pinned, 8 * KIB, stream), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("copying 8.00 KiB: the destination is ");
  CHECK_MESSAGE(place);
  CHECK_STATUS(plinth_memcpy(pinned, block + KIB, 4 * KIB, stream), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the source is 4.00 KiB from byte 1024 of a block of 4.00 KiB");
  CHECK_STATUS(plinth_copy(pinned, block, 8 * KIB, true), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the source is 8.00 KiB from byte 0");
  CHECK_STATUS(plinth_caching_allocator_delete(block + 512), PLINTH_ERROR_INVALID_POINTER);
  CHECK_MESSAGE("it is byte 512 of a live block of 4.00 KiB");
  CHECK_MESSAGE("; the block was allocated in make_block (");
  CHECK_OK(plinth_memset(block, 1, 4 * KIB, stream));
  CHECK_OK(plinth_stream_synchronize(stream));
  release(block);
  CHECK_OK(plinth_pinned_free(pinned));
}
