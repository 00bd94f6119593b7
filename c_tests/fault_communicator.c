/* Every driver call made to fail, once, in what communicators do: a call that meets the fault says so, the ranks can go on or
 * be made anew, nothing hangs, and nothing is lost. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=3 */
/* also: PLINTH_HOST_PEERS=none */
/* timeout: 240 */
/* alone: all; enables fault injection, which comes before everything else */
#include "faults.h"
#include "ranks.h"

enum { COUNT = 3000, MOST = 3 };

static plinth_communicator_t team[MOST];
static plinth_stream_t streams[MOST];
static float *from[MOST], *to[MOST];
static int32_t devices[MOST];
static int ranks;

static void make_memory(void) {
  CHECK_OK(plinth_enable_fault_injection());
  ranks = device_count() < MOST ? device_count() : MOST;
  for (int rank = 0; rank < ranks; rank++) {
    devices[rank] = rank;
    streams[rank] = stream_on(rank);
    from[rank] = floats_on(rank, COUNT, (float)rank, 1);
    to[rank] = floats_on(rank, MOST * COUNT, -1, 0);
  }
}

static plinth_status_t first_of(plinth_status_t one, plinth_status_t other) { return one != PLINTH_OK ? one : other; }

static plinth_status_t make_team(void) {
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_LOCAL, 5000, 0);
  return plinth_communicator_init_all(devices, (size_t)ranks, &options, team);
}

static void end_team(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_communicator_destroy(team[rank]));
  }
}

static plinth_status_t (*one_call)(int rank);

/* The first error, and what its call said of it: the calls after it would clear that. */
static plinth_status_t failed;

static void note(plinth_status_t status) { failed = first_of(failed, status); }

/* A call of every rank's, as a group. If the group fails, its end does too or did already. */
static plinth_status_t together(void) {
  plinth_status_t status = plinth_communicator_group_start();
  if (status != PLINTH_OK) {
    return status;
  }
  failed = PLINTH_OK;
  for (int rank = 0; rank < ranks; rank++) {
    const plinth_status_t called = one_call(rank);
    if (called != PLINTH_OK) {
      note(called);
      CHECK(plinth_tripped_fault() != NULL);
    }
  }
  if (failed == PLINTH_OK) {
    return plinth_communicator_group_end();
  }
  char message[1024];
  snprintf(message, sizeof message, "%s", plinth_last_error());
  CHECK(plinth_communicator_group_end() != PLINTH_OK);
  return failed;
}

static plinth_status_t all_reduce(int rank) {
  return plinth_communicator_all_reduce(team[rank], from[rank], to[rank], COUNT, FLOAT32, PLINTH_REDUCE_SUM,
                                        streams[rank]);
}

static plinth_status_t all_gather(int rank) {
  return plinth_communicator_all_gather(team[rank], from[rank], to[rank], COUNT, FLOAT32, streams[rank]);
}

static plinth_status_t broadcast(int rank) {
  return plinth_communicator_broadcast(team[rank], from[rank], to[rank], COUNT, FLOAT32, 0, streams[rank]);
}

static plinth_status_t pass_on(int rank) {
  return first_of(
      plinth_communicator_send(team[rank], from[rank], COUNT, FLOAT32, (rank + 1) % ranks, streams[rank]),
      plinth_communicator_recv(team[rank], to[rank], COUNT, FLOAT32, (rank + ranks - 1) % ranks, streams[rank]));
}

/* What the streams were given is done. */
static void settle(void) {
  for (int rank = 0; rank < ranks; rank++) {
    CHECK_OK(plinth_stream_synchronize(streams[rank]));
  }
}

static void expect_sums(void) {
  settle();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, (float)(ranks * (ranks - 1) / 2), (float)ranks);
  }
}

static void expect_all(void) {
  settle();
  for (int rank = 0; rank < ranks; rank++) {
    for (int other = 0; other < ranks; other++) {
      expect_floats(to[rank] + (size_t)other * COUNT, COUNT, (float)other, 1);
    }
  }
}

static void expect_first(void) {
  settle();
  for (int rank = 1; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, 0, 1);
  }
}

static void expect_neighbour(void) {
  settle();
  for (int rank = 0; rank < ranks; rank++) {
    expect_floats(to[rank], COUNT, (float)((rank + ranks - 1) % ranks), 1);
  }
}

static void survive(plinth_status_t (*call)(int rank), void (*check)(void)) {
  make_memory();
  need_devices(2);
  CHECK_OK(make_team());
  one_call = call;
  survive_each_call(together, check, 4);
  end_team();
}

TEST(all_reduce_survives_faults) { survive(all_reduce, expect_sums); }

TEST(all_gather_survives_faults) { survive(all_gather, expect_all); }

TEST(broadcast_survives_faults) { survive(broadcast, expect_first); }

TEST(sends_survive_faults) { survive(pass_on, expect_neighbour); }

/* A group of ranks is made, used and destroyed while a call in between fails. */
static plinth_status_t live(void) {
  plinth_status_t status = make_team();
  if (status == PLINTH_OK) {
    one_call = all_reduce;
    status = together();
    char message[1024];
    snprintf(message, sizeof message, "%s", plinth_last_error());
    const char *call = plinth_tripped_fault();
    CHECK(status == PLINTH_OK || (call != NULL && strstr(message, call) != NULL));
    for (int rank = 0; rank < ranks; rank++) {
      const plinth_status_t ended = plinth_communicator_destroy(team[rank]);
      CHECK(ended == PLINTH_OK || plinth_tripped_fault() != NULL);
      if (ended != PLINTH_OK) {
        CHECK_OK(plinth_communicator_destroy(team[rank]));
      }
    }
  }
  return PLINTH_OK;
}

static void nothing(void) {}

TEST(a_team_lives_in_spite_of_faults) {
  make_memory();
  need_devices(2);
  survive_each_call(live, nothing, 0);
  CHECK_EQ(failures, 0);
}
