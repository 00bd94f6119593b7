#include "page.h"
#include <plinth.hpp>

int main() {
  page_begin();
#include "from_rmm.1.inc"
}
