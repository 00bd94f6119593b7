/* Broadcasts: types, layouts and alignments, allocated and given outputs, stream order, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=broadcast_split:1 */
/* also: PLINTH_SANITIZER=error */
/* alone: an_invalid_configuration_is_reported; expects a new process */
#include "collecting.h"

static const int64_t three[] = {5, 7, 9};

/* Broadcasts to outputs that the library allocates on every device, and checks them. */
static void expect_made(test_tensor *source, bool strides, unsigned seed) {
  const int32_t devices = device_count();
  test_tensor allocated_outputs[8];
  for (int32_t device = 0; device < devices; device++) {
    describe_output(&allocated_outputs[device], device, source->dl.ndim, strides);
  }
  DLTensor *outputs = descriptors_of(allocated_outputs, (size_t)devices);
  CHECK_OK(plinth_comm_broadcast(&source->dl, outputs, (size_t)devices));
  take_descriptors(allocated_outputs, (size_t)devices, outputs);
  for (int32_t device = 0; device < devices; device++) {
    if (device == source->device) {
      CHECK_SAME(allocated_outputs[device].dl.data,
                 count_of(source) == 0 ? NULL : (unsigned char *)source->dl.data + source->dl.byte_offset);
    }
    complete_output(&allocated_outputs[device], source->kind, device != source->device);
    CHECK(memcmp(allocated_outputs[device].shape, source->shape, sizeof source->shape) == 0);
    expect_pattern(&allocated_outputs[device], seed, "broadcast");
    free_tensor(&allocated_outputs[device]);
  }
}

TEST(every_type_is_broadcast_from_every_device) {
  for (int kind = 0; kind < TYPES; kind++) {
    for (int32_t device = 0; device < device_count(); device++) {
      test_tensor source;
      make_tensor(&source, device, kind, 3, three, NULL, 0);
      set_pattern(&source, 3);
      expect_made(&source, false, 3);
      free_tensor(&source);
    }
  }
}

TEST(sizes_and_addresses_need_no_alignment) {
  static const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 63, 255, 4095, 4096, 4097, 70000};
  need_devices(2);
  for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
    for (size_t from = 0; from < 18; from += size % 3 + 1) {
      test_tensor source, out[2];
      make_tensor(&source, 0, U8, 1, &sizes[size], NULL, from);
      make_tensor(&out[0], 1, U8, 1, &sizes[size], NULL, from % 5 * 4);
      make_tensor(&out[1], device_count() - 1, U8, 1, &sizes[size], NULL, from + 16 * (size % 2));
      set_pattern(&source, 9);
      set_elements(&out[0], NULL);
      set_elements(&out[1], NULL);
      DLTensor *outputs = descriptors_of(out, 2);
      CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 2));
      take_descriptors(out, 2, outputs);
      for (int index = 0; index < 2; index++) {
        expect_pattern(&out[index], 9, "unaligned");
        expect_guard_bytes(&out[index]);
        free_tensor(&out[index]);
      }
      free_tensor(&source);
    }
  }
}

TEST(source_and_outputs_may_have_any_strides) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {1, 5, 35}, {100, 11, 1}, {-63, 9, -1}, {9, 45, 1}, {2, 10, 70}};
  enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };
  need_devices(2);
  for (int from = 0; from < LAYOUTS; from++) {
    for (int to = 0; to < LAYOUTS; to++) {
      static const int kinds[] = {U8, F16, F32, C64, C128};
      const int kind = kinds[(from + to) % 5];
      test_tensor source, out[3];
      make_tensor(&source, 1, kind, 3, three, layouts[from], 0);
      set_pattern(&source, 5);
      make_tensor(&out[0], 0, kind, 3, three, layouts[to], 0);
      make_tensor(&out[1], 1, kind, 3, three, layouts[to], 0);
      make_tensor(&out[2], device_count() - 1, kind, 3, three, layouts[(to + 1) % LAYOUTS], 0);
      DLTensor *outputs = descriptors_of(out, 3);
      for (int index = 0; index < 3; index++) {
        set_elements(&out[index], NULL);
      }
      CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 3));
      take_descriptors(out, 3, outputs);
      for (int index = 0; index < 3; index++) {
        expect_pattern(&out[index], 5, "strided");
        expect_guard_bytes(&out[index]);
        free_tensor(&out[index]);
      }
      free_tensor(&source);
    }
  }
}

