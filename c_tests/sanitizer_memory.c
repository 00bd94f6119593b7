/*
 * Small programs, half of them with a race. The stream sanitizer must report exactly the racing pair of a racy program and
 * nothing for a clean one. These are about memory and operations on it. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* alone: all; leaves memory */
#include "sanitizer_programs.h"

/* The allocator. */

TEST(racy_use_after_free) {
  begin();
  release(memory);
  kernel("sum", READ, memory + 512, 1024, a);
  USE_AFTER_FREE(memory + 512, 1024, reads("sum", a));
}

TEST(clean_free_behind_the_work_of_its_stream) {
  begin();
  set(memory, a);
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  set(again, a);
  CLEAN();
}

TEST(racy_block_reused_while_a_side_stream_reads_it) {
  begin();
  set(memory, a);
  wait_for(b, a);
  kernel("sum", READ, memory, SIZE, b);
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  set(again, a);
  REUSE(RECORD_STREAM, memory, SIZE, writes("plinth_memset", a), reads("sum", b));
}

TEST(clean_block_with_the_side_stream_recorded) {
  begin();
  for (int round = 0; round < 100; round++) {
    unsigned char *block = alloc_on(SIZE, 0, a);
    set(block, a);
    wait_for(b, a);
    kernel("sum", READ, block, SIZE, b);
    CHECK_OK(plinth_record_stream(block, b));
    release(block);
  }
  CLEAN();
}

TEST(clean_block_freed_behind_the_side_stream) {
  begin();
  set(memory, a);
  wait_for(b, a);
  kernel("sum", READ, memory, SIZE, b);
  wait_for(a, b);
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  set(again, a);
  CLEAN();
}

TEST(racy_block_freed_behind_an_earlier_wait) {
  begin();
  set(memory, a);
  wait_for(b, a);
  wait_for(a, b);
  kernel("sum", READ, memory, SIZE, b);
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  set(again, a);
  REUSE(RECORD_STREAM, memory, SIZE, writes("plinth_memset", a), reads("sum", b));
}

TEST(racy_first_use_before_the_blocks_own_stream) {
  begin();
  set(memory, a);
  release(memory);
  unsigned char *again = alloc_on(SIZE, 0, a);
  CHECK_SAME(again, memory);
  kernel("sum", READ, again, SIZE, b);
  REUSE(MISSING_WAIT, memory, SIZE, reads("sum", b), writes("plinth_memset", a));
}

/* Host memory. */

TEST(racy_pinned_memory_changed_during_a_copy) {
  begin();
  void *pinned = NULL;
  CHECK_OK(plinth_host_alloc(SIZE, &pinned));
  copy(memory, pinned, a);
  on_cpu("memset", WRITE, pinned, SIZE);
  const side cpu = {"memset", NULL, CPU_DEVICE, WRITE};
  RACE(MISSING_WAIT, pinned, SIZE, cpu, reads("plinth_memcpy", a));
}

TEST(clean_pinned_memory_changed_after_a_copy) {
  begin();
  void *pinned = NULL;
  CHECK_OK(plinth_host_alloc(SIZE, &pinned));
  copy(memory, pinned, a);
  CHECK_OK(plinth_stream_synchronize(a));
  on_cpu("memset", WRITE, pinned, SIZE);
  copy(memory, pinned, a);
  CLEAN();
}

TEST(clean_pinned_memory_of_several_owners) {
  begin();
  for (int round = 0; round < 100; round++) {
    void *pinned = NULL;
    CHECK_OK(plinth_host_alloc(SIZE, &pinned));
    on_cpu("memset", WRITE, pinned, SIZE);
    copy(memory, pinned, a);
    CHECK_OK(plinth_host_free(pinned));
  }
  CLEAN();
}

TEST(clean_pageable_memory_changed_after_the_call) {
  begin();
  void *pageable = pageable_memory(SIZE);
  memset(pageable, 1, SIZE);
  copy(memory, pageable, a);
  on_cpu("memset", WRITE, pageable, SIZE);
  copy(pageable, memory, a); /* The call has waited. */
  set(memory, b);
  CLEAN();
  free(pageable);
}

/* Copies between devices. */

