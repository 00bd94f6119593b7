/* Sums of tensors of several devices: every type and layout, the order of the additions, order of streams, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=reduce_split:1 */
/* also: PLINTH_SANITIZER=error */
/* alone: narrow_sums_of_many_are_rounded_as_is_said; expects what only a fresh process has */
#include "collecting.h"

static const int64_t three[] = {5, 7, 9};

/* One input on each device, with the same layout. */
static int make_inputs(item *inputs, int kind, int32_t rank, const int64_t *shape, const int64_t *strides) {
  const int32_t devices = device_count();
  for (int32_t device = 0; device < devices; device++) {
    make(&inputs[device], device, kind, rank, shape, strides, 0);
    set_numbers(&inputs[device], device);
  }
  return devices;
}

static void drop_all(item *items, int count) {
  for (int index = 0; index < count; index++) {
    drop(&items[index]);
  }
}

/* Calls the library with copies of the descriptions. */
static plinth_status_t reduce(item *inputs, size_t count, item *output) {
  DLTensor *row = row_of(inputs, count);
  const plinth_status_t status = plinth_comm_reduce_add(row, count, &output->dl);
  free(row);
  return status;
}

TEST(every_type_to_every_device) {
  for (int kind = 0; kind < SUMMED; kind++) {
    for (int32_t device = 0; device < device_count(); device++) {
      item inputs[8], out;
      const int count = make_inputs(inputs, kind, 3, three, NULL);
      want(&out, device, 3, device % 2 == 0);
      CHECK_OK(reduce(inputs, (size_t)count, &out));
      /* The sum of one tensor is that tensor. */
      adopt(&out, kind, count > 1);
      expect_sum(&out, count, "made");
      for (int index = 0; index < count; index++) {
        expect_sum(&inputs[0], 1, "the input itself");
      }
      drop(&out);
      drop_all(inputs, count);
    }
  }
}

TEST(lengths_and_places_of_every_oddness) {
  static const int64_t lengths[] = {0, 1, 3, 7, 8, 9, 255, 2047, 2048, 2049, 40000};
  static const int kinds[] = {F16, BF16, F32, U8, I64, C64, BOOL};
  for (size_t length = 0; length < sizeof lengths / sizeof lengths[0]; length++) {
    for (size_t odd = 0; odd < 3; odd++) {
      const int kind = kinds[(length + odd) % 7];
      item inputs[8], out;
      const int32_t devices = device_count();
      for (int32_t device = 0; device < devices; device++) {
        make(&inputs[device], device, kind, 1, &lengths[length], NULL, odd * width_of(kind) * (device == 0 ? 1 : 2));
        set_numbers(&inputs[device], device);
      }
      make(&out, devices - 1, kind, 1, &lengths[length], NULL, odd * width_of(kind));
      set_elements(&out, NULL);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      expect_sum(&out, devices, "odd");
      expect_marks(&out);
      drop(&out);
      drop_all(inputs, devices);
    }
  }
}

TEST(any_strides) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {1, 5, 35}, {100, 11, 1}, {-63, 9, -1}, {9, 45, 1}};
  for (int layout = 0; layout < 5; layout++) {
    for (int to = 0; to < 5; to++) {
      item inputs[8], out;
      const int32_t devices = device_count();
      for (int32_t device = 0; device < devices; device++) {
        make(&inputs[device], device, F32, 3, three, layouts[to == 2 ? layout : (layout + device) % 5], 0);
        set_numbers(&inputs[device], device);
      }
      make(&out, 0, F32, 3, three, layouts[to], 0);
      set_elements(&out, NULL);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      expect_sum(&out, devices, "strided");
      expect_marks(&out);
      drop(&out);
      want(&out, devices - 1, 3, true);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      adopt(&out, F32, devices > 1);
      expect_sum(&out, devices, "strided and made");
      drop(&out);
      drop_all(inputs, devices);
    }
  }
}

TEST(into_one_of_the_inputs) {
  for (int32_t device = 0; device < device_count(); device++) {
    item inputs[8];
    const int count = make_inputs(inputs, F16, 3, three, NULL);
    DLTensor out = inputs[device].dl;
    DLTensor *row = row_of(inputs, (size_t)count);
    CHECK_OK(plinth_comm_reduce_add(row, (size_t)count, &out));
    free(row);
    expect_sum(&inputs[device], count, "in place");
    drop_all(inputs, count);
  }
}

