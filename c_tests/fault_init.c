/* Faults in the driver calls by which the library begins. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* alone: all; enables fault injection, which comes before everything else */
#include "driver.h"
#include "process.h"

static uint64_t nth;
static int32_t code;

enum { NOT_MET = 3 };

/* In a process that has done nothing yet: the beginning fails, says why, and works when it is tried again. */
static void begin_with_a_fault(void) {
  char digits[16];
  int32_t count = UNTOUCHED;
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_OK(plinth_inject_fault(nth, code));
  CHECK(!plinth_is_initialized());
  const plinth_status_t status = plinth_init();
  if (plinth_tripped_fault() == NULL) {
    CHECK_EQ(status, PLINTH_OK);
    _exit(NOT_MET);
  }
  snprintf(digits, sizeof digits, "%d", (int)code);
  CHECK(status != PLINTH_OK);
  CHECK_MESSAGE(digits);
  CHECK_MESSAGE(plinth_tripped_fault());
  CHECK_EQ(plinth_last_driver_error(), code);
  CHECK(!plinth_is_initialized());
  CHECK_OK(plinth_init());
  CHECK(plinth_is_initialized());
  CHECK_OK(plinth_device_count(&count));
  CHECK(count > 0);
}

TEST(beginning_survives_faults) {
  static const int32_t codes[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN, 12345};
  for (int index = 0; index < 3; index++) {
    int status = 0;
    code = codes[index];
    for (nth = 1; status == 0; nth++) {
      const pid_t child = start_child(begin_with_a_fault);
      CHECK(nth < 100);
      CHECK_EQ(waitpid(child, &status, 0), child);
      CHECK(WIFEXITED(status));
      status = WEXITSTATUS(status);
    }
    CHECK_EQ(status, NOT_MET);
    /* cuInit, the count, and each device. */
    CHECK(nth > 3);
  }
}

TEST(a_fault_needs_a_code) {
  CHECK_OK(plinth_enable_fault_injection());
  CHECK_STATUS(plinth_inject_fault(1, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_OK(plinth_inject_fault(0, 0));
  CHECK_OK(plinth_init());
}
