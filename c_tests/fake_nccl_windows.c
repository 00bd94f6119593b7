/*
 * The fake NCCL fails where NCCL would access addresses of a window that it has not mapped. The library refuses such
 * calls before, so the fake is called directly.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* device: host */
/* library: fake_nccl */
#include "helpers/fake_nccl_types.h"
#include "pooling.h"
#include "ranks.h"

#include <dlfcn.h>
#include <limits.h>

enum { NCCL_FLOAT = 7, NCCL_SUM = 0, CUDA_ERROR = 1, COUNT = 3 << 20 };

static struct {
  int (*unique_id)(unique_id *);
  int (*init)(void **, int, unique_id, int, config *);
  int (*window)(void *, void *, size_t, void **, int);
  int (*deregister)(void *, const void *);
  int (*all_reduce)(const void *, void *, size_t, int, int, void *, plinth_stream_t);
  int (*error)(void *, int *);
  int (*destroy)(void *);
} fake;

static void *make_communicator(void) {
  unique_id id;
  void *made = NULL;
  config settings = {sizeof settings, 0xcafebeef, 23203, 1, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN, NULL,
                     {0}, INT_MAX};
  need_nccl();
  void *library = dlopen(getenv("PLINTH_NCCL_LIBRARY"), RTLD_NOW);
  CHECK(library != NULL);
  *(void **)&fake.unique_id = dlsym(library, "ncclGetUniqueId");
  *(void **)&fake.init = dlsym(library, "ncclCommInitRankConfig");
  *(void **)&fake.window = dlsym(library, "ncclCommWindowRegister");
  *(void **)&fake.deregister = dlsym(library, "ncclCommWindowDeregister");
  *(void **)&fake.all_reduce = dlsym(library, "ncclAllReduce");
  *(void **)&fake.error = dlsym(library, "ncclCommGetAsyncError");
  *(void **)&fake.destroy = dlsym(library, "ncclCommDestroy");
  CHECK_EQ(fake.unique_id(&id), 0);
  CHECK_EQ(fake.init(&made, 1, id, 0, &settings), 0);
  return made;
}

/* Reduces numbers in place after a part of the memory has become a window, and returns the communicator's error. */
static int reduce(float *memory, size_t window_bytes, size_t first, size_t count) {
  int error = -1;
  void *window = NULL;
  void *communicator = make_communicator();
  CHECK_EQ(fake.window(communicator, memory, window_bytes, &window, 1), 0);
  CHECK_EQ(fake.all_reduce(memory + first, memory + first, count, NCCL_FLOAT, NCCL_SUM, communicator, NULL), 0);
  CHECK_OK(plinth_synchronize(0));
  CHECK_EQ(fake.error(communicator, &error), 0);
  CHECK_EQ(fake.deregister(communicator, window), 0);
  CHECK_EQ(fake.destroy(communicator), 0);
  return error;
}

TEST(a_window_of_one_allocation_is_mapped) {
  plinth_pool_id_t pool;
  CHECK_OK(plinth_mem_pool_create_with_flags(PLINTH_MEM_POOL_NCCL_WINDOW, &pool));
  enter(pool, 0);
  float *memory = (float *)(void *)alloc_on(COUNT * sizeof(float), 0, NULL);
  leave(pool, 0);
  CHECK_EQ(reduce(memory, COUNT * sizeof(float), 0, COUNT), 0);
  CHECK_EQ(reduce(memory, COUNT * sizeof(float), 5, COUNT - 5), 0);
  /* The second half is not registered. */
  CHECK_EQ(reduce(memory, COUNT / 2 * sizeof(float), COUNT / 2, COUNT / 2), 0);
  CHECK_EQ(reduce(memory, COUNT / 2 * sizeof(float), 0, COUNT), CUDA_ERROR);
  CHECK_EQ(reduce(memory, COUNT / 2 * sizeof(float), 5, COUNT / 2), CUDA_ERROR);
  CHECK_OK(plinth_caching_allocator_delete(memory));
  CHECK_OK(plinth_mem_pool_destroy(pool));
}

TEST(a_window_of_several_allocations_is_not) {
  const size_t bytes = (size_t)200 << 20; /* more than one handle of the allocator */
  float *memory = (float *)(void *)alloc_on(bytes, 0, NULL);
  CHECK_EQ(reduce(memory, bytes, 0, 100), CUDA_ERROR);
  CHECK_OK(plinth_caching_allocator_delete(memory));
}