TEST(one_input_is_the_sum) {
  item input, out;
  make(&input, 0, F32, 3, three, NULL, 0);
  set_numbers(&input, 0);
  want(&out, 0, 3, false);
  CHECK_OK(reduce(&input, 1, &out));
  adopt(&out, F32, false);
  CHECK_SAME(out.dl.data, input.dl.data);
  make(&out, 0, F32, 3, three, NULL, 0);
  CHECK_OK(reduce(&input, 1, &out));
  expect_sum(&out, 1, "copied");
  drop(&out);
  drop(&input);
}

/* More than other pieces are given, and so many that it takes three rounds. */
TEST(more_inputs_than_a_launch_takes) {
  enum { MOST = 1020 };
  static item inputs[MOST];
  static const int counts[] = {150, MOST, 507};
  static const int kinds[] = {F32, I8, C128};
  for (int which = 0; which < 3; which++) {
    const int count = counts[which];
    item out;
    for (int index = 0; index < count; index++) {
      make(&inputs[index], index % device_count(), kinds[which], 3, three, NULL, 0);
      set_numbers(&inputs[index], index);
    }
    DLTensor last = inputs[count - device_count()].dl;
    want(&out, 0, 3, false);
    CHECK_OK(reduce(inputs, (size_t)count, &out));
    adopt(&out, kinds[which], true);
    expect_sum(&out, count, "many");
    drop(&out);
    /* The last input but some is read in the last round, and may be the output all the same. */
    DLTensor *row = row_of(inputs, (size_t)count);
    if (inputs[count - device_count()].device == inputs[0].device) {
      CHECK_OK(plinth_comm_reduce_add(row, (size_t)count, &last));
      expect_sum(&inputs[count - device_count()], count, "many in place");
    }
    free(row);
    drop_all(inputs, count);
  }
}

/* Sums of one number each, given and expected as bits. */
static uint64_t sum_of(int kind, const uint64_t *bits, int count, int32_t root) {
  static const int64_t one = 1;
  static item inputs[1100];
  item out;
  uint64_t sum = 0;
  for (int index = 0; index < count; index++) {
    make(&inputs[index], index % device_count(), kind, 1, &one, NULL, 0);
    set_elements(&inputs[index], (const unsigned char *)&bits[index]);
  }
  want(&out, root, 1, false);
  CHECK_OK(reduce(inputs, (size_t)count, &out));
  adopt(&out, kind, true);
  unsigned char *elements = elements_of(&out);
  memcpy(&sum, elements, width_of(kind));
  free(elements);
  drop(&out);
  drop_all(inputs, count);
  return sum;
}

