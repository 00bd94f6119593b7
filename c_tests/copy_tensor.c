/* Copies of tensors: conversions, strides, broadcasting, kinds of memory, order. SPDX-License-Identifier: MIT OR Apache-2.0 */
/* also: PLINTH_HOST_PEERS=none */
#include "collecting.h"
#include "graphing.h"
#include "sanitizing.h"

/* ---- A reference of the conversions: an element as a complex number, or as an integer */

typedef struct value {
  bool is_integer;
  /* The type's real numbers have 64 bits. */
  bool is_wide;
  int64_t integer;
  double real, imaginary;
} value;

static bool is_signed(int kind) { return kind >= I8 && kind <= I64; }

static double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double fraction = (bits & 1023) / 1024.0;
  const double magnitude = exponent == 0    ? ldexp(fraction, -14)
                           : exponent == 31 ? (fraction == 0 ? INFINITY : NAN)
                                            : ldexp(1 + fraction, exponent - 15);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

static uint16_t half_bits(float number) {
  const uint16_t sign = signbit(number) ? 0x8000 : 0;
  const double magnitude = fabs((double)number);
  if (isnan(number)) {
    return 0x7FFF;
  }
  if (magnitude >= 65520) {
    return (uint16_t)(sign | 0x7C00);
  }
  const int exponent = magnitude < ldexp(1, -14) ? -14 : ilogb(magnitude);
  /* nearbyint rounds ties to even. A carry out of the fraction increments the exponent. */
  const int places = (int)nearbyint(ldexp(magnitude, 10 - exponent));
  return (uint16_t)(sign | (places + (exponent + 14) * 1024));
}

