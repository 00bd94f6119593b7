/* Measures the cost of the stream sanitizer: an access to one of 10,000 live blocks, an order between two streams, and a pair
 * of an allocation and its free, with the sanitizer off and on.
 *
 * The accesses visit all blocks, each in the stream that it was allocated for. Sometimes the streams wait for each other,
 * and the CPU for them. There are no conflicts. Medians over the batches.
 * Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

enum { BATCHES = 41, ACCESSES = 10000, BLOCKS = 10000, STREAMS = 4, BYTES = 4096, DEPTH = 8, KINDS = 5 };

static const char *const kinds[KINDS] = {"declared access", "operation, 3 accesses", "plinth_memset", "wait of a stream",
                                         "allocation and free"};

static plinth_stream_t streams[STREAMS];
static void *blocks[BLOCKS];

static void perform(int kind, int index) {
  const int at = (int)((uint64_t)index * 7919 % BLOCKS);
  plinth_stream_t stream = streams[at % STREAMS];
  plinth_sanitizer_access_t three[3];
  void *memory;
  switch (kind) {
    case 0:
      MUST(plinth_sanitizer_access(blocks[at], BYTES, index % 3 ? PLINTH_SANITIZER_READ : PLINTH_SANITIZER_WRITE, stream));
      break;
    case 1:
      memset(three, 0, sizeof three);
      for (int operand = 0; operand < 3; operand++) {
        three[operand].struct_size = sizeof three[operand];
        three[operand].pointer = blocks[(at + operand * STREAMS) % BLOCKS];
        three[operand].bytes = BYTES;
        three[operand].kind = operand ? PLINTH_SANITIZER_READ : PLINTH_SANITIZER_WRITE;
      }
      MUST(plinth_sanitizer_operation("kernel", three, 3, stream));
      break;
    case 2:
      MUST(plinth_memset(blocks[at], 1, 16, stream));
      break;
    case 3:
      MUST(plinth_stream_wait_stream(stream, streams[(at + 1) % STREAMS]));
      break;
    default:
      MUST(plinth_caching_allocator_alloc(BYTES, 0, stream, &memory));
      MUST(plinth_caching_allocator_delete(memory));
  }
}

/* Returns the nanoseconds of one operation. */
static double batch(int kind) {
  const int count = kind == 2 ? ACCESSES / 10 : ACCESSES;
  const double start = now_ns();
  for (int index = 0; index < count; index++) {
    perform(kind, index);
  }
  const double time = (now_ns() - start) / count;
  MUST(plinth_synchronize(0));
  return time;
}

/* Calls `batch` below `depth` stack frames, as in real programs. */
__attribute__((noinline)) static double batch_at_depth(int kind, int depth) {
  const double time = depth <= 1 ? batch(kind) : batch_at_depth(kind, depth - 1);
  __asm__ volatile("" ::: "memory"); /* prevents a tail call */
  return time;
}

int main(void) {
  static double times[2][KINDS][BATCHES];
  size_t reports = 0;
  for (int index = 0; index < STREAMS; index++) {
    MUST(plinth_stream_create(0, 0, &streams[index]));
  }
  for (int index = 0; index < BLOCKS; index++) {
    MUST(plinth_caching_allocator_alloc(BYTES, 0, streams[index % STREAMS], &blocks[index]));
  }
  for (int number = -2; number < BATCHES; number++) {
    for (int on = 0; on < 2; on++) {
      MUST(plinth_sanitizer_enable(on ? PLINTH_SANITIZER_COLLECT : PLINTH_SANITIZER_OFF));
      for (int kind = 0; kind < KINDS; kind++) {
        if (on) batch_at_depth(kind, DEPTH); /* The first batch after switching on is not measured. */
        const double time = batch_at_depth(kind, DEPTH);
        if (number >= 0) times[on][kind][number] = time;
      }
    }
  }
  MUST(plinth_sanitizer_count(&reports, NULL));
  if (reports != 0) {
    fprintf(stderr, "the sanitizer made %d reports, but the program has no conflicts\n", (int)reports);
    return 1;
  }
  printf("ns each, %d live blocks, stack depth %d\n%-24s%12s%12s%12s\n", BLOCKS, DEPTH, "", "off", "on", "more");
  for (int kind = 0; kind < KINDS; kind++) {
    for (int on = 0; on < 2; on++) {
      qsort(times[on][kind], BATCHES, sizeof(double), ascending);
    }
    const double off = times[0][kind][BATCHES / 2], with = times[1][kind][BATCHES / 2];
    printf("%-24s%12.0f%12.0f%12.0f\n", kinds[kind], off, with, with - off);
  }
  return 0;
}
