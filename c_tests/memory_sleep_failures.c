/*
 * What sleep and wake refuse, and what becomes of pools for which there is no room.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_IPC=wait */
#include "driver.h"
#include "graphing.h"
#include "peering.h"
#include "sleeping.h"

#include <sys/resource.h>

static const plinth_sleep_options_t no_backup = PLINTH_SLEEP_OPTIONS_INIT;

TEST(wrong_arguments_are_refused) {
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  const plinth_pool_id_t pool = tagged_pool("weights"), none = {0, 0};
  char *tag = NULL;
  CHECK_OK(plinth_mem_pool_get_tag(pool, &tag));
  CHECK_TEXT(tag, "weights");
  plinth_string_free(tag);
  CHECK_STATUS(plinth_mem_pool_set_tag(pool, "a,b"), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_mem_pool_set_tag(none, "a"), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_memory_sleep("kv", NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("no pool has the tag \"kv\"");
  CHECK_STATUS(plinth_memory_sleep("weights,kv", NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_wake("kv"), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_wake_wait("kv", NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_alloc_backup("weights", NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_alloc_backup("weights", &options), PLINTH_ERROR_INVALID_VALUE);
  options.backup = 4;
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_INVALID_VALUE);
  options.backup = PLINTH_BACKUP_PINNED;
  options.flags = 1u << 31;
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_INVALID_VALUE);
  options.flags = 0;
  options.folder = "/tmp";
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_INVALID_VALUE);
  options.struct_size = 0;
  CHECK_STATUS(plinth_memory_sleep("weights", &options), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_sleep_info(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  /* A pool without memory sleeps. */
  CHECK_OK(plinth_memory_sleep(NULL, NULL));
  CHECK_EQ(info_of("weights").pools_asleep, 1);
  CHECK_OK(plinth_memory_wake(NULL));
  CHECK_OK(plinth_mem_pool_set_tag(pool, ""));
  CHECK_OK(plinth_mem_pool_get_tag(pool, &tag));
  CHECK_TEXT(tag, "");
  plinth_string_free(tag);
  CHECK_EQ(info_of(NULL).pools, 0);
  destroy(pool);
  expect_nothing_left();
}

/* A refusal changes nothing, also in the other pools of the call. */
static void expect_refused(plinth_status_t expected, const plinth_sleep_options_t *options, const char *message) {
  CHECK_STATUS(plinth_memory_sleep("good,bad", options), expected);
  CHECK_MESSAGE(message);
  const plinth_sleep_info_t info = info_of("good,bad");
  CHECK(info.pools == 2 && info.pools_asleep == 0 && info.asleep_bytes == 0 && info.backup_bytes == 0);
  expect_sound();
}

HELPER(holds_one_block) {
  const plinth_ipc_memory_t memory = receive_from(SOCKET);
  say(SOCKET, 'h');
  expect_to_hear(SOCKET, 'c');
  CHECK_OK(plinth_ipc_close(memory.pointer));
  say(SOCKET, 'c');
  expect_to_hear(SOCKET, 'e');
}

TEST(memory_in_use_is_refused) {
  const plinth_sleep_options_t pinned = backup_in(PLINTH_BACKUP_PINNED);
  plinth_sleep_options_t file = backup_in(PLINTH_BACKUP_FILE);
  const plinth_pool_id_t good = tagged_pool("good"), bad = tagged_pool("bad");
  unsigned char *kept = alloc_in(good, 3 * MIB, 0, NULL), *block = alloc_in(bad, 3 * MIB, 0, NULL);
  put_pattern(kept, 3 * MIB, 1);
  enter(bad, 0);
  expect_refused(PLINTH_ERROR_GRAPH_MEMORY_IN_USE, &pinned, "(\"bad\") to sleep: requests on device 0 are still routed");
  leave(bad, 0);

  file.folder = "/nonexistent folder";
  expect_refused(PLINTH_ERROR_SYSTEM, &file, "/nonexistent folder");

  const peer holder = start_peer("holds_one_block", SOCK_SEQPACKET);
  CHECK_OK(plinth_ipc_send(holder.socket, block));
  expect_to_hear(holder.socket, 'h');
  expect_refused(PLINTH_ERROR_GRAPH_MEMORY_IN_USE, &pinned, "other processes hold memory of it");
  say(holder.socket, 'c');
  expect_to_hear(holder.socket, 'c');
  say(holder.socket, 'e');
  expect_end(holder);

  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  expect_refused(PLINTH_ERROR_CAPTURE_FORBIDS, &pinned, "is capturing");
  CHECK_STATUS(plinth_memory_wake_wait("good", stream), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));

  CHECK_OK(plinth_memory_sleep("good,bad", &pinned));
  CHECK_STATUS(plinth_memory_free_backup("good"), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_STATUS(plinth_memory_alloc_backup("good", &pinned), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_memory_wake("bad,good"));
  CHECK(has_pattern(kept, 3 * MIB, 1));
  release(kept);
  release(block);
  destroy(good);
  destroy(bad);
  expect_nothing_left();
}

/* TMPDIR names no folder relative to the working directory, which may belong to somebody else. */
TEST(a_backup_is_in_tmp_if_tmpdir_is_not_absolute) {
  const plinth_sleep_options_t file = backup_in(PLINTH_BACKUP_FILE);
  const plinth_pool_id_t pool = tagged_pool("file");
  unsigned char *block = alloc_in(pool, 2 * MIB, 0, NULL);
  const char *const before = getenv("TMPDIR");
  char *const kept = before == NULL ? NULL : strdup(before);
  static const char *const folders[] = {"", "no/such/folder"};
  for (size_t index = 0; index < 2; index++) {
    CHECK_EQ(setenv("TMPDIR", folders[index], 1), 0);
    put_pattern(block, 2 * MIB, 3);
    CHECK_OK(plinth_memory_sleep("file", &file));
    CHECK_OK(plinth_memory_wake("file"));
    CHECK(has_pattern(block, 2 * MIB, 3));
  }
  CHECK_EQ(kept == NULL ? unsetenv("TMPDIR") : setenv("TMPDIR", kept, 1), 0);
  free(kept);
  release(block);
  destroy(pool);
  expect_nothing_left();
}

typedef int (*driver_map)(unsigned long long address, size_t bytes, size_t offset, unsigned long long handle,
                          unsigned long long flags);

/* As if a wake had failed, and so had the call that unmaps what it had mapped. */
TEST(a_pool_wakes_where_memory_was_left) {
  const uint32_t properties[8] = {1, 1, 1, 0, 0, 0, 0, 0};
  const plinth_pool_id_t pool = tagged_pool("left");
  unsigned char *block = alloc_in(pool, 2 * MIB, 0, NULL);
  const size_t bytes = pool_reserved(pool, 0);
  unsigned long long handle = 0;
  DRIVER(driver_create, create, "cuMemCreate");
  DRIVER(driver_map, map, "cuMemMap");
  DRIVER(driver_handle_release, drop, "cuMemRelease");
  put_pattern(block, 2 * MIB, 5);
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  CHECK_OK(plinth_memory_sleep("left", &options));
  CHECK_EQ(create(&handle, bytes, properties, 0), CUDA_SUCCESS);
  CHECK_EQ(map((unsigned long long)(uintptr_t)block, bytes, 0, handle, 0), CUDA_SUCCESS);
  CHECK_EQ(drop(handle), CUDA_SUCCESS);
  CHECK_OK(plinth_memory_wake("left"));
  CHECK(has_pattern(block, 2 * MIB, 5));
  release(block);
  destroy(pool);
  expect_nothing_left();
}

TEST(memory_is_released_without_address_space) {
  if (!on_host_device()) {
    SKIP("is about the host device");
  }
  if (HARNESS_SANITIZED) {
    SKIP("a sanitizer's address space cannot be limited");
  }
  const plinth_pool_id_t pool = tagged_pool("large");
  unsigned char *block = alloc_in(pool, 40 * MIB, 0, NULL);
  struct rlimit before, small;
  CHECK_OK(plinth_synchronize(0));
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  /* Small requests are served from the heap, which must not grow. */
  void *volatile heap = malloc(64 * KIB);
  CHECK(heap != NULL);
  free(heap);
  small = before;
  small.rlim_cur = MIB;
  CHECK(setrlimit(RLIMIT_AS, &small) == 0);
  const plinth_status_t status = plinth_memory_sleep("large", &no_backup);
  CHECK(setrlimit(RLIMIT_AS, &before) == 0);
  CHECK_EQ(status, PLINTH_OK);
  CHECK_EQ(pool_reserved(pool, 0), 0);
  CHECK_OK(plinth_memory_wake("large"));
  put_pattern(block, 40 * MIB, 6);
  CHECK(has_pattern(block, 40 * MIB, 6));
  release(block);
  destroy(pool);
  expect_nothing_left();
}

TEST(a_pool_sleeps_on_without_room) {
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PAGEABLE);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *block = alloc_in(pool, 300 * MIB, 0, NULL);
  put_pattern(block, 300 * MIB, 1);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  void *eager = alloc_on(64 * MIB, 0, NULL);
  /* There is room for a part of it. */
  limit_memory(reserved(0) + 200 * MIB, 0);
  for (int round = 0; round < 2; round++) {
    CHECK_STATUS(round == 0 ? plinth_memory_wake("weights") : plinth_memory_wake_async("weights"),
                 PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("(\"weights\"): it needs");
    CHECK_MESSAGE("stays asleep");
    expect_sound();
    CHECK(info_of("weights").pools_asleep == 1 && info_of("weights").mapped_bytes == 0);
  }
  lift_limit(0);
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK(has_pattern(block, 300 * MIB, 1));
  release(eager);
  release(block);
  destroy(pool);
  expect_nothing_left();
}

/* A pool wakes on all of its devices or on none. What one device could restore is not lost when the pool is put to sleep
 * again without a backup. */
TEST(a_pool_sleeps_on_without_room_on_one_device) {
  need_devices(2);
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *first = alloc_in(pool, 20 * MIB, 0, NULL), *second = alloc_in(pool, 60 * MIB, 1, NULL);
  put_pattern(first, 20 * MIB, 1);
  put_pattern(second, 60 * MIB, 2);
  CHECK_OK(plinth_memory_sleep("weights", &options));
  limit_memory(reserved(1) + 8 * MIB, 1);
  for (int round = 0; round < 2; round++) {
    CHECK_STATUS(round == 0 ? plinth_memory_wake("weights") : plinth_memory_wake_async("weights"),
                 PLINTH_ERROR_OUT_OF_MEMORY);
    expect_sound();
    CHECK(info_of("weights").pools_asleep == 1 && info_of("weights").mapped_bytes == 0);
    CHECK(pool_reserved(pool, 0) == 0);
    CHECK_OK(plinth_memory_sleep("weights", &no_backup));
  }
  lift_limit(1);
  CHECK_OK(plinth_memory_wake("weights"));
  CHECK(has_pattern(first, 20 * MIB, 1));
  CHECK(has_pattern(second, 60 * MIB, 2));
  release(first);
  release(second);
  destroy(pool);
  expect_nothing_left();
}

/* Lets the process reserve this much address space in addition to what it has. */
static void leave_addresses(size_t bytes) {
  size_t pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file != NULL && fscanf(file, "%zu", &pages) == 1);
  fclose(file);
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + bytes;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* Where addresses are scarce, a pool has several reservations, which may be adjacent and full. */
TEST(a_pool_of_adjacent_reservations_sleeps) {
  if (!on_host_device()) {
    SKIP("is about the host device");
  }
  if (HARNESS_SANITIZED) {
    SKIP("a sanitizer's address space cannot be limited");
  }
  enum { COUNT = 4 };
  const plinth_sleep_options_t options = backup_in(PLINTH_BACKUP_PINNED);
  const plinth_pool_id_t pool = tagged_pool("weights");
  unsigned char *blocks[COUNT];
  struct rlimit before;
  CHECK_OK(plinth_synchronize(0));
  CHECK(getrlimit(RLIMIT_AS, &before) == 0);
  for (int index = 0; index < COUNT; index++) {
    leave_addresses(70 * MIB);
    blocks[index] = alloc_in(pool, 64 * MIB, 0, NULL);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    put_pattern(blocks[index], 64 * MIB, (unsigned)index);
  }
  CHECK_OK(plinth_memory_sleep("weights", &options));
  CHECK_EQ(pool_reserved(pool, 0), 0);
  CHECK_OK(plinth_memory_wake("weights"));
  for (int index = 0; index < COUNT; index++) {
    CHECK(has_pattern(blocks[index], 64 * MIB, (unsigned)index));
    release(blocks[index]);
  }
  destroy(pool);
  expect_nothing_left();
}
