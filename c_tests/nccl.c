/* torch.cuda.nccl: collectives over tensors of several devices. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_COMMUNICATOR_ENGINE=nccl */
/* library: fake_nccl */
/* alone: the_version_has_three_parts calls_after_an_error_of_a_group_succeed; they set the environment */
/* alone: communicators_that_are_replaced_keep_no_memory; sets the environment */
#include "ranks.h"

enum { COUNT = 600 };

static int64_t shape[] = {20, 30};
static int64_t wide_shape[] = {2, 20, 30};
static int64_t backwards[] = {1, 20};

static DLTensor tensor_on(int32_t device, void *data, int32_t ndim, int64_t *sizes) {
  const DLTensor tensor = {data, {2, device}, ndim, FLOAT32, sizes, NULL, 0};
  return tensor;
}

/* Makes a tensor of COUNT numbers on each of two devices: `first`, `first + 1`, ..., where `first` is 10 times the device. */
static void two_tensors(DLTensor *tensors) {
  need_devices(2);
  need_nccl();
  for (int32_t device = 0; device < 2; device++) {
    tensors[device] = tensor_on(device, floats_on(device, COUNT, 10.0f * (float)device, 1), 2, shape);
  }
}

static void synchronize_both(void) {
  CHECK_OK(plinth_synchronize(0));
  CHECK_OK(plinth_synchronize(1));
}

TEST(the_version_has_three_parts) {
  int32_t major = -1, minor = -1, patch = -1;
  need_nccl();
  if (on_host_device()) {
    setenv("FAKE_NCCL_VERSION", "22907", 1);
  }
  CHECK_OK(plinth_nccl_version(&major, &minor, &patch));
  CHECK_EQ(major, 2);
  CHECK(minor >= 14 && patch >= 0);
  if (on_host_device()) {
    CHECK_EQ(minor, 29);
    CHECK_EQ(patch, 7);
  }
  CHECK_OK(plinth_nccl_version(NULL, NULL, NULL));
}