TEST(a_source_may_be_expanded_with_strides_of_0) {
  static const int64_t expanded[] = {0, 1, 0};
  test_tensor source;
  make_tensor(&source, 0, F32, 3, three, expanded, 0);
  const size_t bytes = (size_t)count_of(&source) * 4;
  float *expected = (float *)pageable_memory(bytes);
  for (size_t index = 0; index < bytes / 4; index++) {
    expected[index] = (float)(index / 9 % 7);
  }
  set_elements(&source, (unsigned char *)expected);
  test_tensor out;
  describe_output(&out, device_count() - 1, 3, true);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
  if (out.device != 0) {
    complete_output(&out, F32, true);
    CHECK_EQ(out.strides[2], 1);
    CHECK_EQ(out.strides[0], 63);
    expect_elements(&out, (unsigned char *)expected, "expanded");
    free_tensor(&out);
  }
  free(expected);
  free_tensor(&source);
}

TEST(allocated_outputs_keep_dense_strides_if_the_descriptor_has_room) {
  static const int64_t transposed[] = {1, 5, 35};
  test_tensor source, out;
  need_devices(2);
  make_tensor(&source, 0, F32, 3, three, transposed, 0);
  set_pattern(&source, 4);
  for (int strides = 0; strides < 2; strides++) {
    describe_output(&out, 1, 3, strides == 1);
    CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
    complete_output(&out, F32, true);
    CHECK_EQ(out.strides[0], strides == 1 ? 1 : 63);
    expect_pattern(&out, 4, "transposed");
    free_tensor(&out);
  }
  free_tensor(&source);
}

TEST(tensors_without_dimensions_and_without_elements) {
  static const int64_t empty[] = {3, 0, 2};
  test_tensor source;
  make_tensor(&source, device_count() - 1, F64, 0, NULL, NULL, 0);
  set_pattern(&source, 8);
  expect_made(&source, true, 8);
  free_tensor(&source);
  make_tensor(&source, 0, F64, 3, empty, NULL, 0);
  expect_made(&source, false, 8);
  free_tensor(&source);
}

TEST(a_device_may_have_several_outputs) {
  test_tensor source, out[5];
  make_tensor(&source, 0, I32, 3, three, NULL, 0);
  set_pattern(&source, 6);
  for (int index = 0; index < 5; index++) {
    if (index < 3) {
      make_tensor(&out[index], device_count() - 1, I32, 3, three, NULL, 0);
    } else {
      describe_output(&out[index], 0, 3, false);
    }
  }
  DLTensor *outputs = descriptors_of(out, 5);
  CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 5));
  take_descriptors(out, 5, outputs);
  for (int index = 0; index < 5; index++) {
    if (index >= 3) {
      complete_output(&out[index], I32, false);
      CHECK_SAME(out[index].dl.data, source.dl.data);
    }
    expect_pattern(&out[index], 6, "several on a device");
    free_tensor(&out[index]);
  }
  free_tensor(&source);
}

TEST(more_outputs_than_one_launch_copies) {
  enum { MANY = 150 };
  static test_tensor out[MANY];
  test_tensor source;
  make_tensor(&source, 0, I32, 3, three, NULL, 0);
  set_pattern(&source, 6);
  for (int index = 0; index < MANY; index++) {
    make_tensor(&out[index], index % device_count(), I32, 3, three, NULL, 0);
  }
  DLTensor *outputs = descriptors_of(out, MANY);
  CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, MANY));
  take_descriptors(out, MANY, outputs);
  for (int index = 0; index < MANY; index++) {
    expect_pattern(&out[index], 6, "many");
    free_tensor(&out[index]);
  }
  free_tensor(&source);
}

TEST(a_tensor_can_be_broadcast_to_itself) {
  test_tensor source;
  make_tensor(&source, 0, F32, 3, three, NULL, 0);
  set_pattern(&source, 2);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &source.dl, 1));
  expect_pattern(&source, 2, "itself");
  free_tensor(&source);
}

