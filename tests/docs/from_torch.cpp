#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
#include "from_torch.2.inc"
}
