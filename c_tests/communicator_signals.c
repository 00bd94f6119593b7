/* Groups of processes are made, split, used and destroyed while a timer interrupts every system call.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* env: PLINTH_COMMUNICATOR_ENGINE=shared */
/* timeout: 120 */
#include "interrupting.h"
#include "ranks.h"

enum { RANKS = 3, ROUNDS = 20, COUNT = 1000, MICROSECONDS = 100, MILLISECONDS = 20000 };

/* The timer runs only during calls of the library. */
static void make_and_split(int rank) {
  static uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  const plinth_communicator_options_t options = options_of(PLINTH_ENGINE_AUTO, MILLISECONDS, 0);
  /* Each signal costs more under a sanitizer. */
  const int rounds = HARNESS_SANITIZED ? 2 : some_rounds(ROUNDS);
  need_devices(RANKS);
  install_handler();
  float *memory = floats_on(rank, COUNT, 1, 0);
  for (int round = 0; round < rounds; round++) {
    plinth_communicator_t communicator = NULL, part = NULL;
    share_id(rank, id);
    interrupt_every(MICROSECONDS);
    CHECK_OK(plinth_communicator_init_rank(RANKS, id, rank, rank, &options, &communicator));
    CHECK_OK(plinth_communicator_split(communicator, 0, -rank, &part));
    CHECK_OK(plinth_communicator_broadcast(part, memory, memory, COUNT, FLOAT32, 0, NULL));
    CHECK_OK(plinth_communicator_wait(part, MILLISECONDS, NULL));
    CHECK_OK(plinth_communicator_destroy(part));
    CHECK_OK(plinth_communicator_destroy(communicator));
    interrupt_every(0);
  }
  CHECK(signals > rounds);
}

TEST(signals_do_not_disturb_groups) { run_processes(RANKS, make_and_split); }