TEST(clean_copy_between_devices) {
  need_devices(2);
  begin();
  unsigned char *stream_of_1 = alloc_on(SIZE, 1, NULL);
  set(memory, a);
  wait_for(NULL, a);
  CHECK_OK(plinth_copy(stream_of_1, memory, SIZE, true));
  plinth_stream_t current = NULL;
  CHECK_OK(plinth_set_device(1));
  CHECK_OK(plinth_current_stream(1, &current));
  kernel("sum", READ, stream_of_1, SIZE, current);
  CLEAN();
}

TEST(racy_copy_between_devices_and_a_side_stream) {
  need_devices(2);
  begin();
  unsigned char *stream_of_1 = alloc_on(SIZE, 1, NULL);
  plinth_stream_t side_stream = stream_on(1);
  wait_for(NULL, a);
  CHECK_OK(plinth_copy(stream_of_1, memory, SIZE, true));
  kernel("sum", READ, stream_of_1, SIZE, side_stream);
  /* The copy runs in a stream of the source device. */
  RACE(MISSING_WAIT, stream_of_1, SIZE, in_stream("sum", READ, side_stream, 1), in_stream("plinth_copy", WRITE, NULL, 0));
}

/* Random numbers. */

TEST(racy_probabilities_that_are_still_written) {
  begin();
  DLTensor p = floats(memory, elements, NULL, 1, 0);
  DLTensor tensor = floats(other, elements, NULL, 1, 0);
  CHECK_OK(plinth_uniform(&p, 0.0, 1.0, NULL, a));
  CHECK_OK(plinth_bernoulli_tensor(&tensor, &p, NULL, b));
  RACE(MISSING_WAIT, memory, SIZE, reads("plinth_bernoulli_tensor", b), writes("plinth_uniform", a));
}

TEST(clean_columns_of_one_matrix) {
  begin();
  int64_t shape[2] = {64, 1};
  int64_t strides[2] = {2, 1};
  DLTensor even = floats(memory, shape, strides, 2, 0);
  DLTensor odd = floats(memory + 4, shape, strides, 2, 0);
  CHECK_OK(plinth_uniform(&even, 0.0, 1.0, NULL, a));
  CHECK_OK(plinth_uniform(&odd, 0.0, 1.0, NULL, b));
  CLEAN();
}

TEST(racy_row_across_a_column) {
  begin();
  int64_t column_shape[2] = {64, 1};
  int64_t column_strides[2] = {64, 1};
  int64_t row_shape[1] = {64};
  DLTensor column = floats(memory + 4 * 5, column_shape, column_strides, 2, 0);
  DLTensor row = floats(memory + 3 * 4 * 64, row_shape, NULL, 1, 0);
  CHECK_OK(plinth_uniform(&column, 0.0, 1.0, NULL, a));
  CHECK_OK(plinth_normal(&row, 0.0, 1.0, NULL, b));
  RACE(MISSING_WAIT, memory + 3 * 4 * 64 + 4 * 5, 4, writes("plinth_normal", b), writes("plinth_uniform", a));
}

/* Collectives. */

static DLTensor outputs[2];

static void broadcast(void *to) {
  outputs[0] = floats(to, elements, NULL, 1, 1);
  DLTensor tensor = floats(memory, elements, NULL, 1, 0);
  CHECK_OK(plinth_comm_broadcast(&tensor, outputs, 1));
}

TEST(clean_broadcast_read_in_its_current_stream) {
  need_devices(2);
  begin();
  plinth_stream_t stream_of_1 = stream_on(1);
  CHECK_OK(plinth_set_stream(stream_of_1));
  CHECK_OK(plinth_set_stream(a));
  unsigned char *to = alloc_on(SIZE, 1, stream_of_1);
  set(memory, a);
  broadcast(to);
  kernel("sum", READ, to, SIZE, stream_of_1);
  set(memory, a);
  CLEAN();
}

TEST(racy_broadcast_read_in_another_stream) {
  need_devices(2);
  begin();
  plinth_stream_t stream_of_1 = stream_on(1);
  plinth_stream_t side_stream = stream_on(1);
  CHECK_OK(plinth_set_stream(stream_of_1));
  CHECK_OK(plinth_set_stream(a));
  unsigned char *to = alloc_on(SIZE, 1, stream_of_1);
  set(memory, a);
  broadcast(to);
  kernel("sum", READ, to, SIZE, side_stream);
  read_findings();
  CHECK_EQ(found, 1);
  /* The library chooses the device that copies. */
  CHECK_EQ(findings[0].kind, PLINTH_SANITIZER_RACE);
  CHECK_TEXT(findings[0].name, "sum");
  CHECK_TEXT(findings[0].previous_name, "plinth_comm_broadcast");
  CHECK_SAME(findings[0].address, to);
  CHECK_EQ(findings[0].bytes, SIZE);
}

