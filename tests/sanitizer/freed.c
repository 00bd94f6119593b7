/* Makes the library write to freed memory. tools/sanitize.sh checks that AddressSanitizer reports it. */

#include <plinth.h>

#include <stdlib.h>

int main(void) {
  char **volatile text = (char **)malloc(sizeof(char *));
  free((void *)text);
  return plinth_driver_calls(text) == PLINTH_OK ? 0 : 1;
}
