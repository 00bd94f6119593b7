/* Errors of fills: the message says why, no memory is written, and the offset does not change. SPDX-License-Identifier: MIT OR
 * Apache-2.0 */
#include "drawing.h"

enum { COUNT = 64 };

static plinth_generator_t generator;
static unsigned char *memory;

static void begin(void) {
  unsigned char initial[COUNT * 8];
  memset(initial, 0xA5, sizeof initial);
  generator = new_generator(0, 21, 8);
  memory = (unsigned char *)device_memory(sizeof initial, 0);
  put(memory, initial, sizeof initial);
}

/* Whether a status is one that a fill may return for an invalid argument. */
static bool is_refusal(plinth_status_t status) {
  return status == PLINTH_ERROR_INVALID_VALUE || status == PLINTH_ERROR_NULL_POINTER ||
         status == PLINTH_ERROR_INVALID_DEVICE || status == PLINTH_ERROR_INVALID_POINTER ||
         status == PLINTH_ERROR_NOT_SUPPORTED || status == PLINTH_ERROR_DEVICE_MISMATCH;
}

static void check_refused(plinth_status_t status, const char *part, const char *text, int line) {
  char message[1024];
  unsigned char host[COUNT * 8];
  const char *error = plinth_last_error();
  if (!is_refusal(status) || strstr(error, part) == NULL) {
    snprintf(message, sizeof message, "%s: %s, \"%s\"; the message should have \"%s\"", text, plinth_status_name(status),
             error, part);
    harness_fail(__FILE__, line, message);
  }
  if (offset_of(generator) != 8) {
    harness_fail(__FILE__, line, "a refused fill has advanced the offset");
  }
  CHECK_OK(plinth_synchronize(0));
  fetch(host, memory, sizeof host);
  for (size_t index = 0; index < sizeof host; index++) {
    if (host[index] != 0xA5) {
      harness_fail(__FILE__, line, "a refused fill has written memory");
    }
  }
}

/* A call that must be refused with a message that contains `part`. */
#define REFUSED(call, part) check_refused((call), part, #call, __LINE__)

static const double not_finite[] = {NAN, INFINITY, -INFINITY};

TEST(parameters_outside_their_range_are_refused) {
  tensor t;
  begin();
  DLTensor *out = row(&t, memory, F32, COUNT);
  REFUSED(plinth_uniform(out, 1, 0, generator, NULL), "low");
  REFUSED(plinth_uniform(out, 0, -1e-9, generator, NULL), "low");
  REFUSED(plinth_uniform(out, -3e38, 3e38, generator, NULL), "float32");
  REFUSED(plinth_uniform(out, 0, 1e39, generator, NULL), "float32");
  REFUSED(plinth_normal(out, 0, -1, generator, NULL), "std");
  REFUSED(plinth_normal(out, 0, -1e-300, generator, NULL), "std");
  REFUSED(plinth_log_normal(out, 0, 0, generator, NULL), "std");
  REFUSED(plinth_log_normal(out, 0, -2, generator, NULL), "std");
  REFUSED(plinth_exponential(out, 0, generator, NULL), "lambda");
  REFUSED(plinth_exponential(out, -1, generator, NULL), "lambda");
  REFUSED(plinth_cauchy(out, 0, 0, generator, NULL), "sigma");
  REFUSED(plinth_cauchy(out, 0, -1, generator, NULL), "sigma");
  REFUSED(plinth_geometric(out, 0, generator, NULL), "p ");
  REFUSED(plinth_geometric(out, 1, generator, NULL), "p ");
  REFUSED(plinth_geometric(out, -0.5, generator, NULL), "p ");
  REFUSED(plinth_geometric(out, 1.5, generator, NULL), "p ");
  REFUSED(plinth_bernoulli(out, -1e-9, generator, NULL), "p ");
  REFUSED(plinth_bernoulli(out, 1.000001, generator, NULL), "p ");
}

