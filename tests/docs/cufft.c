// compiled only: needs cuFFT
#include "page.h"

void transform(void *from, void *to) {
#include "cufft.1.inc"
}

int main(void) {}
