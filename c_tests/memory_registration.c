/*
 * What memory can be used for beyond the process, and registrations, which keep it in its place.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_FABRIC=1 */
/* also: PLINTH_ALLOC_CONF=expandable_segments:False */
#include "driver.h"
#include "peering.h"
#include "pooling.h"

#include <sched.h>

#define PAGE_BYTES 4096

typedef int (*driver_import)(unsigned long long *handle, void *shareable, unsigned type);

static plinth_memory_uses_t uses_of(const void *block) {
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  CHECK_OK(plinth_memory_uses(block, &uses));
  CHECK_EQ(uses.struct_size, sizeof uses);
  for (int use = 0; use < PLINTH_MEMORY_USE_COUNT; use++) {
    CHECK((uses.supported >> use & 1) == (uses.reasons[use] == NULL));
    CHECK(uses.reasons[use] == NULL || strlen(uses.reasons[use]) > 10);
  }
  return uses;
}

static bool can(const void *block, plinth_memory_use_t use) { return uses_of(block).supported >> use & 1; }

static plinth_pool_id_t pool_for(uint32_t flags) {
  plinth_pool_id_t pool = {UNTOUCHED, UNTOUCHED};
  CHECK_OK(plinth_mem_pool_create_with_flags(flags, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "registered"));
  return pool;
}

static unsigned char *alloc_in(plinth_pool_id_t pool, size_t bytes) {
  enter(pool, 0);
  unsigned char *block = alloc_on(bytes, 0, NULL);
  leave(pool, 0);
  return block;
}

static plinth_memory_registration_t registration_of(const void *pointer, size_t bytes, const char *name,
                                                    plinth_memory_release_callback_t callback, void *context) {
  plinth_memory_registration_options_t options = PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT;
  plinth_memory_registration_t registration = NULL;
  options.name = name;
  options.release = callback;
  options.context = context;
  CHECK_OK(plinth_memory_registration_create(pointer, bytes, &options, &registration));
  CHECK(registration != NULL);
  return registration;
}

static plinth_memory_registration_info_t info_of(plinth_memory_registration_t registration) {
  plinth_memory_registration_info_t info = PLINTH_MEMORY_REGISTRATION_INFO_INIT;
  CHECK_OK(plinth_memory_registration_info(registration, &info));
  return info;
}

static size_t free_bytes(void) {
  size_t available = 0, total = 0;
  CHECK_OK(plinth_mem_get_info(0, &available, &total));
  return available;
}

/* ---- what memory can be used for */

TEST(the_default_pool_is_for_processes_of_this_machine) {
  unsigned char *block = alloc_on(5 * MIB, 0, NULL);
  const plinth_memory_uses_t uses = uses_of(block + 1000);
  CHECK_SAME(uses.block, block);
  CHECK_EQ(uses.size, 5 * MIB);
  CHECK_EQ(uses.device, 0);
  CHECK_EQ(uses.registrations, 0);
  CHECK(uses.parts >= 1 && uses.parts <= 4);
  CHECK(can(block, PLINTH_MEMORY_USE_IPC) && can(block, PLINTH_MEMORY_USE_NCCL));
  CHECK(can(block, PLINTH_MEMORY_USE_DMA_BUF));
  CHECK(!can(block, PLINTH_MEMORY_USE_FABRIC));
  CHECK_EQ(can(block, PLINTH_MEMORY_USE_IPC_HANDLE), has_segments());
  CHECK_EQ(can(block, PLINTH_MEMORY_USE_NCCL_WINDOW), !has_segments() && uses.parts == 1);
  CHECK_EQ(can(block, PLINTH_MEMORY_USE_GPU_DIRECT_RDMA), has_segments());
  /* NCCL maps one physical allocation. */
  unsigned char *large = alloc_on(100 * MIB, 0, NULL);
  CHECK_EQ(can(large, PLINTH_MEMORY_USE_NCCL_WINDOW), !has_segments() && uses_of(large).parts == 1);
  release(large);
  release(block);
  expect_nothing_left();
}

