/* Each driver call of a shrink fails once: there are all parts or none, nothing leaks, and the ranks stay usable.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* device: host */
/* library: fake_nccl */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "ranks.h"

enum { RANKS = 2, COUNT = 100, LIMIT = 400 };

static plinth_communicator_t communicators[RANKS], parts[RANKS];
static float *memory[RANKS];
static uint32_t engine;

static void make_communicators(void) {
  const int32_t devices[] = {0, 1};
  const plinth_communicator_options_t options = options_of(engine, LIMIT, 0);
  if (engine == PLINTH_ENGINE_LOCAL) {
    CHECK_OK(plinth_communicator_init_all(devices, RANKS, &options, communicators));
  } else {
    init_ranks(RANKS, options, communicators);
  }
}

static plinth_status_t reduce_all(plinth_communicator_t *ones) {
  CHECK_OK(plinth_communicator_group_start());
  for (int rank = 0; rank < RANKS; rank++) {
    const plinth_status_t status = plinth_communicator_all_reduce(ones[rank], memory[rank], memory[rank], COUNT, FLOAT32,
                                                                  PLINTH_REDUCE_SUM, NULL);
    if (status != PLINTH_OK) {
      CHECK_OK(plinth_communicator_group_cancel());
      return status;
    }
  }
  return plinth_communicator_group_end();
}

static size_t unused(int rank) {
  size_t bytes = 0, total = 0;
  CHECK_OK(plinth_mem_get_info(rank, &bytes, &total));
  return bytes;
}

/* Each rank excludes the other one. */
static void shrink_with_faults(uint32_t flags) {
  bool tripped = true;
  int failures = 0;
  CHECK_OK(plinth_enable_fault_injection());
  for (int rank = 0; rank < RANKS; rank++) {
    memory[rank] = floats_on(rank, COUNT, 0, 0);
  }
  for (uint64_t nth = 1; tripped; nth++) {
    const size_t before = unused(0);
    make_communicators();
    CHECK_OK(reduce_all(communicators));
    CHECK_OK(plinth_communicator_group_start());
    for (int32_t rank = 0; rank < RANKS; rank++) {
      const int32_t other = 1 - rank;
      parts[rank] = NULL;
      CHECK_OK(plinth_communicator_shrink(communicators[rank], &other, 1, flags, &parts[rank]));
    }
    CHECK_OK(plinth_inject_fault(nth, 999));
    const plinth_status_t status = plinth_communicator_group_end();
    tripped = plinth_tripped_fault() != NULL;
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK(tripped || status == PLINTH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK((parts[rank] != NULL) == (status == PLINTH_OK));
    }
    if (status == PLINTH_OK) {
      CHECK_OK(reduce_all(parts));
    } else {
      failures++;
    }
    const plinth_status_t later = reduce_all(communicators);
    if (flags == PLINTH_SHRINK_DEFAULT && (status == PLINTH_OK || engine != PLINTH_ENGINE_NCCL)) {
      CHECK_EQ(later, PLINTH_OK);
    } else if (flags == PLINTH_SHRINK_ABORT && status == PLINTH_OK) {
      CHECK_EQ(later, PLINTH_ERROR_ABORTED);
    } else {
      CHECK(later == PLINTH_OK || later == PLINTH_ERROR_ABORTED);
    }
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK_OK(plinth_synchronize(rank));
      CHECK_OK(plinth_communicator_destroy(parts[rank]));
    }
    for (int rank = 0; rank < RANKS; rank++) {
      CHECK_OK(plinth_communicator_destroy(communicators[rank]));
    }
    if (nth > 1) {
      CHECK_EQ(unused(0), before);
    }
  }
  /* The parts of devices of one process have no resources of their own. */
  CHECK(failures > 0 || engine == PLINTH_ENGINE_LOCAL);
}

static void of_engine(uint32_t number, const char *name) {
  engine = number;
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", name);
  use_fake_nccl("fake_nccl");
  shrink_with_faults(PLINTH_SHRINK_DEFAULT);
  shrink_with_faults(PLINTH_SHRINK_ABORT);
}

TEST(a_fault_in_a_shrink_of_devices_of_one_process) { of_engine(PLINTH_ENGINE_LOCAL, "auto"); }

TEST(a_fault_in_a_shrink_between_processes) { of_engine(PLINTH_ENGINE_SHARED, "shared"); }

TEST(a_fault_in_a_shrink_of_nccl) { of_engine(PLINTH_ENGINE_NCCL, "nccl"); }
