/*! An initializer for a plinth_memory_history_options_t: every event with a stack trace, without a limit. */
#define PLINTH_MEMORY_HISTORY_OPTIONS_INIT {sizeof(plinth_memory_history_options_t), 2, 3, 0, 0, 0, 0, 0}

/*! An initializer for a plinth_memory_history_entry_t. */
#define PLINTH_MEMORY_HISTORY_ENTRY_INIT {sizeof(plinth_memory_history_entry_t), 0, 0, 0, 0, NULL, {0, 0}, 0, 0, NULL, 0, 0, NULL, NULL}
