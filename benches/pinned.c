/* Compares pinned memory from plinth's cache with the driver's own: the cost of a pair of calls, from one thread and from
 * many, the bookkeeping cost of a copy, the bandwidth of copies, and their overlap with kernels.
 *
 * Both sides alternate in one run; the tables show medians. The bare calls are the same functions that plinth calls.
 * benches/torch_pinned.py measures the same through PyTorch. Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

#include <pthread.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

enum { BATCHES = 201, CALLS = 512, ROUNDS = 15, MOST_THREADS = 16, THREAD_PAIRS = 200000 };

static unsigned (*host_alloc)(void **, size_t, unsigned);
static unsigned (*host_free)(void *);
static unsigned (*copy)(unsigned long long, unsigned long long, size_t, void *);

static bool on_gpu;
static plinth_stream_t stream, other;
static void *device_memory;

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}

/* Returns the median over the batches of the nanoseconds of a pair of calls; `p99` receives the 99th percentile. */
static double time_pairs(size_t bytes, int calls, int batches, double *p99) {
  double batch[BATCHES];
  for (int index = 0; index < batches; index++) {
    const double begin = now_ns();
    for (int call = 0; call < calls; call++) {
      void *memory;
      MUST(plinth_host_alloc(bytes, &memory));
      MUST(plinth_host_free(memory));
    }
    batch[index] = (now_ns() - begin) / calls;
  }
  const double result = median(batch, batches);
  *p99 = batch[batches * 99 / 100];
  return result;
}

static double time_bare_pairs(size_t bytes, int rounds) {
  double round[ROUNDS];
  for (int index = 0; index < rounds; index++) {
    const double begin = now_ns();
    void *memory;
    DRIVER(host_alloc(&memory, bytes, 1));
    DRIVER(host_free(memory));
    round[index] = now_ns() - begin;
  }
  return median(round, rounds);
}

static void pairs(void) {
  static const size_t sizes[] = {64, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB};
  puts("## A pair of calls, ns\n\n| bytes | plinth_host_alloc + free | p99 | cuMemHostAlloc + free |\n|---|---|---|---|");
  for (int index = 0; index < 6; index++) {
    double p99;
    const double cached = time_pairs(sizes[index], CALLS, BATCHES, &p99);
    printf("| %zu | %.1f | %.1f | %.0f |\n", sizes[index], cached, p99,
           time_bare_pairs(sizes[index], sizes[index] > 16 * MIB ? 3 : ROUNDS));
  }
  MUST(plinth_host_empty_cache());
}

static int thread_count;
static bool same_size;
static pthread_barrier_t barrier;

static void *pairs_of_thread(void *context) {
  const int own = *(const int *)context;
  const size_t bytes = same_size ? 4 * KIB : (size_t)(own + 8) * 512;
  void *memory;
  MUST(plinth_host_alloc(bytes, &memory));
  MUST(plinth_host_free(memory));
  pthread_barrier_wait(&barrier);
  for (int call = 0; call < THREAD_PAIRS; call++) {
    MUST(plinth_host_alloc(bytes, &memory));
    MUST(plinth_host_free(memory));
  }
  pthread_barrier_wait(&barrier);
  return NULL;
}

static double million_pairs(int threads, bool same) {
  pthread_t thread[MOST_THREADS];
  int numbers[MOST_THREADS];
  thread_count = threads;
  same_size = same;
  pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
  for (int index = 0; index < threads; index++) {
    numbers[index] = index;
    pthread_create(&thread[index], NULL, pairs_of_thread, &numbers[index]);
  }
  pthread_barrier_wait(&barrier);
  const double begin = now_ns();
  pthread_barrier_wait(&barrier);
  const double took = now_ns() - begin;
  for (int index = 0; index < threads; index++) {
    pthread_join(thread[index], NULL);
  }
  pthread_barrier_destroy(&barrier);
  return (double)threads * THREAD_PAIRS / took * 1e3;
}

