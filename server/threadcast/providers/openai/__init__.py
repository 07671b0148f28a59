"""The providers for OpenAI's two APIs: chat completions, which most model servers offer, and Responses."""