TEST(the_message_contains_the_numbers) {
  tensor t;
  begin();
  DLTensor *out = row(&t, memory, F32, COUNT);
  REFUSED(plinth_uniform(out, 17.5, 3.25, generator, NULL), "17.5");
  REFUSED(plinth_uniform(out, 17.5, 3.25, generator, NULL), "3.25");
  REFUSED(plinth_normal(out, 0, -2.75, generator, NULL), "-2.75");
  REFUSED(plinth_bernoulli(out, 1.75, generator, NULL), "1.75");
  REFUSED(plinth_random_range(out, 1234, 567, generator, NULL), "1234");
}

TEST(parameters_that_are_not_finite_are_refused) {
  tensor t;
  begin();
  for (int kind = F16; kind <= F64; kind++) {
    DLTensor *out = row(&t, memory, kind, COUNT);
    REFUSED(plinth_uniform(out, NAN, 1, generator, NULL), "low");
    REFUSED(plinth_uniform(out, 0, NAN, generator, NULL), "high");
    REFUSED(plinth_normal(out, NAN, 1, generator, NULL), "mean");
    REFUSED(plinth_normal(out, 0, NAN, generator, NULL), "std");
    REFUSED(plinth_log_normal(out, NAN, 1, generator, NULL), "mean");
    REFUSED(plinth_log_normal(out, 0, NAN, generator, NULL), "std");
    REFUSED(plinth_exponential(out, NAN, generator, NULL), "lambda");
    REFUSED(plinth_cauchy(out, NAN, 1, generator, NULL), "median");
    REFUSED(plinth_cauchy(out, 0, NAN, generator, NULL), "sigma");
    REFUSED(plinth_geometric(out, NAN, generator, NULL), "p ");
    REFUSED(plinth_bernoulli(out, NAN, generator, NULL), "p ");
    for (int which = 1; which < 3; which++) {
      REFUSED(plinth_uniform(out, 0, not_finite[which], generator, NULL), "");
      REFUSED(plinth_geometric(out, not_finite[which], generator, NULL), "p ");
      REFUSED(plinth_bernoulli(out, not_finite[which], generator, NULL), "p ");
    }
  }
}

TEST(ranges_that_the_dtype_cannot_hold_are_refused) {
  tensor t;
  const struct {
    int kind;
    int64_t low, high;
  } ranges[] = {{U8, -1, 10},
                {U8, 0, 257},
                {I8, -129, 0},
                {I8, 0, 129},
                {I16, -32769, 0},
                {I16, 0, 32769},
                {I32, INT64_C(-2147483649), 0},
                {I32, 0, INT64_C(2147483649)},
                {BOOL, 0, 3},
                {BOOL, -1, 1},
                {F16, 0, 100000},
                {I64, 5, 5},
                {I64, 5, 4},
                {F32, 5, 5},
                {U8, 7, 3},
                {I64, INT64_MAX, INT64_MIN + 1}};
  begin();
  for (size_t index = 0; index < sizeof ranges / sizeof ranges[0]; index++) {
    DLTensor *out = row(&t, memory, ranges[index].kind, COUNT);
    REFUSED(plinth_random_range(out, ranges[index].low, ranges[index].high, generator, NULL), "");
  }
  REFUSED(plinth_random_range(row(&t, memory, U8, COUNT), 256, PLINTH_RANDOM_TO_LARGEST, generator, NULL), "low");
  REFUSED(plinth_random_range(row(&t, memory, U8, COUNT), -1, PLINTH_RANDOM_TO_LARGEST, generator, NULL), "low");
  REFUSED(plinth_random_range(row(&t, memory, I32, COUNT), INT64_C(1) << 31, PLINTH_RANDOM_TO_LARGEST, generator, NULL), "low");
}

