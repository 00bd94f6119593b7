#include "page.h"

int main(void) {
  page_begin();
  plinth_stream_t stream;
  plinth_stream_create(0, 0, &stream);
#include "graph.1.inc"
}