TEST(tensors_are_reduced_in_place_or_not) {
  DLTensor inputs[2], outputs[2];
  two_tensors(inputs);
  for (int32_t device = 0; device < 2; device++) {
    outputs[device] = tensor_on(device, floats_on(device, COUNT, -1, 0), 2, shape);
  }
  CHECK_OK(plinth_nccl_all_reduce(inputs, outputs, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  synchronize_both();
  expect_floats(outputs[0].data, COUNT, 10, 2);
  expect_floats(outputs[1].data, COUNT, 10, 2);
  expect_floats(inputs[1].data, COUNT, 10, 1);
  CHECK_OK(plinth_nccl_all_reduce(inputs, NULL, 2, PLINTH_REDUCE_MAX, NULL, NULL));
  synchronize_both();
  expect_floats(inputs[0].data, COUNT, 10, 1);
  expect_floats(inputs[1].data, COUNT, 10, 1);
}

TEST(reduce_writes_the_result_to_the_root) {
  DLTensor inputs[2];
  two_tensors(inputs);
  DLTensor output = tensor_on(1, floats_on(1, COUNT, -1, 0), 2, shape);
  CHECK_OK(plinth_nccl_reduce(inputs, &output, 2, 1, PLINTH_REDUCE_SUM, NULL, NULL));
  CHECK_OK(plinth_nccl_reduce(inputs, NULL, 2, 0, PLINTH_REDUCE_SUM, NULL, NULL));
  synchronize_both();
  expect_floats(output.data, COUNT, 10, 2);
  expect_floats(inputs[0].data, COUNT, 10, 2);
  expect_floats(inputs[1].data, COUNT, 10, 1);
  CHECK_STATUS(plinth_nccl_reduce(inputs, &output, 2, 2, PLINTH_REDUCE_SUM, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the root is 2");
  CHECK_STATUS(plinth_nccl_reduce(inputs, NULL, 2, -1, PLINTH_REDUCE_SUM, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("the root is -1, and there are 2 tensors");
  CHECK_STATUS(plinth_nccl_reduce(inputs, &output, 2, 0, PLINTH_REDUCE_SUM, NULL, NULL), PLINTH_ERROR_DEVICE_MISMATCH);
}

TEST(the_roots_tensor_is_broadcast) {
  DLTensor tensors[2];
  two_tensors(tensors);
  CHECK_OK(plinth_nccl_broadcast(tensors, 2, 1, NULL, NULL));
  synchronize_both();
  expect_floats(tensors[0].data, COUNT, 10, 1);
}

TEST(tensors_are_gathered_and_scattered) {
  DLTensor small[2], wide[2];
  two_tensors(small);
  for (int32_t device = 0; device < 2; device++) {
    wide[device] = tensor_on(device, floats_on(device, 2 * (size_t)COUNT, -1, 0), 3, wide_shape);
  }
  CHECK_OK(plinth_nccl_all_gather(small, wide, 2, NULL, NULL));
  synchronize_both();
  for (int32_t device = 0; device < 2; device++) {
    expect_floats(wide[device].data, COUNT, 0, 1);
    expect_floats((float *)wide[device].data + COUNT, COUNT, 10, 1);
  }
  CHECK_OK(plinth_nccl_reduce_scatter(wide, small, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  synchronize_both();
  expect_floats(small[0].data, COUNT, 0, 2);
  expect_floats(small[1].data, COUNT, 20, 2);
  CHECK_STATUS(plinth_nccl_all_gather(small, small, 2, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_nccl_reduce_scatter(small, wide, 2, PLINTH_REDUCE_SUM, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
}

TEST(the_current_or_the_given_streams_are_used) {
  DLTensor tensors[2];
  two_tensors(tensors);
  plinth_stream_t streams[2] = {stream_on(0), stream_on(1)};
  need_host_device(); /* On a GPU, a gate may block other host functions of the driver. */
  gate *shut = gate_shut(streams[1]);
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, streams, NULL));
  CHECK(stays_undone(streams[0]));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  CHECK_OK(plinth_stream_synchronize(streams[1]));
  expect_floats(tensors[0].data, COUNT, 10, 2);
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_set_stream(streams[0]));
  shut = gate_shut(streams[1]);
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  CHECK(stays_undone(streams[0]));
  gate_open(shut);
  CHECK_OK(plinth_stream_synchronize(streams[0]));
  expect_floats(tensors[0].data, COUNT, 20, 4);
}

TEST(communicators_of_the_program_can_be_used) {
  DLTensor tensors[2];
  const int32_t devices[] = {0, 1};
  plinth_communicator_t communicators[2];
  two_tensors(tensors);
  CHECK_OK(plinth_communicator_init_all(devices, 2, NULL, communicators));
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, communicators));
  synchronize_both();
  expect_floats(tensors[1].data, COUNT, 10, 2);
  plinth_communicator_t swapped[] = {communicators[1], communicators[0]};
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, swapped), PLINTH_ERROR_DEVICE_MISMATCH);
  swapped[0] = (plinth_communicator_t)tensors;
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, swapped), PLINTH_ERROR_INVALID_HANDLE);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

TEST(the_root_is_an_input_and_not_a_rank) {
  DLTensor tensors[2];
  const int32_t devices[] = {1, 0};
  plinth_communicator_t communicators[2];
  two_tensors(tensors);
  CHECK_OK(plinth_communicator_init_all(devices, 2, NULL, communicators));
  plinth_communicator_t swapped[] = {communicators[1], communicators[0]};
  DLTensor output = tensor_on(0, floats_on(0, COUNT, -1, 0), 2, shape);
  CHECK_OK(plinth_nccl_reduce(tensors, &output, 2, 0, PLINTH_REDUCE_SUM, NULL, swapped));
  synchronize_both();
  expect_floats(output.data, COUNT, 10, 2);
  expect_floats(tensors[1].data, COUNT, 10, 1);
  CHECK_OK(plinth_nccl_broadcast(tensors, 2, 0, NULL, swapped));
  synchronize_both();
  expect_floats(tensors[0].data, COUNT, 0, 1);
  expect_floats(tensors[1].data, COUNT, 0, 1);
  CHECK_OK(plinth_communicator_destroy(communicators[0]));
  CHECK_OK(plinth_communicator_destroy(communicators[1]));
}

TEST(parts_of_more_ranks_than_inputs_are_refused) {
  DLTensor small[2], wide[2];
  const int32_t devices[] = {0, 1, 2};
  plinth_communicator_t communicators[3];
  need_devices(3);
  two_tensors(small);
  for (int32_t device = 0; device < 2; device++) {
    wide[device] = tensor_on(device, floats_on(device, 3 * (size_t)COUNT, -1, 0), 3, wide_shape);
  }
  CHECK_OK(plinth_communicator_init_all(devices, 3, NULL, communicators));
  CHECK_STATUS(plinth_nccl_all_gather(small, wide, 2, NULL, communicators), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("communicator 0 has 3 ranks, and there are 2 inputs");
  CHECK_STATUS(plinth_nccl_reduce_scatter(wide, small, 2, PLINTH_REDUCE_SUM, NULL, communicators), PLINTH_ERROR_INVALID_VALUE);
  for (int rank = 0; rank < 3; rank++) {
    CHECK_OK(plinth_communicator_destroy(communicators[rank]));
  }
}

/* An error at the end of a group aborts the communicators of the library. The next call makes others. */
TEST(calls_after_an_error_of_a_group_succeed) {
  DLTensor tensors[2];
  need_host_device(); /* Sets the fake's environment. */
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "nccl");
  two_tensors(tensors);
  CHECK_OK(plinth_nccl_broadcast(tensors, 2, 0, NULL, NULL));
  /* The abort would end it. */
  synchronize_both();
  setenv("FAKE_NCCL_FAIL", "ncclGroupEnd:3", 1);
  CHECK_OK(plinth_communicator_group_start());
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  CHECK_STATUS(plinth_communicator_group_end(), PLINTH_ERROR_NCCL);
  unsetenv("FAKE_NCCL_FAIL");
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  synchronize_both();
  expect_floats(tensors[1].data, COUNT, 0, 2);
}

/* NCCL reports an error of the communicators of the library, which nobody else can end. The next call makes others. */
TEST(communicators_that_are_replaced_keep_no_memory) {
  size_t before = 0, after = 0, total = 0;
  DLTensor tensors[2];
  need_host_device(); /* Sets the fake's environment. */
  harness_setenv("PLINTH_COMMUNICATOR_ENGINE", "nccl");
  two_tensors(tensors);
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_MAX, NULL, NULL));
  synchronize_both();
  CHECK_OK(plinth_mem_get_info(0, &before, &total));
  setenv("FAKE_NCCL_ASYNC", "6", 1);
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_MAX, NULL, NULL), PLINTH_ERROR_PEER_LOST);
  unsetenv("FAKE_NCCL_ASYNC");
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_MAX, NULL, NULL));
  synchronize_both();
  CHECK_OK(plinth_mem_get_info(0, &after, &total));
  CHECK_EQ(after, before);
}

