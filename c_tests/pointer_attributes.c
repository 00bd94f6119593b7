/* Attributes of pointers, and managed memory. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "driver.h"
#include "pinning.h"

static plinth_pointer_attributes_t attributes_of(const void *pointer) {
  plinth_pointer_attributes_t attributes = PLINTH_POINTER_ATTRIBUTES_INIT;
  CHECK_OK(plinth_pointer_attributes(pointer, &attributes));
  CHECK_EQ(attributes.struct_size, sizeof attributes);
  return attributes;
}

static int32_t device_of(const void *pointer) {
  int32_t device = UNTOUCHED;
  CHECK_OK(plinth_device_of(pointer, &device));
  return device;
}

static bool expandable(void) {
  const char *text = getenv("PLINTH_ALLOC_CONF");
  return text == NULL || strstr(text, "expandable_segments:False") == NULL;
}

/* Allocates managed memory, or skips the test if it is not supported. Free it with plinth_managed_free. */
static unsigned char *managed_memory(size_t bytes, int32_t device) {
  void *pointer = UNTOUCHED_POINTER;
  const plinth_status_t status = plinth_managed_malloc(bytes, device, &pointer);
  if (status == PLINTH_ERROR_NOT_SUPPORTED) {
    SKIP("there is no managed memory here");
  }
  CHECK_OK(status);
  CHECK(pointer != NULL && pointer != UNTOUCHED_POINTER);
  return (unsigned char *)pointer;
}

TEST(unknown_memory) {
  int local = 0;
  void *heap = pageable_memory(MIB);
  const void *const tried[] = {NULL, &local, heap, "text", UNTOUCHED_POINTER, (void *)-1};
  for (size_t index = 0; index < sizeof tried / sizeof tried[0]; index++) {
    const plinth_pointer_attributes_t found = attributes_of(tried[index]);
    CHECK_EQ(found.kind, PLINTH_MEMORY_UNREGISTERED);
    CHECK_EQ(found.device, -1);
    CHECK_EQ(found.owner, PLINTH_OWNER_NONE);
    CHECK_EQ(found.is_virtual, 0);
    CHECK(found.base == NULL && found.size == 0);
    CHECK(found.device_pointer == NULL);
    CHECK_EQ(device_of(tried[index]), -1);
  }
  free(heap);
}

static void expect_whole(const unsigned char *pointer, const unsigned char *base, size_t bytes, int32_t kind,
                         int32_t device) {
  const plinth_pointer_attributes_t found = attributes_of(pointer);
  CHECK_EQ(found.kind, kind);
  CHECK_EQ(found.device, device);
  CHECK_EQ(found.owner, PLINTH_OWNER_PROGRAM);
  CHECK_EQ(found.is_virtual, 0);
  CHECK_SAME(found.base, base);
  CHECK_SAME(found.range_base, base);
  CHECK(found.size >= bytes);
  CHECK_EQ(found.range_size, found.size);
  CHECK_SAME(found.device_pointer, pointer);
  CHECK_SAME(found.host_pointer, kind == PLINTH_MEMORY_DEVICE ? NULL : pointer);
  CHECK(found.pool.owner == 0 && found.pool.index == 0);
  CHECK_EQ(device_of(pointer), kind == PLINTH_MEMORY_HOST ? -1 : device);
}

TEST(driver_allocations) {
  for (int32_t device = 0; device < device_count(); device++) {
    unsigned char *memory = (unsigned char *)device_memory(3 * MIB, device);
    expect_whole(memory, memory, 3 * MIB, PLINTH_MEMORY_DEVICE, device);
    expect_whole(memory + 12345, memory, 3 * MIB, PLINTH_MEMORY_DEVICE, device);
    CHECK_OK(plinth_device_free(memory));
    CHECK_OK(plinth_set_device(device));
    memory = (unsigned char *)pinned_memory(MIB);
    expect_whole(memory, memory, MIB, PLINTH_MEMORY_HOST, device);
    expect_whole(memory + MIB - 1, memory, MIB, PLINTH_MEMORY_HOST, device);
    CHECK_OK(plinth_pinned_free(memory));
    CHECK_EQ(attributes_of(memory).kind, PLINTH_MEMORY_UNREGISTERED);
  }
}