TEST(a_pool_can_be_for_network_adapters) {
  if (has_segments()) {
    SKIP("is about mapped memory");
  }
  const plinth_pool_id_t pool = pool_for(PLINTH_MEM_POOL_GPU_DIRECT_RDMA);
  unsigned char *block = alloc_in(pool, 5 * MIB);
  CHECK(can(block, PLINTH_MEMORY_USE_GPU_DIRECT_RDMA) && can(block, PLINTH_MEMORY_USE_IPC));
  /* Memory of the default pool is not moved into it, and the pool's memory keeps its property when it wakes. */
  unsigned char *other = alloc_on(64 * MIB, 0, NULL);
  release(other);
  unsigned char *second = alloc_in(pool, 48 * MIB);
  CHECK(reserved(0) >= (48 + 64) * MIB);
  CHECK_OK(plinth_memory_sleep("registered", NULL));
  CHECK_EQ(uses_of(block).supported, 0);
  CHECK(strstr(uses_of(block).reasons[PLINTH_MEMORY_USE_DMA_BUF], "asleep") != NULL);
  CHECK_OK(plinth_memory_wake("registered"));
  CHECK(can(block, PLINTH_MEMORY_USE_GPU_DIRECT_RDMA) && can(second, PLINTH_MEMORY_USE_GPU_DIRECT_RDMA));
  put_pattern(second, 48 * MIB, 3);
  CHECK(has_pattern(second, 48 * MIB, 3));
  release(block);
  release(second);
  destroy(pool);
  expect_nothing_left();
}

/* Whether this machine's driver creates memory with fabric handles. */
static bool has_fabric(void) {
  const uint32_t properties[8] = {1, 8, 1, 0, 0, 0, 0, 0};
  unsigned long long handle = 0;
  DRIVER(driver_create, create, "cuMemCreate");
  DRIVER(driver_handle_release, drop, "cuMemRelease");
  CHECK_OK(plinth_set_device(0));
  const int code = create(&handle, 2 * MIB, properties, 0);
  CHECK(code == CUDA_SUCCESS || code == 800 || code == 801);
  CHECK(code != CUDA_SUCCESS || drop(handle) == CUDA_SUCCESS);
  return code == CUDA_SUCCESS;
}

TEST(fabric_handles_are_used_where_the_driver_grants_them) {
  if (has_segments()) {
    SKIP("is about mapped memory");
  }
  const plinth_pool_id_t pool = pool_for(PLINTH_MEM_POOL_FABRIC);
  unsigned char *block = alloc_in(pool, 5 * MIB);
  plinth_memory_part_t part = PLINTH_MEMORY_PART_INIT;
  put_pattern(block, 5 * MIB, 4);
  CHECK_EQ(can(block, PLINTH_MEMORY_USE_FABRIC), has_fabric());
  CHECK(can(block, PLINTH_MEMORY_USE_IPC));
  plinth_memory_registration_t registration = registration_of(block, 5 * MIB, "fabric", NULL, NULL);
  if (has_fabric()) {
    unsigned long long handle = 0;
    DRIVER(driver_import, import, "cuMemImportFromShareableHandle");
    DRIVER(driver_handle_release, drop, "cuMemRelease");
    for (uint32_t index = 0; index < info_of(registration).parts; index++) {
      CHECK_OK(plinth_memory_registration_part(registration, index, PLINTH_MEMORY_HANDLE_FABRIC, &part));
      CHECK_EQ(part.descriptor, -1);
      CHECK_EQ(import(&handle, part.fabric, PLINTH_MEMORY_HANDLE_FABRIC), CUDA_SUCCESS);
      CHECK_EQ(drop(handle), CUDA_SUCCESS);
    }
  } else {
    CHECK(strstr(uses_of(block).reasons[PLINTH_MEMORY_USE_FABRIC], "IMEX") != NULL);
    CHECK_STATUS(plinth_memory_registration_part(registration, 0, PLINTH_MEMORY_HANDLE_FABRIC, &part),
                 PLINTH_ERROR_IPC_NOT_SHAREABLE);
    CHECK_MESSAGE("IMEX");
  }
  CHECK_OK(plinth_memory_registration_destroy(registration));
  release(block);
  destroy(pool);
  expect_nothing_left();
}

