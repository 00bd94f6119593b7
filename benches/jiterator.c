/* Measures the jiterator: a first call, a later call against a bare launch, and the bandwidth of x + y for about twenty shapes
 * against that of a copy. SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Calls and bare launches alternate, in batches; shapes are timed by events around several calls. A copy of n bytes reads and
 * writes them, so it moves 2 n; a call moves each element of its inputs, broadcast or not, and of its output once.
 * benches/jiterator_table.py compares with PyTorch's jiterator. Build and run: `make bench`, or with --elements 1048576 or so
 * on the host device. */
#define _GNU_SOURCE
#include "measure.h"

#include <math.h>

enum { BATCHES = 201, CALLS = 128, ROUNDS = 20, MOST_RANK = 4 };

static plinth_stream_t stream;
static plinth_jit_function_t function;
static unsigned failures;

/* The driver's functions, as cuda.h declares them. */
static unsigned (*module_load)(void **, const void *);
static unsigned (*module_function)(void **, void *, const char *);
static unsigned (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
static void *empty_kernel;

/* An empty kernel; the host device has one of this name. */
static const char EMPTY[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry plinth_sleep(.param .u64 cycles)\n{\n  ret;\n}\n";

typedef struct operand {
  DLTensor tensor;
  int64_t shape[MOST_RANK], strides[MOST_RANK];
} operand;

/* The types of the rows: code, bits, lanes. */
static const DLDataType F16 = {2, 16, 1}, BF16 = {4, 16, 1}, F32 = {2, 32, 1}, F64 = {2, 64, 1}, U8 = {1, 8, 1},
                        I64 = {0, 64, 1}, C64 = {5, 64, 1};

/* A shape of 2^`log` elements, and the layout of the inputs. */
enum { PLAIN, ROW, COLUMN, SCALAR, TRANSPOSED, ALL_TRANSPOSED, SECOND, SHIFTED, CHANNELS, ODD };
static const struct row {
  const char *name;
  const DLDataType *type, *other;
  int log;
  int how;
} rows[] = {
    {"float32, 2^28", &F32, &F32, 28, PLAIN},
    {"float32, 2^24", &F32, &F32, 24, PLAIN},
    {"float32, 2^20", &F32, &F32, 20, PLAIN},
    {"float32, 2^16", &F32, &F32, 16, PLAIN},
    {"float16, 2^28", &F16, &F16, 28, PLAIN},
    {"float16, 2^24", &F16, &F16, 24, PLAIN},
    {"bfloat16, 2^28", &BF16, &BF16, 28, PLAIN},
    {"float64, 2^27", &F64, &F64, 27, PLAIN},
    {"uint8, 2^28", &U8, &U8, 28, PLAIN},
    {"int64, 2^27", &I64, &I64, 27, PLAIN},
    {"complex64, 2^27", &C64, &C64, 27, PLAIN},
    {"float32 + float16, 2^27", &F32, &F16, 27, PLAIN},
    {"float32, a row to each, 2^26", &F32, &F32, 26, ROW},
    {"float16, a row to each, 2^26", &F16, &F16, 26, ROW},
    {"float32, a column to each, 2^26", &F32, &F32, 26, COLUMN},
    {"float32, a number to all, 2^26", &F32, &F32, 26, SCALAR},
    {"float32, one transposed, 2^26", &F32, &F32, 26, TRANSPOSED},
    {"float16, all transposed, 2^26", &F16, &F16, 26, ALL_TRANSPOSED},
    {"float32, every second, 2^26", &F32, &F32, 26, SECOND},
    {"float32, not aligned, 2^26", &F32, &F32, 26, SHIFTED},
    {"float32, channels last + first, 2^26", &F32, &F32, 26, CHANNELS},
    {"float32, odd rows, 2^26", &F32, &F32, 26, ODD},
};

static void *address(void *pointer) { return pointer; }

/* Describes the output (`which` 0) or an input of a row of the table; returns the number of its elements. */
static double lay_out(operand *out, const struct row *row, const DLDataType *type, int log, int which, void *memory) {
  const int64_t count = (int64_t)1 << log, width = (int64_t)1 << (log / 2), height = count / width;
  memset(out, 0, sizeof *out);
  out->tensor.data = memory;
  out->tensor.device.device_type = 2;
  out->tensor.dtype = *type;
  out->tensor.shape = out->shape;
  out->tensor.strides = out->strides;
  out->tensor.ndim = 2;
  out->shape[0] = height;
  out->shape[1] = width;
  out->strides[0] = width;
  out->strides[1] = 1;
  const int last = which == 2;
  switch (row->how) {
    case ROW:
      out->shape[0] = last ? 1 : height;
      return last ? (double)width : (double)count;
    case COLUMN:
      out->shape[1] = last ? 1 : width;
      out->strides[0] = last ? 1 : width;
      return last ? (double)height : (double)count;
    case SCALAR:
      out->tensor.ndim = last ? 0 : 2;
      return last ? 1 : (double)count;
    case TRANSPOSED:
    case ALL_TRANSPOSED:
      if (last || row->how == ALL_TRANSPOSED) {
        out->strides[0] = 1;
        out->strides[1] = height;
      }
      return (double)count;
    case SECOND:
      out->tensor.ndim = 1;
      out->shape[0] = count / 2;
      out->strides[0] = which == 0 ? 1 : 2;
      return (double)count / 2;
    case SHIFTED:
      out->tensor.ndim = 1;
      out->shape[0] = count - 4;
      out->strides[0] = 1;
      out->tensor.byte_offset = which == 0 ? 0 : type->bits / 8u;
      return (double)(count - 4);
    case CHANNELS: {
      const int64_t side = (int64_t)1 << (log / 4), rest = count / 64 / side / side;
      out->tensor.ndim = 4;
      out->shape[0] = rest;
      out->shape[1] = 64;
      out->shape[2] = out->shape[3] = side;
      out->strides[0] = 64 * side * side;
      out->strides[1] = last ? 1 : side * side;
      out->strides[2] = last ? 64 * side : side;
      out->strides[3] = last ? 64 : 1;
      return (double)count;
    }
    case ODD:
      out->shape[1] = width - 1;
      out->strides[0] = which == 0 ? width - 1 : width;
      return (double)(height * (width - 1));
    default:
      out->tensor.ndim = 1;
      out->shape[0] = count;
      out->strides[0] = 1;
      return (double)count;
  }
}

static operand operands[3];

static void call_(void) {
  const DLTensor *inputs[2] = {&operands[1].tensor, &operands[2].tensor};
  DLTensor *outputs[1] = {&operands[0].tensor};
  failures += plinth_jiterator_call(function, inputs, 2, outputs, 1, NULL, 0, stream) != 0;
}

static void bare_(void) {
  unsigned long long cycles = 0;
  void *parameters[1] = {&cycles};
  failures += launch(empty_kernel, 1, 1, 1, 128, 1, 1, 0, stream, parameters, NULL) != 0;
}

static double batch(void (*call)(void)) {
  const double start = now_ns();
  for (int i = 0; i < CALLS; i++) call();
  const double end = now_ns();
  MUST(plinth_stream_synchronize(stream));
  return (end - start) / CALLS;
}

/* Returns the median of the nanoseconds of `work` on the device. */
static double timed(void (*work)(void), plinth_event_t start, plinth_event_t end) {
  double times[ROUNDS];
  for (int warm = 0; warm < 2; warm++) work();
  for (int round = 0; round < ROUNDS; round++) {
    float milliseconds;
    MUST(plinth_event_record(start, stream));
    work();
    MUST(plinth_event_record(end, stream));
    MUST(plinth_event_synchronize(end));
    MUST(plinth_event_elapsed_time(start, end, &milliseconds));
    times[round] = milliseconds * 1e6;
  }
  qsort(times, ROUNDS, sizeof *times, ascending);
  return times[ROUNDS / 2];
}

static void *copy_to;
static const void *copy_from;
static size_t copy_bytes;
static void copy_(void) { failures += plinth_memcpy(copy_to, copy_from, copy_bytes, stream) != 0; }

static void calls(void *memory[3]) {
  static double ours[BATCHES], theirs[BATCHES];
  const struct row small = {"", &F32, &F32, 10, PLAIN};
  for (int which = 0; which < 3; which++) lay_out(&operands[which], &small, &F32, 10, which, memory[which]);
  double start = now_ns();
  call_();
  MUST(plinth_stream_synchronize(stream));
  printf("first call %.1f ms, compiled or loaded from the disk cache (PLINTH_USE_KERNEL_CACHE=0 compiles)\n", (now_ns() - start) / 1e6);
  for (int i = 0; i < BATCHES; i++) {
    if (i % 2 == 0) ours[i] = batch(call_);
    theirs[i] = batch(bare_);
    if (i % 2 == 1) ours[i] = batch(call_);
  }
  qsort(ours, BATCHES, sizeof *ours, ascending);
  qsort(theirs, BATCHES, sizeof *theirs, ascending);
  printf("later call %.0f ns, bare launch of an empty kernel %.0f ns: %+.0f ns (medians of %d batches of %d)\n\n",
         ours[BATCHES / 2], theirs[BATCHES / 2], ours[BATCHES / 2] - theirs[BATCHES / 2], BATCHES, CALLS);
}

int main(int argc, char **argv) {
  char name[256];
  int32_t kind;
  int most = 28;
  plinth_event_t start, end;
  void *memory[3];
  void *module = NULL;
  if (argc == 3 && strcmp(argv[1], "--elements") == 0) most = (int)log2(atof(argv[2]));
  MUST(plinth_init());
  MUST(plinth_get_device_kind(&kind));
  if (kind == PLINTH_DEVICE_HOST && most > 16) most = 16;
  MUST(plinth_get_device_name(0, name, sizeof name));
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &start));
  MUST(plinth_event_create(PLINTH_EVENT_TIMING, &end));
  ENTRY(module_load, "cuModuleLoadData");
  ENTRY(module_function, "cuModuleGetFunction");
  ENTRY(launch, "cuLaunchKernel");
  MUST(plinth_synchronize(0));
  DRIVER(module_load(&module, EMPTY));
  DRIVER(module_function(&empty_kernel, module, "plinth_sleep"));
  for (int which = 0; which < 3; which++) {
    MUST(plinth_device_malloc((size_t)8 << most, 0, &memory[which]));
    MUST(plinth_memset(address(memory[which]), 1, (size_t)8 << most, stream));
  }
  MUST(plinth_jiterator_create_jit_fn("template <typename T> T add(T x, T y) { return x + y; }", NULL, 0, &function));
  printf("plinth %s on %s%s\n\n", plinth_version_string(), name, kind == PLINTH_DEVICE_HOST ? " (host device)" : "");
  calls(memory);
  printf("| x + y                                |       us |    GB/s | of a copy's |\n|---|---|---|---|\n");
  for (size_t index = 0; index < sizeof rows / sizeof *rows; index++) {
    const struct row *row = &rows[index];
    const int log = row->log < most ? row->log : most;
    double bytes = 0;
    for (int which = 0; which < 3; which++) {
      const DLDataType *type = which == 2 ? row->other : row->type;
      bytes += lay_out(&operands[which], row, type, log, which, memory[which]) * type->bits / 8;
    }
    const double ours = timed(call_, start, end);
    copy_to = memory[0];
    copy_from = memory[1];
    copy_bytes = (size_t)bytes / 2;
    const double copied = timed(copy_, start, end);
    printf("| %-36s | %8.1f | %7.0f | %8.1f %%  |\n", row->name, ours / 1e3, bytes / ours, 100 * copied / ours);
  }
  MUST(plinth_jiterator_destroy_jit_fn(function));
  for (int which = 0; which < 3; which++) MUST(plinth_device_free(memory[which]));
  if (failures) fprintf(stderr, "%u calls failed\n", failures);
  return failures != 0;
}
