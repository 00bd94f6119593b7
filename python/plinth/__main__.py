"""`python -m plinth` is the `plinth` command."""

from ._tool import main

main()