/* The numbers of a thread do not change, unless they are mixed with those of another thread. */
static void *reduce_in_a_thread(void *context) {
  const int number = *(int *)context;
  DLTensor tensors[2];
  plinth_stream_t streams[2];
  for (int32_t device = 0; device < 2; device++) {
    streams[device] = stream_on(device);
    tensors[device] = tensor_on(device, floats_on(device, COUNT, (float)number, 0), 2, shape);
  }
  for (int round = 0; round < 3000; round++) {
    CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_MAX, streams, NULL));
  }
  for (int32_t device = 0; device < 2; device++) {
    CHECK_OK(plinth_stream_synchronize(streams[device]));
    expect_floats(tensors[device].data, COUNT, (float)number, 0);
  }
  return NULL;
}

TEST(calls_of_threads_do_not_mix) {
  need_devices(2);
  need_nccl();
  if (on_host_device() && getenv("PLINTH_COMMUNICATOR_ENGINE") != NULL) {
    SKIP("the fake NCCL runs one operation at a time");
  }
  run_threads(6, reduce_in_a_thread);
}

TEST(invalid_tensors_are_refused_as_in_pytorch) {
  DLTensor tensors[2], other[2];
  two_tensors(tensors);
#define REFUSED(status, part)                                                                            \
  CHECK_STATUS(plinth_nccl_all_reduce(other, NULL, 2, PLINTH_REDUCE_SUM, NULL, NULL), status); \
  CHECK_MESSAGE(part);                                                                                   \
  memcpy(other, tensors, sizeof other)
  memcpy(other, tensors, sizeof other);
  other[1] = other[0];
  REFUSED(PLINTH_ERROR_INVALID_VALUE, "must be on unique devices");
  other[1].strides = backwards;
  REFUSED(PLINTH_ERROR_INVALID_VALUE, "have to be contiguous");
  other[1].dtype = INT32;
  REFUSED(PLINTH_ERROR_INVALID_VALUE, "must be of the same type");
  other[1].ndim = 1;
  REFUSED(PLINTH_ERROR_INVALID_VALUE, "must have the same number of elements");
  other[1].device.device_type = 1;
  REFUSED(PLINTH_ERROR_DEVICE_MISMATCH, "inputs[1]");
  other[1].device.device_id = 99;
  REFUSED(PLINTH_ERROR_INVALID_DEVICE, "99");
  CHECK_STATUS(plinth_nccl_all_reduce(NULL, NULL, 2, 0, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, 0, 0, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_nccl_all_reduce(tensors, NULL, 2, 9, NULL, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_nccl_all_gather(tensors, NULL, 2, NULL, NULL), PLINTH_ERROR_NULL_POINTER);
  /* A refused call has no effect on later ones. */
  CHECK_OK(plinth_nccl_all_reduce(tensors, NULL, 2, PLINTH_REDUCE_SUM, NULL, NULL));
  synchronize_both();
  expect_floats(tensors[0].data, COUNT, 10, 2);
}

TEST(availability_depends_on_the_tensors) {
  DLTensor tensors[2];
  bool available = false;
  two_tensors(tensors);
  CHECK_OK(plinth_nccl_is_available(NULL, 0, &available));
  CHECK(available);
  CHECK_OK(plinth_nccl_is_available(tensors, 2, &available));
  CHECK(available);
  tensors[1].strides = backwards;
  CHECK_OK(plinth_nccl_is_available(tensors, 2, &available));
  CHECK(!available);
  tensors[1] = tensors[0];
  CHECK_OK(plinth_nccl_is_available(tensors, 2, &available));
  CHECK(!available);
  tensors[1].device.device_type = 1;
  CHECK_OK(plinth_nccl_is_available(tensors, 2, &available));
  CHECK(!available);
  tensors[0].device.device_id = 99;
  CHECK_OK(plinth_nccl_is_available(tensors, 1, &available));
  CHECK(!available);
  CHECK_STATUS(plinth_nccl_is_available(tensors, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_nccl_is_available(NULL, 1, &available), PLINTH_ERROR_NULL_POINTER);
}