TEST(racy_source_of_a_broadcast_overwritten) {
  need_devices(2);
  begin();
  plinth_stream_t stream_of_1 = stream_on(1);
  CHECK_OK(plinth_set_stream(stream_of_1));
  CHECK_OK(plinth_set_stream(a));
  unsigned char *to = alloc_on(SIZE, 1, stream_of_1);
  broadcast(to);
  set(memory, b);
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_TEXT(findings[0].name, "plinth_memset");
  CHECK_TEXT(findings[0].previous_name, "plinth_comm_broadcast");
  CHECK_EQ(findings[0].previous.kind, READ);
  CHECK_SAME(findings[0].address, memory);
  CHECK_EQ(findings[0].bytes, SIZE);
}

static plinth_communicator_t ranks[2];
static plinth_stream_t rank_streams[2];
static unsigned char *rank_memory[2];

static void all_reduce(void) {
  const int32_t devices[2] = {0, 1};
  const DLDataType type = {2, 32, 1};
  CHECK_OK(plinth_communicator_init_all(devices, 2, NULL, ranks));
  for (int rank = 0; rank < 2; rank++) {
    rank_streams[rank] = stream_on(rank);
    rank_memory[rank] = alloc_on(SIZE, rank, rank_streams[rank]);
    CHECK_OK(plinth_memset(rank_memory[rank], 0, SIZE, rank_streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_all_reduce(ranks[rank], rank_memory[rank], rank_memory[rank], SIZE / 4, type,
                                            PLINTH_REDUCE_SUM, rank_streams[rank]));
  }
  CHECK_OK(plinth_communicator_group_end());
}

static void destroy_ranks(void) {
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(1));
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_communicator_destroy(ranks[rank]));
  }
}

TEST(clean_all_reduce_used_by_each_rank) {
  need_devices(2);
  begin();
  all_reduce();
  kernel("sum", READ | WRITE, rank_memory[0], SIZE, rank_streams[0]);
  kernel("sum", READ | WRITE, rank_memory[1], SIZE, rank_streams[1]);
  CLEAN();
  destroy_ranks();
}

TEST(racy_all_reduce_used_by_another_stream) {
  need_devices(2);
  begin();
  all_reduce();
  kernel("sum", READ, rank_memory[1], SIZE, stream_on(1));
  read_findings();
  CHECK_EQ(found, 1);
  CHECK_TEXT(findings[0].name, "sum");
  CHECK_SAME(findings[0].address, rank_memory[1]);
  CHECK_EQ(findings[0].bytes, SIZE);
  CHECK_EQ(findings[0].previous.kind, WRITE);
  destroy_ranks();
}

TEST(clean_blocks_from_the_driver_each_time) {
  begin();
  const size_t bytes = 4 * MIB;
  CHECK_OK(plinth_caching_allocator_enable(false));
  for (int round = 0; round < 20; round++) {
    unsigned char *block = alloc_on(bytes, 0, a);
    CHECK_OK(plinth_memset(block, 1, bytes, a));
    wait_for(b, a);
    CHECK_OK(plinth_memset(block, 2, bytes, b));
    release(block); /* waits for the device, and so for b */
  }
  CHECK_OK(plinth_caching_allocator_enable(true));
  CLEAN();
}

TEST(racy_work_of_a_device_behind_a_free_of_another) {
  need_devices(2);
  begin();
  plinth_stream_t stream_of_1 = stream_on(1), side_stream = stream_on(1);
  unsigned char *memory_of_1 = alloc_on(SIZE, 1, stream_of_1);
  void *memory_of_0 = NULL;
  CHECK_OK(plinth_device_malloc(SIZE, 0, &memory_of_0));
  set(memory, a);
  set(memory_of_1, stream_of_1);
  CHECK_OK(plinth_device_free(memory_of_0));
  set(memory, b); /* the free has waited for a */
  set(memory_of_1, side_stream);
  RACE(MISSING_WAIT, memory_of_1, SIZE, in_stream("plinth_memset", WRITE, side_stream, 1),
       in_stream("plinth_memset", WRITE, stream_of_1, 1));
}
