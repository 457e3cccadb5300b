"""Tests of one piece at a time, without servers."""
