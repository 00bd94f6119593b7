#include "../consumer.h"

#if __has_include(<plinth.hpp>)
#include <plinth.hpp>
#endif

int main() {
  return consume("C++");
}
