#include "page.h"
#include <plinth.hpp>

struct {
  plinth::Tensor<float> weights{{1000}};
  void forward(plinth::StreamView stream) { plinth::uniform(weights, 0, 1, {}, stream); }
} model;

int main() {
  page_begin();
#include "graph.2.inc"
}