TEST(the_source_may_be_in_host_memory) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {100, 11, 1}, {1, 5, 35}, {2000, 200, 3}, {-63, 9, -1}};
  for (int where = 0; where < 2; where++) {
    for (int layout = 0; layout < 5; layout++) {
      test_tensor source;
      make_tensor(&source, where == 0 ? ON_CPU : ON_PINNED, F32, 3, three, layouts[layout], 0);
      unsigned char *elements = pattern_elements(&source, 12);
      memset(source.memory, 0, source.bytes);
      for (int64_t index = 0; index < count_of(&source); index++) {
        memcpy(source.memory + source.dl.byte_offset + element_offset(&source, index), elements + index * 4, 4);
      }
      free(elements);
      expect_made(&source, layout % 2 == 0, 12);
      free_tensor(&source);
    }
  }
}

TEST(broadcast_waits_for_every_stream_and_every_stream_waits_for_it) {
  need_devices(2);
  const int32_t devices = device_count();
  const size_t bytes = 1 * MIB;
  const int64_t shape = (int64_t)bytes;
  test_tensor source, out[8];
  plinth_stream_t streams[8];
  for (int32_t device = 0; device < devices; device++) {
    streams[device] = stream_on(device);
    CHECK_OK(plinth_set_stream(streams[device]));
  }
  for (int gated = NO_GATE; gated < devices; gated++) {
    make_tensor(&source, 0, U8, 1, &shape, NULL, 0);
    set_pattern(&source, 1);
    for (int32_t device = 1; device < devices; device++) {
      make_tensor(&out[device], device, U8, 1, &shape, NULL, 0);
      CHECK_OK(plinth_memset(out[device].memory, 0, bytes, streams[device]));
    }
    synchronize_all();
    gate *shut = gated == NO_GATE ? NULL : gate_shut(streams[gated]);
    DLTensor *outputs = descriptors_of(&out[1], (size_t)devices - 1);
    CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, (size_t)devices - 1));
    free(outputs);
    if (gated != NO_GATE) {
      for (int32_t device = 0; device < devices; device++) {
        CHECK(!stream_done(streams[device]));
      }
      CHECK(stays_undone(streams[(gated + 1) % devices]));
      gate_open(shut);
    }
    for (int32_t device = 1; device < devices; device++) {
      CHECK_OK(plinth_stream_synchronize(streams[device]));
      CHECK_OK(plinth_set_device(device));
      expect_pattern(&out[device], 1, "gated");
      free_tensor(&out[device]);
    }
    synchronize_all();
    free_tensor(&source);
  }
}

TEST(later_work_does_not_overtake_a_broadcast) {
  need_devices(2);
  const int64_t shape = 3 * 1024 * 1024;
  test_tensor source, out;
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(1);
  CHECK_OK(plinth_set_stream(second));
  CHECK_OK(plinth_set_stream(first));
  make_tensor(&source, 0, U8, 1, &shape, NULL, 0);
  make_tensor(&out, 1, U8, 1, &shape, NULL, 0);
  for (unsigned round = 0; round < 20; round++) {
    CHECK_OK(plinth_memset(source.memory, (uint8_t)round, (size_t)shape, first));
    CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
    /* Both are overwritten at once, each in its own stream. */
    CHECK_OK(plinth_memset(source.memory, 0xAA, (size_t)shape, first));
    unsigned char *host = (unsigned char *)pageable_memory((size_t)shape);
    CHECK_OK(plinth_memcpy(host, out.memory, (size_t)shape, second));
    CHECK_OK(plinth_memset(out.memory, 0xBB, (size_t)shape, second));
    CHECK_OK(plinth_stream_synchronize(second));
    for (int64_t at = 0; at < shape; at += 997) {
      CHECK_EQ(host[at], (unsigned char)round);
    }
    free(host);
  }
  synchronize_all();
  free_tensor(&source);
  free_tensor(&out);
}

TEST(a_refused_call_allocates_nothing) {
  need_devices(2);
  test_tensor source, out[2];
  make_tensor(&source, 0, F32, 3, three, NULL, 0);
  describe_output(&out[0], 1, 3, false);
  make_tensor(&out[1], 1, F64, 3, three, NULL, 0);
  const size_t before = allocated(1);
  DLTensor *outputs = descriptors_of(out, 2);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, outputs, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("outputs[1]");
  CHECK_EQ(allocated(1), before);
  CHECK_SAME(outputs[0].data, NULL);
  free(outputs);
  static const int64_t other[] = {5, 9, 7};
  test_tensor wrong;
  make_tensor(&wrong, 1, F32, 3, other, NULL, 0);
  outputs = descriptors_of(out, 2);
  outputs[1] = wrong.dl;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, outputs, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("output 1 has invalid shape: got [5, 9, 7], but expected [5, 7, 9]");
  CHECK_EQ(allocated(1), before + rounded(wrong.bytes));
  CHECK_SAME(outputs[0].data, NULL);
  free(outputs);
  free_tensor(&wrong);
  free_tensor(&out[1]);
  free_tensor(&source);
}