static uint16_t bfloat_bits(float number) {
  uint32_t bits;
  memcpy(&bits, &number, 4);
  return isnan(number) ? 0x7FFF : (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static value load_value(const unsigned char *at, int kind) {
  value out = {kind >= U8 && kind <= I64, kind == F64 || kind == C128, 0, 0, 0};
  const size_t width = width_of(kind);
  uint16_t half;
  float narrow[2];
  double wide[2] = {0, 0};
  memcpy(&half, at, width < 2 ? width : 2);
  switch (kind) {
    case F16:
      wide[0] = half_value(half);
      break;
    case BF16:
      narrow[0] = 0;
      memcpy((unsigned char *)narrow + 2, &half, 2);
      wide[0] = narrow[0];
      break;
    case F32:
    case C64:
      narrow[1] = 0;
      memcpy(narrow, at, width);
      wide[0] = narrow[0];
      wide[1] = narrow[1];
      break;
    case F64:
    case C128:
      memcpy(wide, at, width);
      break;
    case BOOL:
      out.is_integer = true;
      out.integer = *at != 0;
      break;
    default:
      /* The machine is little-endian, as CUDA's are. */
      memcpy(&out.integer, at, width);
      if (is_signed(kind) && width < 8) {
        const int shift = 64 - 8 * (int)width;
        out.integer = (int64_t)((uint64_t)out.integer << shift) >> shift;
      }
  }
  out.real = wide[0];
  out.imaginary = wide[1];
  return out;
}

/* Truncates to a type of `bits` bits; numbers out of range become the nearest one of the type. */
static uint64_t truncated(const value *from, int bits, bool to_signed) {
  if (from->is_integer) {
    return (uint64_t)from->integer;
  }
  if (isnan(from->real)) {
    return bits == 64 || from->is_wide ? UINT64_C(1) << (bits - 1) : 0;
  }
  const double low = to_signed ? -ldexp(1, bits - 1) : 0;
  const double high = ldexp(1, to_signed ? bits - 1 : bits);
  if (from->real >= high) {
    return (to_signed ? UINT64_C(1) << (bits - 1) : bits == 64 ? 0 : UINT64_C(1) << bits) - 1;
  }
  const double real = trunc(from->real < low ? low : from->real);
  return to_signed ? (uint64_t)(int64_t)real : (uint64_t)real;
}

static float single(const value *from, bool is_unsigned_64) {
  return !from->is_integer ? (float)from->real : is_unsigned_64 ? (float)(uint64_t)from->integer : (float)from->integer;
}

/* Converts an element as torch does on a GPU. */
static void convert(unsigned char *to, int to_kind, const unsigned char *at, int from_kind) {
  const value from = load_value(at, from_kind);
  const bool is_unsigned_64 = from_kind == U64;
  const size_t width = width_of(to_kind);
  float narrow[2] = {single(&from, is_unsigned_64), from.is_integer ? 0 : (float)from.imaginary};
  double wide[2] = {from.real, from.imaginary};
  if (from.is_integer) {
    wide[0] = is_unsigned_64 ? (double)(uint64_t)from.integer : (double)from.integer;
    wide[1] = 0;
  }
  uint64_t bits = 0;
  switch (to_kind) {
    case F16:
      bits = half_bits(narrow[0]);
      break;
    case BF16:
      bits = bfloat_bits(narrow[0]);
      break;
    case F32:
    case C64:
      memcpy(to, narrow, width);
      return;
    case F64:
    case C128:
      memcpy(to, wide, width);
      return;
    case BOOL:
      bits = from.is_integer ? from.integer != 0 : from.real != 0 || from.imaginary != 0;
      break;
    case U8:
      bits = truncated(&from, 64, true);
      break;
    default:
      bits = truncated(&from, width == 8 ? 64 : 32, is_signed(to_kind));
  }
  memcpy(to, &bits, width);
}

/* ---- Tensors with numbers that show each rule */

static const double numbers[] = {0,    1,     -1,     2.5,    -2.75, 0.3,   100.25, 129,   257,  300.5,
                                 2049, 65535, -32769, 70000., 3e9,   -3e10, 1e-6,   1e-40, NAN};
static const int64_t integers[] = {0,    1,    -1,    100,  129,    257,        300,      2049,   2051,
                                   4099, 65535, -32769, -129, 1 << 24, (1 << 24) + 1, INT64_MAX, INT64_MIN, -3};

enum { NUMBERS = sizeof numbers / sizeof numbers[0], INTEGERS = sizeof integers / sizeof integers[0] };

static void set_values(const test_tensor *tensor, unsigned seed) {
  const int64_t count = count_of(tensor);
  const size_t width = width_of(tensor->kind);
  unsigned char *elements = (unsigned char *)pageable_memory((size_t)count * width + 1);
  for (int64_t index = 0; index < count; index++) {
    const size_t number = (size_t)index + seed;
    const double parts[] = {numbers[number % NUMBERS], numbers[number / 3 % NUMBERS]};
    const bool is_integer = tensor->kind >= U8 && tensor->kind <= I64;
    if (is_integer || tensor->kind == BOOL) {
      /* A bool in memory may have any byte. */
      memcpy(elements + (size_t)index * width, &integers[number % INTEGERS], width);
      continue;
    }
    unsigned char pair[16];
    memcpy(pair, parts, 16);
    convert(elements + (size_t)index * width, tensor->kind, pair, C128);
  }
  set_elements(tensor, elements);
  free(elements);
}

static bool is_nan(const unsigned char *at, int kind) {
  const value found = load_value(at, kind);
  return !found.is_integer && (isnan(found.real) || isnan(found.imaginary));
}

/* The row-major index in the source of an element of the destination. */
static int64_t broadcast_index(const test_tensor *from, const test_tensor *to, int64_t index) {
  int64_t at = 0;
  int64_t step = 1;
  for (int32_t dimension = to->dl.ndim - 1; dimension >= 0; dimension--) {
    const int32_t own = dimension - (to->dl.ndim - from->dl.ndim);
    const int64_t position = index % to->shape[dimension];
    index /= to->shape[dimension];
    if (own >= 0 && from->shape[own] != 1) {
      at += position * step;
    }
    step *= own >= 0 ? from->shape[own] : 1;
  }
  return at;
}

/* Checks a copied tensor against the reference, and the memory around its elements. */
static void expect_copy(const test_tensor *to, const test_tensor *from) {
  const size_t width = width_of(to->kind);
  unsigned char *actual = elements_of(to);
  unsigned char *source = elements_of(from);
  for (int64_t index = 0; index < count_of(to); index++) {
    unsigned char expected[16];
    const unsigned char *at = source + (size_t)broadcast_index(from, to, index) * width_of(from->kind);
    const unsigned char *got = actual + (size_t)index * width;
    if (to->kind == from->kind) {
      memcpy(expected, at, width);
    } else {
      convert(expected, to->kind, at, from->kind);
    }
    /* Only that it is a NaN is specified for the parts of wide types. */
    const bool both_nan = to->kind != from->kind && width >= 4 && is_nan(expected, to->kind) && is_nan(got, to->kind);
    if (!both_nan && memcmp(got, expected, width) != 0) {
      fprintf(stderr, "%s to %s, device %d to %d, element %lld: ", types[from->kind].name, types[to->kind].name, from->device,
              to->device, (long long)index);
      for (size_t byte = 0; byte < width; byte++) {
        fprintf(stderr, "%02x(%02x) ", got[byte], expected[byte]);
      }
      harness_fail(__FILE__, __LINE__, "a wrong element");
    }
  }
  free(actual);
  free(source);
  expect_guard_bytes(to);
}

static void copy_and_check(test_tensor *to, test_tensor *from, unsigned seed) {
  set_values(from, seed);
  set_elements(to, NULL);
  CHECK_OK(plinth_copy_tensor(&to->dl, &from->dl, seed % 2 != 0));
  expect_copy(to, from);
}

static const int places[] = {0, ON_CPU, ON_PINNED, 1};

static int place_count(void) { return device_count() > 1 ? 4 : 3; }

/* ---- Tests */

TEST(every_type_becomes_every_type) {
  const int64_t shape[] = {2, NUMBERS * 2};
  const int64_t turned[] = {1, 3};
  for (int from_kind = 0; from_kind < SUMMABLE; from_kind++) {
    for (int to_kind = 0; to_kind < SUMMABLE; to_kind++) {
      test_tensor from, to;
      const int pair = from_kind + to_kind;
      make_tensor(&from, places[pair % place_count()], from_kind, 2, shape, NULL, 0);
      make_tensor(&to, places[pair / 3 % place_count()], to_kind, 2, shape, from_kind % 2 == 0 ? turned : NULL, 0);
      copy_and_check(&to, &from, (unsigned)pair);
      free_tensor(&from);
      free_tensor(&to);
    }
  }
}

TEST(conversions_are_the_same_in_every_direction) {
  const int64_t shape[] = {NUMBERS * 2};
  static const int pairs[][2] = {{F32, BF16}, {F64, U8}, {I64, F16}, {C128, I32}, {BOOL, C64}, {F32, F32}};
  for (size_t pair = 0; pair < sizeof pairs / sizeof pairs[0]; pair++) {
    for (int from_place = 0; from_place < place_count(); from_place++) {
      for (int to_place = 0; to_place < place_count(); to_place++) {
        test_tensor from, to;
        make_tensor(&from, places[from_place], pairs[pair][0], 1, shape, NULL, 16);
        make_tensor(&to, places[to_place], pairs[pair][1], 1, shape, NULL, 0);
        copy_and_check(&to, &from, (unsigned)(from_place + to_place));
        free_tensor(&from);
        free_tensor(&to);
      }
    }
  }
}

/* Makes a tensor of a shape with strides in a random order, with gaps, and partly negative. */
static void make_strided(test_tensor *out, int place, int kind, int32_t rank, const int64_t *shape, uint64_t *state) {
  int64_t strides[MAX_RANK];
  int32_t order[MAX_RANK];
  int64_t stride = 1 + random_up_to(state, 1);
  for (int32_t index = 0; index < rank; index++) {
    const int32_t swapped = (int32_t)random_up_to(state, index);
    order[index] = order[swapped];
    order[swapped] = index;
  }
  for (int32_t index = 0; index < rank; index++) {
    strides[order[index]] = random_up_to(state, 2) == 0 ? -stride : stride;
    stride *= (shape[order[index]] > 0 ? shape[order[index]] : 1) + (random_up_to(state, 2) == 0 ? 1 : 0);
  }
  make_tensor(out, place, kind, rank, shape, strides, 0);
}

TEST(strides_of_any_order_and_sign_and_broadcast_dimensions) {
  uint64_t state = 7;
  for (int round = 0; round < some_rounds(1500); round++) {
    int64_t shape[MAX_RANK], source[MAX_RANK];
    const int32_t rank = (int32_t)random_up_to(&state, 5);
    const int32_t missing = (int32_t)random_up_to(&state, rank);
    const int kind = (int)random_up_to(&state, SUMMABLE - 1);
    for (int32_t index = 0; index < rank; index++) {
      shape[index] = round % 40 == 0 ? random_up_to(&state, 3) : 1 + random_up_to(&state, 4);
      source[index] = random_up_to(&state, 3) == 0 ? 1 : shape[index];
    }
    test_tensor from, to;
    const int32_t skipped = round % 2 == 0 ? 0 : missing;
    make_strided(&from, places[random_up_to(&state, place_count() - 1)], kind, rank - skipped, source + skipped, &state);
    const int to_kind = round % 3 == 0 ? kind : (int)random_up_to(&state, SUMMABLE - 1);
    make_strided(&to, places[random_up_to(&state, place_count() - 1)], to_kind, rank, shape, &state);
    copy_and_check(&to, &from, (unsigned)round);
    free_tensor(&from);
    free_tensor(&to);
  }
}

TEST(an_element_that_is_repeated_in_memory_is_read_repeatedly) {
  const int64_t shape[] = {3, 4};
  const int64_t repeated[] = {0, 1};
  /* Side by side, and far apart, where only the rows of host memory are copied. */
  const int64_t sparse[] = {0, 40};
  for (int round = 0; round < 3 * place_count(); round++) {
    test_tensor from, to;
    make_tensor(&from, places[round / 3], I32, 2, shape, round % 3 == 0 ? repeated : sparse, 0);
    make_tensor(&to, 0, round % 3 == 1 ? I32 : F32, 2, shape, NULL, 0);
    set_values(&from, 3);
    set_elements(&to, NULL);
    CHECK_OK(plinth_copy_tensor(&to.dl, &from.dl, false));
    expect_copy(&to, &from);
    free_tensor(&from);
    free_tensor(&to);
  }
}

TEST(tensors_have_up_to_25_dimensions) {
  enum { RANK = 25, COUNT = 1 << 10 };
  int64_t shape[RANK + 1], strides[RANK + 1];
  int16_t host[COUNT];
  double result[COUNT];
  int64_t stride = 1;
  for (int index = 0; index <= RANK; index++) {
    shape[index] = index < 10 ? 2 : 1;
    /* The first dimension is the fastest, so that no two dimensions can be merged with the destination's. */
    strides[index] = stride;
    stride *= shape[index];
  }
  for (int index = 0; index < COUNT; index++) {
    host[index] = (int16_t)(index * 31);
  }
  int16_t *device = (int16_t *)device_memory(sizeof host, 0);
  double *copied = (double *)device_memory(sizeof result, 0);
  put(device, host, sizeof host);
  DLTensor from = {device, {2, 0}, RANK, {0, 16, 1}, shape, strides, 0};
  DLTensor to = {copied, {2, 0}, RANK, {2, 64, 1}, shape, NULL, 0};
  CHECK_OK(plinth_copy_tensor(&to, &from, false));
  fetch(result, copied, sizeof result);
  for (int index = 0; index < COUNT; index++) {
    int reversed = 0;
    for (int bit = 0; bit < 10; bit++) {
      reversed |= (index >> bit & 1) << (9 - bit);
    }
    CHECK_EQ(result[index], host[reversed]);
  }
  to.ndim = RANK + 1;
  CHECK_STATUS(plinth_copy_tensor(&to, &from, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination: it has 26 dimensions, more than 25");
  CHECK_OK(plinth_device_free(device));
  CHECK_OK(plinth_device_free(copied));
}

TEST(wrong_tensors_are_refused) {
  const int64_t shape[] = {3, 4}, other[] = {3, 2}, once[] = {0, 1}, turned[] = {1, 3}, far[] = {INT64_MAX, 1};
  test_tensor to, from;
  make_tensor(&to, 0, F32, 2, shape, NULL, 0);
  make_tensor(&from, 0, F32, 2, other, NULL, 0);
  set_elements(&to, NULL);
  CHECK_STATUS(plinth_copy_tensor(&to.dl, &from.dl, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("source has shape [3, 2], which cannot be broadcast to the destination's shape [3, 4]");
  CHECK_STATUS(plinth_copy_tensor(NULL, &from.dl, false), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("destination");
  CHECK_STATUS(plinth_copy_tensor(&to.dl, NULL, false), PLINTH_ERROR_NULL_POINTER);
  CHECK_MESSAGE("source");

  DLTensor wrong = to.dl;
  wrong.strides = (int64_t *)once;
  CHECK_STATUS(plinth_copy_tensor(&wrong, &to.dl, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination: dimension 0 has 3 elements in one place");
  wrong.strides = (int64_t *)turned;
  CHECK_STATUS(plinth_copy_tensor(&wrong, &to.dl, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination and source share a part of their memory");
  wrong.strides = (int64_t *)far;
  CHECK_STATUS(plinth_copy_tensor(&wrong, &to.dl, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination: its strides lead outside of all addresses");
  wrong = to.dl;
  wrong.device.device_id = device_count();
  CHECK_STATUS(plinth_copy_tensor(&to.dl, &wrong, false), PLINTH_ERROR_INVALID_DEVICE);
  CHECK_MESSAGE("source");
  wrong = to.dl;
  wrong.device.device_type = 4;
  CHECK_STATUS(plinth_copy_tensor(&to.dl, &wrong, false), PLINTH_ERROR_DEVICE_MISMATCH);
  CHECK_MESSAGE("source has DLPack device type 4; it must be on a CUDA device or the CPU");
  wrong = to.dl;
  wrong.dtype.bits = 24;
  CHECK_STATUS(plinth_copy_tensor(&wrong, &to.dl, false), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("destination: DLPack element type with code 2 and 24 bits is not supported");

  /* Nothing was written; a copy to itself, and of nothing, is allowed. */
  CHECK_OK(plinth_copy_tensor(&to.dl, &to.dl, false));
  const int64_t none[] = {0, 4}, row[] = {1, 4};
  DLTensor empty = {NULL, {2, 0}, 2, {0, 8, 1}, (int64_t *)none, NULL, 0};
  CHECK_OK(plinth_copy_tensor(&empty, &empty, false));
  from.dl.shape = (int64_t *)row;
  CHECK_OK(plinth_copy_tensor(&empty, &from.dl, false));
  from.dl.shape = from.shape;
  unsigned char *raw = (unsigned char *)pageable_memory(to.bytes);
  fetch(raw, to.memory, to.bytes);
  for (size_t at = 0; at < to.bytes; at++) {
    CHECK_EQ(raw[at], GUARD_BYTE);
  }
  free(raw);
  free_tensor(&from);
  free_tensor(&to);
}

TEST(a_copy_runs_in_the_current_stream_of_the_tensors_device) {
  const int64_t shape[] = {40, 30}, turned[] = {1, 40};
  const int32_t device = device_count() - 1;
  plinth_stream_t stream = stream_on(device);
  test_tensor from, to, host;
  make_tensor(&from, device, F32, 2, shape, NULL, 0);
  make_tensor(&to, device, F16, 2, shape, turned, 0);
  make_tensor(&host, ON_PINNED, F64, 2, shape, turned, 0);
  copy_and_check(&to, &from, 1); /* loads the kernel */
  copy_and_check(&host, &to, 1);
  set_values(&from, 5);
  set_elements(&to, NULL);
  set_elements(&host, NULL);
  plinth_stream_context_t saved;
  CHECK_OK(plinth_stream_context_enter(stream, &saved));
  CHECK_OK(plinth_set_device(0));
  gate *held = gate_shut(stream);
  CHECK_OK(plinth_copy_tensor(&to.dl, &from.dl, false));
  CHECK_OK(plinth_copy_tensor(&host.dl, &to.dl, true));
  CHECK(stays_undone(stream));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_stream_context_exit(&saved));
  expect_copy(&to, &from);
  expect_copy(&host, &to);
  free_tensor(&host);
  free_tensor(&to);
  free_tensor(&from);
}

/* A copy between devices comes after the present work of both, and before later work of both. */
static void expect_order_between_devices(int shut_device) {
  const int64_t shape[] = {20, 30}, turned[] = {1, 20};
  test_tensor from, to;
  make_tensor(&from, 0, F32, 2, shape, NULL, 0);
  make_tensor(&to, 1, I16, 2, shape, turned, 0);
  copy_and_check(&to, &from, 2);
  set_values(&from, 4);
  set_elements(&to, NULL);
  plinth_stream_t streams[] = {stream_on(0), stream_on(1)};
  CHECK_OK(plinth_set_stream(streams[1]));
  CHECK_OK(plinth_set_stream(streams[0]));
  gate *held = gate_shut(streams[shut_device]);
  CHECK_OK(plinth_copy_tensor(&to.dl, &from.dl, false));
  CHECK(stays_undone(streams[0]));
  CHECK(stays_undone(streams[1]));
  gate_open(held);
  CHECK_OK(plinth_stream_synchronize(streams[1]));
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_OK(plinth_set_stream_of(1, NULL));
  CHECK_OK(plinth_set_stream_of(0, NULL));
  expect_copy(&to, &from);
  free_tensor(&to);
  free_tensor(&from);
}

TEST(a_copy_between_devices_is_ordered_with_both_current_streams) {
  need_devices(2);
  expect_order_between_devices(0);
  expect_order_between_devices(1);
}

TEST(a_captured_copy_is_repeated_by_each_replay) {
  const int64_t shape[] = {6, 5}, turned[] = {1, 6};
  test_tensor host, from, to;
  make_tensor(&host, ON_PINNED, F32, 2, shape, turned, 0);
  make_tensor(&from, 0, BF16, 2, shape, NULL, 0);
  make_tensor(&to, 0, I64, 2, shape, turned, 0);
  set_values(&host, 0);
  set_elements(&from, NULL);
  set_elements(&to, NULL);
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_copy_tensor(&from.dl, &host.dl, true));
  CHECK_OK(plinth_copy_tensor(&to.dl, &from.dl, false));
  CHECK_OK(plinth_graph_capture_end(graph));
  for (unsigned round = 0; round < 2; round++) {
    set_values(&host, round);
    CHECK_OK(plinth_graph_replay(graph));
    finish(stream);
    expect_copy(&from, &host);
    expect_copy(&to, &from);
  }
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_set_stream(NULL));
  free_tensor(&to);
  free_tensor(&from);
  free_tensor(&host);
}

TEST(a_captured_copy_between_devices_needs_peer_access) {
  bool peers = false;
  need_devices(2);
  void *from = device_memory(256, 0), *to = device_memory(256, 1);
  plinth_stream_t receiver = on_new_stream(1), sender = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_OK(plinth_stream_wait_stream(receiver, sender));
  CHECK_OK(plinth_can_device_access_peer(0, 1, &peers));
  CHECK_STATUS(plinth_copy(to, from, 256, true), peers ? PLINTH_OK : PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_stream_wait_stream(sender, receiver));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(from));
  CHECK_OK(plinth_device_free(to));
}

TEST(the_sync_debug_mode_sees_copies_that_wait) {
  const int64_t shape[] = {6, 5};
  test_tensor pinned, pageable, to;
  make_tensor(&pinned, ON_PINNED, F32, 2, shape, NULL, 0);
  make_tensor(&pageable, ON_CPU, F32, 2, shape, NULL, 0);
  make_tensor(&to, 0, I64, 2, shape, NULL, 0);
  set_values(&pinned, 0);
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_ERROR));
  CHECK_STATUS(plinth_copy_tensor(&to.dl, &pinned.dl, false), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_STATUS(plinth_copy_tensor(&to.dl, &pageable.dl, true), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_STATUS(plinth_copy_tensor(&pageable.dl, &pinned.dl, true), PLINTH_ERROR_WOULD_SYNCHRONIZE);
  CHECK_OK(plinth_copy_tensor(&to.dl, &pinned.dl, true));
  CHECK_OK(plinth_set_sync_debug_mode(PLINTH_SYNC_DEBUG_DEFAULT));
  synchronize_all();
  free_tensor(&to);
  free_tensor(&pageable);
  free_tensor(&pinned);
}

TEST(the_sanitizer_sees_the_elements_of_both_tensors) {
  const int64_t shape[] = {4, 8}, spread[] = {16, 1};
  plinth_stream_t a = stream_on(0);
  plinth_stream_t b = stream_on(0);
  test_tensor from, to;
  make_tensor(&from, 0, F32, 2, shape, spread, 0);
  make_tensor(&to, 0, F64, 2, shape, spread, 0);
  float *source = (float *)from.dl.data;
  double *destination = (double *)to.dl.data;
  enable_sanitizer();
  CHECK_OK(plinth_set_stream(a));
  CHECK_OK(plinth_copy_tensor(&to.dl, &from.dl, false));
  kernel("beside the source", WRITE, source + 8, 32, b);
  kernel("beside the destination", WRITE, destination + 24, 64, b);
  kernel("another reader", READ, source, 32, b);
  CLEAN();
  kernel("writer", WRITE, source + 16, 4, b);
  RACE(MISSING_WAIT, source + 16, 4, writes("writer", b), reads("plinth_copy_tensor", a));
  CHECK_OK(plinth_set_stream(NULL));
  synchronize_all();
  free_tensor(&to);
  free_tensor(&from);
}

TEST(a_copy_that_would_wait_is_refused_in_a_capture) {
  float host[8] = {0}, elsewhere[8] = {0};
  int64_t shape[1] = {8};
  plinth_stream_t stream = on_new_stream(0);
  plinth_graph_t graph = new_graph(0);
  void *memory = device_memory(sizeof host, 0);
  DLTensor on_host = {host, {1, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  DLTensor other = on_host;
  DLTensor on_device = {memory, {2, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  other.data = elsewhere;
  CHECK_OK(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  CHECK_STATUS(plinth_copy_tensor(&on_device, &on_host, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_copy_tensor(&on_host, &on_device, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_STATUS(plinth_copy_tensor(&other, &on_host, false), PLINTH_ERROR_CAPTURE_FORBIDS);
  CHECK_OK(plinth_memset(memory, 1, sizeof host, stream));
  CHECK_OK(plinth_graph_capture_end(graph));
  CHECK_OK(plinth_graph_replay(graph));
  CHECK_OK(plinth_stream_synchronize(stream));
  CHECK_OK(plinth_set_stream(NULL));
  CHECK_OK(plinth_graph_destroy(graph));
  CHECK_OK(plinth_device_free(memory));
}
