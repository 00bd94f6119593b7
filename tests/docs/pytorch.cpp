// compiled only: RMM's resources need a GPU
// headers: rmm
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#include "pytorch.11.inc"
