/* The jiterator: elementwise functions, compiled at run time, against plain loops.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_USE_KERNEL_CACHE=0 */
/* timeout: 240 */
#include "jitting.h"

TEST(every_type_adds) {
  plinth_jit_function_t add = jit(ADD);
  for (int kind = 0; kind < DTYPES; kind++) {
    const int64_t count = 1003;
    tensor x, y, out;
    make_row(&x, kind, count, 1);
    make_row(&y, kind, count, 2);
    make(&out, kind, 1, &count, NULL, 0);
    expect_call(add, &x, &y, &out, model_add);
    drop(&x);
    drop(&y);
    drop(&out);
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

TEST(sizes_around_a_block_are_complete) {
  plinth_jit_function_t add = jit(ADD);
  for (int64_t count = 1; count < 20000; count = count * 5 / 4 + 1) {
    for (int off = -1; off <= 1; off++) {
      const int64_t size = (count < 256 ? count : count / 256 * 256) + off;
      tensor x, y, out;
      if (size < 1) {
        continue;
      }
      make_row(&x, F32, size, 1);
      make_row(&y, F32, size, 2);
      make(&out, F32, 1, &size, NULL, 0);
      expect_call(add, &x, &y, &out, model_add);
      drop(&x);
      drop(&y);
      drop(&out);
    }
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* Makes a tensor with random strides: dimensions in random order, gaps, negative strides, and broadcast ones if allowed. */
static void make_random_layout(tensor *out, int kind, int32_t rank, const int64_t *shape, bool repeats, uint64_t *state) {
  int64_t strides[MOST_DIMENSIONS], own[MOST_DIMENSIONS], stride = 1;
  int32_t order[MOST_DIMENSIONS], dropped = 0;
  size_t shift = random_next(state) % 3 == 0 ? bytes_of(kind) * (random_next(state) % 8) : 0;
  const bool plain = random_next(state) % 3 == 0;
  for (int32_t dimension = 0; dimension < rank; dimension++) {
    order[dimension] = dimension;
    own[dimension] = repeats && random_next(state) % 4 == 0 ? 1 : shape[dimension];
  }
  if (repeats && rank > 0 && random_next(state) % 4 == 0) {
    dropped = (int32_t)(random_next(state) % (uint64_t)(rank + 1));
  }
  for (int32_t dimension = rank - 1; dimension > 0 && !plain; dimension--) {
    const int32_t other = (int32_t)(random_next(state) % (uint64_t)(dimension + 1)), swapped = order[dimension];
    order[dimension] = order[other];
    order[other] = swapped;
  }
  for (int32_t position = rank - 1; position >= 0; position--) {
    const int32_t dimension = order[position];
    strides[dimension] = stride;
    stride *= own[dimension] + (plain || random_next(state) % 3 ? 0 : (int64_t)(random_next(state) % 3));
    if (!plain && random_next(state) % 6 == 0) {
      strides[dimension] = -strides[dimension];
    }
  }
  make(out, kind, rank - dropped, own + dropped, strides + dropped, shift);
}

static void test_random_layouts(int in, int other, int result, int rounds, uint64_t seed) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 16, 24, 33};
  plinth_jit_function_t add = jit(ADD);
  for (int round = 0; round < rounds; round++) {
    const int32_t rank = (int32_t)(random_next(&seed) % 6);
    int64_t shape[MOST_DIMENSIONS];
    tensor x, y, out;
    for (int32_t dimension = 0; dimension < rank; dimension++) {
      const uint64_t most = rank > 3 ? 5 : 9;
      shape[dimension] = sizes[random_next(&seed) % most];
    }
    make_random_layout(&x, in, rank, shape, false, &seed);
    make_random_layout(&y, other, rank, shape, in == other || rank < 1, &seed);
    make_random_layout(&out, result, rank, shape, false, &seed);
    fill_small(&x, seed);
    fill_small(&y, seed + 1);
    expect_call(add, &x, &y, &out, model_add);
    drop(&x);
    drop(&y);
    drop(&out);
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

TEST(any_layout_of_floats) { test_random_layouts(F32, F32, F32, 400, 1); }

TEST(any_layout_of_halves) { test_random_layouts(F16, F16, F16, 200, 2); }

TEST(any_layout_of_mixed_types) { test_random_layouts(F32, U8, F32, 200, 3); }

TEST(any_layout_of_bytes) { test_random_layouts(I8, I8, I8, 200, 4); }

TEST(any_layout_of_complex_numbers) { test_random_layouts(C128, C128, C128, 100, 5); }

TEST(the_maximum_number_of_dimensions) {
  int64_t shape[MOST_DIMENSIONS], strides[MOST_DIMENSIONS], stride = 1;
  plinth_jit_function_t add = jit(ADD);
  tensor x, y, out;
  for (int dimension = 0; dimension < MOST_DIMENSIONS; dimension++) {
    shape[dimension] = dimension % 3 == 0 ? 2 : 1;
    /* In reverse order, so that no two dimensions can be merged in both inputs. */
    strides[dimension] = stride;
    stride *= shape[dimension];
  }
  make(&x, F32, MOST_DIMENSIONS, shape, NULL, 0);
  make(&y, F32, MOST_DIMENSIONS, shape, strides, 0);
  make(&out, F32, MOST_DIMENSIONS, shape, NULL, 0);
  fill_small(&x, 1);
  fill_small(&y, 2);
  expect_call(add, &x, &y, &out, model_add);
  drop(&x);
  drop(&y);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* Adds tensors of two types, the second one with one or no dimension, and expects a result type. */
static void expect_promotion(plinth_jit_function_t add, int one, int other, bool with_dimensions, int expected) {
  const int64_t count = 37;
  const DLTensor *inputs[2];
  DLDataType type = {0, 0, 0};
  int32_t rank = -1;
  int64_t shape[MOST_DIMENSIONS];
  tensor x, y, out;
  make_row(&x, one, count, 1);
  make(&y, other, with_dimensions ? 1 : 0, &count, NULL, 0);
  fill_small(&y, 2);
  inputs[0] = &x.dl;
  inputs[1] = &y.dl;
  CHECK_OK(plinth_jiterator_result(add, inputs, 2, &type, &rank, shape));
  CHECK_EQ(type.code, dtypes[expected].code);
  CHECK_EQ(type.bits, dtypes[expected].bits);
  CHECK_EQ(type.lanes, 1);
  CHECK_EQ(rank, 1);
  CHECK_EQ(shape[0], count);
  make(&out, expected, 1, &count, NULL, 0);
  expect_call(add, &x, &y, &out, model_add);
  drop(&x);
  drop(&y);
  drop(&out);
}

TEST(types_are_promoted_as_in_torch) {
  plinth_jit_function_t add = jit(ADD);
  expect_promotion(add, U8, I8, true, I16);
  expect_promotion(add, I32, F16, true, F16);
  expect_promotion(add, F16, BF16, true, F32);
  expect_promotion(add, F32, C128, true, C128);
  expect_promotion(add, F64, C64, true, C128);
  expect_promotion(add, BOOL, I64, true, I64);
  expect_promotion(add, I8, I64, false, I8);
  expect_promotion(add, F16, F64, false, F16);
  expect_promotion(add, I64, F32, false, F32);
  expect_promotion(add, F64, C64, false, C128);
  expect_promotion(add, BF16, I64, false, BF16);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

TEST(halves_are_computed_in_float) {
  /* In float16, 2048 + 1 is 2048. */
  plinth_jit_function_t function = jit("template <typename T> T f(T x) { T sum = x + T(1); return sum - x + T(sizeof(T)); }");
  const int64_t count = 9;
  for (int kind = F16; kind <= BF16; kind++) {
    tensor x, out;
    make(&x, kind, 1, &count, NULL, 0);
    make(&out, kind, 1, &count, NULL, 0);
    for (int64_t index = 0; index < count; index++) {
      const number large = {2048, 0};
      set(&x, x.first + (size_t)index * 2, large);
    }
    upload(&x);
    CHECK_OK(call1(function, &x, &out, NULL));
    fetch(out.host, out.device, out.bytes);
    for (int64_t index = 0; index < count; index++) {
      CHECK(get(&out, out.first + (size_t)index * 2).re == 5);
    }
    drop(&x);
    drop(&out);
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

/* For every finite half and the next one: a value nearer to each, and the middle, which rounds to even. */
TEST(halves_are_rounded_to_the_nearest) {
  static const char *const codes[] = {
      "template <typename T> T f(T x, T y) { return x + (y - x) * T(0.4375); }",
      "template <typename T> T f(T x, T y) { return x + (y - x) * T(0.5); }",
      "template <typename T> T f(T x, T y) { return x + (y - x) * T(0.5625); }",
  };
  const int64_t count = 63488;
  tensor x, y, out;
  make(&x, F16, 1, &count, NULL, 0);
  make(&y, F16, 1, &count, NULL, 0);
  make(&out, F16, 1, &count, NULL, 0);
  for (int64_t index = 0; index < count; index++) {
    const uint16_t bits = (uint16_t)(index < 31744 ? index : index - 31744 + 0x8000);
    const uint16_t next = (uint16_t)(bits + ((bits & 0x7fff) < 0x7bff ? 1 : 0));
    memcpy(x.host + x.first + (size_t)index * 2, &bits, 2);
    memcpy(y.host + y.first + (size_t)index * 2, &next, 2);
  }
  upload(&x);
  upload(&y);
  for (int side = 0; side < 3; side++) {
    plinth_jit_function_t function = jit(codes[side]);
    CHECK_OK(call2(function, &x, &y, &out, NULL));
    fetch(out.host, out.device, out.bytes);
    for (int64_t index = 0; index < count; index++) {
      uint16_t low, high, found;
      memcpy(&low, x.host + x.first + (size_t)index * 2, 2);
      memcpy(&high, y.host + y.first + (size_t)index * 2, 2);
      memcpy(&found, out.host + out.first + (size_t)index * 2, 2);
      CHECK_EQ(found, side == 0 || (side == 1 && low % 2 == 0) ? low : high);
    }
    CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
  }
  drop(&x);
  drop(&y);
  drop(&out);
}

TEST(bools_are_true_for_every_byte_but_0) {
  plinth_jit_function_t function = jit("template <typename T> T f(T x) { return x == true; }");
  const int64_t count = 256;
  tensor x, out;
  make(&x, BOOL, 1, &count, NULL, 0);
  make(&out, BOOL, 1, &count, NULL, 0);
  for (int64_t index = 0; index < count; index++) {
    x.host[x.first + (size_t)index] = (unsigned char)index;
  }
  upload(&x);
  CHECK_OK(call1(function, &x, &out, NULL));
  fetch(out.host, out.device, out.bytes);
  for (int64_t index = 0; index < count; index++) {
    CHECK_EQ(out.host[out.first + (size_t)index], index != 0);
  }
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(scalars_have_defaults_and_values) {
  const plinth_jit_scalar_t declared[] = {
      {sizeof(plinth_jit_scalar_t), "alpha", PLINTH_JIT_FLOAT, 0, 0, 2.0, 0},
      {sizeof(plinth_jit_scalar_t), "n", PLINTH_JIT_INT, 0, 3, 0, 0},
      {sizeof(plinth_jit_scalar_t), "negate", PLINTH_JIT_BOOL, 0, 0, 0, 0},
  };
  const plinth_jit_scalar_t arguments[] = {{sizeof(plinth_jit_scalar_t), "negate", PLINTH_JIT_BOOL, 0, 1, 0, 0},
                                       {sizeof(plinth_jit_scalar_t), "alpha", PLINTH_JIT_INT, 0, 4, 0, 0}};
  const plinth_jit_scalar_t wider[] = {{sizeof(plinth_jit_scalar_t), "n", PLINTH_JIT_FLOAT, 0, 0, 0.5, 0}};
  const plinth_jit_scalar_t unknown[] = {{sizeof(plinth_jit_scalar_t), "beta", PLINTH_JIT_INT, 0, 4, 0, 0}};
  const plinth_jit_scalar_t no_kind[] = {{sizeof(plinth_jit_scalar_t), "n", 4, 0, 4, 0, 0}};
  const plinth_jit_scalar_t no_name[] = {{sizeof(plinth_jit_scalar_t), NULL, PLINTH_JIT_INT, 0, 4, 0, 0}};
  const int64_t count = 300;
  plinth_jit_function_t function = NULL;
  tensor x, out;
  const DLTensor *inputs[1] = {&x.dl};
  DLTensor *outputs[1] = {&out.dl};
  const char *code =
      "template <typename T, typename N> T scaled(T x, N n) { return x + T(n); }\n"
      "template <typename T> T f(T x, T alpha, double n, bool negate) {\n"
      "  return negate ? -scaled(x * alpha, n) : scaled(x * alpha, n);\n"
      "}\n";
  CHECK_OK(plinth_jiterator_create_jit_fn(code, declared, 3, &function));
  make_row(&x, F32, count, 1);
  make(&out, F32, 1, &count, NULL, 0);
  for (int variant = 0; variant < 3; variant++) {
    const plinth_jit_scalar_t *scalars = variant == 1 ? arguments : variant == 2 ? wider : NULL;
    CHECK_OK(plinth_jiterator_call(function, inputs, 1, outputs, 1, scalars, variant == 1 ? 2 : variant == 2, NULL));
    fetch(out.host, out.device, out.bytes);
    for (int64_t index = 0; index < count; index++) {
      const double from = get(&x, x.first + (size_t)index * 4).re;
      const double expected = variant == 0 ? from * 2 + 3 : variant == 1 ? -(from * 4 + 3) : from * 2 + 0.5;
      CHECK(get(&out, out.first + (size_t)index * 4).re == expected);
    }
  }
  CHECK_STATUS(plinth_jiterator_call(function, inputs, 1, outputs, 1, unknown, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_MESSAGE("beta is not declared by the jiterated function: it has alpha, n, negate");
  CHECK_STATUS(plinth_jiterator_call(function, inputs, 1, outputs, 1, no_kind, 1, NULL), PLINTH_ERROR_INVALID_VALUE);
  CHECK_STATUS(plinth_jiterator_call(function, inputs, 1, outputs, 1, no_name, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_jiterator_call(function, inputs, 1, outputs, 1, NULL, 1, NULL), PLINTH_ERROR_NULL_POINTER);
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(large_integer_scalars_are_exact) {
  const plinth_jit_scalar_t declared = {sizeof declared, "n", PLINTH_JIT_INT, 0, INT64_C(0x7123456789abcdef), 0, 0};
  plinth_jit_function_t function = NULL;
  const int64_t count = 5;
  tensor x, out;
  int64_t found;
  CHECK_OK(plinth_jiterator_create_jit_fn("template <typename T> T f(T x, int64_t n) { return x - x + n; }", &declared, 1,
                                          &function));
  make_row(&x, I64, count, 1);
  make(&out, I64, 1, &count, NULL, 0);
  CHECK_OK(call1(function, &x, &out, NULL));
  fetch(out.host, out.device, out.bytes);
  memcpy(&found, out.host + out.first, 8);
  CHECK_EQ(found, INT64_C(0x7123456789abcdef));
  drop(&x);
  drop(&out);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(several_outputs_are_written) {
  enum { COUNT = 333, OUTPUTS = 8, INPUTS = 8 };
  const int64_t count = COUNT;
  plinth_jit_function_t function = NULL;
  tensor in[INPUTS], out[OUTPUTS];
  const DLTensor *inputs[INPUTS];
  DLTensor *outputs[OUTPUTS];
  const plinth_jit_scalar_t by = {sizeof by, "by", PLINTH_JIT_FLOAT, 0, 0, 2, 0};
  const char *code =
      "template <typename T>\n"
      "void f(T a, T b, T c, T d, T e, T f, T g, T h, T by, T &o0, T &o1, T &o2, T &o3, T &o4, T &o5, T &o6, T &o7) {\n"
      "  o0 = a * by; o1 = b * by; o2 = c * by; o3 = d * by; o4 = e * by; o5 = f * by; o6 = g * by; o7 = h * by;\n"
      "}";
  CHECK_OK(plinth_jiterator_create_multi_output_jit_fn(code, OUTPUTS, &by, 1, &function));
  for (int index = 0; index < INPUTS; index++) {
    make_row(&in[index], F32, count, (uint64_t)index);
    make(&out[index], F32, 1, &count, NULL, 0);
    inputs[index] = &in[index].dl;
    outputs[index] = &out[index].dl;
  }
  CHECK_OK(plinth_jiterator_call(function, inputs, INPUTS, outputs, OUTPUTS, NULL, 0, NULL));
  for (int index = 0; index < OUTPUTS; index++) {
    fetch(out[index].host, out[index].device, out[index].bytes);
    for (int64_t element = 0; element < count; element++) {
      const size_t at = out[index].first + (size_t)element * 4;
      CHECK(get(&out[index], at).re == 2 * get(&in[index], at).re);
    }
  }
  for (int index = 0; index < INPUTS; index++) {
    drop(&in[index]);
    drop(&out[index]);
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

TEST(an_output_may_be_an_input) {
  plinth_jit_function_t add = jit(ADD);
  const int64_t count = 5000;
  tensor x, y;
  make_row(&x, F16, count, 1);
  make_row(&y, F16, count, 2);
  CHECK_OK(call2(add, &x, &y, &x, NULL));
  unsigned char *before = (unsigned char *)pageable_memory(x.bytes);
  memcpy(before, x.host, x.bytes);
  fetch(x.host, x.device, x.bytes);
  for (int64_t index = 0; index < count; index++) {
    const size_t at = x.first + (size_t)index * 2;
    uint16_t old;
    memcpy(&old, before + at, 2);
    CHECK(get(&x, at).re == of_half(old) + get(&y, at).re);
  }
  free(before);
  drop(&x);
  drop(&y);
  CHECK_OK(plinth_jiterator_destroy_jit_fn(add));
}

/* More kernels than a function's table can hold. */
TEST(one_function_with_very_many_types) {
  static const int kinds[] = {F16, BF16, F32, F64, U8, I8, I16, I32, BOOL};
  plinth_jit_function_t function = jit("template <typename T> T first(T x, T y) { return x; }");
  const int64_t count = 3;
  const size_t first_kinds = (size_t)some_rounds(9);
  for (int pass = 0; pass < 2; pass++) {
    for (size_t one = 0; one < first_kinds; one++) {
      for (size_t other = 0; other < 8; other++) {
        const DLTensor *inputs[2];
        DLTensor *outputs[1];
        DLDataType type;
        int32_t rank;
        int64_t shape[MOST_DIMENSIONS];
        int kind = 0;
        tensor x, y, out;
        make_row(&x, kinds[one], count, 1);
        make_row(&y, kinds[other], count, 1);
        inputs[0] = &x.dl;
        inputs[1] = &y.dl;
        CHECK_OK(plinth_jiterator_result(function, inputs, 2, &type, &rank, shape));
        while (memcmp(&dtypes[kind], &type, sizeof type) != 0) {
          kind++;
        }
        make(&out, kind, 1, &count, NULL, 0);
        outputs[0] = &out.dl;
        CHECK_OK(plinth_jiterator_call(function, inputs, 2, outputs, 1, NULL, 0, NULL));
        fetch(out.host, out.device, out.bytes);
        CHECK(get(&out, out.first).re == get(&x, x.first).re);
        drop(&x);
        drop(&y);
        drop(&out);
      }
    }
  }
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}

/* More elements than 31 bits can count. On the host device that would take a minute and gigabytes. */
TEST(more_than_2_to_the_31_elements) {
  const int64_t count = ((int64_t)1 << 31) + 4099, narrow[] = {3, ((int64_t)1 << 30) + 5};
  const int64_t strides[] = {((int64_t)1 << 30) + 8, 1};
  plinth_jit_function_t function = jit("template <typename T> T next(T x) { return x + T(1); }");
  unsigned char *memory, ends[16];
  tensor whole;
  if (on_host_device()) {
    SKIP("is too slow on the host device");
  }
  memset(&whole, 0, sizeof whole);
  memory = (unsigned char *)device_memory((size_t)3 * (size_t)strides[0], 0);
  CHECK_OK(plinth_memset(memory, 7, (size_t)3 * (size_t)strides[0], NULL));
  whole.dl.data = memory;
  whole.dl.device.device_type = 2;
  whole.dl.dtype = dtypes[U8];
  whole.dl.ndim = 1;
  whole.dl.shape = (int64_t *)&count;
  CHECK_OK(call1(function, &whole, &whole, NULL));
  fetch(ends, memory + count - 8, 16);
  for (int index = 0; index < 16; index++) {
    CHECK_EQ(ends[index], index < 8 ? 8 : 7);
  }
  fetch(ends, memory, 16);
  CHECK_EQ(ends[0], 8);
  whole.dl.ndim = 2;
  whole.dl.shape = (int64_t *)narrow;
  whole.dl.strides = (int64_t *)strides;
  CHECK_OK(call1(function, &whole, &whole, NULL));
  for (int row = 0; row < 3; row++) {
    fetch(ends, memory + row * strides[0] + narrow[1] - 8, 11);
    for (int index = 0; index < 11; index++) {
      const int64_t at = row * strides[0] + narrow[1] - 8 + index;
      CHECK_EQ(ends[index], 7 + (at < count) + (index < 8));
    }
  }
  CHECK_OK(plinth_device_free(memory));
  CHECK_OK(plinth_jiterator_destroy_jit_fn(function));
}
