"""`python -m headrace`: the command line, where its console script is not on the path."""

from headrace.cli.main import main

if __name__ == "__main__":  # whoever looks for all options imports every module
    main()
