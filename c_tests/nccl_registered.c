/*
 * Memory of plinth's pools that NCCL has registered, by NCCL's own calls.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "pooling.h"
#include "ranks.h"

#include <dlfcn.h>

enum { NCCL_FLOAT = 7, NCCL_SUM = 0, MOST = 2 };

/* The part of NCCL's interface that is used; its headers need not be installed. */
static struct {
  int (*init_all)(void **, int, const int *);
  int (*destroy)(void *);
  int (*reg)(const void *, void *, size_t, void **);
  int (*deregister)(const void *, void *);
  int (*group_start)(void);
  int (*group_end)(void);
  int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
} nccl;

static void load_nccl(void) {
  if (on_host_device()) {
    SKIP("needs NVIDIA's NCCL");
  }
  need_nccl();
  const char *file = getenv("PLINTH_NCCL_LIBRARY");
  void *library = dlopen(file == NULL ? "libnccl.so.2" : file, RTLD_NOW);
  if (library == NULL) {
    SKIP("NCCL is not in the library path, and PLINTH_NCCL_LIBRARY is not set");
  }
  *(void **)&nccl.init_all = dlsym(library, "ncclCommInitAll");
  *(void **)&nccl.destroy = dlsym(library, "ncclCommDestroy");
  *(void **)&nccl.reg = dlsym(library, "ncclCommRegister");
  *(void **)&nccl.deregister = dlsym(library, "ncclCommDeregister");
  *(void **)&nccl.group_start = dlsym(library, "ncclGroupStart");
  *(void **)&nccl.group_end = dlsym(library, "ncclGroupEnd");
  *(void **)&nccl.all_reduce = dlsym(library, "ncclAllReduce");
  if (nccl.reg == NULL || nccl.deregister == NULL) {
    SKIP("NCCL is older than 2.19");
  }
  CHECK(nccl.init_all && nccl.destroy && nccl.group_start && nccl.group_end && nccl.all_reduce);
}

/* Fills the blocks of all devices with ones, sums them in place, and checks every element. */
static void sum_in_place(void *const *comms, float *const *blocks, size_t count, int devices) {
  const size_t bytes = count * sizeof(float);
  float *host = pinned_memory(bytes);
  const float one = 1;
  for (int device = 0; device < devices; device++) {
    CHECK_OK(plinth_set_device(device));
    CHECK_OK(plinth_memset_pattern(blocks[device], &one, sizeof one, bytes, NULL));
    CHECK_OK(plinth_synchronize(device));
  }
  CHECK_EQ(nccl.group_start(), 0);
  for (int device = 0; device < devices; device++) {
    CHECK_EQ(nccl.all_reduce(blocks[device], blocks[device], count, NCCL_FLOAT, NCCL_SUM, comms[device], NULL), 0);
  }
  CHECK_EQ(nccl.group_end(), 0);
  for (int device = 0; device < devices; device++) {
    CHECK_OK(plinth_set_device(device));
    CHECK_OK(plinth_memcpy(host, blocks[device], bytes, NULL));
    CHECK_OK(plinth_synchronize(device));
    for (size_t index = 0; index < count; index++) {
      CHECK(host[index] == (float)devices);
    }
  }
  CHECK_OK(plinth_set_device(0));
  CHECK_OK(plinth_pinned_free(host));
}

static void register_and_sum(uint32_t flags) {
  const int ordinals[MOST] = {0, 1}, devices = device_count() < MOST ? 1 : MOST;
  const size_t count = 10 * MIB; /* More than one handle. */
  void *comms[MOST], *handles[MOST];
  float *blocks[MOST];
  plinth_memory_registration_t registrations[MOST];
  plinth_pool_id_t pool;
  load_nccl();
  CHECK_OK(plinth_mem_pool_create_with_flags(flags, &pool));
  CHECK_OK(plinth_mem_pool_set_tag(pool, "registered"));
  CHECK_EQ(nccl.init_all(comms, devices, ordinals), 0);
  for (int device = 0; device < devices; device++) {
    plinth_memory_registration_options_t options = PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT;
    options.name = "NCCL";
    CHECK_OK(plinth_set_device(device));
    enter(pool, device);
    blocks[device] = (float *)(void *)alloc_on(count * sizeof(float), device, NULL);
    leave(pool, device);
    CHECK_OK(plinth_memory_registration_create(blocks[device], count * sizeof(float), &options, &registrations[device]));
    CHECK_EQ(nccl.reg(comms[device], blocks[device], count * sizeof(float), &handles[device]), 0);
  }
  CHECK_OK(plinth_set_device(0));
  for (int round = 0; round < 3; round++) {
    sum_in_place(comms, blocks, count, devices);
    /* What is registered keeps its place. */
    CHECK_STATUS(plinth_memory_sleep("registered", NULL), PLINTH_ERROR_GRAPH_MEMORY_IN_USE);
    CHECK_OK(plinth_empty_cache());
  }
  for (int device = 0; device < devices; device++) {
    CHECK_EQ(nccl.deregister(comms[device], handles[device]), 0);
    CHECK_OK(plinth_memory_registration_destroy(registrations[device]));
  }
  CHECK_OK(plinth_memory_sleep("registered", NULL));
  CHECK_OK(plinth_memory_wake("registered"));
  sum_in_place(comms, blocks, count, devices);
  for (int device = 0; device < devices; device++) {
    CHECK_EQ(nccl.destroy(comms[device]), 0);
    release(blocks[device]);
  }
  destroy(pool);
}

TEST(nccl_sums_registered_memory_of_a_pool) { register_and_sum(0); }

TEST(nccl_sums_registered_memory_that_network_adapters_can_access) { register_and_sum(PLINTH_MEM_POOL_GPU_DIRECT_RDMA); }
