/*! An initializer for a plinth_memory_uses_t. */
#define PLINTH_MEMORY_USES_INIT {sizeof(plinth_memory_uses_t), NULL, 0, 0, 0, 0, 0, {NULL}}

/*! An initializer for a plinth_memory_registration_options_t: no name, and no callback. */
#define PLINTH_MEMORY_REGISTRATION_OPTIONS_INIT {sizeof(plinth_memory_registration_options_t), NULL, NULL, NULL}

/*! An initializer for a plinth_memory_registration_info_t. */
#define PLINTH_MEMORY_REGISTRATION_INFO_INIT {sizeof(plinth_memory_registration_info_t), NULL, 0, 0, 0, 0, 0}

/*! An initializer for a plinth_memory_part_t. */
#define PLINTH_MEMORY_PART_INIT {sizeof(plinth_memory_part_t), NULL, 0, -1, 0, {0}}
