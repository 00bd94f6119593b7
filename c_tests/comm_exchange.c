/* Scatter and gather: dimensions, types and layouts, views, host memory, explicit streams, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=copy_engine:1 */
#include "collecting.h"

static const int64_t shape_of[] = {6, 10, 9};
static const int64_t layouts[][3] = {{90, 9, 1}, {1, 6, 60}, {200, 11, 1}, {-90, 9, -1}, {9, 54, 1}};
enum { LAYOUTS = 5, MAX_PARTS = 8 };

/* The elements of a part of a tensor, in row-major order of the part. The caller frees them. */
static unsigned char *part_of(const test_tensor *whole, const unsigned char *elements, int dim, int64_t start, int64_t length) {
  const size_t width = width_of(whole->kind);
  int64_t inner = 1;
  for (int index = dim + 1; index < whole->dl.ndim; index++) {
    inner *= whole->shape[index];
  }
  int64_t outer = 1;
  for (int index = 0; index < dim; index++) {
    outer *= whole->shape[index];
  }
  unsigned char *out = (unsigned char *)pageable_memory((size_t)(outer * length * inner) * width + 1);
  for (int64_t index = 0; index < outer; index++) {
    memcpy(out + (size_t)(index * length * inner) * width,
           elements + (size_t)((index * whole->shape[dim] + start) * inner) * width, (size_t)(length * inner) * width);
  }
  return out;
}

static void expect_part(const test_tensor *part, const test_tensor *whole, unsigned seed, int dim, int64_t start,
                        const char *label) {
  unsigned char *elements = pattern_elements(whole, seed);
  unsigned char *expected = part_of(whole, elements, dim, start, part->shape[dim]);
  expect_elements(part, expected, label);
  free(expected);
  free(elements);
}

/* Scatters to outputs that the library allocates, on the devices round-robin, and checks them. */
static void expect_scatter(test_tensor *whole, int parts, const int64_t *sizes, int dim, bool strides, unsigned seed) {
  test_tensor out[MAX_PARTS];
  int64_t start = 0;
  for (int index = 0; index < parts; index++) {
    describe_output(&out[index], index % device_count(), whole->dl.ndim, strides);
  }
  DLTensor *descriptors = descriptors_of(out, (size_t)parts);
  CHECK_OK(plinth_comm_scatter(&whole->dl, descriptors, (size_t)parts, sizes, dim, NULL));
  take_descriptors(out, (size_t)parts, descriptors);
  const int dimension = dim < 0 ? dim + whole->dl.ndim : dim;
  const int64_t each = (whole->shape[dimension] + parts - 1) / parts;
  for (int index = 0; index < parts; index++) {
    const int64_t left = whole->shape[dimension] - start;
    CHECK_EQ(out[index].shape[dimension], sizes != NULL ? sizes[index] : left < each ? left : each);
    const unsigned char *data = (const unsigned char *)out[index].dl.data;
    const bool is_view = whole->device >= 0 && data >= whole->memory && data < whole->memory + whole->bytes;
    CHECK(!is_view || out[index].device == whole->device);
    if (strides && out[index].device == whole->device && data != NULL) {
      CHECK(is_view);
    }
    complete_output(&out[index], whole->kind, !is_view);
    expect_part(&out[index], whole, seed, dimension, start, "scatter");
    start += out[index].shape[dimension];
    free_tensor(&out[index]);
  }
  CHECK_EQ(start, whole->shape[dimension]);
}

TEST(scatter_along_every_dimension_of_every_layout) {
  for (int layout = 0; layout < LAYOUTS; layout++) {
    for (int dim = -3; dim < 3; dim++) {
      static const int kinds[] = {U8, F16, F32, C64, C128, F8, F32X4};
      test_tensor whole;
      make_tensor(&whole, (layout + dim + 3) % device_count(), kinds[(layout + dim + 3) % 7], 3, shape_of, layouts[layout], 0);
      set_pattern(&whole, 21);
      expect_scatter(&whole, 4, NULL, dim, dim % 2 == 0, 21);
      free_tensor(&whole);
    }
  }
}

