/* Compares plinth's calls with the bare driver calls, in one run.
 *
 * Both alternate, in batches, so that changes of the clock frequency affect both. The bare call is the same function that
 * plinth calls, from plinth_driver_entry_point. The table shows medians over the batches and the 99th percentile of both
 * sides; three rows compare a bare call with itself, to show how much of a difference is noise. The queries are measured
 * first and last, because the driver's own take 0.1 or 1.2 microseconds, depending on the stream's earlier work.
 * Build and run: `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

/* The number of calls in a batch, after which the stream is synchronized. Batches of copies and fills are short, so that
 * the device does not become the bottleneck; then both columns would show the device's time. */
enum { BATCHES = 401, CALLS = 256, DEVICE_CALLS = 32 };

/* The operands of the calls. */
static plinth_stream_t stream;
static plinth_event_t event;
static void *native_event;
static void *device_memory, *pinned_memory;
static plinth_graph_t graph;
static void *native_graph;

/* The driver's functions, as cuda.h declares them. */
static unsigned (*event_record)(void *, void *);
static unsigned (*event_query)(void *);
static unsigned (*stream_wait)(void *, void *, unsigned);
static unsigned (*stream_query)(void *);
static unsigned (*is_capturing)(void *, unsigned *);
static unsigned (*copy)(unsigned long long, unsigned long long, size_t, void *);
static unsigned (*fill)(unsigned long long, unsigned char, size_t, void *);
static unsigned (*graph_launch)(void *, void *);
static unsigned (*context_get)(void **);
static unsigned (*context_set)(void *);
static void *context;

static volatile unsigned failures;
static bool flag;
static int32_t number;
static plinth_stream_t found;

static void plinth_current_device_(void) { failures += plinth_current_device(&number) != 0; }
static void plinth_current_stream_(void) { failures += plinth_current_stream(-1, &found) != 0; }
static void plinth_set_stream_(void) { failures += plinth_set_stream(stream) != 0; }
static void plinth_set_device_(void) { failures += plinth_set_device(0) != 0; }
static void plinth_record_(void) { failures += plinth_event_record(event, stream) != 0; }
static void plinth_query_(void) { failures += plinth_event_query(event, &flag) != 0; }
static void plinth_wait_(void) { failures += plinth_stream_wait_event(stream, event) != 0; }
static void plinth_stream_query_(void) { failures += plinth_stream_query(stream, &flag) != 0; }
static void plinth_capturing_(void) { failures += plinth_is_current_stream_capturing(&flag) != 0; }
static void plinth_copy_(void) { failures += plinth_memcpy(device_memory, pinned_memory, 4096, stream) != 0; }
static void plinth_fill_(void) { failures += plinth_memset(device_memory, 1, 4096, stream) != 0; }
static void plinth_replay_(void) { failures += plinth_graph_replay(graph) != 0; }
static void plinth_event_pair_(void) {
  plinth_event_t made;
  failures += plinth_event_create(0, &made) != 0;
  failures += plinth_event_destroy(made) != 0;
}

static void plinth_nvtx_range_(void) {
  failures += plinth_nvtx_range_push("range", NULL) != 0;
  failures += plinth_nvtx_range_pop(NULL) != 0;
}
static void plinth_nvtx_mark_(void) { failures += plinth_nvtx_mark("mark") != 0; }

static void *address(void *pointer) { return pointer; }
static void bare_context_get_(void) { void *got; failures += context_get(&got) != 0; }
static void bare_context_set_(void) { failures += context_set(context) != 0; }
static void bare_record_(void) { failures += event_record(native_event, stream) != 0; }
static void bare_query_(void) { failures += event_query(native_event) == 1; }
static void bare_wait_(void) { failures += stream_wait(stream, native_event, 0) != 0; }
static void bare_stream_query_(void) { failures += stream_query(stream) == 1; }
static void bare_capturing_(void) { unsigned status; failures += is_capturing(stream, &status) != 0; }
static void bare_copy_(void) {
  failures += copy((unsigned long long)device_memory, (unsigned long long)pinned_memory, 4096, stream) != 0;
}
static void bare_fill_(void) { failures += fill((unsigned long long)device_memory, 1, 4096, stream) != 0; }
static void bare_replay_(void) { failures += graph_launch(native_graph, stream) != 0; }
static unsigned (*event_create)(void **, unsigned);
static unsigned (*event_destroy)(void *);
static void bare_event_pair_(void) {
  void *made = NULL;
  failures += event_create(&made, 2) != 0;
  failures += event_destroy(made) != 0;
}

