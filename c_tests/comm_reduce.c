/* reduce_add over several devices: types, layouts, the order of additions, stream order, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=reduce_split:1 */
/* also: PLINTH_SANITIZER=error */
/* alone: sums_of_many_16_bit_numbers_are_rounded_after_each_launch; expects a new process */
#include "collecting.h"

static const int64_t three[] = {5, 7, 9};

/* Makes one input on each device, with the same layout. Returns the number of inputs. */
static int make_inputs(test_tensor *inputs, int kind, int32_t rank, const int64_t *shape, const int64_t *strides) {
  const int32_t devices = device_count();
  for (int32_t device = 0; device < devices; device++) {
    make_tensor(&inputs[device], device, kind, rank, shape, strides, 0);
    set_numbers(&inputs[device], device);
  }
  return devices;
}

static void free_tensors(test_tensor *items, int count) {
  for (int index = 0; index < count; index++) {
    free_tensor(&items[index]);
  }
}

/* Calls the library with copies of the descriptors. */
static plinth_status_t reduce(test_tensor *inputs, size_t count, test_tensor *output) {
  DLTensor *descriptors = descriptors_of(inputs, count);
  const plinth_status_t status = plinth_comm_reduce_add(descriptors, count, &output->dl);
  free(descriptors);
  return status;
}

/* The sum of all inputs may be written to one of them. */
static void expect_sum_in_place(test_tensor *inputs, int count, int output, const char *label) {
  test_tensor out = inputs[output];
  CHECK_OK(reduce(inputs, (size_t)count, &out));
  expect_sum(&inputs[output], count, label);
}

TEST(every_type_is_summed_on_every_device) {
  for (int kind = 0; kind < SUMMABLE; kind++) {
    for (int32_t device = 0; device < device_count(); device++) {
      test_tensor inputs[8], out;
      const int count = make_inputs(inputs, kind, 3, three, NULL);
      describe_output(&out, device, 3, device % 2 == 0);
      CHECK_OK(reduce(inputs, (size_t)count, &out));
      /* With one input the output is the input itself. */
      complete_output(&out, kind, count > 1);
      expect_sum(&out, count, "allocated output");
      for (int index = 0; index < count; index++) {
        expect_sum(&inputs[0], 1, "unchanged input");
      }
      free_tensor(&out);
      free_tensors(inputs, count);
    }
  }
}

TEST(lengths_and_addresses_need_no_alignment) {
  static const int64_t lengths[] = {0, 1, 3, 7, 8, 9, 255, 2047, 2048, 2049, 40000};
  static const int kinds[] = {F16, BF16, F32, U8, I64, C64, BOOL};
  for (size_t length = 0; length < sizeof lengths / sizeof lengths[0]; length++) {
    for (size_t offset = 0; offset < 3; offset++) {
      const int kind = kinds[(length + offset) % 7];
      test_tensor inputs[8], out;
      const int32_t devices = device_count();
      for (int32_t device = 0; device < devices; device++) {
        make_tensor(&inputs[device], device, kind, 1, &lengths[length], NULL, offset * width_of(kind) * (device == 0 ? 1 : 2));
        set_numbers(&inputs[device], device);
      }
      make_tensor(&out, devices - 1, kind, 1, &lengths[length], NULL, offset * width_of(kind));
      set_elements(&out, NULL);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      expect_sum(&out, devices, "unaligned");
      expect_guard_bytes(&out);
      free_tensor(&out);
      free_tensors(inputs, devices);
    }
  }
}

TEST(tensors_may_have_any_strides) {
  static const int64_t layouts[][3] = {{63, 9, 1}, {1, 5, 35}, {100, 11, 1}, {-63, 9, -1}, {9, 45, 1}};
  for (int layout = 0; layout < 5; layout++) {
    for (int to = 0; to < 5; to++) {
      test_tensor inputs[8], out;
      const int32_t devices = device_count();
      for (int32_t device = 0; device < devices; device++) {
        make_tensor(&inputs[device], device, F32, 3, three, layouts[to == 2 ? layout : (layout + device) % 5], 0);
        set_numbers(&inputs[device], device);
      }
      make_tensor(&out, 0, F32, 3, three, layouts[to], 0);
      set_elements(&out, NULL);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      expect_sum(&out, devices, "strided");
      expect_guard_bytes(&out);
      free_tensor(&out);
      describe_output(&out, devices - 1, 3, true);
      CHECK_OK(reduce(inputs, (size_t)devices, &out));
      complete_output(&out, F32, devices > 1);
      expect_sum(&out, devices, "strided, allocated output");
      free_tensor(&out);
      free_tensors(inputs, devices);
    }
  }
}

