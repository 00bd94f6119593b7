/*! An initializer for a plinth_sleep_options_t: no backup, and a wait for the devices. */
#define PLINTH_SLEEP_OPTIONS_INIT {sizeof(plinth_sleep_options_t), PLINTH_BACKUP_NONE, 0, NULL}

/*! An initializer for a plinth_sleep_info_t. */
#define PLINTH_SLEEP_INFO_INIT {sizeof(plinth_sleep_info_t), 0, 0, 0, 0, 0, 0}
