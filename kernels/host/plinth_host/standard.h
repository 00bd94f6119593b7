// Gives the names of the standard's library to cuda::std. Names that cuda::std declares by itself come first.
#pragma once
#include <plinth_host/standard_begin.h>
#include <cstddef>
#include <plinth_host/standard_end.h>

namespace cuda {
namespace std {
using namespace ::std;
}  // namespace std
}  // namespace cuda