TEST(ranges_up_to_the_limits_of_the_dtype_are_accepted) {
  tensor t;
  begin();
  CHECK_OK(plinth_random_range(row(&t, memory, U8, COUNT), 0, 256, generator, NULL));
  CHECK_OK(plinth_random_range(row(&t, memory, I8, COUNT), -128, 128, generator, NULL));
  CHECK_OK(plinth_random_range(row(&t, memory, I32, COUNT), INT32_MIN, INT64_C(1) << 31, generator, NULL));
  CHECK_OK(plinth_random_range(row(&t, memory, BOOL, COUNT), 0, 2, generator, NULL));
  CHECK_OK(plinth_random_range(row(&t, memory, U8, COUNT), 255, PLINTH_RANDOM_TO_LARGEST, generator, NULL));
  CHECK_OK(plinth_uniform(row(&t, memory, F16, COUNT), -30000, 30000, generator, NULL));
  CHECK_OK(plinth_uniform(row(&t, memory, F32, COUNT), 0, 3.4e38, generator, NULL));
  CHECK_OK(plinth_geometric(row(&t, memory, F32, COUNT), 1e-30, generator, NULL));
  CHECK(offset_of(generator) > 8);
}

TEST(dtypes_that_cannot_hold_the_numbers_are_refused) {
  tensor t;
  begin();
  for (int index = 0; index < FILLS; index++) {
    for (int kind = 0; kind < DTYPES; kind++) {
      if (!takes(&fills[index], kind)) {
        REFUSED(fills[index].call(row(&t, memory, kind, COUNT), generator, NULL), dtypes[kind].name);
      }
    }
  }
}

TEST(invalid_dtypes_are_refused) {
  const DLDataType types[] = {{2, 32, 2},  {2, 32, 0}, {2, 32, 4}, {2, 8, 1},  {2, 128, 1}, {2, 0, 1},   {0, 4, 1},
                              {0, 128, 1}, {1, 1, 1},  {3, 64, 1}, {4, 32, 1}, {5, 64, 1},  {5, 128, 1}, {6, 1, 1},
                              {7, 8, 1},   {10, 8, 1}, {12, 8, 1}, {99, 32, 1}, {255, 255, 65535}};
  tensor t;
  begin();
  for (int index = 0; index < FILLS; index++) {
    for (size_t type = 0; type < sizeof types / sizeof types[0]; type++) {
      row(&t, memory, F32, COUNT)->dtype = types[type];
      if (types[type].code == 5 && (fills[index].call == draw_uniform || fills[index].call == draw_normal)) {
        continue; /* complex numbers */
      }
      REFUSED(fills[index].call(&t.dl, generator, NULL), "");
    }
  }
  row(&t, memory, F32, COUNT)->dtype.lanes = 2;
  REFUSED(plinth_uniform(&t.dl, 0, 1, generator, NULL), "2 lanes");
}

TEST(null_pointers_are_refused) {
  tensor t, p;
  begin();
  for (int index = 0; index < FILLS; index++) {
    CHECK_STATUS(fills[index].call(NULL, generator, NULL), PLINTH_ERROR_NULL_POINTER);
    CHECK_MESSAGE("tensor");
    REFUSED(fills[index].call(row(&t, NULL, F32, COUNT), generator, NULL), "data");
    row(&t, memory, F32, COUNT)->shape = NULL;
    REFUSED(fills[index].call(&t.dl, generator, NULL), "shape");
  }
  CHECK_STATUS(plinth_bernoulli_tensor(NULL, row(&p, memory, F32, 1), generator, NULL), PLINTH_ERROR_NULL_POINTER);
  CHECK_STATUS(plinth_bernoulli_tensor(row(&t, memory, F32, 1), NULL, generator, NULL), PLINTH_ERROR_NULL_POINTER);
  REFUSED(plinth_bernoulli_tensor(row(&t, memory, F32, 1), row(&p, NULL, F32, 1), generator, NULL), "data");
}

