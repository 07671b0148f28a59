"""Tests the page in a real Chromium with a real server: what people see and do, in one tab and in nine."""
