/*! An initializer for a plinth_host_memory_stats_t. */
#define PLINTH_HOST_MEMORY_STATS_INIT {sizeof(plinth_host_memory_stats_t), {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, \
    {0, 0, 0, 0}, 0, 0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}}
