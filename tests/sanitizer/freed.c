/* Makes the library write to memory that was freed. tools/sanitize.sh runs it: AddressSanitizer must say so. */

#include <plinth.h>

#include <stdlib.h>

int main(void) {
  char **volatile place = (char **)malloc(sizeof(char *));
  free((void *)place);
  return plinth_driver_calls(place) == PLINTH_OK ? 0 : 1;
}
