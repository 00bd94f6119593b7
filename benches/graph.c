/* Compares plinth's graphs with the bare driver's, in one run: capturing and instantiating 1,000 nodes, and replaying chains.
 *
 * A capture is timed from its begin to the executable graph; as in PyTorch, the template graph is destroyed. The nodes are
 * fills of 4 bytes by the driver's own call on both sides, so that only begin, end and instantiation differ; in the third
 * column they are made by plinth_memset. A chain is 20 nodes in one stream; the bare driver launches an executable graph of
 * these nodes alone, without those that plinth adds for random numbers. "launched" is the time of the call while the
 * queue is not full; "done" is the time for each of many consecutive replays. Both sides alternate. Build and run:
 * `make bench`. */
#define _GNU_SOURCE
#include "measure.h"

enum { NODES = 1000, CHAIN = 20, CAPTURES = 41, BATCHES = 401, CALLS = 16, ROW = 500 };

static unsigned (*fill)(unsigned long long, unsigned char, size_t, void *);
static unsigned (*begin_capture)(void *, unsigned);
static unsigned (*end_capture)(void *, void **);
static unsigned (*instantiate)(void **, void *, unsigned long long);
static unsigned (*launch)(void *, void *);
static unsigned (*exec_destroy)(void *);
static unsigned (*graph_destroy)(void *);
static unsigned (*graph_nodes)(void *, void **, size_t *);
static unsigned (*node_destroy)(void *);
static plinth_stream_t stream;
static void *memory;

static double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, ascending);
  return values[count / 2];
}

static void bare_nodes(int count) {
  for (int i = 0; i < count; i++) {
    DRIVER(fill((unsigned long long)(size_t)memory, 0, 4, stream));
  }
}

static double capture_bare(void) {
  void *graph = NULL, *exec = NULL;
  const double start = now_ns();
  DRIVER(begin_capture(stream, 0));
  bare_nodes(NODES);
  DRIVER(end_capture(stream, &graph));
  /* The flags of plinth: auto free on launch, and the nodes' priorities. */
  DRIVER(instantiate(&exec, graph, 1 | 8));
  DRIVER(graph_destroy(graph));
  const double end = now_ns();
  DRIVER(exec_destroy(exec));
  return end - start;
}

static double capture_plinth(int by_plinth) {
  plinth_graph_t graph = NULL;
  MUST(plinth_graph_create(&graph));
  const double start = now_ns();
  MUST(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  if (by_plinth) {
    for (int i = 0; i < NODES; i++) {
      MUST(plinth_memset(memory, 0, 4, stream));
    }
  } else {
    bare_nodes(NODES);
  }
  MUST(plinth_graph_capture_end(graph));
  const double end = now_ns();
  MUST(plinth_graph_destroy(graph));
  return end - start;
}

static void compare_captures(void) {
  static double bare[CAPTURES], ours[CAPTURES], all[CAPTURES];
  for (int i = 0; i < CAPTURES; i++) {
    bare[i] = capture_bare();
    ours[i] = capture_plinth(0);
    all[i] = capture_plinth(1);
  }
  const double base = median(bare, CAPTURES), mine = median(ours, CAPTURES), whole = median(all, CAPTURES);
  printf("| capture %d nodes | bare driver | plinth | more | nodes by plinth_memset |\n|---|---|---|---|---|\n", NODES);
  printf("| microseconds | %.1f | %.1f | %+.1f %% | %.1f |\n\n", base / 1e3, mine / 1e3, (mine / base - 1) * 100, whole / 1e3);
}

static plinth_graph_t capture_chain(plinth_status_t (*node)(void)) {
  plinth_graph_t graph = NULL;
  MUST(plinth_graph_create(&graph));
  MUST(plinth_graph_set_flags(graph, PLINTH_GRAPH_KEEP_GRAPH));
  MUST(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_GLOBAL));
  for (int i = 0; i < CHAIN; i++) {
    MUST(node());
  }
  MUST(plinth_graph_capture_end(graph));
  return graph;
}