TEST(registered_memory) {
  unsigned char *memory = NULL;
  CHECK_EQ(posix_memalign((void **)&memory, 4096, MIB), 0);
  CHECK_OK(plinth_host_register(memory, MIB, PLINTH_HOST_REGISTER_PORTABLE));
  const plinth_pointer_attributes_t found = attributes_of(memory + 5);
  CHECK_EQ(found.kind, PLINTH_MEMORY_HOST);
  CHECK_EQ(found.owner, PLINTH_OWNER_PROGRAM);
  CHECK(found.device_pointer != NULL);
  CHECK_SAME(found.host_pointer, memory + 5);
  CHECK_EQ(device_of(memory), -1);
  CHECK_OK(plinth_host_unregister(memory));
  CHECK_EQ(attributes_of(memory).kind, PLINTH_MEMORY_UNREGISTERED);
  free(memory);
}

TEST(blocks_of_the_pinned_cache) {
  const size_t sizes[] = {1000, 600 * KIB, 3 * MIB};
  for (int index = 0; index < 3; index++) {
    const size_t bytes = sizes[index];
    unsigned char *first = pin(bytes);
    unsigned char *memory = pin(bytes);
    for (int where = 0; where < 3; where++) {
      unsigned char *pointer = memory + (where == 0 ? 0 : where == 1 ? bytes / 2 : bytes - 1);
      const plinth_pointer_attributes_t found = attributes_of(pointer);
      CHECK_EQ(found.kind, PLINTH_MEMORY_HOST);
      CHECK_EQ(found.owner, PLINTH_OWNER_HOST_ALLOCATOR);
      CHECK_SAME(found.base, memory);
      CHECK(found.size >= bytes && found.size - bytes <= bytes / 8);
      CHECK_SAME(found.device_pointer, pointer);
      CHECK_SAME(found.host_pointer, pointer);
      CHECK((unsigned char *)found.range_base <= memory);
      CHECK((unsigned char *)found.range_base + found.range_size >= memory + bytes);
    }
    unpin(memory);
    const plinth_pointer_attributes_t found = attributes_of(memory);
    CHECK_EQ(found.owner, PLINTH_OWNER_HOST_ALLOCATOR);
    CHECK(found.base == NULL && found.size == 0);
    unpin(first);
  }
  expect_nothing_pinned();
}

TEST(blocks_of_the_caching_allocator) {
  const size_t sizes[] = {1000, 3 * MIB, 50 * MIB};
  for (int32_t device = 0; device < device_count(); device++) {
    for (int index = 0; index < 3; index++) {
      const size_t bytes = sizes[index];
      unsigned char *memory = alloc_on(bytes, device, NULL);
      for (int where = 0; where < 3; where++) {
        unsigned char *pointer = memory + (where == 0 ? 0 : where == 1 ? bytes / 2 : bytes - 1);
        const plinth_pointer_attributes_t found = attributes_of(pointer);
        CHECK_EQ(found.kind, PLINTH_MEMORY_DEVICE);
        CHECK_EQ(found.device, device);
        CHECK_EQ(found.owner, PLINTH_OWNER_CACHING_ALLOCATOR);
        CHECK_EQ(found.is_virtual, expandable());
        CHECK_SAME(found.base, memory);
        CHECK_EQ(found.size, rounded(bytes));
        CHECK_SAME(found.device_pointer, pointer);
        CHECK(found.host_pointer == NULL);
        CHECK_EQ(device_of(pointer), device);
      }
      release(memory);
      const plinth_pointer_attributes_t found = attributes_of(memory);
      CHECK_EQ(found.owner, PLINTH_OWNER_CACHING_ALLOCATOR);
      CHECK(found.base == NULL && found.size == 0);
    }
  }
  expect_nothing_left();
}

