#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
  plinth::Tensor<float> x_owner({100}), bias_owner({100}), y_owner({100});
  DLTensor &x = x_owner, &bias = bias_owner, &y = y_owner;
  plinth::normal(x);
  plinth::normal(bias);
  const char *code = "template <typename T> T add(T x, T bias, T alpha) { return x + alpha * bias; }";
  const plinth::StreamView stream;
#include "jiterator.2.inc"
  plinth::synchronize();
}
