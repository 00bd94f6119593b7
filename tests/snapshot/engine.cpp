/*
 * Allocates through plinth's C++ headers, from inside functions of the C++ library, with names of streams and memory:
 *
 *   engine FOLDER    FOLDER/engine.html
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <plinth.hpp>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

namespace engine {

std::vector<plinth::DeviceBuffer> buffers;

__attribute__((noinline)) void load_weights(std::size_t bytes) {
  buffers.emplace_back(bytes);
  plinth::set_memory_name(buffers.back().get(), "weights");
}

__attribute__((noinline)) void fill_cache(plinth::StreamView stream) {
  buffers.emplace_back(std::size_t{6} << 20, stream);
  plinth::DeviceBuffer scratch(std::size_t{2} << 20, stream);
  plinth::set_memory_name(scratch.get(), "scratch");
}

}  // namespace engine

int main(int count, char **arguments) {
  if (count != 2) {
    std::fputs("engine FOLDER\n", stderr);
    return 2;
  }
  plinth::record_memory_history();
  plinth::Stream copies;
  plinth::set_stream_name(copies, "copies");
  const std::function<void()> run = [] { engine::load_weights(std::size_t{4} << 20); };
  run();
  engine::fill_cache(copies);
  plinth::dump_snapshot(std::string(arguments[1]) + "/engine.html");
  engine::buffers.clear();
  return 0;
}
