/* Faults in the driver calls of the library's initialization. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; enables fault injection before the first call */
#include "faults.h"

static void expect_not_initialized(void) { CHECK(!plinth_is_initialized()); }

static const fault_plan init_plan = {
    .set_up = expect_not_initialized,
    .report = FAULT_ALWAYS_REPORTED,
    .kinds_in_new_processes = KINDS_WITHOUT_CONTEXT,
    .min_faults = 2, /* cuInit, the count, and each device */
    .initializes = true,
};

/* In a new process: initialization reports the fault, and succeeds when it is repeated. */
SCENARIO_OF(init_plan, initialization) {
  int32_t count = UNTOUCHED;
  const bool is_first = !plinth_is_initialized();
  if (!ATTEMPT(plinth_init())) {
    CHECK(is_first);
    CHECK(!plinth_is_initialized());
    CHECK_OK(plinth_init());
  }
  CHECK(plinth_is_initialized());
  if (ATTEMPT(plinth_device_count(&count))) {
    CHECK(count > 0);
  }
}

TEST(a_fault_needs_a_code) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_STATUS(plinth_inject_fault(1, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_inject_fault(0, 0));
  CHECK_OK(plinth_init());
}
