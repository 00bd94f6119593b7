/*! An initializer for a plinth_node_time_t. */
#define PLINTH_NODE_TIME_INIT {sizeof(plinth_node_time_t), NULL, 0, 0, 0.0, {0}}