TEST(invalid_arguments_are_refused) {
  test_tensor source, out;
  make_tensor(&source, 0, F32, 3, three, NULL, 0);
  CHECK_OK(plinth_comm_broadcast(&source.dl, NULL, 0));
  CHECK_STATUS(plinth_comm_broadcast(NULL, NULL, 0), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, NULL, 1), PLINTH_ERROR_NULL_POINTER);
  describe_output(&out, 0, 2, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("ndim is 2; it must be 3");
  describe_output(&out, 0, 3, false);
  out.dl.shape = NULL;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_NULL_POINTER);
  describe_output(&out, 99, 3, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_DEVICE);
  describe_output(&out, -2, 3, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_DEVICE);
  out.dl = source.dl;
  out.dl.data = NULL;
  out.dl.device.device_type = 1;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_NULL_POINTER);
  out.dl.device.device_type = 7;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_DEVICE_MISMATCH);
  make_tensor(&out, ON_CPU, F32, 3, three, NULL, 0);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("output 0 is in memory of the CPU");
  free_tensor(&out);
  static const int64_t expanded[] = {9, 0, 1};
  make_tensor(&out, 0, F32, 3, three, expanded, 0);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("several elements in one place");
  free_tensor(&out);
  source.dl.dtype.bits = 4;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, NULL, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("elements of 4 bits cannot be copied");
  free_tensor(&source);
}

TEST(minus_one_is_the_current_device) {
  need_devices(2);
  test_tensor source, out;
  make_tensor(&source, 0, F32, 3, three, NULL, 0);
  set_pattern(&source, 3);
  CHECK_OK(plinth_set_device(1));
  describe_output(&out, -1, 3, false);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
  out.device = 1;
  complete_output(&out, F32, true);
  expect_pattern(&out, 3, "current");
  free_tensor(&out);
  free_tensor(&source);
}

TEST(sync_debug_mode_reports_a_source_in_pageable_memory) {
  test_tensor source, out;
  make_tensor(&source, ON_CPU, F32, 3, three, NULL, 0);
  memset(source.memory, 0, source.bytes);
  describe_output(&out, 0, 3, false);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_EQ(allocated(0), 0);
  free_tensor(&source);
}

enum { TENSORS = 300 };

static test_tensor sources[TENSORS];
static test_tensor outputs_of[TENSORS * 4];

/* Makes tensors of all types, sizes and layouts on device 0. */
static void make_sources(void) {
  uint64_t state = 5;
  for (int index = 0; index < TENSORS; index++) {
    int64_t shape[3], strides[3];
    const int32_t rank = (int32_t)random_up_to(&state, 3);
    int64_t stride = 1;
    for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
      shape[dimension] = random_up_to(&state, index % 10 == 0 ? 40 : 12);
      strides[dimension] = stride;
      stride *= shape[dimension] + (index % 7 == 3);
    }
    make_tensor(&sources[index], 0, (int)random_up_to(&state, TYPES - 1), rank, shape, strides, 0);
    set_pattern(&sources[index], (unsigned)index);
  }
}

TEST(many_tensors_at_once) {
  const int32_t devices[] = {0, device_count() - 1, 0, device_count() / 2};
  make_sources();
  for (int round = 0; round < 2; round++) {
    for (int index = 0; index < 4 * TENSORS; index++) {
      describe_output(&outputs_of[index], devices[index / TENSORS], sources[index % TENSORS].dl.ndim, round == 1);
    }
    DLTensor *in = descriptors_of(sources, TENSORS);
    DLTensor *out = descriptors_of(outputs_of, 4 * TENSORS);
    CHECK_OK(plinth_comm_broadcast_coalesced(in, TENSORS, devices, 4, 10485760, out));
    free(in);
    take_descriptors(outputs_of, 4 * TENSORS, out);
    for (int index = 0; index < 4 * TENSORS; index++) {
      const test_tensor *source = &sources[index % TENSORS];
      complete_output(&outputs_of[index], source->kind, index >= TENSORS);
      if (index < TENSORS && count_of(source) > 0) {
        CHECK_SAME(outputs_of[index].dl.data, (unsigned char *)source->dl.data + source->dl.byte_offset);
      } else if (count_of(source) > 0) {
        CHECK(outputs_of[index].dl.data != source->dl.data);
      }
      if (index >= TENSORS || outputs_of[index].dl.strides != NULL) {
        expect_pattern(&outputs_of[index], (unsigned)(index % TENSORS), "coalesced");
      }
      free_tensor(&outputs_of[index]);
    }
  }
  for (int index = 0; index < TENSORS; index++) {
    free_tensor(&sources[index]);
  }
  CHECK_OK(plinth_testing_check_allocator());
}