TEST(additions_are_in_the_order_that_was_asked_for) {
  /* 1e8, 1, -1e8: from the left 0, from the last one 1, for 1e8 + 1 is 1e8. */
  static const uint64_t floats[] = {0x4CBEBC20, 0x3F800000, 0xCCBEBC20};
  /* 2048, 1, 1: as halves 2048 each time, but 2050 in all. */
  static const uint64_t halves[] = {0x6800, 0x3C00, 0x3C00};
  /* 256, 1, 1 of bfloat16, likewise. */
  static const uint64_t brains[] = {0x4380, 0x3F80, 0x3F80};
  int32_t order = UNTOUCHED;
  need_devices(3);
  CHECK_OK(plinth_comm_get_reduction_order(&order));
  CHECK_EQ(order, PLINTH_COMM_ORDER_LIST);
  CHECK_EQ(sum_of(F32, floats, 3, 2), 0);
  CHECK_EQ(sum_of(F16, halves, 3, 0), 0x6801);
  CHECK_EQ(sum_of(BF16, brains, 3, 0), 0x4381);
  CHECK_OK(plinth_comm_set_reduction_order(PLINTH_COMM_ORDER_TORCH));
  CHECK_OK(plinth_comm_get_reduction_order(&order));
  CHECK_EQ(order, PLINTH_COMM_ORDER_TORCH);
  CHECK_EQ(sum_of(F32, floats, 3, 2), 0x3F800000);
  CHECK_EQ(sum_of(F32, floats, 3, 0), 0);
  CHECK_EQ(sum_of(F16, halves, 3, 0), 0x6800);
  CHECK_EQ(sum_of(BF16, brains, 3, 0), 0x4380);
  /* 1 + 1 + 2048 of halves, for the last one is added to the first only then. */
  static const uint64_t turned[] = {0x3C00, 0x3C00, 0x6800};
  CHECK_EQ(sum_of(F16, turned, 3, 0), 0x6801);
  CHECK_EQ(sum_of(F16, turned, 3, 2), 0x6800);
  CHECK_STATUS(plinth_comm_set_reduction_order(2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_get_reduction_order(NULL), PLINTH_ERROR_NULL_POINTER);
}

/* 2048 of halves and 256 of bfloat16, and ones: every second is lost where a sum is rounded. */
TEST(narrow_sums_of_many_are_rounded_as_is_said) {
  static uint64_t halves[1012], brains[1012];
  for (int index = 0; index < 1012; index++) {
    halves[index] = index == 0 ? 0x6800 : 0x3C00;
    brains[index] = index == 0 ? 0x4380 : 0x3F80;
  }
  CHECK_EQ(sum_of(F16, halves, 65, 0), 0x6820);
  CHECK_EQ(sum_of(BF16, brains, 65, 0), 0x43A0);
  /* 2048 + 505 is no half, and goes to the even neighbour. */
  CHECK_EQ(sum_of(F16, halves, 506, 0), 0x68FC);
  /* With one more it would be one, but for the rounding before that. */
  CHECK_EQ(sum_of(F16, halves, 507, 0), 0x68FC);
  CHECK_EQ(sum_of(F16, halves, 508, 0), 0x68FD);
  /* 2552 after 506; 505 more are 3057, which goes to 3056; and one more is lost again. */
  CHECK_EQ(sum_of(F16, halves, 1011, 0), 0x69F8);
  CHECK_EQ(sum_of(F16, halves, 1012, 0), 0x69F8);
}

TEST(where_numbers_end) {
  need_devices(2);
  static const uint64_t infinite[] = {0x7BFF, 0x7BFF};
  static const uint64_t nothing[] = {0x7C00, 0xFC00};
  static const uint64_t small[] = {0x0001, 0x03FF};
  static const uint64_t zeros[] = {0x8000, 0x8000};
  static const uint64_t bytes[] = {200, 100};
  static const uint64_t truths[] = {7, 0};
  CHECK_EQ(sum_of(F16, infinite, 2, 0), 0x7C00);
  CHECK_EQ(sum_of(F16, nothing, 2, 0), 0x7FFF);
  CHECK_EQ(sum_of(F16, small, 2, 0), 0x0400);
  CHECK_EQ(sum_of(F16, zeros, 2, 0), 0x8000);
  CHECK_EQ(sum_of(U8, bytes, 2, 0), 44);
  CHECK_EQ(sum_of(BOOL, truths, 2, 0), 1);
}

TEST(waits_for_every_stream_and_is_waited_for) {
  need_devices(2);
  const int32_t devices = device_count();
  const int64_t shape = 100000;
  plinth_stream_t streams[8];
  for (int32_t device = 0; device < devices; device++) {
    streams[device] = stream_on(device);
    CHECK_OK(plinth_set_stream(streams[device]));
  }
  for (int held = NOBODY; held < devices; held++) {
    item inputs[8], out;
    make_inputs(inputs, F32, 1, &shape, NULL);
    make(&out, devices - 1, F32, 1, &shape, NULL, 0);
    synchronize_all();
    gate *shut = held == NOBODY ? NULL : gate_shut(streams[held]);
    CHECK_OK(reduce(inputs, (size_t)devices, &out));
    for (int32_t device = 0; device < devices; device++) {
      CHECK(held == NOBODY || !stream_done(streams[device]));
      /* Each device's later work comes after the sum has read its input. */
      CHECK_OK(plinth_memset(inputs[device].memory, 0xFF, (size_t)shape * 4, streams[device]));
    }
    if (held != NOBODY) {
      CHECK(stays_undone(streams[(held + 1) % devices]));
      gate_open(shut);
    }
    synchronize_all();
    expect_sum(&out, devices, "held");
    drop(&out);
    drop_all(inputs, devices);
  }
}

enum { TENSORS = 250 };

TEST(many_tensors_at_once) {
  static item inputs[TENSORS * 8];
  static item sums[TENSORS];
  const int32_t devices = device_count();
  for (int round = 0; round < 2; round++) {
    uint64_t state = 11;
    for (int index = 0; index < TENSORS; index++) {
      int64_t shape[3], strides[3];
      const int kind = (int)up_to(&state, SUMMED - 1);
      const int32_t rank = (int32_t)up_to(&state, 3);
      int64_t stride = 1;
      for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
        shape[dimension] = up_to(&state, 12);
        strides[dimension] = stride;
        stride *= shape[dimension] + (index % 7 == 3);
      }
      for (int32_t device = 0; device < devices; device++) {
        make(&inputs[device * TENSORS + index], device, kind, rank, shape, strides, 0);
        set_numbers(&inputs[device * TENSORS + index], device);
      }
      want(&sums[index], devices - 1, rank, round == 1);
      if (index % 5 == 1) {
        make(&sums[index], devices - 1, kind, rank, shape, NULL, 0);
      }
    }
    DLTensor *row = row_of(inputs, (size_t)(TENSORS * devices));
    DLTensor *out = row_of(sums, TENSORS);
    CHECK_OK(plinth_comm_reduce_add_coalesced(row, TENSORS, (size_t)devices, 0, out));
    free(row);
    unrow(sums, TENSORS, out);
    for (int index = 0; index < TENSORS; index++) {
      if (index % 5 != 1) {
        adopt(&sums[index], inputs[index].kind, devices > 1);
      }
      if (sums[index].dl.strides != NULL || index % 5 == 1 || devices > 1) {
        expect_sum(&sums[index], devices, "coalesced");
      }
      drop(&sums[index]);
    }
    drop_all(inputs, TENSORS * devices);
  }
  CHECK_OK(plinth_testing_check_allocator());
}

