#include "../consumer.h"

#include <plinth.hpp>

#include <cstdio>

// Checks that the C++ headers work.
static bool allocates() {
  const std::size_t before = plinth::memory_allocated();
  const plinth::DeviceBuffer buffer(4096);
  return plinth::memory_allocated() == before + 4096;
}

int main() try {
  return allocates() ? consume("C++") : 1;
} catch (const plinth::Error &error) {
  std::fprintf(stderr, "%s: %s\n", error.name(), error.what());
  return 1;
}
