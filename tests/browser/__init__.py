"""Tests the page in a real Chromium with a real server, in one tab and in nine tabs."""
