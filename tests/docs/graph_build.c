#include "page.h"

int main(void) {
  page_begin();
  const size_t count = 1000;
  void *data = page_memory(4 * count), *result = page_memory(4 * count);
#include "graph_build.1.inc"
  plinth_synchronize(0);
  plinth_graph_destroy(graph);
}
