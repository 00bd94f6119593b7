/*! An initializer for a plinth_memory_segment_t. */
#define PLINTH_MEMORY_SEGMENT_INIT {sizeof(plinth_memory_segment_t), 0, 0, 0, 0, 0, 0, 0, {0, 0}, 0, 0, false, false, NULL}

/*! An initializer for a plinth_memory_block_t. */
#define PLINTH_MEMORY_BLOCK_INIT {sizeof(plinth_memory_block_t), 0, 0, 0, 0, 0, NULL}
