"""The servers and the real language model of these tests."""

from model_fixtures import local_server, smollm, smollm_file

__all__ = ["local_server", "smollm", "smollm_file"]