TEST(invalid_shapes_are_refused) {
  const int64_t negative[] = {3, -1};
  const int64_t huge[] = {INT64_MAX, INT64_MAX};
  const int64_t overflow[] = {INT64_C(1) << 32, INT64_C(1) << 32};
  int64_t ones[32];
  tensor t;
  begin();
  for (int d = 0; d < 32; d++) {
    ones[d] = 1;
  }
  for (int index = 0; index < RANDPERM; index++) {
    REFUSED(fills[index].call(describe(&t, memory, F32, 2, negative, NULL), generator, NULL), "-1");
    REFUSED(fills[index].call(describe(&t, memory, F32, 2, huge, NULL), generator, NULL), "");
    REFUSED(fills[index].call(describe(&t, memory, F32, 2, overflow, NULL), generator, NULL), "");
    REFUSED(fills[index].call(describe(&t, memory, F32, 26, ones, NULL), generator, NULL), "26");
    describe(&t, memory, F32, 1, ones, NULL)->ndim = -1;
    REFUSED(fills[index].call(&t.dl, generator, NULL), "-1");
  }
}

TEST(overlapping_elements_are_refused) {
  const int64_t shape[] = {4, 5};
  const int64_t expanded[] = {0, 1};
  const int64_t expanded_last[] = {1, 0};
  tensor t;
  begin();
  for (int index = 0; index < RANDPERM; index++) {
    REFUSED(fills[index].call(describe(&t, memory, F32, 2, shape, expanded), generator, NULL), "one place");
    REFUSED(fills[index].call(describe(&t, memory, F32, 2, shape, expanded_last), generator, NULL), "one place");
  }
  REFUSED(plinth_bernoulli_tensor(describe(&t, memory, F32, 2, shape, expanded), &t.dl, generator, NULL), "one place");
  REFUSED(plinth_randperm(describe(&t, memory, I64, 1, shape, expanded), generator, NULL), "one address");
}

TEST(tensors_of_other_device_types_are_refused) {
  tensor t;
  begin();
  for (int index = 0; index < FILLS; index++) {
    /* Declared as CPU memory, pinned memory, managed memory, or memory of an unknown kind of device. */
    const int32_t kinds[] = {0, 1, 3, 4, 10, 99, -1};
    for (int kind = 0; kind < 7; kind++) {
      row(&t, memory, F32, COUNT)->device.device_type = kinds[kind];
      REFUSED(fills[index].call(&t.dl, generator, NULL), "device");
    }
  }
}

TEST(elements_that_are_not_aligned_are_refused) {
  tensor t;
  begin();
  for (int kind = 0; kind < DTYPES; kind++) {
    for (size_t bytes = 1; bytes < bytes_of(kind); bytes++) {
      REFUSED(plinth_bernoulli(row(&t, memory + bytes, kind, 4), 0.5, generator, NULL), "aligned");
      row(&t, memory, kind, 4)->byte_offset = bytes;
      REFUSED(plinth_bernoulli(&t.dl, 0.5, generator, NULL), "aligned");
    }
  }
}

TEST(invalid_devices_are_refused) {
  const int32_t numbers[] = {device_count(), 64, -2, INT32_MAX, INT32_MIN};
  tensor t;
  begin();
  for (int number = 0; number < 5; number++) {
    row(&t, memory, F32, COUNT)->device.device_id = numbers[number];
    REFUSED(plinth_uniform(&t.dl, 0, 1, generator, NULL), "device");
    REFUSED(plinth_randperm(&t.dl, generator, NULL), "device");
  }
}