static void threads(void) {
  puts("\n## Many threads, million pairs per second in total\n\n| threads | a different size each | 4 KiB each |\n|---|---|---|");
  for (int count = 1; count <= MOST_THREADS; count *= 2) {
    const double own = million_pairs(count, false);
    printf("| %d | %.1f | %.1f |\n", count, own, million_pairs(count, true));
  }
}

/* Measures the host time of a copy of 4 KiB from three kinds of memory, and of the sequence of allocation, copy and free. */
static void calls(void) {
  enum { COPIES = 32 };
  void *cached, *raw;
  double times[4][BATCHES];
  MUST(plinth_host_alloc(4 * KIB, &cached));
  MUST(plinth_pinned_malloc(4 * KIB, &raw));
  for (int batch = 0; batch < BATCHES; batch++) {
    for (int kind = 0; kind < 4; kind++) {
      const double begin = now_ns();
      for (int call = 0; call < COPIES; call++) {
        if (kind == 0) {
          DRIVER(copy((unsigned long long)device_memory, (unsigned long long)raw, 4 * KIB, stream));
        } else if (kind < 3) {
          MUST(plinth_memcpy(device_memory, kind == 1 ? raw : cached, 4 * KIB, stream));
        } else {
          void *memory;
          MUST(plinth_host_alloc(4 * KIB, &memory));
          MUST(plinth_memcpy(device_memory, memory, 4 * KIB, stream));
          MUST(plinth_host_free(memory));
        }
      }
      times[kind][batch] = (now_ns() - begin) / COPIES;
      MUST(plinth_stream_synchronize(stream));
    }
  }
  printf("\n## A copy of 4 KiB to the device, ns of host time\n\n| call | ns |\n|---|---|\n");
  printf("| cuMemcpyAsync, driver's memory | %.0f |\n", median(times[0], BATCHES));
  printf("| plinth_memcpy, driver's memory | %.0f |\n", median(times[1], BATCHES));
  printf("| plinth_memcpy, plinth_host_alloc's | %.0f |\n", median(times[2], BATCHES));
  printf("| plinth_host_alloc, plinth_memcpy, plinth_host_free | %.0f |\n", median(times[3], BATCHES));
  MUST(plinth_host_free(cached));
  MUST(plinth_pinned_free(raw));
  MUST(plinth_host_empty_cache());
}

static double copy_seconds(void *to, void *from, size_t bytes, plinth_stream_t where) {
  const double begin = now_ns();
  MUST(plinth_memcpy(to, from, bytes, where));
  MUST(plinth_stream_synchronize(where));
  return (now_ns() - begin) * 1e-9;
}

static void bandwidth(size_t bytes) {
  static const char *const names[] = {"plinth_host_alloc", "cuMemHostAlloc", "registered", "pageable"};
  void *memory[4];
  double times[4][2][ROUNDS];
  MUST(plinth_host_alloc(bytes, &memory[0]));
  MUST(plinth_pinned_malloc(bytes, &memory[1]));
  memory[2] = aligned_alloc(4 * KIB, bytes);
  memory[3] = aligned_alloc(4 * KIB, bytes);
  if (memory[2] == NULL || memory[3] == NULL) exit(1);
  MUST(plinth_host_register(memory[2], bytes, PLINTH_HOST_REGISTER_PORTABLE));
  for (int kind = 0; kind < 4; kind++) memset(memory[kind], kind, bytes);
  for (int round = -1; round < ROUNDS; round++) {
    for (int kind = 0; kind < 4; kind++) {
      for (int back = 0; back < 2; back++) {
        const double took =
            back ? copy_seconds(memory[kind], device_memory, bytes, stream) : copy_seconds(device_memory, memory[kind], bytes, stream);
        if (round >= 0) times[kind][back][round] = took;
      }
    }
  }
  printf("\n## Copies of %zu MiB, GB/s\n\n| host memory | to the device | from it |\n|---|---|---|\n", bytes / MIB);
  for (int kind = 0; kind < 4; kind++) {
    printf("| %s | %.1f | %.1f |\n", names[kind], (double)bytes / median(times[kind][0], ROUNDS) * 1e-9,
           (double)bytes / median(times[kind][1], ROUNDS) * 1e-9);
  }
  MUST(plinth_host_unregister(memory[2]));
  free(memory[2]);
  free(memory[3]);
  MUST(plinth_pinned_free(memory[1]));
  MUST(plinth_host_free(memory[0]));
  MUST(plinth_host_empty_cache());
}

