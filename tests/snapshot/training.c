/*
 * Simulates a training's calls of the allocator: persistent parameters, activations that live from a layer's forward to its
 * backward pass, a side stream, a pool, tags and annotations; at the end a request that fails. Then it writes snapshots:
 *
 *   training FOLDER [STEPS [LAYERS]]    FOLDER/snapshot.pickle, .json, .html, pool.json, stats.<device>.json
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <plinth.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
enum { MOST_LAYERS = 512 };

static void check(plinth_status_t status, const char *call) {
  if (status != PLINTH_OK) {
    fprintf(stderr, "%s: %s: %s\n", call, plinth_status_name(status), plinth_last_error());
    exit(1);
  }
}
#define CHECK(call) check((call), #call)

typedef struct layer {
  void *weight;
  void *gradient;
  void *momentum;
  void *activation;
} layer;

static layer layers[MOST_LAYERS];
static plinth_stream_t side;

static void *allocate(size_t bytes, plinth_stream_t stream) {
  void *memory;
  CHECK(plinth_caching_allocator_alloc(bytes, 0, stream, &memory));
  return memory;
}

static void release(void *memory) { CHECK(plinth_caching_allocator_delete(memory)); }

/* Returns the bytes of a layer's weight, which grow with the depth, as in an image classifier. */
static size_t width(int index, int count) { return (size_t)(1 + 3 * index / count) * 192 * KIB + (size_t)index * 1000; }

static __attribute__((noinline)) void make_weights(int count) {
  for (int index = 0; index < count; index++) {
    layers[index].weight = allocate(width(index, count), NULL);
  }
}

static __attribute__((noinline)) void attention(layer *layer, size_t bytes) {
  void *scores = allocate(4 * bytes, NULL);
  void *mask = allocate(bytes / 16 + 1, NULL);
  layer->activation = allocate(6 * bytes, NULL);
  release(mask);
  release(scores);
}

static __attribute__((noinline)) void convolution(layer *layer, size_t bytes) {
  void *workspace = allocate(3 * bytes, NULL);
  layer->activation = allocate(5 * bytes, NULL);
  release(workspace);
}

static __attribute__((noinline)) void forward(int count) {
  CHECK(plinth_memory_annotation_begin("forward"));
  for (int index = 0; index < count; index++) {
    CHECK(plinth_set_memory_metadata(index % 3 == 0 ? "attention" : "convolution"));
    (index % 3 == 0 ? attention : convolution)(&layers[index], width(index, count) * (size_t)(4 - 3 * index / count));
  }
  CHECK(plinth_set_memory_metadata(""));
  CHECK(plinth_memory_annotation_end("forward"));
}

static __attribute__((noinline)) void backward(int count) {
  CHECK(plinth_memory_annotation_begin("backward"));
  for (int index = count - 1; index >= 0; index--) {
    void *partial = allocate(2 * width(index, count), NULL);
    if (layers[index].gradient == NULL) {
      layers[index].gradient = allocate(width(index, count), NULL);
    }
    /* Gradients are reduced over all devices in the side stream. */
    CHECK(plinth_record_stream(layers[index].gradient, side));
    release(layers[index].activation);
    release(partial);
    layers[index].activation = NULL;
  }
  CHECK(plinth_memory_annotation_end("backward"));
}

static __attribute__((noinline)) void optimizer_step(int count) {
  CHECK(plinth_memory_annotation_begin("optimizer"));
  for (int index = 0; index < count; index++) {
    if (layers[index].momentum == NULL) {
      layers[index].momentum = allocate(2 * width(index, count), NULL);
    }
    void *update = allocate(width(index, count), side);
    release(update);
    release(layers[index].gradient);
    layers[index].gradient = NULL;
  }
  CHECK(plinth_memory_annotation_end("optimizer"));
}

static __attribute__((noinline)) void load_batch(void **batch) {
  if (*batch != NULL) {
    release(*batch);
  }
  *batch = allocate(24 * MIB + 77, NULL);
}

static __attribute__((noinline)) void too_large_a_batch(void) {
  void *memory;
  const plinth_status_t status = plinth_caching_allocator_alloc((size_t)1 << 50, 0, NULL, &memory);
  if (status != PLINTH_ERROR_OUT_OF_MEMORY) {
    check(status == PLINTH_OK ? PLINTH_ERROR_PANIC : status, "a request for 1 PiB");
  }
}

static void write_text(const char *folder, const char *name, const char *text) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
    perror(path);
    exit(1);
  }
}

static void dump(const char *folder) {
  char path[4096];
  char *text;
  int32_t devices;
  const char *const names[] = {"snapshot.pickle", "snapshot.json", "snapshot.html"};
  for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[index]);
    CHECK(plinth_dump_snapshot(path));
  }
  CHECK(plinth_device_count(&devices));
  for (int32_t device = 0; device < devices; device++) {
    snprintf(path, sizeof path, "stats.%d.json", (int)device);
    CHECK(plinth_memory_stats_as_json(device, false, &text));
    write_text(folder, path, text);
    plinth_string_free(text);
  }
}

int main(int count, char **arguments) {
  const int steps = count > 2 ? atoi(arguments[2]) : 6;
  const int depth = count > 3 ? atoi(arguments[3]) : 48;
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  plinth_pool_id_t pool;
  void *batch = NULL;
  char *text;
  int32_t devices;
  if (count < 2 || steps < 1 || depth < 1 || depth > MOST_LAYERS) {
    fprintf(stderr, "training FOLDER [STEPS [LAYERS]], at most %d layers\n", MOST_LAYERS);
    return 2;
  }
  /* Blocks that are allocated before the history begins. */
  void *older = allocate(5 * MIB, NULL);
  void *older_still = allocate(3000, NULL);
  options.record_annotations = 1;
  CHECK(plinth_record_memory_history(&options));
  CHECK(plinth_stream_create(0, 0, &side));
  make_weights(depth);
  for (int step = 0; step < steps; step++) {
    CHECK(plinth_memory_annotation_begin("step"));
    load_batch(&batch);
    forward(depth);
    backward(depth);
    optimizer_step(depth);
    CHECK(plinth_memory_annotation_end("step"));
    if (step == 0) {
      release(older);
    }
  }
  CHECK(plinth_device_count(&devices));
  if (devices > 1) {
    void *elsewhere;
    CHECK(plinth_caching_allocator_alloc(7 * MIB, 1, NULL, &elsewhere));
  }
  CHECK(plinth_mem_pool_create(false, false, &pool));
  CHECK(plinth_begin_allocate_current_thread_to_pool(0, pool));
  void *pooled = allocate(3 * MIB, NULL);
  release(allocate(100 * KIB, NULL));
  CHECK(plinth_end_allocate_to_pool(0, pool));
  forward(depth);
  too_large_a_batch();
  CHECK(plinth_synchronize(0));
  dump(arguments[1]);
  CHECK(plinth_mem_pool_snapshot(pool, true, &text));
  write_text(arguments[1], "pool.json", text);
  plinth_string_free(text);
  release(pooled);
  release(older_still);
  return 0;
}