HELPER(opens_a_segment) {
  uint8_t handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  void *memory = NULL;
  CHECK_EQ(recv(SOCKET, handle, sizeof handle, 0), sizeof handle);
  CHECK_OK(plinth_ipc_open_mem_handle(0, handle, &memory));
  CHECK(has_pattern(memory, 3 * MIB, 5));
  put_pattern(memory, 3 * MIB, 6);
  CHECK_OK(plinth_ipc_close_mem_handle(memory));
}

TEST(a_pool_of_segments_has_handles_of_cuda) {
  const plinth_pool_id_t pool = pool_for(PLINTH_MEM_POOL_SEGMENTS);
  unsigned char *mapped = alloc_on(3 * MIB, 0, NULL);
  unsigned char *block = alloc_in(pool, 3 * MIB);
  uint8_t handle[PLINTH_IPC_MEM_HANDLE_SIZE];
  size_t offset = UNTOUCHED;
  CHECK(can(block, PLINTH_MEMORY_USE_IPC_HANDLE) && can(block, PLINTH_MEMORY_USE_IPC));
  CHECK(!can(block, PLINTH_MEMORY_USE_NCCL_WINDOW) && !can(block, PLINTH_MEMORY_USE_FABRIC));
  CHECK_EQ(can(mapped, PLINTH_MEMORY_USE_IPC_HANDLE), has_segments());
  put_pattern(block, 3 * MIB, 5);
  CHECK_OK(plinth_ipc_mem_handle(block, handle, &offset));
  CHECK_EQ(offset, 0);
  const peer other = start_peer("opens_a_segment", SOCK_STREAM);
  CHECK_EQ(send(other.socket, handle, sizeof handle, 0), sizeof handle);
  expect_end(other);
  CHECK(has_pattern(block, 3 * MIB, 6));
  /* Segments have fixed addresses. */
  CHECK_STATUS(plinth_memory_sleep("registered", NULL), PLINTH_ERROR_NOT_SUPPORTED);
  release(block);
  release(mapped);
  destroy(pool);
  expect_nothing_left();
}

/* Checks that each block is in one allocation, which NCCL can map, and has its number as its pattern. */
static void expect_windows(unsigned char *const blocks[], const size_t sizes[], int count) {
  for (int index = 0; index < count; index++) {
    CHECK_EQ(uses_of(blocks[index]).parts, 1);
    CHECK_EQ(can(blocks[index], PLINTH_MEMORY_USE_NCCL_WINDOW),
             !has_segments() && can(blocks[index], PLINTH_MEMORY_USE_IPC));
    CHECK(has_pattern(blocks[index], sizes[index], (unsigned)index + 1));
  }
}

TEST(blocks_of_a_pool_for_windows_are_in_one_allocation) {
  enum { BLOCKS = 6 };
  const plinth_pool_id_t pool = pool_for(PLINTH_MEM_POOL_NCCL_WINDOW);
  size_t sizes[BLOCKS] = {1000, 3 * MIB, 12 * MIB, 300 * MIB, 20 * MIB + 512, 700}; /* odd sizes, too */
  unsigned char *blocks[BLOCKS], *other = alloc_on(300 * MIB, 0, NULL);
  CHECK(has_segments() || uses_of(other).parts > 1);
  for (int round = 0; round < 4; round++) {
    for (int index = 0; index < BLOCKS; index++) {
      if (round == 0 || (index + round) % 2 == 0) {
        sizes[index] += (size_t)round * 5 * MIB;
        blocks[index] = alloc_in(pool, sizes[index]);
        put_pattern(blocks[index], sizes[index], (unsigned)index + 1);
      }
    }
    expect_windows(blocks, sizes, BLOCKS);
    if (!has_segments()) {
      /* Also after they woke in new allocations. */
      plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
      options.backup = PLINTH_BACKUP_PINNED;
      CHECK_OK(plinth_memory_sleep("registered", &options));
      CHECK_OK(plinth_memory_wake("registered"));
      expect_windows(blocks, sizes, BLOCKS);
    }
    for (int index = 0; index < BLOCKS && round < 3; index++) {
      if ((index + round + 1) % 2 == 0) {
        release(blocks[index]);
      }
    }
    if (round == 1) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int index = 0; index < BLOCKS; index++) {
    release(blocks[index]);
  }
  release(other);
  destroy(pool);
  expect_nothing_left();
}

