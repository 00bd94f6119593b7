// Hostile states that calls decode from bytes: generators' states, values in the files of a store, images of modules,
// checkpoints of pools.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
#pragma once

#include "hostile_tensors.h"

#include <sys/stat.h>

namespace {

std::string store_folder;
plinth_store_t store;
plinth_pool_checkpoint_t checkpoint;
plinth_pool_id_t checkpoint_pool;

void remove_store() {
  const std::string command = "rm -rf '" + store_folder + "'";
  (void)!system(command.c_str());
}

void prepare_states() {
  char folder[] = "/tmp/plinth-fuzz-XXXXXX";
  CHECK(mkdtemp(folder) != nullptr);
  store_folder = folder;
  const pid_t creator = getpid();
  static pid_t owner = creator;
  atexit([] {
    if (getpid() == owner) {
      remove_store();
    }
  });
  CHECK_OK(plinth_store_create(store_folder.c_str(), &store));
  CHECK_OK(plinth_mem_pool_create(false, false, &checkpoint_pool));
  CHECK_OK(plinth_begin_allocate_to_pool(0, checkpoint_pool));
  void *block = nullptr;
  CHECK_OK(plinth_caching_allocator_alloc(1000, 0, nullptr, &block));
  CHECK_OK(plinth_end_allocate_to_pool(0, checkpoint_pool));
  CHECK_OK(plinth_pool_checkpoint_create(0, checkpoint_pool, &checkpoint));
}

void set_generator_state(Reader &in) {
  plinth_generator_t generator = generators[in.byte() % DEVICES];
  std::vector<uint8_t> state(PLINTH_RNG_STATE_SIZE * DEVICES);
  CHECK_OK(plinth_generator_get_state(generator, state.data()));
  memcpy(&state[PLINTH_RNG_STATE_SIZE], state.data(), PLINTH_RNG_STATE_SIZE);
  mutate(in, state);
  const size_t size = in.one_in(4) ? state.size() : PLINTH_RNG_STATE_SIZE;
  state.resize(std::max<size_t>(state.size(), PLINTH_RNG_STATE_SIZE * DEVICES));
  note("setting a generator's state of %zu bytes", size);
  switch (in.byte() % 3) {
    case 0: EXPECT(plinth_generator_set_state(generator, state.data(), size)); break;
    case 1: EXPECT(plinth_set_rng_state(in.device(), state.data())); break;
    default: EXPECT(plinth_set_rng_state_all(state.data(), static_cast<int32_t>(in.byte() % 5) - 1));
  }
}

// Writes to the file of a key, as another process could, and reads the key.
void read_store(Reader &in) {
  const std::string name(1, static_cast<char>('a' + in.byte() % 2));
  // Of the key's value, of its unique id, or of a participant of its barrier.
  static const char *const prefixes[] = {"/value-", "/id-", "/participant-"}, *const suffixes[] = {"", "", "-0"};
  const unsigned kind = in.byte() % 3;
  const std::string path = store_folder + prefixes[kind] + (name == "a" ? "61" : "62") + suffixes[kind];
  std::vector<uint8_t> value(in.byte() % 40);
  for (uint8_t &byte : value) {
    byte = static_cast<uint8_t>(in.byte());
  }
  note("reading a store's value of %zu bytes", value.size());
  (void)unlink(path.c_str());
  (void)rmdir(path.c_str());
  switch (in.byte() % 16) {
    case 0: (void)mkdir(path.c_str(), 0700); break;
    case 3: (void)mkfifo(path.c_str(), 0600); break;
    case 4: (void)!symlink("/dev/zero", path.c_str()); break;
    case 1: (void)!symlink("/dev/null", path.c_str()); break;
    case 2: (void)!symlink(path.c_str(), path.c_str()); break;
    default: {
      const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
      (void)!write(file, value.data(), value.size());
      close(file);
    }
  }
  uint8_t buffer[64];
  size_t size = 0;
  uint8_t id[PLINTH_UNIQUE_ID_SIZE];
  switch (in.byte() % 5) {
    case 0: EXPECT(plinth_store_barrier(store, name.c_str(), static_cast<int32_t>(in.number()), 1)); break;
    case 1: EXPECT(plinth_store_get(store, name.c_str(), 1, buffer, in.byte() % sizeof buffer, &size)); break;
    case 2: EXPECT(plinth_store_set(store, name.c_str(), value.data(), value.size())); break;
    case 3: EXPECT(plinth_store_unique_id(store, name.c_str(), 1, 2, 1, id)); break;
    default: EXPECT(plinth_store_get(store, name.c_str(), 1, buffer, sizeof buffer, &size));
  }
}

// An image is code, so one that could be loaded is not tried: texts, and images that end early.
void load_image(Reader &in) {
  std::vector<uint8_t> image(1 + in.byte());
  for (uint8_t &byte : image) {
    byte = static_cast<uint8_t>(in.byte());
  }
  if (in.one_in(2)) {
    static const uint8_t head[] = {0x7F, 'E', 'L', 'F', 2, 1, 1, 0};
    image.resize(in.byte());
    memcpy(image.data(), head, std::min(image.size(), sizeof head));
    if (image.size() >= 64) {
      const uint64_t sections = UINT64_C(1) << 20 | in.number() >> 1;
      memcpy(&image[0x28], &sections, 8);
    }
  }
  plinth_kernel_module_t module = nullptr;
  note("loading an image of %zu bytes", image.size());
  if (EXPECT(plinth_kernel_module_load(image.data(), image.size(), in.device(), &module)) == PLINTH_OK) {
    plinth_kernel_t kernel = nullptr;
    EXPECT(plinth_kernel_module_get_kernel(module, "plinth_nothing", &kernel));
    CHECK_OK(plinth_kernel_module_destroy(module));
    last_status = PLINTH_OK;
  }
}

void use_checkpoint(Reader &in) {
  void *stale[4];
  for (void *&pointer : stale) {
    pointer = in.one_in(2) ? memories[in.byte() % memories.size()].begin + in.byte() : reinterpret_cast<void *>(in.number());
  }
  bool equal = false;
  note("pointers for a checkpoint");
  if (in.one_in(2)) {
    EXPECT(plinth_pool_check_live_allocations(in.device(), checkpoint_pool, stale, in.byte() % 5, &equal));
  } else {
    EXPECT(plinth_pool_checkpoint_restore(checkpoint, stale, 1 + in.byte() % 4, nullptr, nullptr));
  }
}

void one_state(Reader &in) {
  switch (in.byte() % 8) {
    case 0:
    case 1:
    case 2: set_generator_state(in); break;
    case 3: read_store(in); break;
    case 4:
    case 5: load_image(in); break;
    default: use_checkpoint(in);
  }
}

}  // namespace
