/*! An initializer for a plinth_graph_kernel_t: one block of one thread. */
#define PLINTH_GRAPH_KERNEL_INIT {sizeof(plinth_graph_kernel_t), NULL, {1, 1, 1}, {1, 1, 1}, 0, NULL}
