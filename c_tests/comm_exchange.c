/* Scatter and gather: every dimension, type and layout, views, the CPU, streams of their own, errors.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_HOST_DEVICES=4 */
/* also: PLINTH_HOST_PEERS=none */
/* also: PLINTH_COMM_CONF=copy_engine:1 */
#include "collecting.h"

static const int64_t shape_of[] = {6, 10, 9};
static const int64_t layouts[][3] = {{90, 9, 1}, {1, 6, 60}, {200, 11, 1}, {-90, 9, -1}, {9, 54, 1}};
enum { LAYOUTS = 5, MOST_PARTS = 8 };

/* The elements of a part of a tensor, as its own indices count them. */
static unsigned char *part_of(const item *whole, const unsigned char *elements, int dim, int64_t start, int64_t length) {
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

static void expect_part(const item *part, const item *whole, unsigned seed, int dim, int64_t start, const char *what) {
  unsigned char *elements = some_elements(whole, seed);
  unsigned char *expected = part_of(whole, elements, dim, start, part->shape[dim]);
  expect_elements(part, expected, what);
  free(expected);
  free(elements);
}

/* Scatters to outputs that are made, one on each device in turn, and looks at them. */
static void expect_scatter(item *whole, int parts, const int64_t *sizes, int dim, bool strides, unsigned seed) {
  item out[MOST_PARTS];
  int64_t start = 0;
  for (int index = 0; index < parts; index++) {
    want(&out[index], index % device_count(), whole->dl.ndim, strides);
  }
  DLTensor *row = row_of(out, (size_t)parts);
  CHECK_OK(plinth_comm_scatter(&whole->dl, row, (size_t)parts, sizes, dim, NULL));
  unrow(out, (size_t)parts, row);
  const int counted = dim < 0 ? dim + whole->dl.ndim : dim;
  const int64_t each = (whole->shape[counted] + parts - 1) / parts;
  for (int index = 0; index < parts; index++) {
    const int64_t left = whole->shape[counted] - start;
    CHECK_EQ(out[index].shape[counted], sizes != NULL ? sizes[index] : left < each ? left : each);
    const unsigned char *data = (const unsigned char *)out[index].dl.data;
    const bool is_view = whole->device >= 0 && data >= whole->memory && data < whole->memory + whole->bytes;
    CHECK(!is_view || out[index].device == whole->device);
    if (strides && out[index].device == whole->device && data != NULL) {
      CHECK(is_view);
    }
    adopt(&out[index], whole->kind, !is_view);
    expect_part(&out[index], whole, seed, counted, start, "scatter");
    start += out[index].shape[counted];
    drop(&out[index]);
  }
  CHECK_EQ(start, whole->shape[counted]);
}

TEST(scatter_along_every_dimension_of_every_layout) {
  for (int layout = 0; layout < LAYOUTS; layout++) {
    for (int dim = -3; dim < 3; dim++) {
      static const int kinds[] = {U8, F16, F32, C64, C128, F8, F32X4};
      item whole;
      make(&whole, (layout + dim + 3) % device_count(), kinds[(layout + dim + 3) % 7], 3, shape_of, layouts[layout], 0);
      set_some(&whole, 21);
      expect_scatter(&whole, 4, NULL, dim, dim % 2 == 0, 21);
      drop(&whole);
    }
  }
}

TEST(scatter_by_sizes) {
  static const int64_t sizes[][4] = {{1, 2, 3, 4}, {10, 0, 0, 0}, {0, 0, 5, 5}, {3, 3, 3, 1}};
  item whole;
  make(&whole, 0, F32, 3, shape_of, NULL, 0);
  set_some(&whole, 2);
  for (int index = 0; index < 4; index++) {
    expect_scatter(&whole, 4, sizes[index], 1, true, 2);
    expect_scatter(&whole, 4, sizes[index], 1, false, 2);
  }
  drop(&whole);
}

TEST(scatter_of_too_little_leaves_the_last_ones_empty) {
  static const int64_t five = 5;
  item whole, out[4];
  make(&whole, 0, I32, 1, &five, NULL, 0);
  set_some(&whole, 2);
  expect_scatter(&whole, 4, NULL, 0, false, 2);
  for (int index = 0; index < 4; index++) {
    want(&out[index], index % device_count(), 1, false);
  }
  DLTensor *row = row_of(out, 4);
  CHECK_OK(plinth_comm_scatter(&whole.dl, row, 4, NULL, 0, NULL));
  unrow(out, 4, row);
  CHECK_EQ(out[3].shape[0], 0);
  CHECK_SAME(out[3].dl.data, NULL);
  for (int index = 0; index < 4; index++) {
    if (out[index].device != 0 && out[index].dl.data != NULL) {
      release(out[index].dl.data);
    }
  }
  drop(&whole);
}

TEST(scatter_into_outputs_that_exist) {
  for (int to = 0; to < LAYOUTS; to++) {
    static const int64_t lengths[] = {4, 1, 5};
    item whole, out[3];
    int64_t start = 0;
    make(&whole, device_count() - 1, F64, 3, shape_of, layouts[(to + 2) % LAYOUTS], 0);
    set_some(&whole, 7);
    for (int index = 0; index < 3; index++) {
      const int64_t shape[] = {6, lengths[index], 9};
      make(&out[index], index % device_count(), F64, 3, shape, layouts[to], 8);
      set_elements(&out[index], NULL);
    }
    DLTensor *row = row_of(out, 3);
    CHECK_OK(plinth_comm_scatter(&whole.dl, row, 3, NULL, -2, NULL));
    unrow(out, 3, row);
    for (int index = 0; index < 3; index++) {
      expect_part(&out[index], &whole, 7, 1, start, "given");
      expect_marks(&out[index]);
      start += lengths[index];
      drop(&out[index]);
    }
    drop(&whole);
  }
}

TEST(scatter_from_memory_of_the_cpu) {
  for (int where = 0; where < 2; where++) {
    for (int layout = 0; layout < LAYOUTS; layout++) {
      for (int dim = 0; dim < 3; dim++) {
        item whole;
        make(&whole, where == 0 ? ON_CPU : ON_PINNED, F32, 3, shape_of, layouts[layout], 0);
        unsigned char *elements = some_elements(&whole, 31);
        memset(whole.memory, 0, whole.bytes);
        for (int64_t index = 0; index < count_of(&whole); index++) {
          memcpy(whole.memory + whole.dl.byte_offset + place_of(&whole, index), elements + index * 4, 4);
        }
        free(elements);
        expect_scatter(&whole, 3, NULL, dim, false, 31);
        drop(&whole);
      }
    }
  }
}

TEST(scatter_in_streams_of_its_own) {
  need_devices(2);
  item whole, out[3];
  make(&whole, 0, F32, 3, shape_of, NULL, 0);
  set_some(&whole, 4);
  plinth_stream_t streams[3] = {stream_on(0), stream_on(1), NULL};
  DLTensor *row;
  for (int held = NOBODY; held < 1; held++) {
    for (int index = 0; index < 3; index++) {
      want(&out[index], index % 2, 3, false);
    }
    gate *shut = held == NOBODY ? NULL : gate_shut(streams[1]);
    row = row_of(out, 3);
    CHECK_OK(plinth_comm_scatter(&whole.dl, row, 3, NULL, 0, streams));
    unrow(out, 3, row);
    /* The stream that was named orders the copy, and the source's stream waits for it. */
    if (held != NOBODY) {
      CHECK(!stream_done(streams[1]));
      CHECK(stays_undone(NULL));
      gate_open(shut);
    }
    CHECK_OK(plinth_stream_synchronize(streams[1]));
    synchronize_all();
    for (int index = 0; index < 3; index++) {
      adopt(&out[index], F32, index % 2 == 1);
      expect_part(&out[index], &whole, 4, 0, 2 * index, "streams");
      drop(&out[index]);
    }
  }
  row = row_of(out, 2);
  row[0].data = row[1].data = NULL;
  streams[0] = streams[1];
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, NULL, 0, streams), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("stream 0 is of device 1, and its output on device 0");
  streams[0] = (plinth_stream_t)(uintptr_t)0x1234560;
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, NULL, 0, streams), PLINTH_ERROR_INVALID_HANDLE);
  free(row);
  drop(&whole);
}