TEST(windows_are_aligned_beside_blocks_of_the_default_pool) {
  const plinth_pool_id_t pool = pool_for(PLINTH_MEM_POOL_NCCL_WINDOW | PLINTH_MEM_POOL_USE_ON_OOM);
  limit_memory(14 * MIB, 0);
  unsigned char *first = alloc_in(pool, 12 * MIB);
  release(first);
  /* Nothing else is left for this one. */
  unsigned char *other = alloc_on(3 * MIB + 700, 0, NULL);
  CHECK(other >= first && other < first + 12 * MIB);
  unsigned char *second = alloc_in(pool, 4 * MIB);
  CHECK(second > other && second < first + 12 * MIB);
  CHECK_EQ(can(second, PLINTH_MEMORY_USE_NCCL_WINDOW), !has_segments() && can(second, PLINTH_MEMORY_USE_IPC));
  CHECK_EQ((uintptr_t)second % 4096, 0);
  release(other);
  release(second);
  destroy(pool);
  expect_nothing_left();
}

/* ---- exports */

TEST(registered_memory_is_one_dma_buf) {
  unsigned char *blocks[3] = {alloc_on(700, 0, NULL), alloc_on(9000, 0, NULL), alloc_on(70 * MIB, 0, NULL)};
  const size_t sizes[3] = {700, 9000, 70 * MIB}, starts[3] = {0, 600, 3 * MIB + 512};
  for (int index = 0; index < 3; index++) {
    int32_t descriptor = -1;
    size_t offset = UNTOUCHED, size = UNTOUCHED;
    const size_t bytes = sizes[index] - starts[index];
    put_pattern(blocks[index] + starts[index], bytes, (unsigned)index + 1);
    plinth_memory_registration_t registration = registration_of(blocks[index] + starts[index], bytes, "nic", NULL, NULL);
    const size_t before = open_descriptors();
    CHECK_OK(plinth_memory_registration_dma_buf(registration, &descriptor, &offset, &size));
    CHECK(offset < PAGE_BYTES && size % PAGE_BYTES == 0 && offset + bytes <= size && size < bytes + 2 * PAGE_BYTES);
    CHECK_EQ(((uintptr_t)blocks[index] + starts[index]) % PAGE_BYTES, offset);
    CHECK_EQ(fcntl(descriptor, F_GETFD), FD_CLOEXEC);
    if (on_host_device()) {
      /* The stand-in's file position is the place of the DMA-BUF's first byte. */
      unsigned char contents[64];
      const off_t position = lseek(descriptor, 0, SEEK_CUR) + (off_t)offset;
      CHECK_EQ(pread(descriptor, contents, sizeof contents, position), (ssize_t)sizeof contents);
      CHECK(memcmp(contents, blocks[index] + starts[index], sizeof contents) == 0);
    } else {
      CHECK_EQ((size_t)lseek(descriptor, 0, SEEK_END), size);
    }
    CHECK(close(descriptor) == 0);
    CHECK_EQ(open_descriptors(), before);
    CHECK_OK(plinth_memory_registration_destroy(registration));
  }
  for (int index = 0; index < 3; index++) {
    release(blocks[index]);
  }
  expect_nothing_left();
}

TEST(an_open_dma_buf_keeps_the_memory_allocated) {
  if (has_segments()) {
    SKIP("the driver frees a segment as a whole");
  }
  unsigned char *block = alloc_on(64 * MIB, 0, NULL);
  plinth_memory_registration_t registration = registration_of(block, 64 * MIB, NULL, NULL, NULL);
  int32_t descriptor = -1;
  size_t offset = 0, size = 0;
  CHECK_OK(plinth_memory_registration_dma_buf(registration, &descriptor, &offset, &size));
  CHECK_OK(plinth_memory_registration_destroy(registration));
  release(block);
  CHECK_OK(plinth_empty_cache());
  const size_t before = free_bytes();
  CHECK(close(descriptor) == 0);
  EVENTUALLY(free_bytes() >= before + 60 * MIB);
  expect_nothing_left();
}

