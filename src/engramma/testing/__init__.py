"""Things to test with, engramma's own and its users': no mocks, no network, no model."""

from engramma.testing.models import HashEmbedder, ScriptedLLM

__all__ = ["HashEmbedder", "ScriptedLLM"]
