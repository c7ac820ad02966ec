#!/bin/sh
python3 stand.py
