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

/* Memory that is allocated and freed in a capture, and memory that the program frees after it. Only one backend can. */
SCENARIO_OF(warm_plan, memory_of_a_capture) {
  const char *name = NULL;
  plinth_graph_t graph = NULL;
  unsigned char *kept = NULL;
  CHECK_OK(plinth_get_allocator_backend(&name));
  const bool can = strcmp(name, "cudaMallocAsync") == 0;
  CHECK_OK(plinth_graph_create(&graph));
  RETRY(plinth_set_stream(own));
  if (ATTEMPT(plinth_graph_capture_begin(graph, NULL, PLINTH_CAPTURE_THREAD_LOCAL))) {
    (void)ATTEMPT(plinth_sleep(1, own));
    if (can) {
      unsigned char *memory = try_alloc(MIB, last_device, own);
      free_block(memory, last_device, MIB);
      kept = try_alloc(MIB, last_device, own);
    }
    if (ATTEMPT(plinth_graph_capture_end(graph))) {
      (void)ATTEMPT(plinth_graph_replay(graph));
      (void)ATTEMPT(plinth_graph_replay(graph));
    }
  }
  RETRY(plinth_graph_reset(graph));
  if (kept != NULL) {
    RETRY(plinth_caching_allocator_delete(kept));
  }
  RETRY(plinth_graph_destroy(graph));
  RETRY(plinth_stream_synchronize(own));
}
