#include "page.h"

void adopt(plinth_stream_t stream) {
#include "stream.3.inc"
}
