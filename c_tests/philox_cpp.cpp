/* The tests of plinth_philox.h, as C++. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "philox.h"