TEST(the_output_may_be_one_of_the_inputs) {
  for (int32_t device = 0; device < device_count(); device++) {
    test_tensor inputs[8];
    const int count = make_inputs(inputs, F16, 3, three, NULL);
    expect_sum_in_place(inputs, count, device, "in place");
    free_tensors(inputs, count);
  }
}

TEST(the_sum_of_one_input_is_the_input) {
  test_tensor input, out;
  make_tensor(&input, 0, F32, 3, three, NULL, 0);
  set_numbers(&input, 0);
  describe_output(&out, 0, 3, false);
  CHECK_OK(reduce(&input, 1, &out));
  complete_output(&out, F32, false);
  CHECK_SAME(out.dl.data, input.dl.data);
  make_tensor(&out, 0, F32, 3, three, NULL, 0);
  CHECK_OK(reduce(&input, 1, &out));
  expect_sum(&out, 1, "copied");
  free_tensor(&out);
  free_tensor(&input);
}

/* Up to three kernel launches: one adds at most 506 inputs. */
TEST(more_inputs_than_one_launch_adds) {
  enum { MAX_INPUTS = 1020 };
  static test_tensor inputs[MAX_INPUTS];
  static const int counts[] = {150, MAX_INPUTS, 507};
  static const int kinds[] = {F32, I8, C128};
  for (int which = 0; which < 3; which++) {
    const int count = counts[which];
    test_tensor out;
    for (int index = 0; index < count; index++) {
      make_tensor(&inputs[index], index % device_count(), kinds[which], 3, three, NULL, 0);
      set_numbers(&inputs[index], index);
    }
    const int late = count - device_count();
    describe_output(&out, 0, 3, false);
    CHECK_OK(reduce(inputs, (size_t)count, &out));
    complete_output(&out, kinds[which], true);
    expect_sum(&out, count, "many");
    free_tensor(&out);
    /* The output may even be an input that only the last launch reads. */
    if (inputs[late].device == inputs[0].device) {
      expect_sum_in_place(inputs, count, late, "many in place");
    }
    free_tensors(inputs, count);
  }
}

/* A sum of one-element tensors on device `root`, with numbers as bits. Input i is numbers[i], or the last one of them. */
typedef struct sum_case {
  const char *name;
  int kind;
  uint64_t numbers[3];
  int count;
  int32_t root;
  uint64_t sum;
} sum_case;

static uint64_t sum_of(const sum_case *test) {
  static const int64_t one = 1;
  static test_tensor inputs[1100];
  test_tensor out;
  uint64_t sum = 0;
  for (int index = 0; index < test->count; index++) {
    const uint64_t *number = &test->numbers[index < 3 ? index : 2];
    make_tensor(&inputs[index], index % device_count(), test->kind, 1, &one, NULL, 0);
    set_elements(&inputs[index], (const unsigned char *)number);
  }
  describe_output(&out, test->root, 1, false);
  CHECK_OK(reduce(inputs, (size_t)test->count, &out));
  complete_output(&out, test->kind, true);
  unsigned char *elements = elements_of(&out);
  memcpy(&sum, elements, width_of(test->kind));
  free(elements);
  free_tensor(&out);
  free_tensors(inputs, test->count);
  return sum;
}

static void expect_cases(const sum_case *cases, size_t count) {
  for (size_t index = 0; index < count; index++) {
    const uint64_t sum = sum_of(&cases[index]);
    if (sum != cases[index].sum) {
      fprintf(stderr, "%s of %d inputs on device %d: %s\n", types[cases[index].kind].name, cases[index].count,
              (int)cases[index].root, cases[index].name);
    }
    CHECK_EQ(sum, cases[index].sum);
  }
}

