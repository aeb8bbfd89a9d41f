"""`python3 -m heddle ...` is the command `heddle ...`, also where no wheel is installed."""

from heddle._program import main

main()