TEST(the_pool_of_a_block) {
  plinth_pool_id_t pool;
  CHECK_OK(plinth_mem_pool_create(false, false, &pool));
  CHECK_OK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  unsigned char *memory = alloc_on(MIB, 0, NULL);
  CHECK_OK(plinth_end_allocate_to_pool(0, pool));
  unsigned char *other = alloc_on(MIB, 0, NULL);
  plinth_pointer_attributes_t found = attributes_of(memory + 700);
  CHECK_EQ(found.pool.owner, pool.owner);
  CHECK_EQ(found.pool.index, pool.index);
  found = attributes_of(other);
  CHECK(found.pool.owner == 0 && found.pool.index == 0);
  release(memory);
  release(other);
  CHECK_OK(plinth_release_pool(0, pool));
  CHECK_OK(plinth_mem_pool_destroy(pool));
  expect_nothing_left();
}

TEST(managed_memory_is_accessible_from_host_and_devices) {
  unsigned char *host = pin(3 * MIB);
  for (int32_t device = 0; device < device_count(); device++) {
    unsigned char *memory = managed_memory(3 * MIB, device);
    expect_whole(memory, memory, 3 * MIB, PLINTH_MEMORY_MANAGED, device);
    expect_whole(memory + MIB, memory, 3 * MIB, PLINTH_MEMORY_MANAGED, device);
    CHECK(!is_pinned(memory));
    memset(memory, 1, 3 * MIB);
    for (int32_t other = 0; other < device_count(); other++) {
      plinth_stream_t stream = stream_on(other);
      CHECK_OK(plinth_memset(memory + other, 2 + other, 1, stream));
      CHECK_OK(plinth_stream_synchronize(stream));
      CHECK_EQ(memory[other], 2 + other);
    }
    CHECK_OK(plinth_memcpy(host, memory, 3 * MIB, NULL));
    CHECK_OK(plinth_stream_synchronize(NULL));
    CHECK_EQ(host[0], 2);
    CHECK_EQ(host[3 * MIB - 1], 1);
    CHECK_OK(plinth_managed_free(memory));
    CHECK_EQ(attributes_of(memory).kind, PLINTH_MEMORY_UNREGISTERED);
  }
  unpin(host);
}

TEST(managed_memory_is_freed_by_its_own_call) {
  unsigned char *memory = managed_memory(MIB, -1);
  unsigned char *device = (unsigned char *)device_memory(MIB, 0);
  int local = 0;
  CHECK_STATUS(plinth_device_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_managed_free(device), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_managed_free(&local), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_managed_free(memory + 64), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_managed_free(NULL));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_managed_free(memory), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_OK(plinth_managed_free(memory));
  CHECK_STATUS(plinth_managed_free(memory), PLINTH_ERROR_INVALID_POINTER);
  CHECK_OK(plinth_device_free(device));
}

TEST(managed_memory_is_limited_by_free_memory) {
  void *pointer = UNTOUCHED_POINTER;
  CHECK_OK(plinth_managed_free(managed_memory(KIB, 0)));
  CHECK_OK(plinth_managed_malloc(0, 0, &pointer));
  CHECK(pointer == NULL);
  pointer = UNTOUCHED_POINTER;
  const size_t sizes[] = {total_memory(0) + 1, (size_t)1 << 50, SIZE_MAX};
  for (int index = 0; index < 3; index++) {
    CHECK_STATUS(plinth_managed_malloc(sizes[index], 0, &pointer), PLINTH_ERROR_OUT_OF_MEMORY);
    CHECK_MESSAGE("of managed memory on device 0; ");
    CHECK_MESSAGE("are free");
  }
  CHECK_STATUS(plinth_managed_malloc(KIB, device_count(), &pointer), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_STATUS(plinth_managed_malloc(KIB, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(pointer, UNTOUCHED_POINTER);
}

TEST(a_smaller_struct_is_filled_up_to_its_size) {
  plinth_pointer_attributes_t found;
  memset(&found, 0x5A, sizeof found);
  found.struct_size = offsetof(plinth_pointer_attributes_t, device_pointer);
  CHECK_OK(plinth_pointer_attributes(NULL, &found));
  CHECK_EQ(found.kind, PLINTH_MEMORY_UNREGISTERED);
  CHECK_SAME(found.device_pointer, UNTOUCHED_POINTER);
  found.struct_size = 0;
  CHECK_STATUS(plinth_pointer_attributes(NULL, &found), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_pointer_attributes(NULL, NULL), PLINTH_ERROR_NULL_POINTER);
}
