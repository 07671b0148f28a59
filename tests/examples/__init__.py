"""The examples, run by the commands of their own pages: what a page says is printed is what is printed."""
