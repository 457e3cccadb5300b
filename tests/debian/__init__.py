"""Tests with tools of Debian's: systemd-analyze, bsdtar, unzip, strace."""
