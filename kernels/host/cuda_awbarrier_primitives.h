// Barriers with phases in shared memory, as functions of a word.
#pragma once
#include <plinth_host/phase_barrier.h>
#include <stdint.h>

typedef uint64_t __mbarrier_t;
typedef uint64_t __mbarrier_token_t;

namespace plinth_host {
static inline PhaseWord *phase_word(__mbarrier_t *barrier) { return reinterpret_cast<PhaseWord *>(barrier); }
}  // namespace plinth_host

static inline uint32_t __mbarrier_maximum_count() { return uint32_t(plinth_host::kMaxArrivals); }
static inline void __mbarrier_init(__mbarrier_t *barrier, uint32_t expected) {
  plinth_host::initialize_phase(plinth_host::phase_word(barrier), expected);
}
static inline void __mbarrier_inval(__mbarrier_t *barrier) { *barrier = 0; }
static inline __mbarrier_token_t __mbarrier_arrive(__mbarrier_t *barrier,
                                                   plinth_host::Site site = plinth_host::Site::here()) {
  return plinth_host::arrive_at_phase(plinth_host::phase_word(barrier), 1, 0, site);
}
static inline __mbarrier_token_t __mbarrier_arrive_and_drop(__mbarrier_t *barrier,
                                                            plinth_host::Site site = plinth_host::Site::here()) {
  return plinth_host::arrive_at_phase(plinth_host::phase_word(barrier), 1, 1, site);
}
// Returns the number of arrivals that the phase of a token needed before the arrival that returned the token.
static inline uint32_t __mbarrier_token_pending_count(__mbarrier_token_t token) {
  return uint32_t(plinth_host::pending_of(token));
}

// Returns whether the phase of a token has completed. Other threads run before the answer is no.
static inline bool __mbarrier_test_wait(__mbarrier_t *barrier, __mbarrier_token_t token) {
  const unsigned phase = plinth_host::phase_of(token);
  if (plinth_host::is_phase(plinth_host::phase_word(barrier), phase)) plinth_host::yield();
  return !plinth_host::is_phase(plinth_host::phase_word(barrier), phase);
}
static inline bool __mbarrier_test_wait_parity(__mbarrier_t *barrier, bool parity) {
  if (plinth_host::is_parity(plinth_host::phase_word(barrier), parity)) plinth_host::yield();
  return !plinth_host::is_parity(plinth_host::phase_word(barrier), parity);
}
static inline bool __mbarrier_try_wait(__mbarrier_t *barrier, __mbarrier_token_t token, uint32_t) {
  return __mbarrier_test_wait(barrier, token);
}
static inline bool __mbarrier_try_wait_parity(__mbarrier_t *barrier, bool parity, uint32_t) {
  return __mbarrier_test_wait_parity(barrier, parity);
}
