"""What every package uses: errors, files, text, untrusted input, archives, locks, packages, console, progress.

It imports no other package.
"""
