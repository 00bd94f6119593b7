/*
 * Addresses that repeat from step to step, as graph trees of torch.compile need them: they record a graph again when an input
 * has another address. SPDX-License-Identifier: MIT OR Apache-2.0
 */
/* also: PLINTH_HOST_MEMORY=140GiB */
/* alone: all */
#include "pooling.h"

enum { LAYERS = 12, EXPERTS = 8, STEPS = 60, MEASURED = 20 };

static uint32_t state;

static size_t random_below(size_t limit) {
  state = state * 1664525U + 1013904223U;
  return (size_t)(state >> 8) % limit;
}

/* The memory of a layer that the backward pass needs: its input, and the rows of each expert, whose number varies. */
typedef struct layer {
  void *input;
  void *rows[EXPERTS];
  void *result;
} layer;

static void *input_of[STEPS][LAYERS];

/* Rows of 1 KiB, and temporary memory for them. An expert has often as many rows as the batch. */
static void *rows_of_expert(void) {
  const size_t bytes = random_below(16) == 0 ? MIB + 1024 * random_below(2048) : 3 * MIB;
  void *rows = alloc_on(bytes, 0, NULL);
  void *hidden = alloc_on(2 * MIB, 0, NULL);
  release(hidden);
  return rows;
}

/* A step of a training of experts. The recording of a graph empties the cache in some layers. */
static void train(int step) {
  layer layers[LAYERS];
  void *gradients[LAYERS];
  for (int i = 0; i < LAYERS; i++) {
    layers[i].input = input_of[step][i] = alloc_on(3 * MIB, 0, NULL);
    for (int expert = 0; expert < EXPERTS; expert++) {
      layers[i].rows[expert] = rows_of_expert();
    }
    layers[i].result = alloc_on(6 * MIB, 0, NULL);
    if (i % 3 == 2) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int i = LAYERS - 1; i >= 0; i--) {
    gradients[i] = alloc_on(4 * MIB, 0, NULL);
    for (int expert = 0; expert < EXPERTS; expert++) {
      void *gradient = rows_of_expert();
      release(layers[i].rows[expert]);
      release(gradient);
    }
    release(layers[i].result);
    release(layers[i].input);
    if (i % 3 == 0) {
      CHECK_OK(plinth_empty_cache());
    }
  }
  for (int i = 0; i < LAYERS; i++) {
    release(gradients[i]);
  }
}

static bool had_address(int step, int layer_index) {
  for (int earlier = 0; earlier < step; earlier++) {
    if (input_of[earlier][layer_index] == input_of[step][layer_index]) {
      return true;
    }
  }
  return false;
}

/* Trains, and returns for how many percent of the inputs of a layer in the last steps an earlier step had the same address. */
static int repeated_percent(void) {
  int repeated = 0;
  CHECK_OK(plinth_empty_cache());
  state = 1;
  for (int step = 0; step < STEPS; step++) {
    train(step);
    for (int i = 0; i < LAYERS && step >= STEPS - MEASURED; i++) {
      repeated += had_address(step, i);
    }
  }
  expect_sound();
  return 100 * repeated / (MEASURED * LAYERS);
}

/* A checkpoint of a pool, from which on addresses repeat. */
static plinth_pool_checkpoint_t begin_to_repeat(void) {
  plinth_pool_checkpoint_t checkpoint = NULL;
  plinth_pool_id_t pool = new_pool(false, false);
  CHECK_OK(plinth_pool_checkpoint_create(0, pool, &checkpoint));
  destroy(pool);
  return checkpoint;
}

TEST(addresses_repeat_after_a_checkpoint_of_a_pool) {
  void *weights[64];
  for (int i = 0; i < 64; i++) {
    weights[i] = alloc_on(8 * MIB, 0, NULL);
  }
  const int packed = repeated_percent();
  plinth_pool_checkpoint_t checkpoint = begin_to_repeat();
  CHECK_OK(plinth_empty_cache());
  CHECK_OK(plinth_reset_peak_memory_stats(0));
  const int in_sections = repeated_percent();
  CHECK(in_sections >= 45 && in_sections > packed);
  CHECK(max_reserved(0) < max_allocated(0) / 100 * 118);
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
  for (int i = 0; i < 64; i++) {
    release(weights[i]);
  }
}

enum { MOST_BLOCKS = 2048 };

/* Allocates blocks until memory is used up, and frees them. Returns how many there were. */
static int blocks_until_out_of_memory(size_t bytes) {
  static void *blocks[MOST_BLOCKS];
  int count = 0;
  while (count < MOST_BLOCKS && plinth_caching_allocator_alloc(bytes, 0, NULL, &blocks[count]) == PLINTH_OK) {
    count++;
  }
  CHECK(count < MOST_BLOCKS);
  for (int i = 0; i < count; i++) {
    release(blocks[i]);
  }
  CHECK_OK(plinth_empty_cache());
  return count;
}

TEST(sections_cost_little_memory_and_few_handles) {
  /* Blocks that leave much of a section, blocks that fill it, and larger ones. */
  const size_t sizes[] = {2 * MIB + MIB / 2, 3 * MIB + MIB / 2, 5 * MIB, 6 * MIB, 8 * MIB, 20 * MIB};
  enum { SIZES = sizeof sizes / sizeof sizes[0] };
  /* A device can have less; others may use memory of a GPU. */
  const double part = 4.1 * (double)GIB / (double)total_memory(0);
  CHECK_OK(plinth_set_per_process_memory_fraction(part < 1 ? part : 1, 0));
  plinth_pool_checkpoint_t checkpoint = begin_to_repeat();
  for (int i = 0; i < SIZES; i++) {
    const int64_t before = created_handles();
    const int count = blocks_until_out_of_memory(sizes[i]);
    CHECK((double)count * (double)sizes[i] > 0.8 * 4 * (double)GIB);
    CHECK(created_handles() - before < 450);
  }
  CHECK_OK(plinth_pool_checkpoint_destroy(checkpoint));
}
