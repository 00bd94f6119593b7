/* Broadcasts: every type, layout and place, what is made and what is the tensor itself, order, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=broadcast_split:1 */
/* also: PLINTH_SANITIZER=error */
/* alone: a_wrong_configuration_is_told; expects what only a fresh process has */
#include "collecting.h"

static const int64_t three[] = {5, 7, 9};

/* Broadcasts to outputs that are made on every device, and looks at them. */
static void expect_made(item *source, bool strides, unsigned seed) {
  const int32_t devices = device_count();
  item made[8];
  for (int32_t device = 0; device < devices; device++) {
    want(&made[device], device, source->dl.ndim, strides);
  }
  DLTensor *outputs = row_of(made, (size_t)devices);
  CHECK_OK(plinth_comm_broadcast(&source->dl, outputs, (size_t)devices));
  unrow(made, (size_t)devices, outputs);
  for (int32_t device = 0; device < devices; device++) {
    if (device == source->device) {
      CHECK_SAME(made[device].dl.data,
                 count_of(source) == 0 ? NULL : (unsigned char *)source->dl.data + source->dl.byte_offset);
    }
    adopt(&made[device], source->kind, device != source->device);
    CHECK(memcmp(made[device].shape, source->shape, sizeof source->shape) == 0);
    expect_some(&made[device], seed, "broadcast");
    drop(&made[device]);
  }
}

TEST(every_type_from_every_device) {
  for (int kind = 0; kind < TYPES; kind++) {
    for (int32_t device = 0; device < device_count(); device++) {
      item source;
      make(&source, device, kind, 3, three, NULL, 0);
      set_some(&source, 3);
      expect_made(&source, false, 3);
      drop(&source);
    }
  }
}

TEST(sizes_and_places_of_every_oddness) {
  static const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 31, 63, 255, 4095, 4096, 4097, 70000};
  need_devices(2);
  for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
    for (size_t from = 0; from < 18; from += size % 3 + 1) {
      item source, out[2];
      make(&source, 0, U8, 1, &sizes[size], NULL, from);
      make(&out[0], 1, U8, 1, &sizes[size], NULL, from % 5 * 4);
      make(&out[1], device_count() - 1, U8, 1, &sizes[size], NULL, from + 16 * (size % 2));
      set_some(&source, 9);
      set_elements(&out[0], NULL);
      set_elements(&out[1], NULL);
      DLTensor *outputs = row_of(out, 2);
      CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 2));
      unrow(out, 2, outputs);
      for (int index = 0; index < 2; index++) {
        expect_some(&out[index], 9, "odd");
        expect_marks(&out[index]);
        drop(&out[index]);
      }
      drop(&source);
    }
  }
}

TEST(any_strides_to_any_strides) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {1, 5, 35}, {100, 11, 1}, {-63, 9, -1}, {9, 45, 1}, {2, 10, 70}};
  enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };
  need_devices(2);
  for (int from = 0; from < LAYOUTS; from++) {
    for (int to = 0; to < LAYOUTS; to++) {
      static const int kinds[] = {U8, F16, F32, C64, C128};
      const int kind = kinds[(from + to) % 5];
      item source, out[3];
      make(&source, 1, kind, 3, three, layouts[from], 0);
      set_some(&source, 5);
      make(&out[0], 0, kind, 3, three, layouts[to], 0);
      make(&out[1], 1, kind, 3, three, layouts[to], 0);
      make(&out[2], device_count() - 1, kind, 3, three, layouts[(to + 1) % LAYOUTS], 0);
      DLTensor *outputs = row_of(out, 3);
      for (int index = 0; index < 3; index++) {
        set_elements(&out[index], NULL);
      }
      CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 3));
      unrow(out, 3, outputs);
      for (int index = 0; index < 3; index++) {
        expect_some(&out[index], 5, "strided");
        expect_marks(&out[index]);
        drop(&out[index]);
      }
      drop(&source);
    }
  }
}

TEST(a_source_of_which_elements_are_one) {
  static const int64_t stretched[] = {0, 1, 0};
  item source;
  make(&source, 0, F32, 3, three, stretched, 0);
  const size_t bytes = (size_t)count_of(&source) * 4;
  float *expected = (float *)pageable_memory(bytes);
  for (size_t index = 0; index < bytes / 4; index++) {
    expected[index] = (float)(index / 9 % 7);
  }
  set_elements(&source, (unsigned char *)expected);
  item out;
  want(&out, device_count() - 1, 3, true);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
  if (out.device != 0) {
    adopt(&out, F32, true);
    CHECK_EQ(out.strides[2], 1);
    CHECK_EQ(out.strides[0], 63);
    expect_elements(&out, (unsigned char *)expected, "stretched");
    drop(&out);
  }
  free(expected);
  drop(&source);
}

