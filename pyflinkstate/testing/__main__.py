"""``python -m pyflinkstate.testing``: a short demo."""

from pyflinkstate.testing.demo import main

if __name__ == "__main__":
    main()
