"""Modules that every folder uses: errors, options, files, parallel jobs, progress, tables of text."""