static const struct row {
  const char *name;
  void (*plinth)(void);
  void (*bare)(void);
  const char *bare_name;
  int calls;
} rows[] = {
    {"plinth_current_device", plinth_current_device_, NULL, "(none)", CALLS},
    {"plinth_current_stream", plinth_current_stream_, NULL, "(none)", CALLS},
    {"plinth_nvtx_mark, no tool", plinth_nvtx_mark_, NULL, "(none)", CALLS},
    {"plinth_nvtx_range_push and _pop", plinth_nvtx_range_, NULL, "(none)", CALLS},
    {"plinth_set_stream", plinth_set_stream_, NULL, "(none)", CALLS},
    {"plinth_set_device", plinth_set_device_, bare_context_set_, "cuCtxSetCurrent", CALLS},
    {"plinth_set_device (same)", plinth_set_device_, bare_context_get_, "cuCtxGetCurrent", CALLS},
    {"plinth_event_query", plinth_query_, bare_query_, "cuEventQuery", CALLS},
    {"plinth_stream_query", plinth_stream_query_, bare_stream_query_, "cuStreamQuery", CALLS},
    {"(bare cuEventRecord against itself)", bare_record_, bare_record_, "cuEventRecord", CALLS},
    {"plinth_event_record", plinth_record_, bare_record_, "cuEventRecord", CALLS},
    {"plinth_stream_wait_event", plinth_wait_, bare_wait_, "cuStreamWaitEvent", CALLS},
    {"plinth_is_current_stream_capturing", plinth_capturing_, bare_capturing_, "cuStreamIsCapturing", CALLS},
    {"plinth_memcpy, 4 KiB pinned to device", plinth_copy_, bare_copy_, "cuMemcpyAsync", DEVICE_CALLS},
    {"(bare cuMemcpyAsync against itself)", bare_copy_, bare_copy_, "cuMemcpyAsync", DEVICE_CALLS},
    {"plinth_memset, 4 KiB", plinth_fill_, bare_fill_, "cuMemsetD8Async", DEVICE_CALLS},
    {"plinth_graph_replay, 8 kernels", plinth_replay_, bare_replay_, "cuGraphLaunch", DEVICE_CALLS},
    {"(bare cuGraphLaunch against itself)", bare_replay_, bare_replay_, "cuGraphLaunch", DEVICE_CALLS},
    {"plinth_event_create and _destroy", plinth_event_pair_, bare_event_pair_, "cuEventCreate, cuEventDestroy", CALLS},
    {"plinth_event_query, at the end", plinth_query_, bare_query_, "cuEventQuery", CALLS},
    {"plinth_stream_query, at the end", plinth_stream_query_, bare_stream_query_, "cuStreamQuery", CALLS},
};

static double batch(void (*call)(void), int calls) {
  double start = now_ns();
  for (int i = 0; i < calls; i++) call();
  double end = now_ns();
  MUST(plinth_stream_synchronize(stream));
  return (end - start) / calls;
}

static void nothing(void) {}

static void measure(const struct row *row) {
  static double ours[BATCHES], theirs[BATCHES], empty[BATCHES];
  void (*bare)(void) = row->bare ? row->bare : nothing;
  for (int i = 0; i < BATCHES; i++) {
    /* The order of the two alternates. */
    if (i % 2 == 0) ours[i] = batch(row->plinth, row->calls);
    theirs[i] = batch(bare, row->calls);
    if (i % 2 == 1) ours[i] = batch(row->plinth, row->calls);
    empty[i] = batch(nothing, row->calls);
  }
  qsort(ours, BATCHES, sizeof *ours, ascending);
  qsort(theirs, BATCHES, sizeof *theirs, ascending);
  qsort(empty, BATCHES, sizeof *empty, ascending);
  double base = empty[BATCHES / 2];
  double mine = ours[BATCHES / 2] - base, other = row->bare ? theirs[BATCHES / 2] - base : 0;
  printf("| %-37s | %7.1f | %-30s | %7.1f | %+6.1f | %7.1f | %7.1f |\n", row->name, mine, row->bare_name, other,
         mine - other, ours[BATCHES * 99 / 100] - base, row->bare ? theirs[BATCHES * 99 / 100] - base : 0.0);
}

int main(void) {
  char name[256];
  int32_t version;
  MUST(plinth_init());
  MUST(plinth_get_device_name(0, name, sizeof name));
  MUST(plinth_driver_version(&version));
  ENTRY(event_record, "cuEventRecord");
  ENTRY(event_query, "cuEventQuery");
  ENTRY(stream_wait, "cuStreamWaitEvent");
  ENTRY(stream_query, "cuStreamQuery");
  ENTRY(is_capturing, "cuStreamIsCapturing");
  ENTRY(copy, "cuMemcpyAsync");
  ENTRY(fill, "cuMemsetD8Async");
  ENTRY(graph_launch, "cuGraphLaunch");
  ENTRY(context_get, "cuCtxGetCurrent");
  ENTRY(context_set, "cuCtxSetCurrent");
  ENTRY(event_create, "cuEventCreate");
  ENTRY(event_destroy, "cuEventDestroy");
  MUST(plinth_set_device(0));
  if (context_get(&context) != 0) return 1;
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_set_stream(stream));
  MUST(plinth_event_create(0, &event));
  MUST(plinth_event_record(event, stream));
  MUST(plinth_event_native(event, &native_event));
  MUST(plinth_device_malloc(1 << 20, 0, &device_memory));
  MUST(plinth_pinned_malloc(1 << 20, &pinned_memory));
  MUST(plinth_memset(address(pinned_memory), 0, 1 << 20, stream));
  MUST(plinth_stream_synchronize(stream));

  MUST(plinth_graph_create(&graph));
  MUST(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  for (int i = 0; i < 8; i++) MUST(plinth_sleep(1, stream));
  MUST(plinth_graph_capture_end(graph));
  MUST(plinth_graph_exec_native(graph, &native_graph));

  int32_t kind;
  MUST(plinth_get_device_kind(&kind));
  printf("plinth %s on %s%s, CUDA %d.%d, ns of a call less an empty one, %d batches of %d or %d\n\n", plinth_version_string(), name,
         kind == PLINTH_DEVICE_HOST ? " (host device)" : "", version / 1000, version % 1000 / 10, BATCHES, CALLS,
         DEVICE_CALLS);
  printf("| call                                  |  plinth | bare                           |    bare |  more  | "
         "p99     | bare p99 |\n|---|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) measure(&rows[i]);
  MUST(plinth_device_free(device_memory));
  MUST(plinth_pinned_free(pinned_memory));
  MUST(plinth_event_destroy(event));
  MUST(plinth_graph_destroy(graph));
  if (failures) fprintf(stderr, "%u calls failed\n", failures);
  return failures != 0;
}
