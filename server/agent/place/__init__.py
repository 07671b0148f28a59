"""Where a chat is and what holds there: profile, scope, prompt."""