#define EXPECT_CASES(cases) expect_cases(cases, sizeof(cases) / sizeof(cases)[0])

TEST(additions_follow_the_reduction_order) {
  /* 1e8 + 1 is 1e8 in float32. 2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16. */
  static const sum_case list_order[] = {
      {"(1e8 + 1) - 1e8", F32, {0x4CBEBC20, 0x3F800000, 0xCCBEBC20}, 3, 2, 0},
      {"2048 + 1 + 1, rounded once", F16, {0x6800, 0x3C00, 0x3C00}, 3, 0, 0x6801},
      {"256 + 1 + 1, rounded once", BF16, {0x4380, 0x3F80, 0x3F80}, 3, 0, 0x4381},
  };
  static const sum_case torch_order[] = {
      {"(-1e8 + 1e8) + 1", F32, {0x4CBEBC20, 0x3F800000, 0xCCBEBC20}, 3, 2, 0x3F800000},
      {"(1e8 + 1) - 1e8", F32, {0x4CBEBC20, 0x3F800000, 0xCCBEBC20}, 3, 0, 0},
      {"2048 + 1 + 1, rounded twice", F16, {0x6800, 0x3C00, 0x3C00}, 3, 0, 0x6800},
      {"256 + 1 + 1, rounded twice", BF16, {0x4380, 0x3F80, 0x3F80}, 3, 0, 0x4380},
      {"(1 + 1) + 2048", F16, {0x3C00, 0x3C00, 0x6800}, 3, 0, 0x6801},
      {"(2048 + 1) + 1", F16, {0x3C00, 0x3C00, 0x6800}, 3, 2, 0x6800},
  };
  int32_t order = UNTOUCHED;
  need_devices(3);
  CHECK_OK(plinth_comm_get_reduction_order(&order));
  CHECK_EQ(order, PLINTH_COMM_ORDER_LIST);
  EXPECT_CASES(list_order);
  CHECK_OK(plinth_comm_set_reduction_order(PLINTH_COMM_ORDER_TORCH));
  CHECK_OK(plinth_comm_get_reduction_order(&order));
  CHECK_EQ(order, PLINTH_COMM_ORDER_TORCH);
  EXPECT_CASES(torch_order);
  CHECK_STATUS(plinth_comm_set_reduction_order(2), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_get_reduction_order(NULL), PLINTH_ERROR_NULL_POINTER);
}

/* float16 represents only even integers from 2048 on, and bfloat16 from 256 on. A sum is rounded once for each launch. */
TEST(sums_of_many_16_bit_numbers_are_rounded_after_each_launch) {
  static const sum_case cases[] = {
      {"2048 + 64 ones", F16, {0x6800, 0x3C00, 0x3C00}, 65, 0, 0x6820},
      {"256 + 64 ones", BF16, {0x4380, 0x3F80, 0x3F80}, 65, 0, 0x43A0},
      {"2048 + 505 ones is 2553, rounded to even 2552", F16, {0x6800, 0x3C00, 0x3C00}, 506, 0, 0x68FC},
      {"2552 + 1 in the second launch is rounded to 2552", F16, {0x6800, 0x3C00, 0x3C00}, 507, 0, 0x68FC},
      {"2552 + 2 in the second launch is 2554", F16, {0x6800, 0x3C00, 0x3C00}, 508, 0, 0x68FD},
      {"2552 + 505 in the second launch is rounded to 3056", F16, {0x6800, 0x3C00, 0x3C00}, 1011, 0, 0x69F8},
      {"3056 + 1 in the third launch is rounded to 3056", F16, {0x6800, 0x3C00, 0x3C00}, 1012, 0, 0x69F8},
  };
  EXPECT_CASES(cases);
}

TEST(sums_at_the_limits_of_a_type) {
  static const sum_case cases[] = {
      {"overflow to infinity", F16, {0x7BFF, 0x7BFF}, 2, 0, 0x7C00},
      {"infinity - infinity is NaN", F16, {0x7C00, 0xFC00}, 2, 0, 0x7FFF},
      {"subnormal numbers add up to a normal one", F16, {0x0001, 0x03FF}, 2, 0, 0x0400},
      {"-0 + -0 is -0", F16, {0x8000, 0x8000}, 2, 0, 0x8000},
      {"unsigned integers wrap around", U8, {200, 100}, 2, 0, 44},
      {"any nonzero byte is true", BOOL, {7, 0}, 2, 0, 1},
  };
  need_devices(2);
  EXPECT_CASES(cases);
}

