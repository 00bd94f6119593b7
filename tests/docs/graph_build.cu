#include "page.h"

__global__ void step(float *state, unsigned *not_done);

void build(plinth_graph_t graph, float *state, unsigned *not_done, int blocks, int threads, plinth_stream_t stream) {
  plinth_graph_condition_t condition;
  plinth_graph_t body;
  plinth_graph_node_t node;
#include "graph_build.2.inc"
}