TEST(large_sums_are_shared_out) {
  need_devices(3);
  const int64_t shape = 1000003;
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, 100000));
  for (int32_t root = 0; root < device_count(); root += 2) {
    item inputs[8];
    const int count = make_inputs(inputs, F32, 1, &shape, NULL);
    DLTensor out = inputs[root].dl;
    DLTensor *row = row_of(inputs, (size_t)count);
    CHECK_OK(plinth_comm_reduce_add(row, (size_t)count, &out));
    free(row);
    expect_sum(&inputs[root], count, "shared out");
    drop_all(inputs, count);
  }
}

TEST(every_run_gives_the_same_bits) {
  const int64_t shape = 50000;
  const int32_t devices = device_count();
  item inputs[8], out;
  unsigned char *first = NULL;
  uint64_t state = 3;
  for (int32_t device = 0; device < devices; device++) {
    make(&inputs[device], device, F32, 1, &shape, NULL, 0);
    float *numbers = (float *)pageable_memory((size_t)shape * 4);
    for (int64_t index = 0; index < shape; index++) {
      numbers[index] = (float)((double)random_next(&state) / 1e15 - 9000);
    }
    set_elements(&inputs[device], (unsigned char *)numbers);
    free(numbers);
  }
  make(&out, 0, F32, 1, &shape, NULL, 0);
  for (int round = 0; round < 6; round++) {
    /* Alone or shared out: the order of the additions is the same. */
    CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, round % 2 == 0 ? 1 : 1000000000));
    CHECK_OK(reduce(inputs, (size_t)devices, &out));
    if (first == NULL) {
      first = elements_of(&out);
    }
    expect_elements(&out, first, "again");
  }
  free(first);
  drop(&out);
  drop_all(inputs, devices);
}

TEST(what_is_refused) {
  static const int64_t other[] = {5, 9, 7};
  item inputs[2], out;
  make(&inputs[0], 0, F32, 3, three, NULL, 0);
  make(&inputs[1], 0, F32, 3, other, NULL, 0);
  want(&out, 0, 3, false);
  CHECK_STATUS(reduce(inputs, 2, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("input 1 has invalid shape: got [5, 9, 7], but expected [5, 7, 9]");
  CHECK_STATUS(reduce(inputs, 0, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_reduce_add(NULL, 2, &out.dl), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_reduce_add(&inputs[0].dl, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  drop(&inputs[1]);
  make(&inputs[1], 0, F64, 3, three, NULL, 0);
  CHECK_STATUS(reduce(inputs, 2, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("input 1 has elements of float64, not of float32");
  drop(&inputs[1]);
  make(&inputs[1], ON_CPU, F32, 3, three, NULL, 0);
  CHECK_STATUS(reduce(inputs, 2, &out), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("input 1 is in memory of the CPU");
  drop(&inputs[1]);
  if (device_count() > 1) {
    want(&out, 1, 3, false);
    CHECK_STATUS(reduce(inputs, 1, &out), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_MESSAGE("has none of the tensors that are added");
    make(&inputs[1], 1, F32, 3, three, NULL, 0);
    item outs[2];
    want(&outs[0], 0, 3, false);
    want(&outs[1], 1, 3, false);
    item all[4] = {inputs[0], inputs[0], inputs[1], inputs[1]};
    DLTensor *row = row_of(all, 4);
    DLTensor *sums = row_of(outs, 2);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(row, 2, 2, 0, sums), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(row, 2, 0, 0, sums), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(row, 2, 2, 0, NULL), PLINTH_ERROR_NULL_POINTER);
    CHECK_OK(plinth_comm_reduce_add_coalesced(NULL, 0, 2, 0, NULL));
    free(row);
    free(sums);
    drop(&inputs[1]);
  }
  inputs[0].dl.dtype.code = 10;
  inputs[0].dl.dtype.bits = 8;
  want(&out, 0, 3, false);
  CHECK_STATUS(reduce(inputs, 1, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("code 10 and 8 bits is not supported");
  drop(&inputs[0]);
}
