/* Each driver call fails once, in the calls that every backend supports.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
/* env: PLINTH_ALLOC_CONF=backend:cudaMallocAsync */
/* also: PLINTH_ALLOC_CONF=backend:uncached */
/* also: PLINTH_ALLOC_CONF=debug:[guard:fill] */
/* also: PLINTH_ALLOC_CONF=debug:[guard:unmap] */
/* timeout: 600 */
#define EVERY_BACKEND
/* alone: all; enables fault injection before the first call */
#include "fault_allocator.c"