TEST(made_outputs_keep_dense_strides_where_there_is_room) {
  static const int64_t turned[] = {1, 5, 35};
  item source, out;
  need_devices(2);
  make(&source, 0, F32, 3, three, turned, 0);
  set_some(&source, 4);
  for (int strides = 0; strides < 2; strides++) {
    want(&out, 1, 3, strides == 1);
    CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
    adopt(&out, F32, true);
    CHECK_EQ(out.strides[0], strides == 1 ? 1 : 63);
    expect_some(&out, 4, "turned");
    drop(&out);
  }
  drop(&source);
}

TEST(tensors_without_dimensions_and_without_elements) {
  static const int64_t empty[] = {3, 0, 2};
  item source;
  make(&source, device_count() - 1, F64, 0, NULL, NULL, 0);
  set_some(&source, 8);
  expect_made(&source, true, 8);
  drop(&source);
  make(&source, 0, F64, 3, empty, NULL, 0);
  expect_made(&source, false, 8);
  drop(&source);
}

TEST(one_device_many_times) {
  item source, out[5];
  make(&source, 0, I32, 3, three, NULL, 0);
  set_some(&source, 6);
  for (int index = 0; index < 5; index++) {
    if (index < 3) {
      make(&out[index], device_count() - 1, I32, 3, three, NULL, 0);
    } else {
      want(&out[index], 0, 3, false);
    }
  }
  DLTensor *outputs = row_of(out, 5);
  CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, 5));
  unrow(out, 5, outputs);
  for (int index = 0; index < 5; index++) {
    if (index >= 3) {
      adopt(&out[index], I32, false);
      CHECK_SAME(out[index].dl.data, source.dl.data);
    }
    expect_some(&out[index], 6, "again");
    drop(&out[index]);
  }
  drop(&source);
}

TEST(more_outputs_than_a_launch_takes) {
  enum { MANY = 150 };
  static item out[MANY];
  item source;
  make(&source, 0, I32, 3, three, NULL, 0);
  set_some(&source, 6);
  for (int index = 0; index < MANY; index++) {
    make(&out[index], index % device_count(), I32, 3, three, NULL, 0);
  }
  DLTensor *outputs = row_of(out, MANY);
  CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, MANY));
  unrow(out, MANY, outputs);
  for (int index = 0; index < MANY; index++) {
    expect_some(&out[index], 6, "many");
    drop(&out[index]);
  }
  drop(&source);
}

TEST(a_tensor_onto_itself) {
  item source;
  make(&source, 0, F32, 3, three, NULL, 0);
  set_some(&source, 2);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &source.dl, 1));
  expect_some(&source, 2, "itself");
  drop(&source);
}

TEST(from_memory_of_the_cpu) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {100, 11, 1}, {1, 5, 35}, {2000, 200, 3}, {-63, 9, -1}};
  for (int where = 0; where < 2; where++) {
    for (int layout = 0; layout < 5; layout++) {
      item source;
      make(&source, where == 0 ? ON_CPU : ON_PINNED, F32, 3, three, layouts[layout], 0);
      unsigned char *elements = some_elements(&source, 12);
      memset(source.memory, 0, source.bytes);
      for (int64_t index = 0; index < count_of(&source); index++) {
        memcpy(source.memory + source.dl.byte_offset + place_of(&source, index), elements + index * 4, 4);
      }
      free(elements);
      expect_made(&source, layout % 2 == 0, 12);
      drop(&source);
    }
  }
}

TEST(waits_for_every_stream_and_is_waited_for) {
  need_devices(2);
  const int32_t devices = device_count();
  const size_t bytes = 1 * MIB;
  const int64_t shape = (int64_t)bytes;
  item source, out[8];
  plinth_stream_t streams[8];
  for (int32_t device = 0; device < devices; device++) {
    streams[device] = stream_on(device);
    CHECK_OK(plinth_set_stream(streams[device]));
  }
  for (int held = NOBODY; held < devices; held++) {
    make(&source, 0, U8, 1, &shape, NULL, 0);
    set_some(&source, 1);
    for (int32_t device = 1; device < devices; device++) {
      make(&out[device], device, U8, 1, &shape, NULL, 0);
      CHECK_OK(plinth_memset(out[device].memory, 0, bytes, streams[device]));
    }
    synchronize_all();
    gate *shut = held == NOBODY ? NULL : gate_shut(streams[held]);
    DLTensor *outputs = row_of(&out[1], (size_t)devices - 1);
    CHECK_OK(plinth_comm_broadcast(&source.dl, outputs, (size_t)devices - 1));
    free(outputs);
    if (held != NOBODY) {
      for (int32_t device = 0; device < devices; device++) {
        CHECK(!stream_done(streams[device]));
      }
      CHECK(stays_undone(streams[(held + 1) % devices]));
      gate_open(shut);
    }
    for (int32_t device = 1; device < devices; device++) {
      CHECK_OK(plinth_stream_synchronize(streams[device]));
      CHECK_OK(plinth_set_device(device));
      expect_some(&out[device], 1, "held");
      drop(&out[device]);
    }
    synchronize_all();
    drop(&source);
  }
}

