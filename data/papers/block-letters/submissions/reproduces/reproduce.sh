#!/bin/bash
# Runs all three experiments and writes results.json; about a second, Python 3.10 or later, no packages.
set -e
cd "$(dirname "$0")"
python3 main.py
