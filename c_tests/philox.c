/* The header of Philox numbers, as C. SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "philox.h"
