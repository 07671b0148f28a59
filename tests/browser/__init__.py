"""The page in a real Chromium, against a real server: what people see and do, in one tab and in nine."""
