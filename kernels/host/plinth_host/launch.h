// What the host device and a compiled kernel tell each other. crates/host/src/cuda_kernel.rs has the same structs.
#pragma once

namespace plinth_host {
// A launch, as one thread of the host device runs some of its blocks.
struct Launch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  // Whether every block has a thread of its own, so that the blocks can wait for each other.
  unsigned cooperative;
  // A pointer to each parameter.
  const void *const *parameters;
  void *context;
  // Returns the memory of the fiber with this number, the same at each call, or null if there is none. See fiber.h.
  void *(*fiber)(void *context, unsigned index);
  // Reports an error of the launch. Returns at once.
  void (*fail)(void *context, unsigned code, const char *text);
  // For checks.h: what is in shared memory, and memory for the history of each of its bytes, which is zero at the start.
  const void *shared;
  void *histories;
  // Writes the place of an instruction in the source, such as kernel.cu:12.
  void (*locate)(void *context, const void *instruction, char *text, unsigned bytes);
  // Returns whether another block failed, so that this one must end.
  unsigned (*has_failed)(void *context);
  // Waits for all blocks. Returns 0 if one failed.
  unsigned (*wait_for_grid)(void *context);
};

// A kernel, as its library exports it under the name plinth_host_kernel.
struct Kernel {
  // Of this struct and of Launch.
  unsigned version;
  unsigned parameter_count;
  // The size of each parameter in bytes.
  const unsigned *parameter_bytes;
  const char *name;
  // Runs the blocks [first, last) in the order of their linear indices, x fastest.
  void (*run)(const Launch *launch, unsigned long long first, unsigned long long last);
  // Returns the bound of __launch_bounds__, or 0.
  unsigned (*max_threads)();
  // Reports an access or a division that the processor refused, and ends the block. Runs in the fiber that made it.
  void (*fault)(const void *address, const void *instruction, unsigned is_division);
};

enum : unsigned { kVersion = 3 };

// Codes of the CUDA driver.
enum : unsigned { kOutOfMemory = 2, kIllegalAddress = 700, kAssert = 710, kLaunchFailed = 719 };
}  // namespace plinth_host
