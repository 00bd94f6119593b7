#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
  const std::size_t bytes = 4000;
  const plinth::PinnedVector<float> pinned(1000);
#include "cpp.1.inc"
}
