"""Tests of how the gateway follows the platform."""
