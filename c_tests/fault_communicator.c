/* Each driver call of a communicator fails once: the call reports it, the ranks stay usable or can be created again, nothing
 * hangs, and nothing leaks. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=3 */
/* also: PLINTH_HOST_PEERS=none */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"
#include "ranks.h"

enum { COUNT = 3000, MAX_RANKS = 3 };

static plinth_communicator_t communicators[MAX_RANKS];
static plinth_stream_t streams[MAX_RANKS];
static float *inputs[MAX_RANKS], *outputs[MAX_RANKS];
static int32_t devices[MAX_RANKS];
static int ranks;

static void set_up(void) {
  CHECK_OK(plinth_enable_fault_injection());
  ranks = device_count() < MAX_RANKS ? device_count() : MAX_RANKS;
  for (int rank = 0; rank < ranks; rank++) {
    devices[rank] = rank;
    streams[rank] = stream_on(rank);
    inputs[rank] = floats_on(rank, COUNT, (float)rank, 1);
    outputs[rank] = floats_on(rank, MAX_RANKS * COUNT, -1, 0);
  }
}

static plinth_status_t first_error(plinth_status_t one, plinth_status_t other) { return one != PLINTH_OK ? one : other; }

static plinth_status_t make_communicators(void) {
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, 5000, 0);
  return plinth_communicator_init_all(devices, (size_t)ranks, &options, communicators);
}

static void destroy_communicators(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

static plinth_status_t (*one_call)(int rank);

/* Runs a call of every rank in a group. If a call fails, the end of the group fails too. */
static plinth_status_t call_in_group(void) {
  plinth_status_t status = plinth_communicator_group_start();
  if (status != PLINTH_OK) {
    return status;
  }
  plinth_status_t failed = PLINTH_OK;
  for (int rank = 0; rank < ranks; rank++) {
    const plinth_status_t called = one_call(rank);
    if (called != PLINTH_OK) {
      failed = first_error(failed, called);
      CHECK(plinth_tripped_fault() != NULL);
    }
  }
  if (failed == PLINTH_OK) {
    return plinth_communicator_group_end();
  }
  CHECK(plinth_communicator_group_end() != PLINTH_OK);
  return failed;
}

static plinth_status_t all_reduce(int rank) {
  return plinth_communicator_all_reduce(communicators[rank], inputs[rank], outputs[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                        streams[rank]);
}

static plinth_status_t all_gather(int rank) {
  return plinth_communicator_all_gather(communicators[rank], inputs[rank], outputs[rank], COUNT, FLOAT32, streams[rank]);
}

static plinth_status_t broadcast(int rank) {
  return plinth_communicator_broadcast(communicators[rank], inputs[rank], outputs[rank], COUNT, FLOAT32, 0, streams[rank]);
}

static plinth_status_t send_to_next(int rank) {
  return first_error(
      plinth_communicator_send(communicators[rank], inputs[rank], COUNT, FLOAT32, (rank + 1) % ranks, streams[rank]),
      plinth_communicator_recv(communicators[rank], outputs[rank], COUNT, FLOAT32, (rank + ranks - 1) % ranks, streams[rank]));
}

static void synchronize_streams(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
  }
}

static void expect_sums(void) {
  synchronize_streams();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(outputs[rank], COUNT, (float)(ranks * (ranks - 1) / 2), (float)ranks);
  }
}

static void expect_all(void) {
  synchronize_streams();
  for (int rank = 0; rank < ranks; rank++) {
    for (int other = 0; other < ranks; other++) {
      expect_floats(outputs[rank] + (size_t)other * COUNT, COUNT, (float)other, 1);
    }
  }
}

static void expect_first(void) {
  synchronize_streams();
  for (int rank = 1; rank < ranks; rank++) {
    expect_floats(outputs[rank], COUNT, 0, 1);
  }
}

static void expect_neighbour(void) {
  synchronize_streams();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(outputs[rank], COUNT, (float)((rank + ranks - 1) % ranks), 1);
  }
}

static void survive(plinth_status_t (*call)(int rank), void (*check)(void)) {
  set_up();
  need_devices(2);
  CHECK_OK(make_communicators());
  one_call = call;
  survive_each_call(call_in_group, check, 4);
  destroy_communicators();
}

TEST(all_reduce_survives_faults) { survive(all_reduce, expect_sums); }

TEST(all_gather_survives_faults) { survive(all_gather, expect_all); }

TEST(broadcast_survives_faults) { survive(broadcast, expect_first); }

TEST(sends_survive_faults) { survive(send_to_next, expect_neighbour); }

/* ---- registrations, with ranks in threads, whose calls wait for each other */

enum { REGISTERED = 5000000, WARM_UP = 3 };

static void *blocks[2];
static plinth_status_t statuses[2];
static char messages[2][1024];

static void *register_and_deregister(void *context) {
  const int rank = *(int *)context;
  statuses[rank] = plinth_communicator_register(communicators[rank], blocks[rank], REGISTERED);
  snprintf(messages[rank], sizeof messages[rank], "%s", plinth_last_error());
  if (statuses[rank] == PLINTH_OK) {
    CHECK_OK(plinth_communicator_deregister(communicators[rank], blocks[rank]));
  }
  return NULL;
}