/* The kernel that overlaps with copies: it fills a tensor with random numbers, and occupies every multiprocessor. */
static DLTensor numbers;
static int64_t shape[1];
static int launches = 1;

static void kernels(void) {
  for (int index = 0; index < launches; index++) MUST(plinth_normal(&numbers, 0.0, 1.0, NULL, other));
}

/* The copy is issued first: a blocking copy delays the launch of the kernels. */
static double milliseconds_of(bool kernel, void *to, void *from, size_t bytes) {
  MUST(plinth_synchronize(0));
  const double begin = now_ns();
  if (bytes > 0) MUST(plinth_memcpy(to, from, bytes, stream));
  if (kernel) kernels();
  MUST(plinth_synchronize(0));
  return (now_ns() - begin) * 1e-6;
}

static void overlap(size_t bytes) {
  void *cached, *pageable = aligned_alloc(4 * KIB, bytes), *floats;
  const size_t float_bytes = on_gpu ? 256 * MIB : MIB;
  MUST(plinth_host_alloc(bytes, &cached));
  if (pageable == NULL) exit(1);
  memset(cached, 1, bytes);
  memset(pageable, 1, bytes);
  MUST(plinth_caching_allocator_alloc(float_bytes, 0, other, &floats));
  shape[0] = (int64_t)(float_bytes / 4);
  numbers = (DLTensor){.data = floats, .device = {2, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
  (void)milliseconds_of(true, NULL, NULL, 0);
  /* The kernels take about as long as the copy, so that they can hide each other. */
  const double one = milliseconds_of(true, NULL, NULL, 0);
  const double copy_time = milliseconds_of(false, device_memory, cached, bytes);
  launches = one < copy_time ? (int)(copy_time / one) + 1 : 1;
  printf("\n## Copies of %zu MiB beside %d kernels, ms\n\n", bytes / MIB, launches);
  puts("| copy | kernels alone | copy alone | together | hidden part of the shorter |\n|---|---|---|---|---|");
  for (int row = 0; row < 4; row++) {
    void *host = row < 2 ? cached : pageable;
    void *to = row % 2 ? host : device_memory, *from = row % 2 ? device_memory : host;
    double kernel[ROUNDS], alone[ROUNDS], both[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
      kernel[round] = milliseconds_of(true, NULL, NULL, 0);
      alone[round] = milliseconds_of(false, to, from, bytes);
      both[round] = milliseconds_of(true, to, from, bytes);
    }
    const double k = median(kernel, ROUNDS), c = median(alone, ROUNDS), b = median(both, ROUNDS);
    printf("| %s, %s | %.2f | %.2f | %.2f | %.0f %% |\n", row < 2 ? "plinth_host_alloc" : "pageable",
           row % 2 ? "from the device" : "to the device", k, c, b, 100.0 * (k + c - b) / (k < c ? k : c));
  }
  MUST(plinth_caching_allocator_delete(floats));
  MUST(plinth_host_free(cached));
  free(pageable);
}

int main(void) {
  int32_t kind = 0;
  char name[256];
  MUST(plinth_get_device_kind(&kind));
  on_gpu = kind == PLINTH_DEVICE_CUDA;
  MUST(plinth_get_device_name(0, name, sizeof name));
  MUST(plinth_set_device(0));
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_stream_create(0, 0, &other));
  ENTRY(host_alloc, "cuMemHostAlloc");
  ENTRY(host_free, "cuMemFreeHost");
  ENTRY(copy, "cuMemcpyAsync");
  const size_t bytes = on_gpu ? 512 * MIB : 16 * MIB;
  MUST(plinth_device_malloc(bytes, 0, &device_memory));
  printf("# Pinned memory on %s\n\n", name);
  pairs();
  threads();
  calls();
  bandwidth(bytes);
  overlap(bytes);
  MUST(plinth_device_free(device_memory));
  return 0;
}
