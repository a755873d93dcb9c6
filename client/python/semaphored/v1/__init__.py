"""The messages and the stub of semaphore/v1/semaphore.proto, generated when the package is built."""
