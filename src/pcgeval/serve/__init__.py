"""A local model server that speaks the HTTP interfaces of Ollama and OpenAI."""
