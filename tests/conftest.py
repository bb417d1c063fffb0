"""What all tests share: examples may take as long as they take, on a machine that is busy too."""

from hypothesis import settings

settings.register_profile("lakelog", deadline=None)
settings.load_profile("lakelog")
