#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
  const plinth::Stream side;
  const std::size_t bytes = 4000;
  const plinth::DeviceBuffer memory(bytes, side), sum(4, side);
  const void *data = memory.get();
  void *result = sum.get();
#include "sanitizer.4.inc"
}
