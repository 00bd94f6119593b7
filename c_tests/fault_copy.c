/* Each driver call of a copy of rows or of a tensor fails once: the copy releases its memory, and the next call succeeds.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=2 */
/* also: PLINTH_HOST_PEERS=none */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "collecting.h"
#include "faults.h"

enum { ROWS = 20, COLUMNS = 30 };

static const int64_t shape[] = {ROWS, COLUMNS};
static const int64_t transposed[] = {1, ROWS};
static test_tensor from, to;

static plinth_status_t copy_once(void) { return plinth_copy_tensor(&to.dl, &from.dl, false); }

/* The elements are numbers from 1 on, in the types of both tensors. */
static void expect_numbers(void) {
  double *actual = (double *)elements_of(&to);
  for (int index = 0; index < ROWS * COLUMNS; index++) {
    CHECK_EQ(actual[index], index + 1);
  }
  free(actual);
  set_elements(&to, NULL);
}

static void survive_enabled(int from_device, int to_device, int min_failures) {
  int32_t numbers[ROWS * COLUMNS];
  for (int index = 0; index < ROWS * COLUMNS; index++) {
    numbers[index] = index + 1;
  }
  make_tensor(&from, from_device, I32, 2, shape, transposed, 0);
  make_tensor(&to, to_device, F64, 2, shape, NULL, 0);
  set_elements(&from, (const unsigned char *)numbers);
  survive_each_call(copy_once, expect_numbers, min_failures);
  free_tensor(&from);
  free_tensor(&to);
}

static void survive(int from_device, int to_device, int min_failures) {
  CHECK_OK(plinth_enable_fault_injection());
  survive_enabled(from_device, to_device, min_failures);
}

TEST(a_copy_within_a_device_survives_faults) { survive(0, 0, 1); }

TEST(a_copy_to_a_device_survives_faults) { survive(ON_PINNED, 0, 3); }

TEST(a_copy_from_a_device_survives_faults) { survive(0, ON_CPU, 3); }

TEST(a_copy_on_the_cpu_survives_faults) { survive(ON_CPU, ON_PINNED, 1); }

TEST(a_copy_between_devices_survives_faults) {
  CHECK_OK(plinth_enable_fault_injection());
  need_devices(2);
  survive_enabled(0, 1, 4);
}

static unsigned char *rows;

static plinth_status_t copy_rows_once(void) { return plinth_memcpy_2d(to.memory, 64, rows, 32, 30, 10, NULL); }

static void expect_rows(void) {
  unsigned char actual[640];
  fetch(actual, to.memory, sizeof actual);
  for (size_t at = 0; at < 64 * 9 + 30; at++) {
    CHECK_EQ(actual[at], at % 64 < 30 ? pattern_byte(at / 64 * 32 + at % 64, 1) : GUARD_BYTE);
  }
  set_elements(&to, NULL);
}

TEST(a_copy_of_rows_survives_faults) {
  CHECK_OK(plinth_enable_fault_injection());
  make_tensor(&to, 0, F64, 2, shape, NULL, 0);
  set_elements(&to, NULL);
  rows = (unsigned char *)pageable_memory(320);
  pattern_fill(rows, 320, 1);
  survive_each_call(copy_rows_once, expect_rows, 1);
  free(rows);
  free_tensor(&to);
}