TEST(parts_are_exported_as_descriptors) {
  unsigned char *block = alloc_on(70 * MIB, 0, NULL);
  plinth_memory_registration_t registration = registration_of(block + 100, 60 * MIB, "parts", NULL, NULL);
  const plinth_memory_registration_info_t info = info_of(registration);
  plinth_memory_part_t part = PLINTH_MEMORY_PART_INIT;
  CHECK_SAME(info.pointer, block + 100);
  CHECK(info.size == 60 * MIB && info.device == 0 && info.is_released == 0);
  if (has_segments()) {
    CHECK_STATUS(plinth_memory_registration_part(registration, 0, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part),
                 PLINTH_ERROR_IPC_NOT_SHAREABLE);
    CHECK_MESSAGE("segment");
  } else {
    const unsigned char *next = NULL;
    unsigned long long handle = 0;
    DRIVER(driver_import, import, "cuMemImportFromShareableHandle");
    DRIVER(driver_handle_release, drop, "cuMemRelease");
    for (uint32_t index = 0; index < info.parts; index++) {
      CHECK_OK(plinth_memory_registration_part(registration, index, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part));
      CHECK(index == 0 ? (unsigned char *)part.pointer <= block + 100 : part.pointer == next);
      next = (unsigned char *)part.pointer + part.size;
      CHECK_EQ(import(&handle, (void *)(intptr_t)part.descriptor, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR), CUDA_SUCCESS);
      CHECK_EQ(drop(handle), CUDA_SUCCESS);
      CHECK(close(part.descriptor) == 0);
    }
    CHECK(next >= block + 100 + 60 * MIB);
    CHECK_STATUS(plinth_memory_registration_part(registration, info.parts, PLINTH_MEMORY_HANDLE_FILE_DESCRIPTOR, &part),
                 PLINTH_ERROR_INVALID_VALUE);
  }
  CHECK_STATUS(plinth_memory_registration_part(registration, 0, 3, &part), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_memory_registration_destroy(registration));
  release(block);
  expect_nothing_left();
}

/* ---- lifetime */

TEST(a_registered_block_is_freed_after_its_last_registration) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  plinth_memory_registration_t first = registration_of(block, BLOCK, NULL, NULL, NULL);
  plinth_memory_registration_t second = registration_of(block + 100, 1, NULL, NULL, NULL);
  CHECK_EQ(uses_of(block).registrations, 2);
  release(block);
  CHECK_EQ(allocated(0), 0);
  CHECK(!comes_back(block, BLOCK, 0, NULL));
  CHECK_OK(plinth_memory_registration_destroy(first));
  CHECK(!comes_back(block, BLOCK, 0, NULL));
  CHECK_OK(plinth_empty_cache());
  CHECK(reserved(0) >= BLOCK);
  /* What was registered can still be exported. */
  int32_t descriptor = -1;
  size_t offset = 0, size = 0;
  CHECK_OK(plinth_memory_registration_dma_buf(second, &descriptor, &offset, &size));
  CHECK(close(descriptor) == 0);
  CHECK_OK(plinth_memory_registration_destroy(second));
  CHECK(comes_back(block, BLOCK, 0, NULL));
  expect_nothing_left();
}

TEST(a_registered_block_that_a_stream_uses_is_freed_after_both) {
  plinth_stream_t stream = stream_on(0);
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  plinth_memory_registration_t registration = registration_of(block, BLOCK, NULL, NULL, NULL);
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_record_stream(block, stream));
  release(block);
  CHECK_OK(plinth_memory_registration_destroy(registration));
  CHECK(!comes_back(block, BLOCK, 0, NULL));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK(comes_back(block, BLOCK, 0, NULL));
  expect_nothing_left();
}