TEST(registrations_survive_faults) {
  int failed = 0;
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "shared");
  CHECK_OK(plinth_enable_fault_injection());
  need_devices(2);
  bool can_access = false;
  CHECK_OK(plinth_can_device_access_peer(0, 1, &can_access));
  if (!can_access) {
    SKIP("needs peer access");
  }
  init_ranks(2, options_of(PLINTH_ENGINE_SHARED, 20000, 0), communicators);
  for (int rank = 0; rank < 2; rank++) {
    CHECK_OK(plinth_caching_allocator_alloc(REGISTERED, rank, NULL, &blocks[rank]));
  }
  for (int round = 0; round < WARM_UP; round++) {
    run_threads(2, register_and_deregister);
    CHECK(statuses[0] == PLINTH_OK && statuses[1] == PLINTH_OK);
  }
  plinth_host_usage_t before = PLINTH_HOST_USAGE_INIT;
  if (on_host_device()) {
    before = host_usage();
  }
  const char *call = "";
  for (uint64_t nth = 1; call != NULL; nth++) {
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    run_threads(2, register_and_deregister);
    call = plinth_tripped_fault();
    CHECK_OK(plinth_inject_fault(0, 0));
    CHECK((statuses[0] == PLINTH_OK) == (statuses[1] == PLINTH_OK));
    for (int rank = 0; rank < 2 && statuses[rank] != PLINTH_OK; rank++) {
      CHECK(call != NULL && strstr(messages[rank], call) != NULL);
      failed++;
    }
    if (on_host_device()) {
      const plinth_host_usage_t after = host_usage();
      expect_no_leak(&before, &after);
    }
    run_threads(2, register_and_deregister);
    CHECK(statuses[0] == PLINTH_OK && statuses[1] == PLINTH_OK);
  }
  CHECK(failed > 8);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

/* The fourth call of a rank prepares a graph for its launches, the fifth changes it. If the driver refuses that, the kernels are
 * launched as such: a rank whose call fails would leave the others alone. */
static bool is_about_graphs(const char *call) { return call != NULL && strncmp(call, "cuGraph", 7) == 0; }

static plinth_status_t call_often(int rank) {
  plinth_status_t status = PLINTH_OK;
  for (size_t part = 5; part > 0 && status == PLINTH_OK; part--) {
    status = plinth_communicator_all_reduce(communicators[rank], inputs[rank], outputs[rank], COUNT / part, FLOAT32,
                                            PLINTH_REDUCE_SUM, streams[rank]);
  }
  return status;
}

TEST(launches_between_processes_need_no_graphs) {
  int without_graph = 0;
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "shared");
  set_up();
  need_devices(2);
  bool can_access = false;
  CHECK_OK(plinth_can_device_access_peer(0, 1, &can_access));
  if (!can_access) {
    SKIP("needs peer access");
  }
  const char *call = "";
  for (uint64_t nth = 1; call != NULL; nth++) {
    init_ranks(2, options_of(PLINTH_ENGINE_SHARED, 20000, 0), communicators);
    CHECK_OK(plinth_inject_fault(nth, CUDA_ERROR_UNKNOWN));
    const plinth_status_t status = call_often(0);
    call = plinth_tripped_fault();
    CHECK(status == PLINTH_OK || (call != NULL && strstr(plinth_last_error(), call) != NULL));
    CHECK_OK(plinth_inject_fault(0, 0));
    if (is_about_graphs(call)) {
      CHECK_OK(status);
      without_graph++;
    }
    if (status == PLINTH_OK) {
      CHECK_OK(call_often(1));
      for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(plinth_stream_synchronize(streams[rank]));
        expect_floats(outputs[rank], COUNT, 1, 2);
        CHECK_OK(plinth_memset(outputs[rank], 0, COUNT * sizeof(float), streams[rank]));
      }
    }
    for (int rank = 0; rank < 2; rank++) {
      CHECK_OK(status == PLINTH_OK ? plinth_communicator_destroy(communicators[rank])
                                   : plinth_communicator_abort(communicators[rank]));
    }
  }
  /* Making a graph, adding the kernel, instantiating, two launches, and changing the kernel. */
  CHECK_EQ(without_graph, 6);
}

/* Creates, uses and destroys communicators, while one of the driver calls fails. */
static plinth_status_t create_use_destroy(void) {
  plinth_status_t status = make_communicators();
  if (status == PLINTH_OK) {
    one_call = all_reduce;
    status = call_in_group();
    char message[1024];
    snprintf(message, sizeof message, "%s", plinth_last_error());
    const char *call = plinth_tripped_fault();
    CHECK(status == PLINTH_OK || (call != NULL && strstr(message, call) != NULL));
    for (int rank = 0; rank < ranks; rank++) {
      const plinth_status_t ended = plinth_communicator_destroy(communicators[rank]);
      CHECK(ended == PLINTH_OK || plinth_tripped_fault() != NULL);
      if (ended != PLINTH_OK) {
        CHECK_OK(plinth_communicator_destroy(communicators[rank]));
      }
    }
  }
  return PLINTH_OK;
}

static void nothing(void) {}

TEST(communicator_lifetime_survives_faults) {
  set_up();
  need_devices(2);
  survive_each_call(create_use_destroy, nothing, 0);
  CHECK_EQ(failures, 0);
}