TEST(reduce_add_waits_for_every_stream_and_every_stream_waits_for_it) {
  need_devices(2);
  const int32_t devices = device_count();
  const int64_t shape = 100000;
  plinth_stream_t streams[8];
  for (int32_t device = 0; device < devices; device++) {
    streams[device] = stream_on(device);
    CHECK_OK(plinth_set_stream(streams[device]));
  }
  for (int gated = NO_GATE; gated < devices; gated++) {
    test_tensor inputs[8], out;
    make_inputs(inputs, F32, 1, &shape, NULL);
    make_tensor(&out, devices - 1, F32, 1, &shape, NULL, 0);
    synchronize_all();
    gate *shut = gated == NO_GATE ? NULL : gate_shut(streams[gated]);
    CHECK_OK(reduce(inputs, (size_t)devices, &out));
    for (int32_t device = 0; device < devices; device++) {
      CHECK(gated == NO_GATE || !stream_done(streams[device]));
      /* Each device's later work comes after the sum has read its input. */
      CHECK_OK(plinth_memset(inputs[device].memory, 0xFF, (size_t)shape * 4, streams[device]));
    }
    if (gated != NO_GATE) {
      CHECK(stays_undone(streams[(gated + 1) % devices]));
      gate_open(shut);
    }
    synchronize_all();
    expect_sum(&out, devices, "gated");
    free_tensor(&out);
    free_tensors(inputs, devices);
  }
}

enum { TENSORS = 250 };

TEST(many_tensors_at_once) {
  static test_tensor inputs[TENSORS * 8];
  static test_tensor sums[TENSORS];
  const int32_t devices = device_count();
  for (int round = 0; round < 2; round++) {
    uint64_t state = 11;
    for (int index = 0; index < TENSORS; index++) {
      int64_t shape[3], strides[3];
      const int kind = (int)random_up_to(&state, SUMMABLE - 1);
      const int32_t rank = (int32_t)random_up_to(&state, 3);
      int64_t stride = 1;
      for (int32_t dimension = rank - 1; dimension >= 0; dimension--) {
        shape[dimension] = random_up_to(&state, 12);
        strides[dimension] = stride;
        stride *= shape[dimension] + (index % 7 == 3);
      }
      for (int32_t device = 0; device < devices; device++) {
        make_tensor(&inputs[device * TENSORS + index], device, kind, rank, shape, strides, 0);
        set_numbers(&inputs[device * TENSORS + index], device);
      }
      describe_output(&sums[index], devices - 1, rank, round == 1);
      if (index % 5 == 1) {
        make_tensor(&sums[index], devices - 1, kind, rank, shape, NULL, 0);
      }
    }
    DLTensor *descriptors = descriptors_of(inputs, (size_t)(TENSORS * devices));
    DLTensor *out = descriptors_of(sums, TENSORS);
    CHECK_OK(plinth_comm_reduce_add_coalesced(descriptors, TENSORS, (size_t)devices, 0, out));
    free(descriptors);
    take_descriptors(sums, TENSORS, out);
    for (int index = 0; index < TENSORS; index++) {
      if (index % 5 != 1) {
        complete_output(&sums[index], inputs[index].kind, devices > 1);
      }
      if (sums[index].dl.strides != NULL || index % 5 == 1 || devices > 1) {
        expect_sum(&sums[index], devices, "coalesced");
      }
      free_tensor(&sums[index]);
    }
    free_tensors(inputs, TENSORS * devices);
  }
  CHECK_OK(plinth_testing_check_allocator());
}

TEST(large_sums_are_split_over_the_devices) {
  need_devices(3);
  const int64_t shape = 1000003;
  CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, 100000));
  for (int32_t root = 0; root < device_count(); root += 2) {
    test_tensor inputs[8];
    const int count = make_inputs(inputs, F32, 1, &shape, NULL);
    expect_sum_in_place(inputs, count, root, "split");
    free_tensors(inputs, count);
  }
}