TEST(what_comes_later_does_not_overtake) {
  need_devices(2);
  const int64_t shape = 3 * 1024 * 1024;
  item source, out;
  plinth_stream_t first = stream_on(0);
  plinth_stream_t second = stream_on(1);
  CHECK_OK(plinth_set_stream(second));
  CHECK_OK(plinth_set_stream(first));
  make(&source, 0, U8, 1, &shape, NULL, 0);
  make(&out, 1, U8, 1, &shape, NULL, 0);
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
  drop(&source);
  drop(&out);
}

TEST(nothing_is_left_when_a_call_is_refused) {
  need_devices(2);
  item source, out[2];
  make(&source, 0, F32, 3, three, NULL, 0);
  want(&out[0], 1, 3, false);
  make(&out[1], 1, F64, 3, three, NULL, 0);
  const size_t before = allocated(1);
  DLTensor *outputs = row_of(out, 2);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, outputs, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("outputs[1]");
  CHECK_EQ(allocated(1), before);
  CHECK_SAME(outputs[0].data, NULL);
  free(outputs);
  static const int64_t other[] = {5, 9, 7};
  item wrong;
  make(&wrong, 1, F32, 3, other, NULL, 0);
  outputs = row_of(out, 2);
  outputs[1] = wrong.dl;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, outputs, 2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("output 1 has invalid shape: got [5, 9, 7], but expected [5, 7, 9]");
  CHECK_EQ(allocated(1), before + rounded(wrong.bytes));
  CHECK_SAME(outputs[0].data, NULL);
  free(outputs);
  drop(&wrong);
  drop(&out[1]);
  drop(&source);
}

TEST(what_is_refused) {
  item source, out;
  make(&source, 0, F32, 3, three, NULL, 0);
  CHECK_OK(plinth_comm_broadcast(&source.dl, NULL, 0));
  CHECK_STATUS(plinth_comm_broadcast(NULL, NULL, 0), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, NULL, 1), PLINTH_ERROR_NULL_POINTER);
  want(&out, 0, 2, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("ndim is 2; it must be 3");
  want(&out, 0, 3, false);
  out.dl.shape = NULL;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_NULL_POINTER);
  want(&out, 99, 3, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_DEVICE);
  want(&out, -2, 3, false);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_DEVICE);
  out.dl = source.dl;
  out.dl.data = NULL;
  out.dl.device.device_type = 1;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_NULL_POINTER);
  out.dl.device.device_type = 7;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_DEVICE_MISMATCH);
  make(&out, ON_CPU, F32, 3, three, NULL, 0);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("output 0 is in memory of the CPU");
  drop(&out);
  static const int64_t stretched[] = {9, 0, 1};
  make(&out, 0, F32, 3, three, stretched, 0);
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("several elements in one place");
  drop(&out);
  source.dl.dtype.bits = 4;
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, NULL, 0), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("elements of 4 bits cannot be copied");
  drop(&source);
}

TEST(a_device_of_minus_one_is_the_current_one) {
  need_devices(2);
  item source, out;
  make(&source, 0, F32, 3, three, NULL, 0);
  set_some(&source, 3);
  CHECK_OK(plinth_set_device(1));
  want(&out, -1, 3, false);
  CHECK_OK(plinth_comm_broadcast(&source.dl, &out.dl, 1));
  out.device = 1;
  adopt(&out, F32, true);
  expect_some(&out, 3, "current");
  drop(&out);
  drop(&source);
}

TEST(pageable_memory_is_told_to_the_sync_debug_mode) {
  item source, out;
  make(&source, ON_CPU, F32, 3, three, NULL, 0);
  memset(source.memory, 0, source.bytes);
  want(&out, 0, 3, false);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_comm_broadcast(&source.dl, &out.dl, 1), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  CHECK_EQ(allocated(0), 0);
  drop(&source);
}

enum { TENSORS = 300 };

static item sources[TENSORS];
static item outputs_of[TENSORS * 4];

