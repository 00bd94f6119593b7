#include "page.h"
#include <plinth.hpp>

void step(float *state, std::uint32_t *not_done) {
  plinth::memset(state, 0, 4);
  plinth::memset(not_done, 0, 4);
}

int main() {
  page_begin();
  const plinth::DeviceBuffer state_memory(4), not_done_memory(4);
  float *state = state_memory.as<float>();
  std::uint32_t *not_done = not_done_memory.as<std::uint32_t>();
  plinth::Graph graph = plinth::empty_graph();
#include "graph_build.3.inc"
  graph.instantiate();
  graph.replay();
  plinth::synchronize();
}