TEST(scatter_by_sizes) {
  static const int64_t sizes[][4] = {{1, 2, 3, 4}, {10, 0, 0, 0}, {0, 0, 5, 5}, {3, 3, 3, 1}};
  test_tensor whole;
  make_tensor(&whole, 0, F32, 3, shape_of, NULL, 0);
  set_pattern(&whole, 2);
  for (int index = 0; index < 4; index++) {
    expect_scatter(&whole, 4, sizes[index], 1, true, 2);
    expect_scatter(&whole, 4, sizes[index], 1, false, 2);
  }
  free_tensor(&whole);
}

TEST(scatter_of_too_few_elements_leaves_the_last_outputs_empty) {
  static const int64_t five = 5;
  test_tensor whole, out[4];
  make_tensor(&whole, 0, I32, 1, &five, NULL, 0);
  set_pattern(&whole, 2);
  expect_scatter(&whole, 4, NULL, 0, false, 2);
  for (int index = 0; index < 4; index++) {
    describe_output(&out[index], index % device_count(), 1, false);
  }
  DLTensor *descriptors = descriptors_of(out, 4);
  CHECK_OK(plinth_comm_scatter(&whole.dl, descriptors, 4, NULL, 0, NULL));
  take_descriptors(out, 4, descriptors);
  CHECK_EQ(out[3].shape[0], 0);
  CHECK_SAME(out[3].dl.data, NULL);
  for (int index = 0; index < 4; index++) {
    if (out[index].device != 0 && out[index].dl.data != NULL) {
      release(out[index].dl.data);
    }
  }
  free_tensor(&whole);
}

TEST(scatter_into_given_outputs) {
  for (int to = 0; to < LAYOUTS; to++) {
    static const int64_t lengths[] = {4, 1, 5};
    test_tensor whole, out[3];
    int64_t start = 0;
    make_tensor(&whole, device_count() - 1, F64, 3, shape_of, layouts[(to + 2) % LAYOUTS], 0);
    set_pattern(&whole, 7);
    for (int index = 0; index < 3; index++) {
      const int64_t shape[] = {6, lengths[index], 9};
      make_tensor(&out[index], index % device_count(), F64, 3, shape, layouts[to], 8);
      set_elements(&out[index], NULL);
    }
    DLTensor *descriptors = descriptors_of(out, 3);
    CHECK_OK(plinth_comm_scatter(&whole.dl, descriptors, 3, NULL, -2, NULL));
    take_descriptors(out, 3, descriptors);
    for (int index = 0; index < 3; index++) {
      expect_part(&out[index], &whole, 7, 1, start, "given output");
      expect_guard_bytes(&out[index]);
      start += lengths[index];
      free_tensor(&out[index]);
    }
    free_tensor(&whole);
  }
}

TEST(scatter_from_host_memory) {
  for (int where = 0; where < 2; where++) {
    for (int layout = 0; layout < LAYOUTS; layout++) {
      for (int dim = 0; dim < 3; dim++) {
        test_tensor whole;
        make_tensor(&whole, where == 0 ? ON_CPU : ON_PINNED, F32, 3, shape_of, layouts[layout], 0);
        unsigned char *elements = pattern_elements(&whole, 31);
        memset(whole.memory, 0, whole.bytes);
        for (int64_t index = 0; index < count_of(&whole); index++) {
          memcpy(whole.memory + whole.dl.byte_offset + element_offset(&whole, index), elements + index * 4, 4);
        }
        free(elements);
        expect_scatter(&whole, 3, NULL, dim, false, 31);
        free_tensor(&whole);
      }
    }
  }
}

TEST(scatter_in_explicit_streams) {
  need_devices(2);
  test_tensor whole, out[3];
  make_tensor(&whole, 0, F32, 3, shape_of, NULL, 0);
  set_pattern(&whole, 4);
  plinth_stream_t streams[3] = {stream_on(0), stream_on(1), NULL};
  DLTensor *descriptors;
  for (int gated = NO_GATE; gated < 1; gated++) {
    for (int index = 0; index < 3; index++) {
      describe_output(&out[index], index % 2, 3, false);
    }
    gate *shut = gated == NO_GATE ? NULL : gate_shut(streams[1]);
    descriptors = descriptors_of(out, 3);
    CHECK_OK(plinth_comm_scatter(&whole.dl, descriptors, 3, NULL, 0, streams));
    take_descriptors(out, 3, descriptors);
    /* The copy is ordered in the explicit stream, and the source's stream waits for it. */
    if (gated != NO_GATE) {
      CHECK(!stream_done(streams[1]));
      CHECK(stays_undone(NULL));
      gate_open(shut);
    }
    CHECK_OK(plinth_stream_synchronize(streams[1]));
    synchronize_all();
    for (int index = 0; index < 3; index++) {
      complete_output(&out[index], F32, index % 2 == 1);
      expect_part(&out[index], &whole, 4, 0, 2 * index, "streams");
      free_tensor(&out[index]);
    }
  }
  descriptors = descriptors_of(out, 2);
  descriptors[0].data = descriptors[1].data = NULL;
  streams[0] = streams[1];
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, NULL, 0, streams), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("the stream of output 0: the call works on device 0");
  streams[0] = (plinth_stream_t)(uintptr_t)0x1234560;
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, NULL, 0, streams), PLINTH_ERROR_INVALID_HANDLE);
  free(descriptors);
  free_tensor(&whole);
}