/* Tensors of all types, sizes and layouts on device 0. */
static void make_sources(void) {
  uint64_t state = 5;
  for (int index = 0; index < TENSORS; index++) {
    int64_t shape[3], strides[3];
    const int32_t rank = (int32_t)up_to(&state, 3);
    int64_t stride = 1;
    for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
      shape[dimension] = up_to(&state, index % 10 == 0 ? 40 : 12);
      strides[dimension] = stride;
      stride *= shape[dimension] + (index % 7 == 3);
    }
    make(&sources[index], 0, (int)up_to(&state, TYPES - 1), rank, shape, strides, 0);
    set_some(&sources[index], (unsigned)index);
  }
}

TEST(many_tensors_at_once) {
  const int32_t devices[] = {0, device_count() - 1, 0, device_count() / 2};
  make_sources();
  for (int round = 0; round < 2; round++) {
    for (int index = 0; index < 4 * TENSORS; index++) {
      want(&outputs_of[index], devices[index / TENSORS], sources[index % TENSORS].dl.ndim, round == 1);
    }
    DLTensor *in = row_of(sources, TENSORS);
    DLTensor *out = row_of(outputs_of, 4 * TENSORS);
    CHECK_OK(plinth_comm_broadcast_coalesced(in, TENSORS, devices, 4, 10485760, out));
    free(in);
    unrow(outputs_of, 4 * TENSORS, out);
    for (int index = 0; index < 4 * TENSORS; index++) {
      const item *source = &sources[index % TENSORS];
      adopt(&outputs_of[index], source->kind, index >= TENSORS);
      if (index < TENSORS && count_of(source) > 0) {
        CHECK_SAME(outputs_of[index].dl.data, (unsigned char *)source->dl.data + source->dl.byte_offset);
      } else if (count_of(source) > 0) {
        CHECK(outputs_of[index].dl.data != source->dl.data);
      }
      if (index >= TENSORS || outputs_of[index].dl.strides != NULL) {
        expect_some(&outputs_of[index], (unsigned)(index % TENSORS), "coalesced");
      }
      drop(&outputs_of[index]);
    }
  }
  for (int index = 0; index < TENSORS; index++) {
    drop(&sources[index]);
  }
  CHECK_OK(plinth_testing_check_allocator());
}

TEST(large_broadcasts_are_shared_out) {
  need_devices(3);
  static const int64_t counts[] = {1000003, 64, 5, 0, 300000};
  const int32_t devices = device_count();
  int32_t numbers[8];
  item large[5], out[5 * 8];
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_BROADCAST_SPLIT, 100000));
  for (int index = 0; index < 5; index++) {
    make(&large[index], 1, F32, 1, &counts[index], NULL, 0);
    set_some(&large[index], (unsigned)index);
  }
  for (int32_t device = 0; device < devices; device++) {
    numbers[device] = (device + 1) % devices;
    for (int index = 0; index < 5; index++) {
      want(&out[device * 5 + index], numbers[device], 1, false);
    }
  }
  for (int round = 0; round < 3; round++) {
    DLTensor *in = row_of(large, 5);
    DLTensor *row = row_of(out, 5 * (size_t)devices);
    CHECK_OK(plinth_comm_broadcast_coalesced(in, 5, numbers, (size_t)devices, 0, row));
    for (int index = 5; index < 5 * devices; index++) {
      item one = out[index];
      one.dl = row[index];
      adopt(&one, F32, true);
      expect_some(&one, (unsigned)(index % 5), "passed on");
      drop(&one);
    }
    free(in);
    free(row);
  }
  for (int index = 0; index < 5; index++) {
    drop(&large[index]);
  }
}

TEST(what_is_refused_of_many) {
  need_devices(2);
  const int32_t devices[] = {0, 1};
  item source, out[2];
  make(&source, 1, F32, 3, three, NULL, 0);
  want(&out[0], 0, 3, false);
  want(&out[1], 1, 3, false);
  DLTensor *outputs = row_of(out, 2);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, devices, 2, 0, outputs), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("all tensors must be on the first device, 0, but tensor 0 is on device 1");
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, NULL, 2, 0, outputs), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, devices, 0, 0, outputs), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(NULL, 1, devices, 2, 0, outputs), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_broadcast_coalesced(&source.dl, 1, &devices[1], 1, 0, outputs), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("output 0 is on device 0, and has to be on device 1");
  CHECK_OK(plinth_comm_broadcast_coalesced(NULL, 0, devices, 2, 0, NULL));
  free(outputs);
  drop(&source);
}

TEST(thresholds_are_told_and_changed) {
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

TEST(a_wrong_configuration_is_told) {
  size_t bytes = UNTOUCHED;
  CHECK(setenv("PLINTH_COMM_CONF", "reduce_split:none", 1) == 0);
  CHECK_STATUS(plinth_comm_get_threshold(0, &bytes), PLINTH_ERROR_INVALID_CONFIGURATION);
  CHECK_MESSAGE("reduce_split:none");
  CHECK_EQ(bytes, UNTOUCHED);
}
