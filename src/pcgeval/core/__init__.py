"""What every package uses: errors, files, text, untrusted input, archives, locks, packages, messages and progress.

It imports no other package.
"""