TEST(what_scatter_refuses) {
  static const int64_t wrong_sizes[] = {3, 2};
  static const int64_t negative[] = {8, -2};
  item whole, out[2];
  make(&whole, 0, F32, 3, shape_of, NULL, 0);
  want(&out[0], 0, 3, false);
  want(&out[1], 0, 3, false);
  DLTensor *row = row_of(out, 2);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 0, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(NULL, row, 2, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, NULL, 2, NULL, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, wrong_sizes, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("[3, 2], do not add up to 6");
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, negative, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, NULL, 3, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_scatter(&whole.dl, row, 2, NULL, -4, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("dimension -4 is none of 3");
  static const int64_t half[] = {3, 10, 9};
  item given[2];
  make(&given[0], 0, F32, 3, half, NULL, 0);
  make(&given[1], 0, F32, 3, half, NULL, 0);
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
  drop(&given[0]);
  drop(&given[1]);
  free(row);
  item single;
  make(&single, 0, F32, 0, NULL, NULL, 0);
  want(&out[0], 0, 0, false);
  CHECK_STATUS(plinth_comm_scatter(&single.dl, &out[0].dl, 1, NULL, 0, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("no dimensions");
  drop(&single);
  drop(&whole);
}

/* Gathers parts of these lengths into an output, and looks at it. */
static void expect_gather(item *out, int kind, int dim, const int64_t *lengths, int parts, int layout, bool made) {
  item in[MOST_PARTS], whole;
  int64_t shape[] = {shape_of[0], shape_of[1], shape_of[2]};
  const int counted = dim < 0 ? dim + 3 : dim;
  shape[counted] = 0;
  for (int index = 0; index < parts; index++) {
    shape[counted] += lengths[index];
  }
  make(&whole, ON_CPU, kind, 3, shape, NULL, 0);
  unsigned char *elements = some_elements(&whole, 40);
  int64_t start = 0;
  for (int index = 0; index < parts; index++) {
    int64_t own[] = {shape[0], shape[1], shape[2]};
    own[counted] = lengths[index];
    make(&in[index], (index + 1) % device_count(), kind, 3, own, layout < 0 ? NULL : layouts[(layout + index) % LAYOUTS], 0);
    unsigned char *part = part_of(&whole, elements, counted, start, lengths[index]);
    set_elements(&in[index], part);
    free(part);
    start += lengths[index];
  }
  DLTensor *row = row_of(in, (size_t)parts);
  CHECK_OK(plinth_comm_gather(row, (size_t)parts, dim, &out->dl));
  free(row);
  if (made) {
    adopt(out, kind, true);
    CHECK_EQ(out->shape[counted], shape[counted]);
  }
  if (out->device == ON_PINNED) {
    synchronize_all();
  }
  if (out->device < 0) {
    for (int64_t index = 0; index < count_of(out); index++) {
      const size_t width = width_of(kind);
      CHECK(memcmp(out->memory + out->dl.byte_offset + place_of(out, index), elements + (size_t)index * width, width) == 0);
    }
  } else {
    expect_elements(out, elements, "gather");
  }
  for (int index = 0; index < parts; index++) {
    drop(&in[index]);
  }
  free(elements);
  drop(&whole);
}

TEST(gather_along_every_dimension_of_every_layout) {
  static const int64_t lengths[] = {3, 1, 0, 6};
  for (int layout = -1; layout < LAYOUTS; layout++) {
    for (int dim = -3; dim < 3; dim++) {
      static const int kinds[] = {U8, F16, F32, C64, C128, F8, BOOL};
      item out;
      want(&out, (dim + 3) % device_count(), 3, layout % 2 == 0);
      expect_gather(&out, kinds[(layout + dim + 4) % 7], dim, lengths, 4, layout, true);
      drop(&out);
    }
  }
}

TEST(gather_into_an_output_that_exists) {
  static const int64_t lengths[] = {3, 1, 2};
  for (int layout = 0; layout < LAYOUTS; layout++) {
    for (int device = ON_PINNED; device < device_count(); device++) {
      item out;
      make(&out, device, F32, 3, shape_of, layouts[layout], 4);
      if (device >= 0) {
        set_elements(&out, NULL);
      }
      expect_gather(&out, F32, 0, lengths, 3, (layout + 1) % LAYOUTS, false);
      if (device >= 0) {
        expect_marks(&out);
      }
      drop(&out);
    }
  }
}

TEST(gather_of_one_and_of_nothing) {
  static const int64_t one[] = {6};
  static const int64_t none[] = {0, 0};
  item out;
  want(&out, 0, 3, false);
  expect_gather(&out, F32, 0, one, 1, -1, true);
  drop(&out);
  want(&out, 0, 3, false);
  expect_gather(&out, F32, 0, none, 2, -1, true);
  CHECK_SAME(out.dl.data, NULL);
  drop(&out);
}

TEST(gather_of_nothing_to_the_cpu) {
  static const int64_t none[] = {0, 5};
  static const int64_t some[] = {2, 5};
  item in, out;
  make(&in, 0, F32, 2, none, NULL, 0);
  make(&out, ON_CPU, F32, 2, none, NULL, 0);
  out.dl.data = NULL;
  CHECK_OK(plinth_comm_gather(&in.dl, 1, 0, &out.dl));
  CHECK_SAME(out.dl.data, NULL);
  drop(&in);
  make(&in, 0, F32, 2, some, NULL, 0);
  out.dl.shape = in.shape;
  CHECK_STATUS(plinth_comm_gather(&in.dl, 1, 0, &out.dl), PLINTH_ERROR_NULL_POINTER);
  drop(&in);
  drop(&out);
}

TEST(gather_keeps_channels_last) {
  static const int64_t shape[] = {2, 3, 4, 5};
  static const int64_t last[] = {60, 1, 15, 3};
  for (int round = 0; round < 3; round++) {
    item in[2], out;
    for (int index = 0; index < 2; index++) {
      make(&in[index], index % device_count(), F32, 4, shape, round == 1 && index == 1 ? NULL : last, 0);
      set_some(&in[index], 5);
    }
    want(&out, 0, 4, round < 2);
    DLTensor *row = row_of(in, 2);
    CHECK_OK(plinth_comm_gather(row, 2, 0, &out.dl));
    free(row);
    adopt(&out, F32, true);
    CHECK_EQ(out.strides[1], round == 0 ? 1 : 20);
    unsigned char *half = some_elements(&in[0], 5);
    unsigned char *both = (unsigned char *)pageable_memory(2 * 120 * 4);
    memcpy(both, half, 120 * 4);
    memcpy(both + 120 * 4, half, 120 * 4);
    expect_elements(&out, both, "channels");
    free(half);
    free(both);
    drop(&out);
    drop(&in[0]);
    drop(&in[1]);
  }
}

TEST(gather_waits_for_every_stream_and_is_waited_for) {
  need_devices(2);
  static const int64_t shape[] = {1000, 100};
  plinth_stream_t streams[2] = {stream_on(0), stream_on(1)};
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_set_stream(streams[0]));
  for (int held = NOBODY; held < 2; held++) {
    item in[2], out;
    for (int index = 0; index < 2; index++) {
      make(&in[index], index, F32, 2, shape, NULL, 0);
      set_some(&in[index], 6);
    }
    want(&out, 0, 2, false);
    synchronize_all();
    gate *shut = held == NOBODY ? NULL : gate_shut(streams[held]);
    DLTensor *row = row_of(in, 2);
    CHECK_OK(plinth_comm_gather(row, 2, 1, &out.dl));
    free(row);
    CHECK(held == NOBODY || !stream_done(streams[0]));
    CHECK(held == NOBODY || stays_undone(streams[1]));
    CHECK_OK(plinth_memset(in[1].memory, 0, 400000, streams[1]));
    if (held != NOBODY) {
      gate_open(shut);
    }
    synchronize_all();
    adopt(&out, F32, true);
    unsigned char *got = elements_of(&out);
    unsigned char *half = some_elements(&in[0], 6);
    for (int line = 0; line < 1000; line++) {
      CHECK(memcmp(got + line * 800, half + line * 400, 400) == 0);
      CHECK(memcmp(got + line * 800 + 400, half + line * 400, 400) == 0);
    }
    free(got);
    free(half);
    drop(&out);
    drop(&in[0]);
    drop(&in[1]);
  }
}

TEST(gather_to_pageable_memory_is_told_to_the_sync_debug_mode) {
  static const int64_t shape[] = {4, 4};
  item in, out;
  make(&in, 0, F32, 2, shape, NULL, 0);
  make(&out, ON_CPU, F32, 2, shape, NULL, 0);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_comm_gather(&in.dl, 1, 0, &out.dl), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  drop(&in);
  drop(&out);
}

TEST(what_gather_refuses) {
  static const int64_t shape[] = {4, 5};
  static const int64_t wider[] = {4, 6};
  static const int64_t deeper[] = {4, 5, 1};
  item in[2], out;
  make(&in[0], 0, F32, 2, shape, NULL, 0);
  want(&out, 0, 2, false);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 0, 0, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_comm_gather(NULL, 1, 0, &out.dl), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 0, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 2, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  for (int wrong = 0; wrong < 4; wrong++) {
    make(&in[1], wrong == 3 ? ON_CPU : 0, wrong == 2 ? I32 : F32, wrong == 1 ? 3 : 2,
         wrong == 0   ? wider
         : wrong == 1 ? deeper
                      : shape,
         NULL, 0);
    DLTensor *row = row_of(in, 2);
    CHECK_STATUS(plinth_comm_gather(row, 2, 0, &out.dl),
                 wrong == 3 ? PLINTH_ERROR_DEVICE_MISMATCH : PLINTH_ERROR_INVALID_VALUE);
    static const char *const messages[] = {"input 1 has invalid shape: got [4, 6], but expected [4, 5]",
                                           "input 1 has 3 dimensions, and not 2", "inputs[1] has elements",
                                           "input 1 is in memory of the CPU"};
    CHECK_MESSAGE(messages[wrong]);
    free(row);
    drop(&in[1]);
  }
  item given;
  make(&given, 0, F32, 2, wider, NULL, 0);
  CHECK_STATUS(plinth_comm_gather(&in[0].dl, 1, 0, &given.dl), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("expected to have shape [4, 5], but has [4, 6]");
  drop(&given);
  item single;
  make(&single, 0, F32, 0, NULL, NULL, 0);
  want(&out, 0, 0, false);
  CHECK_STATUS(plinth_comm_gather(&single.dl, 1, 0, &out.dl), PLINTH_ERROR_INVALID_VALUE);
  drop(&single);
  drop(&in[0]);
}