TEST(tensor_generator_and_stream_belong_to_one_device) {
  need_devices(2);
  tensor t, p;
  begin();
  void *other = device_memory(COUNT * 8, 1);
  plinth_generator_t other_generator = new_generator(1, 21, 8);
  for (int index = 0; index < FILLS; index++) {
    CHECK_STATUS(fills[index].call(row(&t, memory, F32, COUNT), other_generator, NULL), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_MESSAGE("device 1");
    CHECK_EQ(offset_of(other_generator), 8);
    CHECK_STATUS(fills[index].call(row(&t, memory, F32, COUNT), generator, stream_on(1)), PLINTH_ERROR_DEVICE_MISMATCH);
    CHECK_MESSAGE("stream");
    row(&t, memory, F32, COUNT)->device.device_id = 1;
    REFUSED(fills[index].call(&t.dl, generator, NULL), "device");
  }
  row(&p, other, F32, COUNT)->device.device_id = 1;
  REFUSED(plinth_bernoulli_tensor(row(&t, memory, F32, COUNT), &p.dl, generator, NULL), "device");
  CHECK_OK(plinth_device_free(other));
  CHECK_OK(plinth_generator_destroy(other_generator));
}

TEST(probabilities_of_other_shapes_are_refused) {
  const int64_t shape[] = {4, 5};
  const int64_t shapes[][3] = {{4, 4, 0}, {5, 4, 0}, {3, 1, 0}, {1, 0, 0}, {1, 4, 5}};
  const int32_t ranks[] = {2, 2, 2, 2, 3};
  tensor t, p;
  begin();
  void *probabilities = device_memory(COUNT * 8, 0);
  CHECK_OK(plinth_memset(probabilities, 0, COUNT * 8, NULL));
  for (int index = 0; index < 5; index++) {
    describe(&p, probabilities, F32, ranks[index], shapes[index], NULL);
    REFUSED(plinth_bernoulli_tensor(describe(&t, memory, F32, 2, shape, NULL), &p.dl, generator, NULL), "p");
  }
  for (int kind = U8; kind < DTYPES; kind++) {
    describe(&p, probabilities, kind, 2, shape, NULL);
    REFUSED(plinth_bernoulli_tensor(describe(&t, memory, F32, 2, shape, NULL), &p.dl, generator, NULL), "p");
  }
  describe(&p, probabilities, F32, 2, shape, NULL)->device.device_type = 1;
  REFUSED(plinth_bernoulli_tensor(describe(&t, memory, F32, 2, shape, NULL), &p.dl, generator, NULL), "device");
  CHECK_OK(plinth_device_free(probabilities));
}

TEST(randperm_needs_one_dimension_and_room_for_its_numbers) {
  const int64_t shape[] = {4, 5};
  const int64_t one = 1;
  tensor t;
  begin();
  REFUSED(plinth_randperm(describe(&t, memory, I64, 2, shape, NULL), generator, NULL), "dimension");
  REFUSED(plinth_randperm(describe(&t, memory, I64, 0, &one, NULL), generator, NULL), "dimension");
  unsigned char *large = (unsigned char *)device_memory(1 << 20, 0);
  REFUSED(plinth_randperm(row(&t, large, U8, 257), generator, NULL), "uint8");
  REFUSED(plinth_randperm(row(&t, large, I8, 129), generator, NULL), "int8");
  REFUSED(plinth_randperm(row(&t, large, I16, 32769), generator, NULL), "int16");
  REFUSED(plinth_randperm(row(&t, large, F16, 2050), generator, NULL), "float16");
  REFUSED(plinth_randperm(row(&t, large, BF16, 2), generator, NULL), "bfloat16");
  CHECK_OK(plinth_randperm(row(&t, large, U8, 256), generator, NULL));
  CHECK_OK(plinth_randperm(row(&t, large, I8, 128), generator, NULL));
  CHECK_OK(plinth_device_free(large));
}

TEST(a_refused_fill_does_not_affect_the_next) {
  float numbers[COUNT];
  tensor t;
  begin();
  REFUSED(plinth_uniform(row(&t, memory, F32, COUNT), 1, 0, generator, NULL), "low");
  CHECK_OK(plinth_uniform(&t.dl, 0, 1, generator, NULL));
  fetch(numbers, memory, sizeof numbers);
  for (int index = 0; index < COUNT; index++) {
    CHECK(numbers[index] == uniform_at(21, 8, index, COUNT));
  }
}