TEST(large_broadcasts_are_split_over_the_devices) {
  need_devices(3);
  static const int64_t counts[] = {1000003, 64, 5, 0, 300000};
  const int32_t devices = device_count();
  int32_t numbers[8];
  test_tensor large[5], out[5 * 8];
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_BROADCAST_SPLIT, 100000));
  for (int index = 0; index < 5; index++) {
    make_tensor(&large[index], 1, F32, 1, &counts[index], NULL, 0);
    set_pattern(&large[index], (unsigned)index);
  }
  for (int32_t device = 0; device < devices; device++) {
    numbers[device] = (device + 1) % devices;
    for (int index = 0; index < 5; index++) {
      describe_output(&out[device * 5 + index], numbers[device], 1, false);
    }
  }
  for (int round = 0; round < 3; round++) {
    DLTensor *in = descriptors_of(large, 5);
    DLTensor *descriptors = descriptors_of(out, 5 * (size_t)devices);
    CHECK_OK(plinth_comm_broadcast_coalesced(in, 5, numbers, (size_t)devices, 0, descriptors));
    for (int index = 5; index < 5 * devices; index++) {
      test_tensor one = out[index];
      one.dl = descriptors[index];
      complete_output(&one, F32, true);
      expect_pattern(&one, (unsigned)(index % 5), "split");
      free_tensor(&one);
    }
    free(in);
    free(descriptors);
  }
  for (int index = 0; index < 5; index++) {
    free_tensor(&large[index]);
  }
}

TEST(invalid_arguments_of_coalesced_broadcasts_are_refused) {
  need_devices(2);
  const int32_t devices[] = {0, 1};
  test_tensor source, out[2];
  make_tensor(&source, 1, F32, 3, three, NULL, 0);
  describe_output(&out[0], 0, 3, false);
  describe_output(&out[1], 1, 3, false);
  DLTensor *outputs = descriptors_of(out, 2);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, devices, 2, 0, outputs), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("all tensors must be on the first device, 0, but tensor 0 is on device 1");
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, NULL, 2, 0, outputs), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, devices, 0, 0, outputs), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(NULL, 1, devices, 2, 0, outputs), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, &devices[1], 1, 0, outputs), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("output 0 is on device 0, and has to be on device 1");
  CHECK_OK(plinth_comm_broadcast_coalesced(NULL, 0, devices, 2, 0, NULL));
  free(outputs);
  free_tensor(&source);
}

TEST(thresholds_can_be_queried_and_changed) {
  size_t bytes = UNTOUCHED;
  for (int32_t which = PLINTH_COMM_BROADCAST_SPLIT; which <= PLINTH_COMM_COPY_ENGINE; which++) {
    CHECK_OK(plinth_comm_get_threshold(which, &bytes));
    CHECK(bytes > 0);
    CHECK_OK(plinth_comm_set_threshold(which, 0));
    CHECK_OK(plinth_comm_get_threshold(which, &bytes));
    CHECK_EQ(bytes, 1);
  }
  CHECK_STATUS(plinth_comm_get_threshold(5, &bytes), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_set_threshold(-1, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_get_threshold(0, NULL), PLINTH_ERROR_NULL_POINTER);
}

TEST(an_invalid_configuration_is_reported) {
  size_t bytes = UNTOUCHED;
  CHECK(setenv("PLINTH_COMM_CONF", "reduce_split:none", 1) == 0);
  CHECK_STATUS(plinth_comm_get_threshold(0, &bytes), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("reduce_split:none");
  CHECK_EQ(bytes, UNTOUCHED);
}