/* Captures a chain, and measures a launch and a row of launches of its executable graph on both sides. */
static void compare_replays(const char *name, plinth_status_t (*node)(void)) {
  static double bare[BATCHES], ours[BATCHES], bare_row[21], our_row[21];
  const plinth_graph_t graph = capture_chain(node), source = capture_chain(node);
  void *native = NULL, *nodes[CHAIN + 1], *exec = NULL;
  size_t count = CHAIN + 1;
  MUST(plinth_graph_native(source, &native));
  DRIVER(graph_nodes(native, nodes, &count));
  if (count > CHAIN && node_destroy != NULL) {
    DRIVER(node_destroy(nodes[CHAIN]));
  }
  DRIVER(instantiate(&exec, native, 1 | 8));
  for (int i = 0; i < 2 * BATCHES; i++) {
    const int mine = i % 2;
    const double start = now_ns();
    for (int call = 0; call < CALLS; call++) {
      if (mine) {
        MUST(plinth_graph_replay(graph));
      } else {
        DRIVER(launch(exec, stream));
      }
    }
    (mine ? ours : bare)[i / 2] = (now_ns() - start) / CALLS;
    MUST(plinth_stream_synchronize(stream));
  }
  for (int i = 0; i < 42; i++) {
    const double start = now_ns();
    for (int call = 0; call < ROW; call++) {
      if (i % 2) {
        MUST(plinth_graph_replay(graph));
      } else {
        DRIVER(launch(exec, stream));
      }
    }
    MUST(plinth_stream_synchronize(stream));
    (i % 2 ? our_row : bare_row)[i / 2] = (now_ns() - start) / ROW;
  }
  const double base = median(bare, BATCHES), mine = median(ours, BATCHES);
  printf("| %s | %.0f | %.0f | %+.0f, %+.1f %% | %.2f | %.2f |\n", name, base, mine, mine - base, (mine / base - 1) * 100,
         median(bare_row, 21) / 1e3, median(our_row, 21) / 1e3);
  DRIVER(exec_destroy(exec));
  MUST(plinth_graph_destroy(source));
  MUST(plinth_graph_destroy(graph));
}

static plinth_status_t node_memset(void) { return plinth_memset(memory, 0, 4, stream); }
static plinth_status_t node_sleep(void) { return plinth_sleep(0, stream); }
static plinth_status_t node_uniform(void) {
  int64_t shape[] = {64};
  DLTensor tensor = {memory, {2, 0}, 1, {2, 32, 1}, shape, NULL, 0};
  return plinth_uniform(&tensor, 0, 1, NULL, stream);
}

int main(void) {
  char name[256];
  int32_t version = 0;
  MUST(plinth_init());
  MUST(plinth_get_device_name(0, name, sizeof name));
  MUST(plinth_driver_version(&version));
  ENTRY(fill, "cuMemsetD8Async");
  ENTRY(begin_capture, "cuStreamBeginCapture");
  ENTRY(end_capture, "cuStreamEndCapture");
  ENTRY(instantiate, "cuGraphInstantiateWithFlags");
  ENTRY(launch, "cuGraphLaunch");
  ENTRY(exec_destroy, "cuGraphExecDestroy");
  ENTRY(graph_destroy, "cuGraphDestroy");
  ENTRY(graph_nodes, "cuGraphGetNodes");
  /* The host device has no such call. */
  void *found = NULL;
  if (plinth_driver_entry_point("cuGraphDestroyNode", &found) == PLINTH_OK) {
    memcpy(&node_destroy, &found, sizeof found);
  }
  MUST(plinth_stream_create(0, 0, &stream));
  MUST(plinth_set_stream(stream));
  MUST(plinth_device_malloc(4096, 0, &memory));
  printf("plinth %s on %s, CUDA %d.%d\n\n", plinth_version_string(), name, version / 1000, version % 1000 / 10);
  compare_captures();
  printf("| replay of a chain of %d | bare cuGraphLaunch, launched, ns | plinth | more | bare, done, us | plinth |\n", CHAIN);
  printf("|---|---|---|---|---|---|\n");
  compare_replays("kernels that do nothing", node_sleep);
  compare_replays("fills of 4 bytes", node_memset);
  compare_replays("plinth_uniform of 64 floats (also advances the offset)", node_uniform);
  MUST(plinth_device_free(memory));
  return 0;
}
