"""Gemini by key and Vertex AI; needs the extra `google`."""
