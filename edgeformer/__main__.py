"""``python -m edgeformer`` is the command line where its script is not on the path."""

from edgeformer.cli import main

main()