TEST(sums_are_deterministic) {
  const int64_t shape = 50000;
  const int32_t devices = device_count();
  test_tensor inputs[8], out;
  unsigned char *first = NULL;
  uint64_t state = 3;
  for (int32_t device = 0; device < devices; device++) {
    make_tensor(&inputs[device], device, F32, 1, &shape, NULL, 0);
    float *numbers = (float *)pageable_memory((size_t)shape * 4);
    for (int64_t index = 0; index < shape; index++) {
      numbers[index] = (float)((double)random_next(&state) / 1e15 - 9000);
    }
    set_elements(&inputs[device], (unsigned char *)numbers);
    free(numbers);
  }
  make_tensor(&out, 0, F32, 1, &shape, NULL, 0);
  for (int round = 0; round < 6; round++) {
    /* Whether or not the sum is split over the devices, the order of additions is the same. */
    CHECK_OK(plinth_comm_set_threshold(PLINTH_COMM_REDUCE_SPLIT, round % 2 == 0 ? 1 : 1000000000));
    CHECK_OK(reduce(inputs, (size_t)devices, &out));
    if (first == NULL) {
      first = elements_of(&out);
    }
    expect_elements(&out, first, "repeated");
  }
  free(first);
  free_tensor(&out);
  free_tensors(inputs, devices);
}

TEST(invalid_arguments_are_refused) {
  static const int64_t other[] = {5, 9, 7};
  static const refused_tensor wrong[] = {
      {0, F32, 3, other, PLINTH_ERROR_INVALID_VALUE, "input 1 has invalid shape: got [5, 9, 7], but expected [5, 7, 9]"},
      {0, F64, 3, three, PLINTH_ERROR_INVALID_VALUE, "input 1 has elements of float64, not of float32"},
      {ON_CPU, F32, 3, three, PLINTH_ERROR_DEVICE_MISMATCH, "input 1 is in memory of the CPU"},
  };
  test_tensor inputs[2], out;
  make_tensor(&inputs[0], 0, F32, 3, three, NULL, 0);
  describe_output(&out, 0, 3, false);
  for (int index = 0; index < 3; index++) {
    make_tensor(&inputs[1], wrong[index].device, wrong[index].kind, wrong[index].rank, wrong[index].shape, NULL, 0);
    CHECK_STATUS(reduce(inputs, 2, &out), wrong[index].status);
    CHECK_MESSAGE(wrong[index].message);
    free_tensor(&inputs[1]);
  }
  CHECK_STATUS(reduce(inputs, 0, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_reduce_add(NULL, 2, &out.dl), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_reduce_add(&inputs[0].dl, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  if (device_count() > 1) {
    describe_output(&out, 1, 3, false);
    CHECK_STATUS(reduce(inputs, 1, &out), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_MESSAGE("has none of the tensors that are added");
    make_tensor(&inputs[1], 1, F32, 3, three, NULL, 0);
    test_tensor outs[2];
    describe_output(&outs[0], 0, 3, false);
    describe_output(&outs[1], 1, 3, false);
    test_tensor all[4] = {inputs[0], inputs[0], inputs[1], inputs[1]};
    DLTensor *descriptors = descriptors_of(all, 4);
    DLTensor *sums = descriptors_of(outs, 2);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(descriptors, 2, 2, 0, sums), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(descriptors, 2, 0, 0, sums), PLINTH_ERROR_INVALID_VALUE);
    CHECK_STATUS(plinth_comm_reduce_add_coalesced(descriptors, 2, 2, 0, NULL), PLINTH_ERROR_NULL_POINTER);
    CHECK_OK(plinth_comm_reduce_add_coalesced(NULL, 0, 2, 0, NULL));
    free(descriptors);
    free(sums);
    free_tensor(&inputs[1]);
  }
  inputs[0].dl.dtype.code = 9;
  inputs[0].dl.dtype.bits = 8;
  describe_output(&out, 0, 3, false);
  CHECK_STATUS(reduce(inputs, 1, &out), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("code 9 and 8 bits is not supported");
  free_tensor(&inputs[0]);
}
