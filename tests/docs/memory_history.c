#include "page.h"

static plinth_memory_history_entry_t last;
static int entries, frames;

static void show_entry(const plinth_memory_history_entry_t *entry, void *context) {
  (void)context;
  last = *entry;
  entries++;
}

static void show_frame(const char *name, const char *file, uint32_t line, void *context) {
  (void)name, (void)file, (void)line, (void)context;
  frames++;
}

static void document(const plinth_memory_history_entry_t *entry) {
#include "memory_history.1.inc"
}

int main(void) {
  page_begin();
  plinth_memory_history_options_t options = PLINTH_MEMORY_HISTORY_OPTIONS_INIT;
  plinth_record_memory_history(&options);
  page_memory(4096);
  plinth_memory_history_each(0, show_entry, NULL);
  document(&last);
  return entries == 0 || frames == 0;
}
