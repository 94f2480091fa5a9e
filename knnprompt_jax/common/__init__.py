"""Modules that every room uses: errors, options, files, parallel jobs, progress, tables of text."""
