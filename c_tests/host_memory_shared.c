/* Memory amounts that processes share on the host device. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 */
/* alone: all; forks and sets the environment before the first call */
#include "process.h"

#include <signal.h>
#include <sys/mman.h>

#define TOTAL (64 * MIB)

/* What parent and child tell each other. */
typedef struct board {
  int step;
  int more;
} board;

static board *shared;
static char name[64];
static char file[128];
/* How the child allocates. */
static void (*hold)(size_t bytes);

static void reach(int step) { __atomic_store_n(&shared->step, step, __ATOMIC_SEQ_CST); }

static void await(int step) { EVENTUALLY(__atomic_load_n(&shared->step, __ATOMIC_SEQ_CST) >= step); }

static size_t free_on(int32_t device) {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CHECK_OK(plinth_mem_get_info(device, &free_bytes, &total_bytes));
  CHECK_EQ(total_bytes, TOTAL);
  return free_bytes;
}

static void share_memory(void) {
  setenv("PLINTH_DEVICE", "host", 1);
  setenv("PLINTH_HOST_MEMORY", "64MiB", 1);
  snprintf(name, sizeof name, "test-%d", (int)getpid());
  snprintf(file, sizeof file, "/dev/shm/plinth-host-memory-%d-%s", (int)getuid(), name);
  setenv("PLINTH_HOST_MEMORY_NAME", name, 1);
  shared = (board *)mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
}

static void hold_whole(size_t bytes) { device_memory(bytes, 0); }

static void hold_managed(size_t bytes) {
  void *memory = NULL;
  CHECK_OK(plinth_managed_malloc(bytes, 0, &memory));
}

static void hold_cached(size_t bytes) {
  void *memory = NULL;
  CHECK_OK(plinth_caching_allocator_alloc(bytes, 0, NULL, &memory));
}

static void hold_in_pool(size_t bytes) {
  CHECK_OK(plinth_set_allocator_settings("backend:cudaMallocAsync"));
  hold_cached(bytes);
}

static void hold_until_killed(void) {
  hold(40 * MIB);
  reach(1);
  for (;;) {
    pause();
  }
}

static void add_memory(const plinth_gpu_process_t *process, void *sum) {
  CHECK_EQ(process->pid, (uint32_t)getpid());
  *(uint64_t *)sum += process->memory_used;
}

static uint64_t memory_of_this_process(int32_t device) {
  uint64_t sum = 0;
  CHECK_OK(plinth_gpu_processes_each(device, add_memory, &sum));
  return sum;
}

static void a_kind_lowers_the_free_memory(void (*how)(size_t bytes)) {
  void *memory = UNTOUCHED_POINTER;
  share_memory();
  hold = how;
  const pid_t child = start_child(hold_until_killed);
  await(1);
  CHECK_EQ(free_on(0), TOTAL - 40 * MIB);
  CHECK_EQ(free_on(1), TOTAL);
  CHECK_EQ(memory_of_this_process(0), 0);
  CHECK_STATUS(plinth_device_malloc(32 * MIB, 0, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_SAME(memory, UNTOUCHED_POINTER);
  CHECK_STATUS(plinth_caching_allocator_alloc(32 * MIB, 0, NULL, &memory), PLINTH_ERROR_OUT_OF_MEMORY);
  CHECK_MESSAGE("which has 64.00 MiB, 24.00 MiB of it free");
  CHECK_MESSAGE("other processes, and other libraries in this one, have 40.00 MiB");
  void *rest = device_memory(24 * MIB, 0);
  CHECK_EQ(free_on(0), 0);
  CHECK_EQ(memory_of_this_process(0), 24 * MIB);
  CHECK_OK(plinth_device_free(rest));
  /* The part of a process that is killed comes back. */
  CHECK(kill(child, SIGKILL) == 0);
  CHECK_EQ(waitpid(child, NULL, 0), child);
  CHECK_EQ(free_on(0), TOTAL);
  CHECK_OK(plinth_device_free(device_memory(TOTAL, 0)));
  CHECK_EQ(free_on(0), TOTAL);
}

TEST(another_processs_allocations_count) { a_kind_lowers_the_free_memory(hold_whole); }

TEST(another_processs_managed_memory_counts) { a_kind_lowers_the_free_memory(hold_managed); }

TEST(another_processs_cache_counts) { a_kind_lowers_the_free_memory(hold_cached); }

TEST(another_processs_pools_count) { a_kind_lowers_the_free_memory(hold_in_pool); }

static void exit_normally(void) {
  device_memory(8 * MIB, 0);
  CHECK(access(file, F_OK) == 0);
  CHECK_EQ(free_on(0), TOTAL - 8 * MIB);
  exit(0);
}

TEST(the_last_process_leaves_no_file) {
  share_memory();
  in_child(exit_normally);
  CHECK(access(file, F_OK) != 0);
}

static void die_at_once(void) {
  device_memory(8 * MIB, 0);
  raise(SIGKILL);
}

TEST(the_file_of_a_killed_process_does_no_harm) {
  share_memory();
  const pid_t child = start_child(die_at_once);
  CHECK_EQ(waitpid(child, NULL, 0), child);
  CHECK(access(file, F_OK) == 0);
  in_child(exit_normally);
  CHECK(access(file, F_OK) != 0);
}

static void do_nothing(void) { CHECK(!plinth_is_initialized()); }

static void do_nothing_and_exit(void) { exit(0); }

TEST(a_forked_child_holds_nothing) {
  share_memory();
  void *memory = device_memory(40 * MIB, 0);
  in_child(do_nothing);
  in_child(do_nothing_and_exit);
  CHECK(access(file, F_OK) == 0);
  CHECK_EQ(free_on(0), TOTAL - 40 * MIB);
  CHECK_OK(plinth_device_free(memory));
  CHECK_EQ(free_on(0), TOTAL);
}

/* Takes and gives until the parent ends the race; what it holds is never more than the total. */
static void take_and_give(void) {
  for (int round = 0; round < 300; round++) {
    void *memory = NULL;
    const plinth_status_t status = plinth_device_malloc(24 * MIB, 0, &memory);
    if (status == PLINTH_OK) {
      CHECK(__atomic_add_fetch(&shared->more, 1, __ATOMIC_SEQ_CST) <= 2);
      __atomic_sub_fetch(&shared->more, 1, __ATOMIC_SEQ_CST);
      CHECK_OK(plinth_device_free(memory));
    } else {
      CHECK_STATUS(status, PLINTH_ERROR_OUT_OF_MEMORY);
    }
  }
  exit(0);
}

TEST(processes_never_hold_more_than_there_is) {
  pid_t children[4];
  share_memory();
  for (int index = 0; index < 4; index++) {
    children[index] = start_child(take_and_give);
  }
  for (int index = 0; index < 4; index++) {
    expect_child(children[index], 0);
  }
  CHECK(access(file, F_OK) != 0);
}

static void see_all_memory(void) { CHECK_EQ(free_on(0), TOTAL); }

TEST(without_a_name_the_memory_is_private) {
  share_memory();
  unsetenv("PLINTH_HOST_MEMORY_NAME");
  hold = hold_whole;
  const pid_t child = start_child(hold_until_killed);
  await(1);
  in_child(see_all_memory);
  CHECK(kill(child, SIGKILL) == 0);
  CHECK_EQ(waitpid(child, NULL, 0), child);
}

TEST(an_invalid_name_is_named) {
  share_memory();
  setenv("PLINTH_HOST_MEMORY_NAME", "../x", 1);
  CHECK_STATUS(plinth_init(), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("PLINTH_HOST_MEMORY_NAME is \"../x\"");
}
