#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
#include "how_to.4.inc"
  plinth::Tensor<float> x({1000});
#include "how_to.7.inc"
#include "how_to.8.inc"
}
