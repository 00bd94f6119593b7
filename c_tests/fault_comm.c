/* Each driver call of a collective fails once: the collective releases its memory, and the next call succeeds.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=3 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=broadcast_split:1,reduce_split:1 */
/* timeout: 240 */
/* alone: all; enables fault injection before the first call */
#include "collecting.h"
#include "faults.h"

static const int64_t shape[] = {20, 30};
static const int64_t transposed[] = {1, 20};

/* On a single device a collective may make a single driver call. */
static void survive(plinth_status_t (*body)(void), void (*check)(void)) {
  survive_each_call(body, check, device_count() > 1 ? 4 : 1);
}

static test_tensor source, inputs[3], out;

static test_tensor allocated_outputs[3];

static plinth_status_t broadcast_once(void) {
  for (int32_t device = 0; device < 3; device++) {
    describe_output(&allocated_outputs[device], device % device_count(), 2, false);
  }
  DLTensor *descriptors = descriptors_of(allocated_outputs, 3);
  const plinth_status_t status = plinth_comm_broadcast(&source.dl, descriptors, 3);
  take_descriptors(allocated_outputs, 3, descriptors);
  for (int index = 0; index < 3; index++) {
    CHECK((allocated_outputs[index].dl.data != NULL) == (status == PLINTH_OK));
  }
  return status;
}

static void expect_broadcast(void) {
  for (int index = 0; index < 3; index++) {
    complete_output(&allocated_outputs[index], F32, allocated_outputs[index].device != 0);
    expect_pattern(&allocated_outputs[index], 1, "broadcast");
    free_tensor(&allocated_outputs[index]);
  }
}

TEST(broadcast_survives_faults) {
  CHECK_OK(plinth_enable_fault_injection());
  need_devices(2); /* With one device nothing is copied. */
  make_tensor(&source, 0, F32, 2, shape, NULL, 0);
  set_pattern(&source, 1);
  survive(broadcast_once, expect_broadcast);
  free_tensor(&source);
}

static plinth_status_t reduce_once(void) {
  DLTensor *descriptors = descriptors_of(inputs, 3);
  const plinth_status_t status = plinth_comm_reduce_add(descriptors, 3, &out.dl);
  free(descriptors);
  return status;
}

static void expect_reduced(void) { expect_sum(&out, 3, "sum"); }

static void survive_reduce(const int64_t *strides) {
  CHECK_OK(plinth_enable_fault_injection());
  for (int32_t device = 0; device < 3; device++) {
    make_tensor(&inputs[device], device % device_count(), F32, 2, shape, strides, 0);
    set_numbers(&inputs[device], device);
  }
  make_tensor(&out, 0, F32, 2, shape, NULL, 0);
  survive(reduce_once, expect_reduced);
  for (int32_t device = 0; device < 3; device++) {
    free_tensor(&inputs[device]);
  }
  free_tensor(&out);
}

TEST(reduce_add_survives_faults) { survive_reduce(NULL); }

TEST(reduce_add_of_strided_tensors_survives_faults) { survive_reduce(transposed); }

static plinth_status_t gather_once(void) {
  DLTensor *descriptors = descriptors_of(inputs, 3);
  const plinth_status_t status = plinth_comm_gather(descriptors, 3, 1, &out.dl);
  free(descriptors);
  return status;
}

static void expect_gathered(void) {
  unsigned char *whole = elements_of(&out);
  unsigned char *part = pattern_elements(&inputs[0], 4);
  for (int line = 0; line < 20; line++) {
    for (int index = 0; index < 3; index++) {
      CHECK(memcmp(whole + (line * 3 + index) * 120, part + line * 120, 120) == 0);
    }
  }
  free(whole);
  free(part);
}

TEST(gather_survives_faults) {
  static const int64_t whole[] = {20, 90};
  CHECK_OK(plinth_enable_fault_injection());
  for (int32_t device = 0; device < 3; device++) {
    make_tensor(&inputs[device], device % device_count(), F32, 2, shape, transposed, 0);
    set_pattern(&inputs[device], 4);
  }
  make_tensor(&out, 0, F32, 2, whole, NULL, 0);
  survive(gather_once, expect_gathered);
  for (int32_t device = 0; device < 3; device++) {
    free_tensor(&inputs[device]);
  }
  free_tensor(&out);
}

static plinth_status_t scatter_once(void) {
  DLTensor *descriptors = descriptors_of(inputs, 3);
  const plinth_status_t status = plinth_comm_scatter(&source.dl, descriptors, 3, NULL, 1, NULL);
  free(descriptors);
  return status;
}

static void expect_scattered(void) {
  unsigned char *whole = pattern_elements(&source, 5);
  for (int index = 0; index < 3; index++) {
    unsigned char *part = elements_of(&inputs[index]);
    for (int line = 0; line < 20; line++) {
      CHECK(memcmp(part + line * 40, whole + line * 120 + index * 40, 40) == 0);
    }
    free(part);
  }
  free(whole);
}

TEST(scatter_survives_faults) {
  static const int64_t part[] = {20, 10};
  CHECK_OK(plinth_enable_fault_injection());
  make_tensor(&source, 0, F32, 2, shape, transposed, 0);
  set_pattern(&source, 5);
  for (int32_t device = 0; device < 3; device++) {
    make_tensor(&inputs[device], device % device_count(), F32, 2, part, NULL, 0);
  }
  survive(scatter_once, expect_scattered);
  for (int32_t device = 0; device < 3; device++) {
    free_tensor(&inputs[device]);
  }
  free_tensor(&source);
}
