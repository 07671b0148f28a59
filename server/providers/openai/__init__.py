"""OpenAI's two APIs, the first of which most servers of models speak."""
