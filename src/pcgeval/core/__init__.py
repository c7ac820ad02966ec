"""What every package uses: errors, files, text, untrusted input, archives, locks, progress.

It imports no other package.
"""
