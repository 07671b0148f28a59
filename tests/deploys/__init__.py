"""Tests of deploys: workers and web processes are stopped, replaced and mixed while clients post and watch."""
