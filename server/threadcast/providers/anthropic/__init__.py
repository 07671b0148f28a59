"""Anthropic's Messages API; needs the extra `anthropic`."""
