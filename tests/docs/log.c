#include "page.h"

#include "log.1.inc"

int main(void) {
#include "log.2.inc"
}