TEST(invalid_arguments_of_scatter_are_refused) {
  static const int64_t wrong_sizes[] = {3, 2};
  static const int64_t negative[] = {8, -2};
  test_tensor whole, out[2];
  make_tensor(&whole, 0, F32, 3, shape_of, NULL, 0);
  describe_output(&out[0], 0, 3, false);
  describe_output(&out[1], 0, 3, false);
  DLTensor *descriptors = descriptors_of(out, 2);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 0, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(NULL, descriptors, 2, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, NULL, 2, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, wrong_sizes, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("[3, 2], do not add up to 6");
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, negative, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, NULL, 3, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, descriptors, 2, NULL, -4, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("dimension -4 is none of 3");
  static const int64_t half[] = {3, 10, 9};
  test_tensor given[2];
  make_tensor(&given[0], 0, F32, 3, half, NULL, 0);
  make_tensor(&given[1], 0, F32, 3, half, NULL, 0);
  static const int64_t good_sizes[] = {3, 3};
  DLTensor mixed[] = {given[0].dl, out[1].dl};
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, mixed, 2, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("either all outputs of a scatter are given, or none");
  DLTensor both[] = {given[0].dl, given[1].dl};
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, both, 2, good_sizes, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, both, 2, NULL, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("in all dimensions but 1");
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, both, 1, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  both[1].dtype = types[I32].type;
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, both, 2, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  free_tensor(&given[0]);
  free_tensor(&given[1]);
  free(descriptors);
  test_tensor single;
  make_tensor(&single, 0, F32, 0, NULL, NULL, 0);
  describe_output(&out[0], 0, 0, false);
  CHECK_STATUS(plinth_comm_scatter(&single.dl, &out[0].dl, 1, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("no dimensions");
  free_tensor(&single);
  free_tensor(&whole);
}

/* Gathers parts of these lengths into an output, and checks it. The library allocates the output if `allocate` is set. */
static void expect_gather(test_tensor *out, int kind, int dim, const int64_t *lengths, int parts, int layout, bool allocate) {
  test_tensor in[MAX_PARTS], whole;
  int64_t shape[] = {shape_of[0], shape_of[1], shape_of[2]};
  const int dimension = dim < 0 ? dim + 3 : dim;
  shape[dimension] = 0;
  for (int index = 0; index < parts; index++) {
    shape[dimension] += lengths[index];
  }
  make_tensor(&whole, ON_CPU, kind, 3, shape, NULL, 0);
  unsigned char *elements = pattern_elements(&whole, 40);
  int64_t start = 0;
  for (int index = 0; index < parts; index++) {
    int64_t part_shape[] = {shape[0], shape[1], shape[2]};
    part_shape[dimension] = lengths[index];
    make_tensor(&in[index], (index + 1) % device_count(), kind, 3, part_shape,
                layout < 0 ? NULL : layouts[(layout + index) % LAYOUTS], 0);
    unsigned char *part = part_of(&whole, elements, dimension, start, lengths[index]);
    set_elements(&in[index], part);
    free(part);
    start += lengths[index];
  }
  DLTensor *descriptors = descriptors_of(in, (size_t)parts);
  CHECK_OK(plinth_comm_gather(descriptors, (size_t)parts, dim, &out->dl));
  free(descriptors);
  if (allocate) {
    complete_output(out, kind, true);
    CHECK_EQ(out->shape[dimension], shape[dimension]);
  }
  if (out->device == ON_PINNED) {
    synchronize_all();
  }
  if (out->device < 0) {
    for (int64_t index = 0; index < count_of(out); index++) {
      const size_t width = width_of(kind);
      const unsigned char *element = out->memory + out->dl.byte_offset + element_offset(out, index);
      CHECK(memcmp(element, elements + (size_t)index * width, width) == 0);
    }
  } else {
    expect_elements(out, elements, "gather");
  }
  for (int index = 0; index < parts; index++) {
    free_tensor(&in[index]);
  }
  free(elements);
  free_tensor(&whole);
}

TEST(gather_along_every_dimension_of_every_layout) {
  static const int64_t lengths[] = {3, 1, 0, 6};
  for (int layout = -1; layout < LAYOUTS; layout++) {
    for (int dim = -3; dim < 3; dim++) {
      static const int kinds[] = {U8, F16, F32, C64, C128, F8, BOOL};
      test_tensor out;
      describe_output(&out, (dim + 3) % device_count(), 3, layout % 2 == 0);
      expect_gather(&out, kinds[(layout + dim + 4) % 7], dim, lengths, 4, layout, true);
      free_tensor(&out);
    }
  }
}

TEST(gather_into_a_given_output) {
  static const int64_t lengths[] = {3, 1, 2};
  for (int layout = 0; layout < LAYOUTS; layout++) {
    for (int device = ON_PINNED; device < device_count(); device++) {
      test_tensor out;
      make_tensor(&out, device, F32, 3, shape_of, layouts[layout], 4);
      if (device >= 0) {
        set_elements(&out, NULL);
      }
      expect_gather(&out, F32, 0, lengths, 3, (layout + 1) % LAYOUTS, false);
      if (device >= 0) {
        expect_guard_bytes(&out);
      }
      free_tensor(&out);
    }
  }
}

TEST(gather_of_one_input_and_of_empty_inputs) {
  static const int64_t one[] = {6};
  static const int64_t none[] = {0, 0};
  test_tensor out;
  describe_output(&out, 0, 3, false);
  expect_gather(&out, F32, 0, one, 1, -1, true);
  free_tensor(&out);
  describe_output(&out, 0, 3, false);
  expect_gather(&out, F32, 0, none, 2, -1, true);
  CHECK_SAME(out.dl.data, NULL);
  free_tensor(&out);
}

TEST(gather_of_empty_inputs_to_host_memory) {
  static const int64_t none[] = {0, 5};
  static const int64_t some[] = {2, 5};
  test_tensor in, out;
  make_tensor(&in, 0, F32, 2, none, NULL, 0);
  make_tensor(&out, ON_CPU, F32, 2, none, NULL, 0);
  out.dl.data = NULL;
  CHECK_OK(plinth_comm_gather(&in.dl, 1, 0, &out.dl));
  CHECK_SAME(out.dl.data, NULL);
  free_tensor(&in);
  make_tensor(&in, 0, F32, 2, some, NULL, 0);
  out.dl.shape = in.shape;
  CHECK_STATUS(plinth_comm_gather(&in.dl, 1, 0, &out.dl), PLINTH_ERROR_NULL_POINTER);
  free_tensor(&in);
  free_tensor(&out);
}

TEST(gather_keeps_channels_last) {
  static const int64_t shape[] = {2, 3, 4, 5};
  static const int64_t last[] = {60, 1, 15, 3};
  for (int round = 0; round < 3; round++) {
    test_tensor in[2], out;
    for (int index = 0; index < 2; index++) {
      make_tensor(&in[index], index % device_count(), F32, 4, shape, round == 1 && index == 1 ? NULL : last, 0);
      set_pattern(&in[index], 5);
    }
    describe_output(&out, 0, 4, round < 2);
    DLTensor *descriptors = descriptors_of(in, 2);
    CHECK_OK(plinth_comm_gather(descriptors, 2, 0, &out.dl));
    free(descriptors);
    complete_output(&out, F32, true);
    CHECK_EQ(out.strides[1], round == 0 ? 1 : 20);
    unsigned char *half = pattern_elements(&in[0], 5);
    unsigned char *both = (unsigned char *)pageable_memory(2 * 120 * 4);
    memcpy(both, half, 120 * 4);
    memcpy(both + 120 * 4, half, 120 * 4);
    expect_elements(&out, both, "channels");
    free(half);
    free(both);
    free_tensor(&out);
    free_tensor(&in[0]);
    free_tensor(&in[1]);
  }
}

TEST(gather_waits_for_every_stream_and_every_stream_waits_for_it) {
  need_devices(2);
  static const int64_t shape[] = {1000, 100};
  plinth_stream_t streams[2] = {stream_on(0), stream_on(1)};
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_set_stream(streams[0]));
  for (int gated = NO_GATE; gated < 2; gated++) {
    test_tensor in[2], out;
    for (int index = 0; index < 2; index++) {
      make_tensor(&in[index], index, F32, 2, shape, NULL, 0);
      set_pattern(&in[index], 6);
    }
    describe_output(&out, 0, 2, false);
    synchronize_all();
    gate *shut = gated == NO_GATE ? NULL : gate_shut(streams[gated]);
    DLTensor *descriptors = descriptors_of(in, 2);
    CHECK_OK(plinth_comm_gather(descriptors, 2, 1, &out.dl));
    free(descriptors);
    CHECK(gated == NO_GATE || !stream_done(streams[0]));
    CHECK(gated == NO_GATE || stays_undone(streams[1]));
    CHECK_OK(plinth_memset(in[1].memory, 0, 400000, streams[1]));
    if (gated != NO_GATE) {
      gate_open(shut);
    }
    synchronize_all();
    complete_output(&out, F32, true);
    unsigned char *actual = elements_of(&out);
    unsigned char *half = pattern_elements(&in[0], 6);
    for (int line = 0; line < 1000; line++) {
      CHECK(memcmp(actual + line * 800, half + line * 400, 400) == 0);
      CHECK(memcmp(actual + line * 800 + 400, half + line * 400, 400) == 0);
    }
    free(actual);
    free(half);
    free_tensor(&out);
    free_tensor(&in[0]);
    free_tensor(&in[1]);
  }
}

TEST(sync_debug_mode_reports_a_gather_to_pageable_memory) {
  static const int64_t shape[] = {4, 4};
  test_tensor in, out;
  make_tensor(&in, 0, F32, 2, shape, NULL, 0);
  make_tensor(&out, ON_CPU, F32, 2, shape, NULL, 0);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_comm_gather(&in.dl, 1, 0, &out.dl), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  free_tensor(&in);
  free_tensor(&out);
}

TEST(invalid_arguments_of_gather_are_refused) {
  static const int64_t shape[] = {4, 5};
  static const int64_t wider[] = {4, 6};
  static const int64_t deeper[] = {4, 5, 1};
  static const refused_tensor wrong[] = {
      {0, F32, 2, wider, PLINTH_ERROR_INVALID_VALUE, "input 1 has invalid shape: got [4, 6], but expected [4, 5]"},
      {0, F32, 3, deeper, PLINTH_ERROR_INVALID_VALUE, "input 1 has 3 dimensions, and not 2"},
      {0, I32, 2, shape, PLINTH_ERROR_INVALID_VALUE, "inputs[1] has elements"},
      {ON_CPU, F32, 2, shape, PLINTH_ERROR_DEVICE_MISMATCH, "input 1 is in memory of the CPU"},
  };
  test_tensor in[2], out;
  make_tensor(&in[0], 0, F32, 2, shape, NULL, 0);
  describe_output(&out, 0, 2, false);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 0, 0, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_gather(NULL, 1, 0, &out.dl), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 2, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  for (int index = 0; index < 4; index++) {
    make_tensor(&in[1], wrong[index].device, wrong[index].kind, wrong[index].rank, wrong[index].shape, NULL, 0);
    DLTensor *descriptors = descriptors_of(in, 2);
    CHECK_STATUS(plinth_comm_gather(descriptors, 2, 0, &out.dl), wrong[index].status);
    CHECK_MESSAGE(wrong[index].message);
    free(descriptors);
    free_tensor(&in[1]);
  }
  test_tensor given;
  make_tensor(&given, 0, F32, 2, wider, NULL, 0);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 0, &given.dl), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("expected to have shape [4, 5], but has [4, 6]");
  free_tensor(&given);
  test_tensor single;
  make_tensor(&single, 0, F32, 0, NULL, NULL, 0);
  describe_output(&out, 0, 0, false);
  CHECK_STATUS(plinth_comm_gather(&single.dl, 1, 0, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  free_tensor(&single);
  free_tensor(&in[0]);
}
