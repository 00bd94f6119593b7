/*! An initializer for a plinth_memory_share_options_t: no budget, no floor and no name. */
#define PLINTH_MEMORY_SHARE_OPTIONS_INIT {sizeof(plinth_memory_share_options_t), 0, 0, NULL}

/*! An initializer for a plinth_memory_share_info_t. */
#define PLINTH_MEMORY_SHARE_INFO_INIT {sizeof(plinth_memory_share_info_t), 0, 0, 0, 0, 0, 0, 0, 0}