/* ---- sleep */

typedef struct released {
  plinth_memory_registration_t registration;
  int calls;
  bool destroys;
} released;

static void on_release(void *context) {
  released *record = context;
  record->calls++;
  /* The library holds no lock here. */
  CHECK_EQ(info_of(record->registration).is_released, 0);
  if (record->destroys) {
    CHECK_OK(plinth_memory_registration_destroy(record->registration));
  }
}

TEST(registered_memory_does_not_sleep) {
  if (has_segments()) {
    SKIP("segments do not sleep");
  }
  const plinth_pool_id_t pool = pool_for(0);
  unsigned char *block = alloc_in(pool, BLOCK);
  plinth_sleep_options_t options = PLINTH_SLEEP_OPTIONS_INIT;
  released records[2] = {{NULL, 0, false}, {NULL, 0, true}};
  options.backup = PLINTH_BACKUP_PAGEABLE;
  options.flags = PLINTH_SLEEP_RELEASE_REGISTRATIONS;
  put_pattern(block, BLOCK, 1);
  for (int index = 0; index < 2; index++) {
    records[index].registration = registration_of(block, BLOCK, "ring", on_release, &records[index]);
  }
  plinth_memory_registration_t fixed = registration_of(block, 10, "adapter", NULL, NULL);
  CHECK_STATUS(plinth_memory_sleep("registered", NULL), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("\"ring\"");
  /* One of them has no callback. */
  CHECK_STATUS(plinth_memory_sleep("registered", &options), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
  CHECK_MESSAGE("\"adapter\"");
  CHECK(records[0].calls == 0 && records[1].calls == 0);
  CHECK_OK(plinth_memory_registration_destroy(fixed));
  CHECK_OK(plinth_memory_sleep("registered", &options));
  CHECK(records[0].calls == 1 && records[1].calls == 1);
  int32_t descriptor = -1;
  size_t offset = 0, size = 0;
  CHECK_EQ(info_of(records[0].registration).is_released, 1);
  CHECK_STATUS(plinth_memory_registration_dma_buf(records[0].registration, &descriptor, &offset, &size),
               PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_STATUS(plinth_memory_registration_create(block, 10, NULL, &fixed), PLINTH_ERROR_GRAPH_ASLEEP);
  CHECK_OK(plinth_memory_wake("registered"));
  CHECK(has_pattern(block, BLOCK, 1));
  CHECK_EQ(uses_of(block).registrations, 0);
  CHECK_OK(plinth_memory_registration_destroy(records[0].registration));
  CHECK_STATUS(plinth_memory_registration_destroy(records[1].registration), PLINTH_ERROR_INVALID_HANDLE);
  release(block);
  destroy(pool);
  expect_nothing_left();
}

/* The registration of this round, the round, and the last round in which it was exported or not. */
static plinth_memory_registration_t contested;
static int contested_round, finished_round;

/* Each round maps and unmaps memory, for which a GPU takes milliseconds. */
static int contested_rounds(void) { return some_rounds(on_host_device() ? 10000 : 200); }

static void *export_contested(void *context) {
  const int rounds = contested_rounds();
  for (int round = 1; round <= rounds; round++) {
    int descriptor = -1;
    size_t offset, size;
    while (__atomic_load_n(&contested_round, __ATOMIC_ACQUIRE) != round) {
      sched_yield();
    }
    for (volatile int delay = 0; delay < round * 37 % 4000; delay++) {
    }
    const plinth_status_t status = plinth_memory_registration_dma_buf(contested, &descriptor, &offset, &size);
    CHECK(status == PLINTH_OK || status == PLINTH_ERROR_INVALID_HANDLE);
    if (status == PLINTH_OK) {
      CHECK_EQ(close(descriptor), 0);
    }
    __atomic_store_n(&finished_round, round, __ATOMIC_RELEASE);
  }
  return context;
}

/* Memory is not released while another thread exports it, and not exported afterwards. */
TEST(a_registration_is_destroyed_while_it_is_exported) {
  const int rounds = contested_rounds();
  pthread_t thread;
  unsigned char *block = alloc_on(8 * MIB, 0, NULL);
  if (uses_of(block).reasons[PLINTH_MEMORY_USE_DMA_BUF] != NULL) {
    SKIP("the device does not export DMA-BUFs");
  }
  release(block);
  CHECK_EQ(pthread_create(&thread, NULL, export_contested, NULL), 0);
  for (int round = 1; round <= rounds; round++) {
    block = alloc_on(8 * MIB, 0, NULL);
    contested = registration_of(block, 4 * MIB, "contested", NULL, NULL);
    __atomic_store_n(&contested_round, round, __ATOMIC_RELEASE);
    for (volatile int delay = 0; delay < round * 101 % 3000; delay++) {
    }
    CHECK_OK(plinth_memory_registration_destroy(contested));
    release(block);
    CHECK_OK(plinth_empty_cache());
    while (__atomic_load_n(&finished_round, __ATOMIC_ACQUIRE) != round) {
      sched_yield();
    }
  }
  CHECK_EQ(pthread_join(thread, NULL), 0);
  expect_nothing_left();
}

/* ---- wrong arguments */

TEST(wrong_arguments_are_refused) {
  unsigned char *block = alloc_on(BLOCK, 0, NULL);
  plinth_memory_registration_t registration = UNTOUCHED_POINTER;
  plinth_memory_registration_options_t options = PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT;
  plinth_memory_uses_t uses = PLINTH_MEMORY_USES_INIT;
  plinth_pool_id_t pool;
  CHECK_STATUS(plinth_memory_registration_create(NULL, 1, NULL, &registration), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_registration_create(block, 1, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_registration_create(block, 0, NULL, &registration), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_registration_create(block + 1, BLOCK, NULL, &registration), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("block");
  CHECK_STATUS(plinth_memory_registration_create(block, SIZE_MAX, NULL, &registration), PLINTH_ERROR_INVALID_VALUE);
  options.struct_size = 0;
  CHECK_STATUS(plinth_memory_registration_create(block, 1, &options, &registration), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_memory_registration_create(&options, 1, NULL, &registration), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_memory_uses(&options, &uses), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_memory_uses(NULL, &uses), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_memory_uses(block, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_SAME(registration, UNTOUCHED_POINTER);
  CHECK_OK(plinth_memory_registration_destroy(NULL));
  CHECK_STATUS(plinth_memory_registration_destroy((plinth_memory_registration_t)block), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_STATUS(plinth_mem_pool_create_with_flags(64, &pool), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_SEGMENTS | PLINTH_MEM_POOL_FABRIC, &pool),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_SEGMENTS | PLINTH_MEM_POOL_NCCL_WINDOW, &pool),
               PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_mem_pool_create_with_flags(0, NULL), PLINTH_ERROR_NULL_POINTER);
  release(block);
  /* Memory that was freed. */
  CHECK_STATUS(plinth_memory_registration_create(block, 1, NULL, &registration), PLINTH_ERROR_INVALID_POINTER);
  CHECK_STATUS(plinth_memory_uses(block, &uses), PLINTH_ERROR_INVALID_POINTER);
  expect_nothing_left();
}

static void note_action(const plinth_memory_history_entry_t *reported, void *context) {
  *(int32_t *)context = reported->action;
}

TEST(trackers_are_called_before_the_end_of_a_registration_returns) {
  static int32_t action;
  unsigned char *block = alloc_on(5 * MIB, 0, NULL);
  const plinth_memory_registration_t registration = registration_of(block, 5 * MIB, "adapter", NULL, NULL);
  CHECK_OK(plinth_attach_allocator_trace_tracker(note_action, &action));
  release(block);
  CHECK_EQ(action, PLINTH_MEMORY_ACTION_FREE_REQUESTED);
  CHECK_OK(plinth_memory_registration_destroy(registration));
  CHECK_EQ(action, PLINTH_MEMORY_ACTION_FREE_COMPLETED);
  CHECK_OK(plinth_detach_allocator_trace_tracker(note_action, &action));
  expect_nothing_left();
}
